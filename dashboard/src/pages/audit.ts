// The audit log: who did what, when, and what was there before. The newest comes first.

import { h } from "../dom.ts";
import { type House, type Page, lacks } from "../house.ts";
import { fault } from "../parts/notice.ts";
import { Table, fixed, words } from "../parts/table.ts";
import { changes, told } from "../pure/changes.ts";
import { moment } from "../pure/words.ts";
import type { AuditEntry, Listed } from "../types.ts";

const AT_ONCE = 50;
const KINDS = ["quota", "rule", "switch", "emergency", "block", "counter", "token"];

export function audit(house: House): Page {
  const lacking = lacks(house, "audit");
  if (lacking) return { title: "Audit", node: h("p", { class: "hint" }, `The audit log is not shown: ${lacking}.`) };
  const [wrong, table] = [fault(), entries()];
  const kind = h("select", { "aria-label": "Kind" }, h("option", { value: "" }, "every kind"), KINDS.map((one) => h("option", { value: one }, one)));
  const name = h("input", { type: "search", placeholder: "of this name", "aria-label": "Name", autocomplete: "off" });
  const more = h("button", { type: "button", hidden: true }, "Older");
  let [all, before]: [AuditEntry[], string | null] = [[], null];
  const load = async (older: boolean) => {
    try {
      const query = { newest: "true", limit: AT_ONCE, kind: kind.value, name: name.value.trim(), before: older ? before : null };
      const page = await house.api.get<Listed<AuditEntry>>("/admin/v1/audit", query);
      all = older ? [...all, ...page.items] : page.items;
      before = page.next;
      more.hidden = before === null;
      table.show(all);
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  };
  kind.addEventListener("change", () => void load(false));
  name.addEventListener("change", () => void load(false));
  more.addEventListener("click", () => void load(true));
  void load(false);
  const again = h("button", { type: "button", on: { click: () => void load(false) } }, "Read again");
  return { title: "Audit", node: h("div", {}, wrong.node, h("div", { class: "tools" }, kind, name, again), table.node, h("div", { class: "pager" }, more)) };
}

function entries(): Table<AuditEntry> {
  return new Table<AuditEntry>("Audit log", [
    words("When", (one) => moment(one.at), { kind: "time" }),
    words("Who", (one) => (one.from ? `${one.by} (${one.from})` : one.by)),
    words("What", (one) => one.action),
    words("Of", (one) => [one.domain, one.name].filter((part) => part !== "").join(" · ")),
    words("Why", (one) => one.reason),
    fixed("Before → after", (one) => difference(one), { kind: "wide" }),
  ], (one) => String(one.id), "Nothing is in the log.");
}

function difference(entry: AuditEntry): HTMLElement {
  const all = changes(entry.before, entry.after);
  return h("ul", { class: "plain" }, all.map(({ path, before, after }) => {
    const was = before !== undefined && h("del", {}, told(before));
    const is = after !== undefined && h("ins", {}, told(after));
    return h("li", {}, path && `${path}: `, was, was && is && " → ", is);
  }));
}
