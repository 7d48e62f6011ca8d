// The audit log, newest first.

import { h } from "../dom.ts";
import { type AppContext, type Page, missingScope } from "../context.ts";
import { fault } from "../parts/notice.ts";
import { Table, fixedColumn, textColumn } from "../parts/table.ts";
import { changes, valueText } from "../pure/changes.ts";
import { timestamp } from "../pure/format.ts";
import type { AuditEntry, ListPage } from "../types.ts";

const PAGE_SIZE = 25;
const KINDS = ["quota", "rule", "switch", "emergency", "block", "counter", "lease", "gateway", "token", "access", "control"];

export function audit(app: AppContext): Page {
  const missing = missingScope(app, "audit");
  if (missing) return { title: "Audit", node: h("p", { class: "hint" }, `The audit log is not shown: ${missing}.`) };
  const [wrong, table] = [fault(), entries()];
  const kind = h("select", { "aria-label": "Kind" }, h("option", { value: "" }, "every kind"), KINDS.map((one) => h("option", { value: one }, one)));
  const name = h("input", { type: "search", placeholder: "name", "aria-label": "Name", autocomplete: "off" });
  const more = h("button", { type: "button", hidden: true }, "Older");
  let [all, before]: [AuditEntry[], string | null] = [[], null];
  const load = async (older: boolean) => {
    try {
      const query = { newest: "true", limit: PAGE_SIZE, kind: kind.value, name: name.value.trim(), before: older ? before : null };
      const page = await app.api.get<ListPage<AuditEntry>>("/admin/v1/audit", query);
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
  const again = h("button", { type: "button", on: { click: () => void load(false) } }, "Refresh");
  return { title: "Audit", node: h("div", {}, wrong.node, h("div", { class: "tools" }, kind, name, again), h("section", { class: "card" }, table.node, h("div", { class: "pager" }, more))) };
}

function entries(): Table<AuditEntry> {
  return new Table<AuditEntry>("Audit log", [
    textColumn("Time", (one) => timestamp(one.at), { kind: "time" }),
    textColumn("Author", (one) => (one.from ? `${one.by} (${one.from})` : one.by)),
    textColumn("Action", (one) => one.action),
    textColumn("Target", (one) => [one.domain, one.name].filter((part) => part !== "").join(" · ")),
    textColumn("Reason", (one) => one.reason),
    fixedColumn("Before → after", (one) => difference(one), { kind: "wide" }),
  ], (one) => String(one.id), "The log is empty.");
}

function difference(entry: AuditEntry): HTMLElement {
  const all = changes(entry.before, entry.after);
  return h("ul", { class: "plain" }, all.map(({ path, before, after }) => {
    const was = before !== undefined && h("del", {}, valueText(before));
    const is = after !== undefined && h("ins", {}, valueText(after));
    return h("li", {}, path && `${path}: `, was, was && is && " → ", is);
  }));
}
