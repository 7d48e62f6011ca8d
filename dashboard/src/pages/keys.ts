// Keys with the most refusals, the most decisions, or the highest utilisation.

import { fill, h, setText } from "../dom.ts";
import { type AppContext, type Page, domains, poll } from "../context.ts";
import { bar } from "../parts/bar.ts";
import { keyLink, ruleLink } from "../parts/card.ts";
import { keyLists } from "../parts/key_lists.ts";
import { fault } from "../parts/notice.ts";
import { Pager } from "../parts/pager.ts";
import { type Cell, type Column, Table, fixedColumn, textColumn } from "../parts/table.ts";
import { type Route, href } from "../pure/route.ts";
import { NONE, count, percent, plural } from "../pure/format.ts";
import { byKey, numbered } from "../pure/groups.ts";
import type { Top, TopKey } from "../types.ts";

const BY: [string, string][] = [["refusals", "most refusals"], ["decisions", "most decisions"], ["utilisation", "nearest to a limit"]];
const WINDOWS: [string, string][] = [["1m", "last minute"], ["5m", "last 5 minutes"], ["1h", "last hour"]];
/** Keys that are requested, and those of a page. */
const KEYS = 200;
const ROWS = 25;
const REFRESH_MS = 3_000;

export function keys(app: AppContext, route: Route): Page {
  const { query } = route;
  const [wrong, note] = [fault(), h("p", { class: "hint" })];
  const [by, window] = [choice("By", BY, query["by"]), choice("Over", WINDOWS, query["window"] ?? "5m")];
  const initial = query["domain"];
  const domain = choice("Domain", [["", "any domain"], ...(initial ? [[initial, initial] as [string, string]] : [])], initial);
  const search = h("input", { type: "search", name: "search", value: query["search"] ?? "", placeholder: "part of a key or rule", "aria-label": "Search keys and rules", autocomplete: "off" });
  let rule = query["rule"] ?? "";
  const [table, pager] = [keyTable(), new Pager(ROWS)];
  const onlyRule = h("button", { type: "button", class: "chip", hidden: rule === "", title: "Show the keys of all rules", on: { click: () => again("") } }, `rule ${rule} ✕`);
  let latest = 0;
  let all: TopKey[][] = [];
  const show = () => table.show(pager.of(all));
  pager.onTurn = show;
  const load = async () => {
    const number = ++latest;
    try {
      const top = await app.api.get<Top>("/admin/v1/top", { by: by.value, window: window.value, domain: domain.value, rule, search: search.value.trim(), limit: KEYS });
      if (number !== latest) return;
      setText(note, describe(top, by.value));
      all = numbered(byKey(top.keys));
      table.empty = search.value.trim() !== "" ? `No key or rule has “${search.value.trim()}” in its name.` : by.value === "refusals" ? "Nobody was refused." : "Nothing was decided.";
      show();
      wrong.set(undefined);
    } catch (error) {
      if (number === latest) wrong.set(error);
    }
  };
  const again = (of = rule) => {
    rule = of;
    onlyRule.hidden = rule === "";
    pager.first();
    // The address can be copied.
    history.replaceState(null, "", href("keys", { by: by.value, window: window.value, domain: domain.value, rule, search: search.value.trim() }));
    void load();
  };
  for (const control of [by, window, domain]) control.addEventListener("change", () => again());
  search.addEventListener("input", () => again());
  void domains(app).then((known) => {
    domain.append(...known.filter(({ name }) => name !== initial).map(({ name }) => h("option", { value: name }, name)));
    domain.hidden = known.length < 2;
  }, wrong.set);
  const close = poll(REFRESH_MS, load);
  const node = h("div", {}, wrong.node,
    h("div", { class: "tools" }, keyLists("keys")),
    h("div", { class: "tools" }, search, by, window, domain, onlyRule, finder()),
    note, h("section", { class: "card" }, table.node, pager.node));
  return { title: "Keys", node, close };
}

function choice(label: string, options: [string, string][], chosen: string | undefined): HTMLSelectElement {
  return h("select", { "aria-label": label }, options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
}

/** Finds a caller that is not listed. */
function finder(): HTMLElement {
  const input = h("input", { type: "search", name: "caller", required: true, placeholder: "exact name of a caller", "aria-label": "Find a caller", autocomplete: "off" });
  const submit = (event: Event) => {
    event.preventDefault();
    location.hash = href("caller", { name: input.value.trim() });
  };
  return h("form", { class: "finder", on: { submit } }, input, h("button", { type: "submit" }, "Show caller"));
}

function describe(top: Top, by: string): string {
  const error = top.error > 0 ? `; a count is at most ${count(top.error)} too high` : "";
  const hashed = top.keys_shown ? "" : " Keys are hashed: the scope “audit” is required to see them.";
  return `${count(top.total)} ${by === "refusals" ? "refusals" : "decisions"} on ${plural(top.servers, "server")}${error}. The numbers of a key are those of the rule that ranks highest.${hashed}`;
}

/** A key, and each rule that counts by it: the numbers are those of the first. */
function keyTable(): Table<TopKey[]> {
  const first = (keys: TopKey[]) => keys[0]!;
  const number = (title: string, of: "decisions" | "refusals"): Column<TopKey[]> =>
    textColumn(title, (keys) => some(first(keys)[of]), { kind: "number" });
  return new Table<TopKey[]>("Top keys", [
    textColumn("Rank", (keys) => String(first(keys).rank), { kind: "number" }),
    fixedColumn("Key", (keys) => keyLink(first(keys).domain, first(keys).caller ?? first(keys).key, first(keys).caller), { kind: "main" }),
    { title: "Rule", cell: ruleCell },
    number("Refusals", "refusals"),
    number("Decisions", "decisions"),
    { title: "Used", kind: "bar", cell: () => {
      const [part, none] = [bar(), h("span", {}, NONE)];
      const set = (keys: TopKey[]) => {
        const { utilisation, rule } = first(keys);
        part.node.hidden = utilisation === null;
        none.hidden = utilisation !== null;
        part.set(utilisation ?? 0, rule);
      };
      return { node: h("span", {}, part.node, none), set };
    } },
  ], (keys) => JSON.stringify([first(keys).domain, first(keys).caller ?? first(keys).key, first(keys).caller === null]), "Loading keys.");
}

/** The rule that ranks highest, and the others on demand. */
function ruleCell(): Cell<TopKey[]> {
  const [main, summary, list] = [h("span", {}), h("summary", {}), h("ul", { class: "plain" })];
  const others = h("details", { hidden: true }, summary, list);
  let [shown, listed] = ["", ""];
  const set = (keys: TopKey[]) => {
    const [first, ...more] = keys as [TopKey, ...TopKey[]];
    const name = (one: TopKey) => [ruleLink(one.domain, one.rule), one.caller !== null && one.key !== one.caller && h("small", {}, ` ${one.key}`)];
    // A link that is replaced can't be clicked or focused.
    if (shown !== (shown = JSON.stringify([first.rule, first.key]))) fill(main, name(first), h("small", {}, ` ${first.domain}`));
    others.hidden = more.length === 0;
    setText(summary, `and ${plural(more.length, "more rule", "more rules")}`);
    if (listed !== (listed = JSON.stringify(more))) fill(list, more.map((one) => h("li", {}, name(one), `: ${some(one.refusals)} refused of ${some(one.decisions)}${one.utilisation === null ? "" : `, ${percent(one.utilisation)} used`}`)));
  };
  return { node: h("div", {}, main, others), set };
}

function some(number: number | null): string {
  return number === null ? NONE : count(number);
}
