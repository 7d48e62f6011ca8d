// The decision log of a caller: grouped, and its refusals over time.

import { fill, h, setText } from "../../dom.ts";
import { type AppContext, missingScope } from "../../context.ts";
import { OUTCOME_STYLES } from "../../outcomes.ts";
import { RANGES, RANGE_SECONDS, type Range, modeBadge, ruleLink, segmented } from "../../parts/card.ts";
import { refusalChart } from "../../parts/chart.ts";
import { Pager } from "../../parts/pager.ts";
import { type Cell, Table, fixedColumn } from "../../parts/table.ts";
import { NONE, clock, count, duration, plural, span, timestamp } from "../../pure/format.ts";
import { type Group, group, refusalsOverTime } from "../../pure/groups.ts";
import type { Values } from "../../pure/series.ts";
import type { DecisionLog, LoggedDecision } from "../../types.ts";

/** Entries that are read, and groups of a page. */
const ENTRIES = 500;
const GROUPS = 8;
/** Entries of a group that are listed. */
const LISTED = 50;
/** The seconds of a step of the chart. */
const STEP: Record<Range, number> = { "10m": 5, "2h": 60, "24h": 600 };
/** Pages of the log that are read for the longer ranges, the entries of each, and how often. */
const [PAGES, PAGE, REREAD_MS] = [5, 1_000, 60_000];

export function logSection(app: AppContext, name: string) {
  const missing = missingScope(app, "audit");
  if (missing) {
    const hint = () => h("p", { class: "hint" }, `The decision log is not shown: ${missing}.`);
    return { node: hint(), chart: h("p", { class: "hint" }, `Refusals over time come from the decision log, which needs the scope “audit”.`), ranges: undefined, load: async () => {}, close: () => {} };
  }
  const [chart, table, pager, about] = [refusalChart(), groupTable(name), new Pager(GROUPS), h("p", { class: "hint" })];
  let groups: Group[] = [];
  let range: Range = "10m";
  let long: { range: Range; read: number; entries: LoggedDecision[]; isWhole: boolean } | undefined;
  let shown: string | undefined;
  const show = () => table.show(pager.of(groups));
  pager.onTurn = show;
  const read = (domain: string, more: Record<string, string | number>) => app.api.get<DecisionLog>("/admin/v1/decisions", { caller: name, domain, ...more });
  const now = () => Date.parse(app.live.last?.at ?? "") || Date.now();
  /** The entries of a longer range, as far as a few pages go. */
  const readLong = async (domain: string, from: number): Promise<void> => {
    if (long?.range === range && Date.now() - long.read < REREAD_MS) return;
    const found: typeof long = { range, read: Date.now(), entries: [], isWhole: false };
    let to: string | undefined;
    for (let page = 0; page < PAGES && !found.isWhole; page += 1) {
      const { decisions } = await read(domain, { limit: PAGE, from: new Date(from * 1000).toISOString(), ...(to ? { to } : {}) });
      found.entries.push(...decisions);
      to = decisions.at(-1)?.at;
      found.isWhole = decisions.length < PAGE;
    }
    // Another range may have been chosen meanwhile.
    if (found.range === range) long = found;
  };
  const load = async (domain: string) => {
    shown = domain;
    const { decisions, log } = await read(domain, { limit: ENTRIES });
    groups = group(decisions);
    show();
    const [step, seconds] = [STEP[range], RANGE_SECONDS[range]];
    const to = Math.ceil(now() / 1000 / step) * step;
    const from = to - seconds;
    if (range !== "10m") await readLong(domain, from);
    const [entries, isWhole] = range === "10m" || !long ? [decisions, decisions.length < ENTRIES] : [long.entries, long.isWhole];
    const oldest = entries.at(-1)?.at;
    const isCut = !isWhole && oldest !== undefined && Date.parse(oldest) / 1000 > from;
    const { refused, would } = refusalsOverTime(entries, from, step, seconds / step, isCut ? Date.parse(oldest) / 1000 : from);
    const perSecond = (line: Values) => line.map((value) => (value === null ? null : value / step));
    chart.set({ from, step, range: seconds, lines: [perSecond(refused), perSecond(would)] });
    const all = `of the last ${RANGES.find(([value]) => value === range)?.[1] ?? range}`;
    setText(about, `From the decision log: all refusals ${isCut ? `as far as the newest ${count(entries.length)} entries go, since ${timestamp(oldest)}` : all}${keeps(log.keep_seconds, seconds)}. Requests that passed are sampled (${sample(log.sample)}) and are not in the chart.`);
  };
  const ranges = segmented("Range of the refusals", RANGES, range, (value) => {
    range = value;
    if (shown !== undefined) void load(shown).catch(() => {});
  });
  return { node: h("div", {}, table.node, pager.node), chart: h("div", {}, chart.node, about), ranges, load, close: () => chart.close() };
}

/** What the log has dropped is not in the chart. */
function keeps(retained: number | undefined, seconds: number): string {
  return retained !== undefined && retained < seconds ? `; it keeps entries for ${duration(retained)}` : "";
}

function sample(ratio: number): string {
  return ratio === 0 ? "none" : ratio >= 1 ? "all" : `1 in ${Math.round(1 / ratio)}`;
}

function groupTable(name: string): Table<Group> {
  return new Table<Group>("Recent decisions", [
    fixedColumn("Time (UTC)", (one) => [span(one.from, one.to), h("small", {}, ` ${new Date(one.to).toISOString().slice(0, 10)}`)], { kind: "time" }),
    fixedColumn("Outcome", ({ first }) => `${OUTCOME_STYLES[first.verdict]?.sign ?? ""} ${OUTCOME_STYLES[first.verdict]?.label ?? first.verdict}`, { kind: "brief" }),
    fixedColumn("Count", (one) => count(one.count), { kind: "number" }),
    fixedColumn("Rule", ({ first }) => (first.rule === null ? NONE : [ruleLink(first.domain, first.rule), shadow(first)]), { kind: "brief" }),
    { title: "Why", kind: "wide", cell: (one) => reasons(one, name) },
  ], (one) => JSON.stringify([one.first.at, one.from, one.to, one.count, one.first.rule, one.first.verdict]), "No decisions are logged: refusals appear within two seconds, other decisions are sampled.");
}

function shadow(one: Group["first"]) {
  const mode = one.limits?.find((limit) => limit.rule === one.rule)?.mode;
  return mode && mode !== "enforce" ? [" ", modeBadge(mode)] : "";
}

/** The reason of the newest, and the others on demand. */
function reasons(one: Group, name: string): Cell<Group> {
  const why = (text: string) => text.replace(/#[0-9a-f]{32}/g, name).replace(/; the entry stands for .*$/, ".");
  const node = h("div", {}, why(one.first.why));
  if (one.entries.length > 1) {
    const list = h("ul", { class: "plain entries" });
    const details = h("details", {}, h("summary", {}, plural(one.entries.length, "log entry", "log entries")), list);
    details.addEventListener("toggle", () => {
      if (!details.open || list.hasChildNodes()) return;
      const more = one.entries.length - LISTED;
      fill(list, one.entries.slice(0, LISTED).map((entry) => h("li", {}, h("code", {}, clock(Date.parse(entry.at))), entry.count ? ` ${count(entry.count)} decisions: ` : " ", why(entry.why))), more > 0 && h("li", {}, `and ${more} more`));
    });
    node.append(details);
  }
  return { node };
}
