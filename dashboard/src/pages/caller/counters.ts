// The limits of a caller and how much of them is used.

import { h, setText } from "../../dom.ts";
import { bar } from "../../parts/bar.ts";
import { modeBadge, ruleLink } from "../../parts/card.ts";
import { Table, fixedColumn, textColumn } from "../../parts/table.ts";
import { NONE, count, limit, since } from "../../pure/format.ts";
import type { Counter, Counters } from "../../types.ts";

interface Row extends Counter {
  domain: string;
}

export function counterSection() {
  const left = h("ul", { class: "hint" });
  let at = "";
  const table = new Table<Row>("Limits of this caller", [
    fixedColumn("Rule", (one) => [ruleLink(one.domain, one.rule), one.mode && one.mode !== "enforce" ? [" ", modeBadge(one.mode)] : ""], { kind: "main" }),
    textColumn("Limit", limitText),
    { title: "Used", kind: "wide", cell: () => {
      const [part, text] = [bar(), h("small", {})];
      const set = (one: Row) => {
        part.set(one.used / Math.max(1, one.used + one.remaining), one.rule);
        setText(text, ` ${count(one.used)} used, ${count(one.remaining)} left${one.limit.burst !== undefined ? ` of a burst of ${count(one.limit.burst)}` : ""}`);
      };
      return { node: h("span", {}, part.node, text), set };
    } },
    textColumn("Full again", (one) => (one.used === 0 ? NONE : since(one.resets_at, Date.parse(at)))),
    textColumn("Limit from", (one) => one.resolved_by.replaceAll("_", " ")),
    textColumn("Key", (one) => one.key.join(" · ") || "shared by all callers"),
  ], (one) => [one.rule, one.mode, ...one.key].join("\n"), "No limit has this caller in its key.");
  const more = h("details", { hidden: true }, h("summary", {}, "Rules that are not shown"), left);
  const show = (counters: Counters, domain: string) => {
    at = counters.at;
    table.show(counters.counters.map((one) => ({ ...one, domain })));
    left.replaceChildren(...counters.left_out.map(({ rule, why }) => h("li", {}, `${rule}: ${why}`)));
    more.hidden = counters.left_out.length === 0;
  };
  return { node: h("div", {}, table.node, more), show };
}

/** A bucket refills by its limit, and gives out its burst. */
function limitText(one: Row): string {
  return one.limit.burst !== undefined && one.limit.burst !== one.limit.requests_per_unit ? `${limit(one.limit)}, burst ${count(one.limit.burst)}` : limit(one.limit);
}
