// One rule: what it matches, its limits, where it is from, what it does, and its versions.

import { type Child, fill, h, setText } from "../dom.ts";
import { type AppContext, type Page, missingScope, poll } from "../context.ts";
import { switchMode } from "../actions/mode.ts";
import { RANGES, RANGE_SECONDS, type Range, card, facts, keyLink, segmented } from "../parts/card.ts";
import { bar } from "../parts/bar.ts";
import { ruleChart } from "../parts/chart.ts";
import { fault } from "../parts/notice.ts";
import { Table, fixedColumn, textColumn } from "../parts/table.ts";
import { NONE, count, percent, rate } from "../pure/format.ts";
import { marks } from "../pure/marks.ts";
import { type Route, href, segment } from "../pure/route.ts";
import type { Events, RuleDetail, ServerEvent, Top, TopKey } from "../types.ts";
import { versionSection } from "./rule/versions.ts";

const REFRESH_MS = 3_000;
const KEYS = 6;
/** A switch takes effect when the rules are recompiled. */
const COMPILE_MS = 1_000;

/** What happens while the store is unavailable, unless the rule has an `on_failure` of its own. */
const POLICIES: Record<string, string> = {
  comfort: "comfort: without the store, this server counts by itself",
  security: "security: without the store, requests are refused",
  cost: "cost: without the store, unpaid tiers are refused, and this server counts the others by itself",
  quota: "quota: without the store, requests are refused",
};

/** What a limit means in several regions. */
const REGIONS: Record<string, (terms: string) => string> = {
  each: () => "each: every region counts by itself, with the whole limit",
  split: (terms) => `${terms}: every region counts its share`,
  home: (terms) => (terms === "home" ? "home: each caller's home counts, for all regions" : `${terms}: that region counts, for all`),
  global: (terms) => `${terms}: what one region admits counts in all of them, a moment later`,
};

const regionMode = ({ region }: RuleDetail) => region.split(":")[0] ?? "";

export function rule(app: AppContext, route: Route): Page {
  const [domain, name] = [route.query["domain"] ?? "", route.query["name"] ?? ""];
  if (domain === "" || name === "") return { title: "Rule", node: h("p", {}, "Choose a rule on the page ", h("a", { href: href("rules") }, "Rules"), ".") };
  const [wrong, chart, terms, keys] = [fault(), ruleChart(), termTable(), keyTable()];
  const [conditions, where, note] = [h("ul", { class: "conditions" }), h("dd", {}, NONE), h("p", { class: "hint" })];
  const modeButton = h("button", { type: "button", class: "mode", on: { click: () => detail && switchMode(app, detail.activity, soon) } }, NONE);
  const missing = missingScope(app, "rules", "emergency");
  modeButton.disabled = missing !== undefined;
  if (missing) modeButton.title = missing;
  const use = facts<RuleDetail>([
    ["Allowed", ({ activity }) => `${rate(activity.rates.allow)}/s · ${count(activity.totals.allow)} total`],
    ["Refused", ({ activity }) => `${rate(activity.rates.deny)}/s · ${count(activity.totals.deny)} total`],
    ["Would refuse", ({ activity }) => `${rate(activity.rates.would_deny)}/s · ${count(activity.totals.would_deny)} total`],
    ["Fullest counter", ({ activity }) => percent(activity.utilisation)],
  ]);
  const about = facts<RuleDetail>([
    ["Key", ({ activity }) => (activity.key.length > 0 ? activity.key.join(", ") : "one counter for all callers")],
    ["Cost", (now) => now.cost],
    ["Policy", (now) => POLICIES[now.policy] ?? now.policy],
    ["Regions", (now) => REGIONS[regionMode(now)]?.(now.region) ?? now.region],
    ["Label in refusals", (now) => now.label ?? "its name"],
  ]);
  const versions = versionSection(app, domain, name, () => soon());
  let detail: RuleDetail | undefined;
  let events: ServerEvent[] = [];
  let range: Range = "10m";

  const show = (now: RuleDetail) => {
    fill(conditions, now.conditions.length === 0
      ? h("li", {}, `Every request${now.activity.key.length > 0 ? ` that has ${now.activity.key.join(", ")}` : ""}`)
      : now.conditions.map(({ attribute, test }) => h("li", {}, h("code", {}, attribute), ` ${test}`)));
    terms.show(now.by_tier ? now.terms : now.terms.map((one) => ({ ...one, tier: "all" })));
    about.set(now);
    use.set(now);
    fill(where, now.version === null ? h("code", {}, `${now.file}:${now.line_number}`) : `by API, version ${now.version}`);
    setText(modeButton, now.activity.mode);
    modeButton.dataset["mode"] = now.activity.mode.split(" ")[0] ?? "";
    modeButton.setAttribute("aria-label", `Mode of ${name}: ${now.activity.mode}. Switch`);
    drawLine(now);
  };
  const drawLine = ({ line }: RuleDetail) => {
    setText(note, line ? "" : "This range is not recorded for the rule: too many rules have traffic. Ten minutes are.");
    if (!line) return;
    const [from, step, span] = [Date.parse(line.from) / 1000, line.step_seconds, RANGE_SECONDS[range]];
    const to = from + line.allow.length * step;
    chart.set({ from, step, range: span, lines: [line.deny, line.would_deny, line.allow], marks: marks(events, to - span, to, span / 60) });
  };
  const load = async () => {
    try {
      const now = await app.api.get<RuleDetail>(`/admin/v1/domains/${segment(domain)}/rules/${segment(name)}`, { range });
      const refuses = now.activity.rates.deny > 0;
      const [top, changed] = await Promise.all([
        // A rule that refuses nobody has keys too.
        app.api.get<Top>("/admin/v1/top", { by: refuses ? "refusals" : "decisions", window: "5m", domain, rule: name, limit: KEYS }),
        app.api.get<Events>("/admin/v1/events", { limit: 200 }),
        versions.load(),
      ]);
      [detail, events] = [now, changed.items];
      show(now);
      keys.show(top.keys);
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  };
  let later: ReturnType<typeof setTimeout> | undefined;
  const soon = () => {
    void load();
    clearTimeout(later);
    later = setTimeout(() => void load(), COMPILE_MS);
  };
  const stop = poll(REFRESH_MS, load);
  const ranges = segmented("Range of the chart", RANGES, range, (value) => {
    range = value;
    void load();
  });
  const source = h("dl", { class: "facts" }, h("div", {}, h("dt", {}, "Mode"), h("dd", {}, modeButton)), h("div", {}, h("dt", {}, "Defined in"), where), h("div", {}, h("dt", {}, "Domain"), h("dd", {}, domain)));
  const all: Child = h("p", { class: "hint" }, h("a", { href: href("keys", { domain, rule: name, by: "refusals" }) }, "All keys of this rule"));
  const node = h("div", {}, wrong.node,
    h("div", { class: "columns" },
      h("div", {},
        card("What it does", [use.node, chart.node, note], { tools: ranges }),
        card("Top keys, last 5 minutes", [keys.node, all])),
      h("div", {},
        card("Rule", [source, missing && h("p", { class: "hint" }, `The mode can't be switched here: ${missing}.`)]),
        card("Applies to", [conditions, about.node]),
        card("Limits", [terms.node]))),
    versions.node);
  const close = () => {
    stop();
    clearTimeout(later);
    chart.close();
  };
  return { title: `Rule ${name}`, node, close };
}

function termTable(): Table<RuleDetail["terms"][number]> {
  return new Table<RuleDetail["terms"][number]>("Limits by tier", [
    textColumn("Tier", (one) => one.tier, { kind: "main" }),
    textColumn("Limit, algorithm, burst", (one) => one.limit, { kind: "wide" }),
  ], (one) => one.tier, "No limits.");
}

function keyTable(): Table<TopKey> {
  return new Table<TopKey>("Top keys", [
    fixedColumn("Key", (key) => keyLink(key.domain, key.key, key.caller), { kind: "main" }),
    textColumn("Refusals", (key) => count(key.refusals ?? 0), { kind: "number" }),
    textColumn("Decisions", (key) => count(key.decisions ?? 0), { kind: "number" }),
    { title: "Used", kind: "bar", cell: () => {
      const part = bar();
      return { node: part.node, set: (key) => part.set(key.utilisation ?? 0, key.key) };
    } },
  ], (key) => key.key, "The rule has decided nothing in the last 5 minutes.");
}

