// Switches for everything or a domain: the kill switch, and the way back.

import { h } from "../dom.ts";
import { type AppContext, domains, missingScope } from "../context.ts";
import { field, lasting, openDialog, reason, text } from "../parts/dialog.ts";
import { notify, warn } from "../parts/notice.ts";
import { segment } from "../pure/route.ts";
import type { SwitchItem } from "../types.ts";

const LASTS: [string, string][] = [["15m", "15 minutes"], ["1h", "1 hour"], ["24h", "24 hours"], ["", "until it is switched again"]];
const MEANS: Record<string, string> = {
  off: "Rules do nothing: every request passes, and nothing is counted.",
  shadow: "Rules count and report, and refuse nothing.",
  enforce: "Rules refuse requests over their limits, whatever their files say.",
};

function path(domain: string | null, rule: string | null = null): string {
  if (domain === null || domain === "") return "/admin/v1/switches/everything";
  return `/admin/v1/switches/domains/${segment(domain)}${rule ? `/rules/${segment(rule)}` : ""}`;
}

/** Switches all rules, or all of a domain. */
export async function openSwitch(app: AppContext, changed: () => void): Promise<void> {
  const all = await domains(app).catch((error) => (warn(error), []));
  const target = h("select", { name: "domain" }, h("option", { value: "" }, "all rules of all domains"), all.map(({ name }) => h("option", { value: name }, `all rules of ${name}`)));
  const choice = (mode: string) => {
    const lacking = mode === "off" ? missingScope(app, "emergency") : undefined;
    return h("label", { class: "choice" }, h("input", { type: "radio", name: "mode", value: mode, required: true, disabled: lacking !== undefined }), h("span", {}, h("strong", {}, mode), ` ${MEANS[mode]}${lacking ? ` Not allowed: ${lacking}.` : ""}`));
  };
  openDialog({
    title: "Switch all rules",
    body: [
      field("What", target),
      h("fieldset", {}, h("legend", {}, "Switch to"), Object.keys(MEANS).map(choice)),
      lasting(LASTS),
      reason(true),
      h("label", { class: "choice" }, h("input", { type: "checkbox", name: "sure", required: true }), h("span", {}, "I want this for every caller at once.")),
    ],
    confirm: "Switch",
    harmful: true,
    run: async (fields) => {
      const [domain, mode, lasts] = [text(fields, "domain"), text(fields, "mode"), text(fields, "for")];
      await app.api.request("PUT", path(domain), { mode, reason: text(fields, "reason"), ...(lasts ? { for: lasts } : {}) });
      notify(`${domain === "" ? "All rules are" : `All rules of ${domain} are`} switched to ${mode}.`);
      changed();
    },
  });
}

/** Removes a switch. */
export function openUnswitch(app: AppContext, item: SwitchItem, changed: () => void): void {
  const name = item.rule ?? item.domain ?? "everything";
  openDialog({
    title: `Remove the switch of ${name}`,
    body: [h("p", {}, `It is switched to ${item.mode}${item.reason ? `: ${item.reason}` : ""}. Without the switch, the mode of the rule files applies again.`)],
    confirm: "Remove the switch",
    harmful: item.mode === "off" || item.mode === "shadow",
    run: async () => {
      await app.api.request("DELETE", path(item.domain, item.rule));
      notify(`The switch of ${name} is removed.`);
      changed();
    },
  });
}
