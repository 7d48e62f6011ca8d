// The decision log of a caller: grouped, and its refusals over time.

import { fill, h, setText } from "../../dom.ts";
import { type AppContext, missingScope } from "../../context.ts";
import { OUTCOME_STYLES } from "../../outcomes.ts";
import { modeBadge, ruleLink } from "../../parts/card.ts";
import { refusalChart } from "../../parts/chart.ts";
import { Pager } from "../../parts/pager.ts";
import { type Cell, Table, fixedColumn } from "../../parts/table.ts";
import { NONE, clock, count, plural, span, timestamp } from "../../pure/format.ts";
import { type Group, group, refusalsOverTime } from "../../pure/groups.ts";
import type { DecisionLog } from "../../types.ts";

/** Entries that are read, and groups of a page. */
const ENTRIES = 500;
const GROUPS = 8;
/** Entries of a group that are listed. */
const LISTED = 50;
/** The chart: ten minutes in steps of five seconds. */
const [STEP, STEPS] = [5, 120];

export function logSection(app: AppContext, name: string) {
  const missing = missingScope(app, "audit");
  if (missing) {
    const hint = () => h("p", { class: "hint" }, `The decision log is not shown: ${missing}.`);
    return { node: hint(), chart: h("p", { class: "hint" }, `Refusals over time come from the decision log, which needs the scope “audit”.`), load: async () => {}, close: () => {} };
  }
  const [chart, table, pager, about] = [refusalChart(), groupTable(name), new Pager(GROUPS), h("p", { class: "hint" })];
  let groups: Group[] = [];
  const show = () => table.show(pager.of(groups));
  pager.onTurn = show;
  const load = async (domain: string) => {
    const { decisions, log } = await app.api.get<DecisionLog>("/admin/v1/decisions", { caller: name, domain, limit: ENTRIES });
    groups = group(decisions);
    show();
    const to = Math.ceil((Date.parse(app.live.last?.at ?? "") || Date.now()) / 1000 / STEP) * STEP;
    const from = to - STEP * STEPS;
    const { refused, would } = refusalsOverTime(decisions, from, STEP, STEPS);
    const perSecond = (line: number[]) => line.map((value) => value / STEP);
    chart.set({ from, step: STEP, range: STEP * STEPS, lines: [perSecond(refused), perSecond(would)] });
    const oldest = decisions.at(-1)?.at;
    const isCut = decisions.length === ENTRIES && oldest !== undefined && Date.parse(oldest) / 1000 > from;
    setText(about, `From the decision log: all refusals, ${isCut ? `as far as the newest ${count(ENTRIES)} entries go, to ${timestamp(oldest)}` : "of the last 10 minutes"}. Requests that passed are sampled (${sample(log.sample)}) and are not in the chart.`);
  };
  return { node: h("div", {}, table.node, pager.node), chart: h("div", {}, chart.node, about), load, close: () => chart.close() };
}

function sample(ratio: number): string {
  return ratio === 0 ? "none" : ratio >= 1 ? "all" : `1 in ${Math.round(1 / ratio)}`;
}

function groupTable(name: string): Table<Group> {
  return new Table<Group>("Recent decisions", [
    fixedColumn("Time (UTC)", (one) => [span(one.from, one.to), h("small", {}, ` ${new Date(one.to).toISOString().slice(0, 10)}`)], { kind: "time" }),
    fixedColumn("Outcome", ({ first }) => `${OUTCOME_STYLES[first.verdict]?.sign ?? ""} ${OUTCOME_STYLES[first.verdict]?.label ?? first.verdict}`, { kind: "brief" }),
    fixedColumn("Count", (one) => count(one.count), { kind: "number" }),
    fixedColumn("Rule", ({ first }) => (first.rule === null ? NONE : [ruleLink(first.domain, first.rule), shadow(first)])),
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
