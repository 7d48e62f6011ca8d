// Switches the mode of a rule: enforce, shadow, off, or as in its file.

import { h } from "../dom.ts";
import { type AppContext, missingScope } from "../context.ts";
import { lasting, openDialog, reason, text } from "../parts/dialog.ts";
import { notify } from "../parts/notice.ts";
import { segment } from "../pure/route.ts";
import { count, rate } from "../pure/format.ts";
import type { RuleRow } from "../types.ts";

export const MODES = ["enforce", "shadow", "off"];

const MEANS: Record<string, string> = {
  enforce: "Refuses requests over the limit.",
  shadow: "Counts, but refuses nothing.",
  off: "Does nothing. This is the kill switch.",
  file: "Removes the switch: the mode of the rule’s file applies.",
};

export function switchMode(app: AppContext, row: RuleRow, changed: () => void): void {
  const path = `/admin/v1/switches/domains/${segment(row.domain)}/rules/${segment(row.rule)}`;
  const current = MODES.find((mode) => mode === row.mode);
  const choice = (mode: string, label: string) => {
    const lacking = mode === "off" ? missingScope(app, "emergency") : undefined;
    const input = h("input", { type: "radio", name: "mode", value: mode, required: true, checked: mode === current, disabled: lacking !== undefined });
    return h("label", { class: "choice" }, input, h("span", {}, h("strong", {}, label), ` ${MEANS[mode]}${lacking ? ` Not allowed: ${lacking}.` : ""}`));
  };
  const why = reason(true);
  // Removing a switch takes no reason.
  const chosen = (event: Event) => {
    const input = why.querySelector("input");
    if (input && event.target instanceof HTMLInputElement) input.disabled = event.target.value === "file";
  };
  openDialog({
    title: `Mode of ${row.rule}`,
    body: [
      h("p", {}, `Domain ${row.domain}, now “${row.mode}”. ${describe(row)}`),
      h("fieldset", { on: { change: chosen } }, h("legend", {}, "Switch to"), MODES.map((mode) => choice(mode, mode)), choice("file", "as in the file")),
      lasting([["", "until it is switched again"], ["15m", "15 minutes"], ["1h", "1 hour"], ["24h", "24 hours"]]),
      why,
    ],
    confirm: "Switch",
    run: async (fields) => {
      const mode = text(fields, "mode");
      if (mode === "file") {
        await app.api.request("DELETE", path);
      } else {
        const lasts = text(fields, "for");
        await app.api.request("PUT", path, { mode, reason: text(fields, "reason"), ...(lasts ? { for: lasts } : {}) });
      }
      notify(mode === "file" ? `${row.rule} has the mode of its file.` : `${row.rule} is switched to ${mode}.`);
      changed();
    },
  });
}

/** What the rule refused, and would have refused. */
function describe(row: RuleRow): string {
  const would = `it would have refused ${count(row.totals.would_deny)} of ${count(row.totals.allow + row.totals.deny)} requests since the start (${rate(row.rates.would_deny)}/s now)`;
  const did = `it has refused ${count(row.totals.deny)} requests since the start (${rate(row.rates.deny)}/s now)`;
  return row.totals.would_deny > 0 ? `In shadow mode ${would}; ${did}.` : `So far ${did}.`;
}
