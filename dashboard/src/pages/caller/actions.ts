// Actions on a caller: override, tier, reset, block. Each is confirmed and recorded in the audit log.

import { h } from "../../dom.ts";
import { type AppContext, domains, missingScope } from "../../context.ts";
import { field, lasting, openDialog, reason, text } from "../../parts/dialog.ts";
import { notify, warn } from "../../parts/notice.ts";
import { segment } from "../../pure/route.ts";
import { limit, timestamp } from "../../pure/format.ts";
import type { Override, Scope } from "../../types.ts";
import { withQuery } from "../../api.ts";
import type { CallerData } from "../caller.ts";

const HOUR = 3_600;
/** Durations of an override, in seconds; an empty one does not expire. */
const ENDS: [string, string][] = [["", "permanently"], [`${HOUR}`, "1 hour"], [`${24 * HOUR}`, "1 day"], [`${7 * 24 * HOUR}`, "7 days"], [`${30 * 24 * HOUR}`, "30 days"]];
const BLOCKED_FOR: [string, string][] = [["1h", "1 hour"], ["24h", "24 hours"], ["168h", "7 days"], ["", "permanently"]];

export function actions(app: AppContext, changed: () => void) {
  let current: CallerData | undefined;
  const button = (label: string, scope: Scope, action: (caller: CallerData) => void, style = "") => {
    const lacking = missingScope(app, scope);
    return h("button", { type: "button", class: style, disabled: lacking !== undefined, title: lacking, on: { click: () => current && action(current) } }, label);
  };
  const done = (message: string) => {
    notify(message);
    changed();
  };
  const block = button("Block…", "emergency", (caller) => openBlock(app, caller, done), "harmful");
  const unblock = button("End the block…", "emergency", (caller) => openUnblock(app, caller, done));
  const node = h("div", { class: "buttons" },
    button("Override a limit…", "quota", (caller) => openOverride(app, caller, done)),
    button("Change the tier…", "quota", (caller) => void openTier(app, caller, done)),
    button("Reset counters…", "quota", (caller) => openReset(app, caller, done)),
    block, unblock);
  unblock.hidden = true;
  const lacking = [missingScope(app, "quota"), missingScope(app, "emergency")].filter((one) => one !== undefined);
  return {
    node: h("div", {}, node, lacking.length > 0 && h("p", { class: "hint" }, `Some actions are not allowed: ${lacking.join("; ")}.`)),
    show(now: CallerData) {
      current = now;
      block.hidden = now.block?.in_force ?? false;
      unblock.hidden = !block.hidden;
    },
  };
}

type Done = (message: string) => void;

function path(kind: string, { name, domain }: CallerData): string {
  return withQuery(`/admin/v1/${kind}/${segment(name)}`, { domain });
}

/** Replaces the quota, unless it was changed since it was read. */
async function write(app: AppContext, caller: CallerData, quota: { tier?: string; overrides: Override[] }, why: string): Promise<void> {
  const now = caller.quota;
  const body = {
    ...quota,
    ...(now?.effective_at ? { effective_at: now.effective_at } : {}),
    ...(now?.expires_at ? { expires_at: now.expires_at } : {}),
    reason: why,
  };
  const condition: Record<string, string> = now ? { "If-Match": `"${now.generation}"` } : { "If-None-Match": "*" };
  await app.api.request("PUT", path("quotas", caller), body, condition);
}

/** A scheduled change would be lost by a write from here. */
function warnIfScheduled(caller: CallerData): boolean {
  if (caller.quota?.next === undefined) return false;
  warn(new Error("A change of this quota is scheduled, and a change from here would discard it; use the API or `tollgate quota`."));
  return true;
}

function openOverride(app: AppContext, caller: CallerData, done: Done): void {
  if (warnIfScheduled(caller)) return;
  const rules = [...new Map(caller.counters.map((counter) => [counter.rule, counter])).values()];
  const select = h("select", { name: "rule", required: true }, rules.map((counter) => h("option", { value: counter.rule }, `${counter.rule} (now ${limit(counter.limit)})`)));
  openDialog({
    title: `Override a limit of ${caller.name}`,
    body: [
      field("Rule", select),
      field("Limit", h("input", { name: "limit", required: true, placeholder: "500/minute", autocomplete: "off" }), "As in rule files: 500/minute, 20/30s, 20 concurrent, unlimited."),
      lasting(ENDS),
      reason(true),
    ],
    confirm: "Set the limit",
    run: async (fields) => {
      const [rule, newLimit, seconds] = [text(fields, "rule"), text(fields, "limit"), Number(text(fields, "for"))];
      const now = Date.parse(app.live.last?.at ?? "") || Date.now();
      const override: Override = { rule, limit: newLimit, ...(seconds > 0 ? { expires_at: new Date(now + seconds * 1000).toISOString() } : {}) };
      const { quota } = caller;
      const others = (quota?.overrides ?? []).filter((one) => one.rule !== rule);
      await write(app, caller, { ...(quota?.tier ? { tier: quota.tier } : {}), overrides: [...others, override] }, text(fields, "reason"));
      done(`${caller.name} has ${newLimit} for ${rule}${override.expires_at ? ` until ${timestamp(override.expires_at)}` : ""}.`);
    },
  });
}

async function openTier(app: AppContext, caller: CallerData, done: Done): Promise<void> {
  if (warnIfScheduled(caller)) return;
  const all = await domains(app).catch((error) => (warn(error), []));
  const tiers = all.find((domain) => domain.name === caller.domain)?.tiers ?? [];
  const { quota } = caller;
  const options = [h("option", { value: "" }, "the domain’s default"), ...tiers.map((tier) => h("option", { value: tier, selected: tier === quota?.tier }, tier))];
  openDialog({
    title: `Change the tier of ${caller.name}`,
    body: [field("Tier", h("select", { name: "tier" }, options)), reason(true)],
    confirm: "Change the tier",
    run: async (fields) => {
      const tier = text(fields, "tier");
      await write(app, caller, { ...(tier ? { tier } : {}), overrides: quota?.overrides ?? [] }, text(fields, "reason"));
      done(`${caller.name} is in ${tier ? `tier ${tier}` : "the domain’s default tier"}.`);
    },
  });
}

function openReset(app: AppContext, caller: CallerData, done: Done): void {
  openDialog({
    title: `Reset the counters of ${caller.name}`,
    body: [h("p", {}, "All counters with this caller in their key start over, as if nothing had been used."), reason(true)],
    confirm: "Reset the counters",
    run: async (fields) => {
      await app.api.request("POST", path("counters", caller), { action: "reset", reason: text(fields, "reason") });
      done(`The counters of ${caller.name} are reset.`);
    },
  });
}

function openBlock(app: AppContext, caller: CallerData, done: Done): void {
  openDialog({
    title: `Block ${caller.name}`,
    body: [h("p", {}, "All its requests are refused with 403, whatever its limits are."), lasting(BLOCKED_FOR), reason(true)],
    confirm: "Block",
    harmful: true,
    run: async (fields) => {
      const lasts = text(fields, "for");
      await app.api.request("PUT", path("blocks", caller), { range: false, reason: text(fields, "reason"), ...(lasts ? { for: lasts } : {}) });
      done(`${caller.name} is blocked.`);
    },
  });
}

function openUnblock(app: AppContext, caller: CallerData, done: Done): void {
  openDialog({
    title: `End the block of ${caller.name}`,
    body: [h("p", {}, `It is blocked: ${caller.block?.reason ?? ""}`)],
    confirm: "End the block",
    run: async () => {
      await app.api.request("DELETE", withQuery(`/admin/v1/blocks/${segment(caller.name)}`, { domain: caller.domain, range: "false" }));
      done(`${caller.name} is no longer blocked.`);
    },
  });
}
