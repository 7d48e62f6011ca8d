// Versions of a rule by API: their differences, and the way back.

import { withQuery } from "../api.ts";
import { h } from "../dom.ts";
import type { AppContext } from "../context.ts";
import { openDialog, reason, text } from "../parts/dialog.ts";
import { notify } from "../parts/notice.ts";
import { valueText } from "../pure/changes.ts";
import { segment } from "../pure/route.ts";

/** A changed value of a rule. */
export interface RuleChange {
  path: string;
  before: string | null;
  after: string | null;
}

export function configPath(rule: string, more: string, query: Record<string, string | number>): string {
  return withQuery(`/v1/ratelimit/config/${segment(rule)}${more}`, query);
}

/** Changes as a list. */
export function changeItems(changes: RuleChange[]): HTMLElement {
  if (changes.length === 0) return h("p", { class: "hint" }, "No differences.");
  return h("ul", { class: "plain" }, changes.map(({ path, before, after }) => {
    const was = before !== null && h("del", {}, valueText(before));
    const is = after !== null && h("ins", {}, valueText(after));
    return h("li", {}, `${path}: `, was, was && is && " → ", is);
  }));
}

export async function openRollback(app: AppContext, domain: string, rule: string, version: number, current: number, done: () => void): Promise<void> {
  const { changes } = await app.api.get<{ changes: RuleChange[] }>(configPath(rule, "/diff", { domain, from: current, to: version }));
  openDialog({
    title: `Roll ${rule} back to version ${version}`,
    body: [h("p", {}, "A new version is written with the rule of that one. What changes:"), changeItems(changes), reason(true)],
    confirm: "Roll back",
    harmful: true,
    run: async (fields) => {
      await app.api.request("POST", configPath(rule, "/rollback", { domain }), { version, reason: text(fields, "reason") });
      notify(`${rule} is rolled back to version ${version}.`);
      done();
    },
  });
}
