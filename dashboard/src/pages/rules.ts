// Rules with their activity and modes. There may be thousands, shown fifty at a time.

import { h, setText } from "../dom.ts";
import { type AppContext, type Page, poll, missingScope } from "../context.ts";
import { bar } from "../parts/bar.ts";
import { ruleLink } from "../parts/card.ts";
import { fault } from "../parts/notice.ts";
import { Pager } from "../parts/pager.ts";
import { sparkline } from "../parts/sparkline.ts";
import { type Column, Table, textColumn } from "../parts/table.ts";
import type { Route } from "../pure/route.ts";
import { count, percent, rate, plural } from "../pure/format.ts";
import type { Activity, RuleRow, RulesEvent } from "../types.ts";
import { MODES, switchMode } from "../actions/mode.ts";

/** Rows per request, and in all. */
const PAGE_SIZE = 500;
const MAX_RULES = 20_000;
const ROWS_PER_PAGE = 50;
/** The steps of a sparkline: five minutes. */
const MAX_STEPS = 60;
/** How often all rows are read again: the stream has no tiers. */
const REFRESH_MS = 30_000;
/** A switch takes effect when the rules are recompiled. */
const COMPILE_MS = 1_000;

export function rules(app: AppContext, route: Route): Page {
  const [wrong, summary] = [fault(), h("p", { class: "hint", role: "status" })];
  const search = h("input", { type: "search", name: "search", value: route.query["search"] ?? "", placeholder: "rule or domain", "aria-label": "Search rules", autocomplete: "off" });
  const mode = h("select", { "aria-label": "Mode" }, h("option", { value: "" }, "any mode"), [...MODES, "soft"].map((one) => h("option", { value: one }, one)));
  const [table, pager, all] = [ruleTable(app, () => soon()), new Pager(ROWS_PER_PAGE), new RuleSet()];
  table.order = { column: "Used", descending: true };
  let shown: RuleRow[] = [];

  const matches = ({ domain, rule, mode: is }: RuleRow) => {
    const text = search.value.trim().toLowerCase();
    return `${domain} ${rule}`.toLowerCase().includes(text) && (mode.value === "" || is === mode.value || is.startsWith(`${mode.value} `));
  };
  const arrange = () => {
    shown = table.sorted(all.rows.filter(matches));
    setText(summary, `${plural(shown.length, "rule")}${shown.length === all.rows.length ? "" : ` of ${all.rows.length}`}`);
    table.empty = all.rows.length === 0 ? "There are no rules. Start the server with --rules FILE, or write one by API: docs/rules.md has examples." : "No matching rules.";
    refresh();
  };
  const refresh = () => table.show(pager.of(shown));
  const again = () => {
    pager.first();
    arrange();
  };
  const load = async () => {
    try {
      all.begin(await everything(app));
      wrong.set(undefined);
      settle();
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
  const onRules = (event: RulesEvent) => {
    all.add(event);
    settle();
  };
  // Rows under the pointer or with the focus must not move.
  const settle = () => {
    if (shown.length > 0 && table.node.matches(":hover, :focus-within")) keep();
    else arrange();
  };
  const keep = () => {
    shown = shown.flatMap((row) => all.find(row) ?? []);
    refresh();
  };
  search.addEventListener("input", again);
  mode.addEventListener("change", again);
  table.onOrder = again;
  pager.onTurn = refresh;
  const unsubscribe = [poll(REFRESH_MS, load), app.live.on("rules", onRules), app.live.on("reload", () => void load())];
  const close = () => {
    clearTimeout(later);
    unsubscribe.forEach((end) => end());
  };
  const missing = missingScope(app, "rules", "emergency");
  const node = h("div", {}, wrong.node,
    h("div", { class: "tools" }, search, mode, summary),
    missing && h("p", { class: "hint" }, `Modes can't be switched here: ${missing}.`),
    h("section", { class: "card" }, table.node, pager.node));
  return { title: "Rules", node, withRules: true, close };
}

async function everything(app: AppContext): Promise<RuleRow[]> {
  const rows: RuleRow[] = [];
  for (;;) {
    const page = await app.api.get<Activity>("/admin/v1/activity", { offset: rows.length, limit: PAGE_SIZE });
    rows.push(...page.rows);
    if (page.rows.length === 0 || rows.length >= Math.min(page.total, MAX_RULES)) return rows;
  }
}

/** All rules with their current numbers. */
class RuleSet {
  rows: RuleRow[] = [];
  #byName = new Map<string, RuleRow>();
  /** The start of the newest step, and the totals then. */
  #step: { at: number; totals: Map<string, RuleRow["totals"]> } | undefined;

  begin(rows: RuleRow[]): void {
    this.rows = rows;
    this.#byName = new Map(rows.map((row) => [name(row), row]));
    this.#step = undefined;
  }

  /** The current row. */
  find(row: RuleRow): RuleRow | undefined {
    return this.#byName.get(name(row));
  }

  /** Updates rows; those that are not sent have not changed. */
  add(event: RulesEvent): void {
    for (const update of event.rows) {
      const row = this.#byName.get(name(update));
      if (row) Object.assign(row, update);
    }
    const at = Date.parse(event.at) / 1000;
    const totals = () => new Map(this.rows.map((row) => [name(row), row.totals]));
    this.#step ??= { at, totals: totals() };
    const { at: began, totals: were } = this.#step;
    for (const row of at > began ? this.rows : []) {
      if (at - began < row.sparkline.step_seconds) return;
      const was = were.get(name(row)) ?? row.totals;
      for (const kind of ["allow", "deny", "would_deny"] as const) {
        const counted = Math.max(0, row.totals[kind] - was[kind]) / (at - began);
        row.sparkline[kind] = [...row.sparkline[kind], counted].slice(-MAX_STEPS);
      }
    }
    if (at > began) this.#step = { at, totals: totals() };
  }
}

function name(row: { domain: string; rule: string }): string {
  return `${row.domain}\n${row.rule}`;
}

function ruleTable(app: AppContext, changed: () => void): Table<RuleRow> {
  const column = (title: string, kind: keyof RuleRow["rates"]): Column<RuleRow> =>
    textColumn(title, (row) => rate(row.rates[kind]), { kind: "number", sort: (row) => row.rates[kind] });
  return new Table<RuleRow>("Rules and their activity", [
    { title: "Rule", kind: "main", sort: (row) => `${row.rule} ${row.domain}`, cell: ruleCell },
    { title: "Limit", cell: limitCell },
    { title: "Used", kind: "bar", sort: (row) => row.utilisation, cell: () => {
      const part = bar();
      return { node: part.node, set: (row) => part.set(row.utilisation, row.rule) };
    } },
    column("Allowed/s", "allow"),
    column("Refused/s", "deny"),
    { title: "Would refuse/s", kind: "number", sort: (row) => row.rates.would_deny, cell: wouldCell },
    { title: "Last 5 min", cell: () => {
      const part = sparkline();
      return { node: part.node, set: (row) => part.set(row.sparkline) };
    } },
    { title: "Mode", sort: (row) => row.mode, cell: (first) => modeCell(app, first, changed) },
    // A rule with other limits gets another row, since limits are rendered once.
  ], (row) => JSON.stringify([row.domain, row.rule, row.key, row.limits]), "Loading rules.");
}

function ruleCell(row: RuleRow) {
  return { node: h("span", {}, ruleLink(row.domain, row.rule), h("small", {}, ` ${row.domain}${row.key.length > 0 ? ` · by ${row.key.join(", ")}` : " · shared by all callers"}`)) };
}

/** A single limit inline; limits by tier in a list that opens. */
function limitCell(first: RuleRow) {
  const tiers = new Map<string, HTMLElement>();
  const of = ({ tier, limit }: { tier: string; limit: string }) => {
    const used = h("small", {});
    tiers.set(tier, used);
    return h("li", {}, `${tier} ${limit} `, used);
  };
  const [one] = first.limits;
  const node = first.limits.length === 1 && one ? h("span", {}, one.limit) : h("details", {}, h("summary", {}, plural(first.limits.length, "tier")), h("ul", {}, first.limits.map(of)));
  const set = (row: RuleRow) => row.tiers.forEach((activity) => {
    const used = tiers.get(activity.tier);
    if (used) setText(used, `${percent(activity.utilisation)} used`);
  });
  return { node, set };
}

function wouldCell() {
  const [now, all] = [h("span", {}), h("small", {})];
  const set = (row: RuleRow) => {
    setText(now, rate(row.rates.would_deny));
    setText(all, row.totals.would_deny > 0 ? ` ${count(row.totals.would_deny)} total` : "");
  };
  return { node: h("span", {}, now, all), set };
}

function modeCell(app: AppContext, first: RuleRow, changed: () => void) {
  let row = first;
  const missing = missingScope(app, "rules", "emergency");
  const button = h("button", { type: "button", class: "mode", disabled: missing !== undefined, title: missing, on: { click: () => switchMode(app, row, changed) } });
  const set = (now: RuleRow) => {
    row = now;
    setText(button, now.mode);
    button.dataset["mode"] = now.mode.split(" ")[0] ?? "";
    button.setAttribute("aria-label", `Mode of ${now.rule}: ${now.mode}. Switch`);
  };
  return { node: button, set };
}
