// The quota of a caller: tier, overrides that can be changed and removed, and a block.

import { h } from "../../dom.ts";
import { type AppContext, missingScope } from "../../context.ts";
import { openOverride, openRemoveOverride, overrideName } from "../../actions/quota.ts";
import { facts } from "../../parts/card.ts";
import { Table, textColumn } from "../../parts/table.ts";
import { duration, limit, timestamp } from "../../pure/format.ts";
import type { Override } from "../../types.ts";
import type { CallerData } from "../caller.ts";

export function quotaSection(app: AppContext, changed: () => void) {
  const missing = missingScope(app, "quota");
  let current: CallerData | undefined;
  const blockText = ({ block }: CallerData) => {
    if (!block?.in_force) return "no";
    const until = block.expires_at ? `until ${timestamp(block.expires_at)}` : "permanently";
    return `${block.shadow ? "marked only" : `with ${block.status}`}, ${until}: ${block.reason}`;
  };
  const summary = facts<CallerData>([
    ["Tier", tierText],
    ["Expires", ({ quota }) => (quota?.expires_at ? timestamp(quota.expires_at) : "never")],
    ["Blocked", blockText, ({ block }) => block?.in_force ?? false],
  ]);
  const button = (label: string, run: (caller: CallerData) => void) =>
    h("button", { type: "button", disabled: missing !== undefined, title: missing, on: { click: () => current && run(current) } }, label);
  const overrides = new Table<Override>("Overrides", [
    textColumn("Override of", overrideName, { kind: "main" }),
    textColumn("Limit", limit),
    textColumn("From", (one) => timestamp(one.effective_at)),
    textColumn("Until", (one) => (one.expires_at ? timestamp(one.expires_at) : "with the quota")),
    { title: "Action", cell: (one) => ({
      node: h("span", { class: "row-actions" },
        button("Change…", (caller) => void openOverride(app, caller, one, changed)),
        button("Remove…", (caller) => openRemoveOverride(app, caller, one, changed))),
    }) },
  ], (one) => JSON.stringify(one), "No overrides.");
  return {
    node: h("div", {}, summary.node, overrides.node),
    show(data: CallerData) {
      current = data;
      summary.set(data);
      overrides.show(data.quota?.overrides ?? []);
    },
  };
}

/** The tier in force, and where it comes from. */
function tierText({ tier, tierFrom }: CallerData): string {
  if (tier === null) return `not known: each request names its tier in “${tierFrom ?? ""}”, and this server remembers none of this caller`;
  const { name, by, seen_seconds_ago: ago } = tier;
  if (by === "quota") return `${name}, assigned`;
  if (by === "default") return `${name}, the domain’s default`;
  return ago === undefined || ago < 60 ? `${name}, named by its last request` : `${name}, named by its last request ${duration(ago)} ago`;
}
