// The versions of a rule by API, the difference to the version before, and rollback.

import { ApiError } from "../../api.ts";
import { fill, h, setText } from "../../dom.ts";
import { type AppContext, missingScope } from "../../context.ts";
import { type RuleChange, changeItems, configPath, openRollback } from "../../actions/rollback.ts";
import { warn } from "../../parts/notice.ts";
import { Table, textColumn } from "../../parts/table.ts";
import { timestamp } from "../../pure/format.ts";
import type { ListPage, RuleVersion } from "../../types.ts";

const VERSIONS = 20;
/** Rules by API that are looked through. */
const MAX_WRITTEN = 1_000;

export function versionSection(app: AppContext, domain: string, rule: string, changed: () => void) {
  const missing = missingScope(app, "rules");
  let [current, known] = [0, ""];
  const table = new Table<RuleVersion>("Versions", [
    textColumn("Version", (one) => (one.version === current ? `${one.version} (newest)` : String(one.version)), { kind: "main" }),
    textColumn("State", (one) => one.status),
    textColumn("Author", (one) => one.author),
    textColumn("Time", (one) => timestamp(one.created_at ?? one.updated_at)),
    textColumn("Reason", (one) => one.reason),
    { title: "Difference", kind: "wide", cell: (one) => difference(one) },
    { title: "Action", cell: (one) => {
      const run = () => void openRollback(app, domain, rule, one.version, current, changed).catch(warn);
      const button = h("button", { type: "button", disabled: missing !== undefined, title: missing, on: { click: run } }, "Roll back…");
      return { node: button, set: (now) => (button.hidden = now.version === current) };
    } },
  ], (one) => String(one.version), "No versions.");
  const difference = (one: RuleVersion) => {
    const content = h("div", {});
    const details = h("details", {}, h("summary", {}, one.version > 1 ? `to version ${one.version - 1}` : "first version"), content);
    details.addEventListener("toggle", () => {
      if (!details.open || content.hasChildNodes()) return;
      if (one.version === 1) return setText(content, "There is no version before it.");
      void app.api.get<{ changes: RuleChange[] }>(configPath(rule, "/diff", { domain, from: one.version - 1, to: one.version }))
        .then(({ changes }) => fill(content, changeItems(changes)), warn);
    });
    return { node: details };
  };
  const node = h("section", { class: "card", hidden: true }, h("h2", {}, "Versions by API"), table.node, missing && h("p", { class: "hint" }, `Rollback is not possible here: ${missing}.`));
  const load = async () => {
    try {
      // A rule that was never written by API has no versions, which would be an error.
      const written = await app.api.get<ListPage<RuleVersion>>("/v1/ratelimit/config", { domain, limit: MAX_WRITTEN });
      if (!written.items.some((one) => one.rule_id === rule)) return void (node.hidden = true);
      const page = await app.api.get<ListPage<RuleVersion>>(configPath(rule, "/versions", { domain, limit: VERSIONS }));
      node.hidden = page.items.length === 0;
      current = Math.max(...page.items.map((one) => one.version), 0);
      const text = JSON.stringify(page.items);
      if (text !== known) table.show(page.items);
      known = text;
    } catch (error) {
      // Without the store of record there are no versions, and the rest of the page is shown.
      if (!(error instanceof ApiError && error.status === 503)) throw error;
    }
  };
  return { node, load };
}
