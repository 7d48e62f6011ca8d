// Switching a rule's mode: enforce, shadow, off, or what its file says.

import { h } from "../../dom.ts";
import { type House, lacks } from "../../house.ts";
import { ask, lasting, reason, text } from "../../parts/dialog.ts";
import { tell } from "../../parts/notice.ts";
import { segment } from "../../pure/route.ts";
import { count, rate } from "../../pure/words.ts";
import type { RuleRow } from "../../types.ts";

export const MODES = ["enforce", "shadow", "off"];

const MEANS: Record<string, string> = {
  enforce: "It refuses.",
  shadow: "It counts, and refuses nobody.",
  off: "It does nothing at all. This is the kill switch.",
  file: "The switch is taken away: what the rule’s file says holds again.",
};

export function switchMode(house: House, row: RuleRow, changed: () => void): void {
  const path = `/admin/v1/switches/domains/${segment(row.domain)}/rules/${segment(row.rule)}`;
  const current = MODES.find((mode) => mode === row.mode);
  const choice = (mode: string, label: string) => {
    const lacking = mode === "off" ? lacks(house, "emergency") : undefined;
    const input = h("input", { type: "radio", name: "mode", value: mode, required: true, checked: mode === current, disabled: lacking !== undefined });
    return h("label", { class: "choice" }, input, h("span", {}, h("strong", {}, label), ` ${MEANS[mode]}${lacking ? ` Not allowed: ${lacking}.` : ""}`));
  };
  const why = reason(true);
  // Taking a switch away is noted without a reason.
  const chosen = (event: Event) => {
    const input = why.querySelector("input");
    if (input && event.target instanceof HTMLInputElement) input.disabled = event.target.value === "file";
  };
  ask({
    title: `Mode of ${row.rule}`,
    body: [
      h("p", {}, `Domain ${row.domain}, now “${row.mode}”. ${record(row)}`),
      h("fieldset", { on: { change: chosen } }, h("legend", {}, "Switch to"), MODES.map((mode) => choice(mode, mode)), choice("file", "as the file says")),
      lasting([["", "until it is switched again"], ["15m", "15 minutes"], ["1h", "1 hour"], ["24h", "24 hours"]]),
      why,
    ],
    does: "Switch",
    run: async (fields) => {
      const mode = text(fields, "mode");
      if (mode === "file") {
        await house.api.ask("DELETE", path);
      } else {
        const lasts = text(fields, "for");
        await house.api.ask("PUT", path, { mode, reason: text(fields, "reason"), ...(lasts ? { for: lasts } : {}) });
      }
      tell(mode === "file" ? `${row.rule} is as its file says.` : `${row.rule} is switched to ${mode}.`);
      changed();
    },
  });
}

/** What the rule has done, and what it would have. */
function record(row: RuleRow): string {
  const would = `it would have refused ${count(row.totals.would_deny)} of ${count(row.totals.allow + row.totals.deny)} requests since the start (${rate(row.rates.would_deny)}/s now)`;
  const did = `it has refused ${count(row.totals.deny)} requests since the start (${rate(row.rates.deny)}/s now)`;
  return row.totals.would_deny > 0 ? `In shadow mode ${would}; ${did}.` : `So far ${did}.`;
}
