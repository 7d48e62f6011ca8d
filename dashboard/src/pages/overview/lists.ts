// Lists of the overview: who is refused, which rules refuse, what changed, who is near a limit, which servers there are.

import { fill, h } from "../../dom.ts";
import { keyLink, modeBadge, ruleLink } from "../../parts/card.ts";
import { eventIcon, icon } from "../../parts/icon.ts";
import { Table, fixedColumn, textColumn } from "../../parts/table.ts";
import { NONE, count, rate, since, timestamp } from "../../pure/format.ts";
import { eventText } from "../../pure/marks.ts";
import { href } from "../../pure/route.ts";
import type { Events, RefusingRule, ServerEvent, ServerRow, Sustained, TopKey } from "../../types.ts";

const CHANGES = 6;

/** A short ranking: a name, a note, a number, and a bar of its share. */
function ranking<T>(empty: string, row: (item: T, share: number) => { name: HTMLElement; note: (HTMLElement | string)[]; number: string }, size: (item: T) => number) {
  const list = h("ol", { class: "ranking" });
  return {
    node: list,
    show(items: T[]) {
      const most = Math.max(...items.map(size), 0);
      if (items.length === 0) return fill(list, h("li", { class: "empty" }, empty));
      fill(list, items.map((item) => {
        const share = most > 0 ? size(item) / most : 0;
        const { name, note, number } = row(item, share);
        const filled = h("span", { class: "filled" });
        filled.style.width = `${Math.round(share * 100)}%`;
        return h("li", {}, h("span", { class: "rank-name" }, name, " ", h("small", {}, note)), h("span", { class: "rank-number" }, number), h("span", { class: "rank-bar", "aria-hidden": "true" }, filled));
      }));
    },
  };
}

export function refusedCallers() {
  const { node, show } = ranking<TopKey>("Nobody was refused in the last minute.", (key) => ({
    name: keyLink(key.domain, key.key, key.caller),
    note: ["by ", ruleLink(key.domain, key.rule)],
    number: `${count(key.refusals ?? 0)}`,
  }), (key) => key.refusals ?? 0);
  const more = h("p", { class: "hint" }, "Refusals of this minute and the one before. ", h("a", { href: href("keys", { by: "refusals", window: "1m" }) }, "All keys"));
  return { node: h("div", {}, node, more), show };
}

export function refusingRules() {
  const { node, show } = ranking<RefusingRule>("No rule refused anything in the last minute.", (rule) => ({
    name: ruleLink(rule.domain, rule.rule),
    note: rule.mode === "enforce" ? [rule.domain] : [rule.domain, " ", modeBadge(rule.mode)],
    number: rule.rates.deny > 0 ? `${rate(rule.rates.deny)}/s` : `would ${rate(rule.rates.would_deny)}/s`,
  }), (rule) => rule.rates.deny + rule.rates.would_deny);
  return { node, show };
}

/** The newest events, without hiding that some are not allowed to be seen. */
export function changeList() {
  const [list, note] = [h("ol", { class: "changes" }), h("p", { class: "hint" })];
  return {
    node: h("div", {}, list, note),
    show({ items, changes }: Events, now: string) {
      fill(list, items.slice(0, CHANGES).map((event) => item(event, now)));
      const hidden = { shown: "", not_allowed: "Changes by operators are not listed: the scope “audit” is required.", unavailable: "Changes by operators are not listed: the store of record does not answer." }[changes];
      fill(note, hidden || h("a", { href: href("audit") }, "Audit log"));
    },
  };
}

function item(event: ServerEvent, now: string): HTMLElement {
  return h("li", { "data-kind": event.text.endsWith(" is normal") ? "good" : event.kind }, icon(eventIcon(event.kind)), h("span", {}, eventText(event), " ", h("small", { title: timestamp(event.at) }, since(event.at, Date.parse(now)))));
}

export function serverTable(): Table<ServerRow> {
  return new Table<ServerRow>("Servers", [
    textColumn("Name", (one) => (one.this ? `${one.name} (this one)` : one.name), { kind: "main" }),
    textColumn("Region", (one) => one.region ?? NONE),
    textColumn("Version", (one) => one.version),
    textColumn("Decisions/s", (one) => rate(one.decisions_per_second), { kind: "number" }),
    textColumn("Refused/s", (one) => rate(one.deny_per_second), { kind: "number" }),
    textColumn("Rules", (one) => `generation ${one.rules_generation}`, { kind: "number" }),
    textColumn("Last seen", (one) => timestamp(one.seen_at)),
  ], (one) => one.name, "No servers.");
}

export function sustainedTable(): Table<Sustained> {
  return new Table<Sustained>("Sustained use above 80 % of a limit", [
    fixedColumn("Key", (one) => keyLink(one.domain, one.key, one.caller), { kind: "main" }),
    fixedColumn("Rule", (one) => [ruleLink(one.domain, one.rule), h("small", {}, ` ${one.domain}`)]),
    textColumn("Tier", (one) => one.tier, { kind: "brief" }),
    textColumn("Fitting tier", (one) => (one.fits ? `${one.fits} (${count(one.fits_limit ?? 0)})` : "no tier"), { kind: "brief" }),
    textColumn("Details", (one) => one.says, { kind: "wide" }),
  ], (one) => [one.domain, one.rule, one.key].join("\n"), "No caller has been near a limit for so long.");
}
