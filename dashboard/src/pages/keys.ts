// Keys with the most decisions, the most refusals, or the highest utilisation.

import { h, setText } from "../dom.ts";
import { type AppContext, type Page, domains, poll } from "../context.ts";
import { bar } from "../parts/bar.ts";
import { fault } from "../parts/notice.ts";
import { type Column, Table, fixedColumn, textColumn } from "../parts/table.ts";
import { type Route, href } from "../pure/route.ts";
import { NONE, count, plural } from "../pure/format.ts";
import type { Top, TopKey } from "../types.ts";

const BY: [string, string][] = [["decisions", "most decisions"], ["refusals", "most refusals"], ["utilisation", "nearest to a limit"]];
const WINDOWS: [string, string][] = [["1m", "last minute"], ["5m", "last 5 minutes"], ["1h", "last hour"]];
const KEYS = 50;
const REFRESH_MS = 3_000;

export function keys(app: AppContext, route: Route): Page {
  const { query } = route;
  const [wrong, note] = [fault(), h("p", { class: "hint" })];
  const [by, span] = [choice("By", BY, query["by"]), choice("Over", WINDOWS, query["window"] ?? "5m")];
  const initial = query["domain"];
  const domain = choice("Domain", [["", "any domain"], ...(initial ? [[initial, initial] as [string, string]] : [])], initial);
  const rule = h("input", { type: "search", value: query["rule"] ?? "", placeholder: "any rule", "aria-label": "Rule", autocomplete: "off" });
  const table = keyTable();
  let latest = 0;
  const load = async () => {
    const number = ++latest;
    try {
      const top = await app.api.get<Top>("/admin/v1/top", { by: by.value, window: span.value, domain: domain.value, rule: rule.value.trim(), limit: KEYS });
      if (number !== latest) return;
      setText(note, describe(top));
      table.show(top.keys);
      wrong.set(undefined);
    } catch (error) {
      if (number === latest) wrong.set(error);
    }
  };
  const again = () => {
    // The address can be copied.
    history.replaceState(null, "", href("keys", { by: by.value, window: span.value, domain: domain.value, rule: rule.value.trim() }));
    void load();
  };
  for (const control of [by, span, domain, rule]) control.addEventListener("change", again);
  void domains(app).then((all) => {
    domain.append(...all.filter(({ name }) => name !== initial).map(({ name }) => h("option", { value: name }, name)));
  }, wrong.set);
  const close = poll(REFRESH_MS, load);
  const find = finder();
  const node = h("div", {}, wrong.node, find, h("div", { class: "tools" }, by, span, domain, rule), note, table.node);
  return { title: "Keys", node, close };
}

function choice(label: string, options: [string, string][], chosen: string | undefined): HTMLSelectElement {
  return h("select", { "aria-label": label }, options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
}

/** Finds a caller that is not listed. */
function finder(): HTMLElement {
  const input = h("input", { type: "search", name: "caller", required: true, placeholder: "caller", "aria-label": "Find a caller", autocomplete: "off" });
  const submit = (event: Event) => {
    event.preventDefault();
    location.hash = href("caller", { name: input.value.trim() });
  };
  return h("form", { class: "tools", on: { submit } }, input, h("button", { type: "submit" }, "Show caller"));
}

function describe(top: Top): string {
  const error = top.error > 0 ? `; counts are at most ${count(top.error)} too high` : "";
  const hashed = top.keys_shown ? "" : " Keys are hashed: the scope “audit” is required to see them.";
  return `${count(top.total)} counted on ${plural(top.servers, "server")}${error}.${hashed}`;
}

function keyTable(): Table<TopKey> {
  const number = (title: string, of: "decisions" | "refusals"): Column<TopKey> =>
    textColumn(title, (key) => (key[of] === null ? NONE : count(key[of])), { kind: "number" });
  return new Table<TopKey>("Top keys", [
    textColumn("Rank", (key) => String(key.rank), { kind: "number" }),
    fixedColumn("Key", (key) => (key.caller && !key.caller.startsWith("#") ? h("a", { href: href("caller", { name: key.caller, domain: key.domain }) }, key.key) : key.key || "shared by all callers"), { kind: "main" }),
    fixedColumn("Rule", (key) => [h("a", { href: href("keys", { domain: key.domain, rule: key.rule }) }, key.rule), h("small", {}, ` ${key.domain}`)]),
    number("Decisions", "decisions"),
    number("Refusals", "refusals"),
    { title: "Used", kind: "bar", cell: () => {
      const [part, none] = [bar(), h("span", {}, NONE)];
      const set = (key: TopKey) => {
        part.node.hidden = key.utilisation === null;
        none.hidden = key.utilisation !== null;
        part.set(key.utilisation ?? 0, key.rule);
      };
      return { node: h("span", {}, part.node, none), set };
    } },
  ], (key) => [key.domain, key.rule, key.key].join("\n"), "No keys.");
}
