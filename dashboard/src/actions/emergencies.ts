// Emergencies: temporary limits that go before all others.

import { withQuery } from "../api.ts";
import { h } from "../dom.ts";
import { type AppContext, domains } from "../context.ts";
import { field, lasting, openDialog, reason, text } from "../parts/dialog.ts";
import { notify, warn } from "../parts/notice.ts";
import { segment } from "../pure/route.ts";
import type { Emergency } from "../types.ts";

const LASTS: [string, string][] = [["15m", "15 minutes"], ["1h", "1 hour"], ["6h", "6 hours"], ["24h", "24 hours"]];

export async function openEmergency(app: AppContext, done: () => void): Promise<void> {
  const all = await domains(app).catch((error) => (warn(error), []));
  const domain = h("select", { name: "domain" }, h("option", { value: "" }, "all domains"), all.map(({ name }) => h("option", { value: name }, name)));
  openDialog({
    title: "Declare an emergency",
    body: [
      h("p", {}, "A temporary limit that takes precedence over tiers and overrides. It ends by itself."),
      field("Name", h("input", { name: "name", required: true, maxlength: 100, autocomplete: "off", placeholder: "flood" })),
      field("Domain", domain),
      field("Callers", h("input", { name: "callers", required: true, value: "*", autocomplete: "off" }), "A caller, or a pattern: acme-* or * for all."),
      field("Rule (optional)", h("input", { name: "rule", autocomplete: "off" }), "Without a rule it applies to every rule that the limit fits. A rule needs a domain."),
      field("Limit", h("input", { name: "limit", required: true, autocomplete: "off", placeholder: "50 %" }), "A percentage of each limit, or a limit as in rule files: 10/hour."),
      lasting(LASTS),
      reason(true),
    ],
    confirm: "Declare the emergency",
    harmful: true,
    run: async (fields) => {
      const [name, limit, rule] = [text(fields, "name"), text(fields, "limit"), text(fields, "rule")];
      const percent = /^(\d+)\s*%$/.exec(limit);
      const body = { callers: text(fields, "callers"), ...(percent ? { percent: Number(percent[1]) } : { limit }), ...(rule ? { rule } : {}), reason: text(fields, "reason"), for: text(fields, "for") };
      await app.api.request("PUT", withQuery(`/admin/v1/emergencies/${segment(name)}`, { domain: text(fields, "domain") }), body);
      notify(`The emergency ${name} is in force.`);
      done();
    },
  });
}

export function openEnd(app: AppContext, emergency: Emergency, done: () => void): void {
  openDialog({
    title: `End the emergency ${emergency.name}`,
    body: [h("p", {}, `It was declared because: ${emergency.reason}. The usual limits apply again at once.`)],
    confirm: "End the emergency",
    run: async () => {
      await app.api.request("DELETE", withQuery(`/admin/v1/emergencies/${segment(emergency.name)}`, { domain: emergency.domain }));
      notify(`The emergency ${emergency.name} has ended.`);
      done();
    },
  });
}
