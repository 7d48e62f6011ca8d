// The rules: what each one does, and the switch of its mode. Thousands of rows, fifty at a time.

import { h, say } from "../dom.ts";
import { type House, type Page, every, lacks } from "../house.ts";
import { bar } from "../parts/bar.ts";
import { fault } from "../parts/notice.ts";
import { Pager } from "../parts/pager.ts";
import { sparkline } from "../parts/sparkline.ts";
import { type Column, Table, words } from "../parts/table.ts";
import { type Route, href } from "../pure/route.ts";
import { count, percent, rate, some } from "../pure/words.ts";
import type { Activity, RuleRow, RulesEvent } from "../types.ts";
import { MODES, switchMode } from "./rules/mode.ts";

/** Rows that are asked for at once, and in all. */
const AT_ONCE = 500;
const MOST_RULES = 20_000;
const ON_A_PAGE = 50;
/** The steps of a line: five minutes. */
const MOST_STEPS = 60;
/** How often all of it is read again: the stream does not tell of tiers. */
const AGAIN_MS = 30_000;
/** A switch is written at once, and in force when the rules are compiled with it. */
const COMPILED_MS = 1_000;

export function rules(house: House, route: Route): Page {
  const [wrong, summary] = [fault(), h("p", { class: "hint", role: "status" })];
  const search = h("input", { type: "search", name: "search", value: route.query["search"] ?? "", placeholder: "rule or domain", "aria-label": "Search rules", autocomplete: "off" });
  const mode = h("select", { "aria-label": "Mode" }, h("option", { value: "" }, "any mode"), [...MODES, "soft"].map((one) => h("option", { value: one }, one)));
  const [table, pager, all] = [ruleTable(house, () => soon()), new Pager(ON_A_PAGE), new All()];
  table.order = { column: "Used", falling: true };
  let shown: RuleRow[] = [];

  const matches = ({ domain, rule, mode: is }: RuleRow) => {
    const text = search.value.trim().toLowerCase();
    return `${domain} ${rule}`.toLowerCase().includes(text) && (mode.value === "" || is === mode.value || is.startsWith(`${mode.value} `));
  };
  const arrange = () => {
    shown = table.sorted(all.rows.filter(matches));
    say(summary, `${some(shown.length, "rule")}${shown.length === all.rows.length ? "" : ` of ${all.rows.length}`}`);
    table.empty = all.rows.length === 0 ? "There are no rules." : "No rule is like this.";
    refresh();
  };
  const refresh = () => table.show(pager.of(shown));
  const again = () => {
    pager.first();
    arrange();
  };
  const load = async () => {
    try {
      all.begin(await everything(house));
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
    later = setTimeout(() => void load(), COMPILED_MS);
  };
  const heard = (event: RulesEvent) => {
    all.add(event);
    settle();
  };
  // What somebody points at or has the focus on must not move away.
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
  const unhear = [every(AGAIN_MS, load), house.live.on("rules", heard), house.live.on("reload", () => void load())];
  const close = () => {
    clearTimeout(later);
    unhear.forEach((end) => end());
  };
  const may = lacks(house, "rules", "emergency");
  const node = h("div", {}, wrong.node,
    h("div", { class: "tools" }, search, mode, summary),
    may && h("p", { class: "hint" }, `Modes can't be switched here: ${may}.`),
    table.node, pager.node);
  return { title: "Rules", node, withRules: true, close };
}

async function everything(house: House): Promise<RuleRow[]> {
  const rows: RuleRow[] = [];
  for (;;) {
    const page = await house.api.get<Activity>("/admin/v1/activity", { offset: rows.length, limit: AT_ONCE });
    rows.push(...page.rows);
    if (page.rows.length === 0 || rows.length >= Math.min(page.total, MOST_RULES)) return rows;
  }
}

/** All rules as they are now, and their last minutes. */
class All {
  rows: RuleRow[] = [];
  #byName = new Map<string, RuleRow>();
  /** When the newest step of the lines began, and what was counted then. */
  #step: { at: number; totals: Map<string, RuleRow["totals"]> } | undefined;

  begin(rows: RuleRow[]): void {
    this.rows = rows;
    this.#byName = new Map(rows.map((row) => [name(row), row]));
    this.#step = undefined;
  }

  /** A row as it is now. */
  find(row: RuleRow): RuleRow | undefined {
    return this.#byName.get(name(row));
  }

  /** Rows that are not told have not changed. */
  add(event: RulesEvent): void {
    for (const told of event.rows) {
      const row = this.#byName.get(name(told));
      if (row) Object.assign(row, told);
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
        row.sparkline[kind] = [...row.sparkline[kind], counted].slice(-MOST_STEPS);
      }
    }
    if (at > began) this.#step = { at, totals: totals() };
  }
}

function name(row: { domain: string; rule: string }): string {
  return `${row.domain}\n${row.rule}`;
}

function ruleTable(house: House, changed: () => void): Table<RuleRow> {
  const column = (title: string, kind: keyof RuleRow["rates"]): Column<RuleRow> =>
    words(title, (row) => rate(row.rates[kind]), { kind: "number", sort: (row) => row.rates[kind] });
  return new Table<RuleRow>("Rules and what they do", [
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
    { title: "Mode", sort: (row) => row.mode, cell: (first) => modeCell(house, first, changed) },
    // A rule with other limits is another row: those are written once.
  ], (row) => JSON.stringify([row.domain, row.rule, row.key, row.limits]), "The rules are being read.");
}

function ruleCell(row: RuleRow) {
  const link = h("a", { href: href("keys", { domain: row.domain, rule: row.rule }), title: "The keys of this rule" }, row.rule);
  return { node: h("span", {}, link, h("small", {}, ` ${row.domain}${row.key.length > 0 ? ` · by ${row.key.join(", ")}` : " · one for all"}`)) };
}

/** One limit in a line; those of several tiers behind one. */
function limitCell(first: RuleRow) {
  const tiers = new Map<string, HTMLElement>();
  const of = ({ tier, limit }: { tier: string; limit: string }) => {
    const used = h("small", {});
    tiers.set(tier, used);
    return h("li", {}, `${tier} ${limit} `, used);
  };
  const [one] = first.limits;
  const node = first.limits.length === 1 && one ? h("span", {}, one.limit) : h("details", {}, h("summary", {}, some(first.limits.length, "tier")), h("ul", {}, first.limits.map(of)));
  const set = (row: RuleRow) => row.tiers.forEach((told) => {
    const used = tiers.get(told.tier);
    if (used) say(used, `${percent(told.utilisation)} used`);
  });
  return { node, set };
}

function wouldCell() {
  const [now, all] = [h("span", {}), h("small", {})];
  const set = (row: RuleRow) => {
    say(now, rate(row.rates.would_deny));
    say(all, row.totals.would_deny > 0 ? ` ${count(row.totals.would_deny)} in all` : "");
  };
  return { node: h("span", {}, now, all), set };
}

function modeCell(house: House, first: RuleRow, changed: () => void) {
  let row = first;
  const may = lacks(house, "rules", "emergency");
  const button = h("button", { type: "button", class: "mode", disabled: may !== undefined, title: may, on: { click: () => switchMode(house, row, changed) } });
  const set = (now: RuleRow) => {
    row = now;
    say(button, now.mode);
    button.dataset["mode"] = now.mode.split(" ")[0] ?? "";
    button.setAttribute("aria-label", `Mode of ${now.rule}: ${now.mode}. Switch`);
  };
  return { node: button, set };
}
