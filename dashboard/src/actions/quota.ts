// The quota of a caller: its tier, its overrides, its counters. Each change is confirmed and recorded in the audit log.

import { withQuery } from "../api.ts";
import { h } from "../dom.ts";
import { type AppContext, domains } from "../context.ts";
import { field, lasting, openDialog, reason, text } from "../parts/dialog.ts";
import { notify, warn } from "../parts/notice.ts";
import { limit, timestamp } from "../pure/format.ts";
import { segment } from "../pure/route.ts";
import type { Override, QuotaItem } from "../types.ts";

const HOUR = 3_600;
/** Durations of an override, in seconds; an empty one does not expire. */
const ENDS: [string, string][] = [["", "permanently"], [`${HOUR}`, "1 hour"], [`${24 * HOUR}`, "1 day"], [`${7 * 24 * HOUR}`, "7 days"], [`${30 * 24 * HOUR}`, "30 days"]];
/** Rules that a select offers. */
const MAX_RULES = 1_000;

/** A caller and its quota, as it was read. */
export interface Caller {
  name: string;
  domain: string;
  quota: QuotaItem | undefined;
}

function path(kind: string, { name, domain }: Caller): string {
  return withQuery(`/admin/v1/${kind}/${segment(name)}`, { domain });
}

/** Replaces the quota, unless it was changed since it was read. */
async function write(app: AppContext, caller: Caller, quota: { tier?: string; overrides: Override[] }, why: string): Promise<void> {
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
function warnIfScheduled(caller: Caller): boolean {
  if (caller.quota?.next === undefined) return false;
  warn(new Error("A change of this quota is scheduled, and a change from here would discard it; use the API or `tollgate quota`."));
  return true;
}

/** What an override applies to. */
export function overrideName(one: Override): string {
  return one.rule ?? one.descriptor ?? "?";
}

/** Adds an override, or changes the one of a rule. */
export async function openOverride(app: AppContext, caller: Caller, existing: Override | undefined, done: () => void): Promise<void> {
  if (warnIfScheduled(caller)) return;
  const page = await app.api.get<{ items: { name: string }[] }>("/admin/v1/rules", { domain: caller.domain, limit: MAX_RULES }).catch((error) => (warn(error), { items: [] }));
  const select = h("select", { name: "rule", required: true }, page.items.map(({ name }) => h("option", { value: name }, name)));
  const input = h("input", { name: "limit", required: true, placeholder: "500/minute", autocomplete: "off", value: existing ? limit(existing).replaceAll(",", "") : "" });
  // Once: a change that is held is confirmed by the same request.
  const now = Date.parse(app.live.last?.at ?? "") || Date.now();
  openDialog({
    title: existing ? `Change the override of ${overrideName(existing)} for ${caller.name}` : `Override a limit of ${caller.name}`,
    body: [
      !existing && field("Rule", select),
      field("Limit", input, "As in rule files: 500/minute, 20/30s, 20 concurrent, unlimited."),
      lasting(ENDS),
      reason(true),
    ],
    confirm: "Set the limit",
    run: async (fields) => {
      const [newLimit, seconds] = [text(fields, "limit"), Number(text(fields, "for"))];
      const target: Pick<Override, "rule" | "descriptor"> = existing ? (existing.rule ? { rule: existing.rule } : { descriptor: existing.descriptor ?? "default" }) : { rule: text(fields, "rule") };
      const override: Override = { ...target, limit: newLimit, ...(seconds > 0 ? { expires_at: new Date(now + seconds * 1000).toISOString() } : {}) };
      const others = (caller.quota?.overrides ?? []).filter((one) => overrideName(one) !== overrideName(override));
      await write(app, caller, { ...(caller.quota?.tier ? { tier: caller.quota.tier } : {}), overrides: [...others, override] }, text(fields, "reason"));
      notify(`${caller.name} has ${newLimit} for ${overrideName(override)}${override.expires_at ? ` until ${timestamp(override.expires_at)}` : ""}.`);
      done();
    },
  });
}

export function openRemoveOverride(app: AppContext, caller: Caller, existing: Override, done: () => void): void {
  if (warnIfScheduled(caller)) return;
  openDialog({
    title: `Remove the override of ${overrideName(existing)} for ${caller.name}`,
    body: [h("p", {}, `Now ${limit(existing)}. Without it, the limit of the rule and the tier applies.`), reason(true)],
    confirm: "Remove the override",
    harmful: true,
    run: async (fields) => {
      const others = (caller.quota?.overrides ?? []).filter((one) => overrideName(one) !== overrideName(existing));
      await write(app, caller, { ...(caller.quota?.tier ? { tier: caller.quota.tier } : {}), overrides: others }, text(fields, "reason"));
      notify(`The override of ${overrideName(existing)} is removed.`);
      done();
    },
  });
}

export async function openTier(app: AppContext, caller: Caller, done: () => void): Promise<void> {
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
      notify(`${caller.name} is in ${tier ? `tier ${tier}` : "the domain’s default tier"}.`);
      done();
    },
  });
}

/** Removes the tier and all overrides. */
export function openRemoveQuota(app: AppContext, caller: Caller, done: () => void): void {
  openDialog({
    title: `Remove the quota of ${caller.name}`,
    body: [h("p", {}, "Its tier and all its overrides are removed. The limits of the domain’s default tier apply.")],
    confirm: "Remove the quota",
    harmful: true,
    run: async () => {
      const condition = caller.quota ? { "If-Match": `"${caller.quota.generation}"` } : {};
      await app.api.request("DELETE", path("quotas", caller), undefined, condition);
      notify(`The quota of ${caller.name} is removed.`);
      done();
    },
  });
}

export function openReset(app: AppContext, caller: Caller, done: () => void): void {
  openDialog({
    title: `Reset the counters of ${caller.name}`,
    body: [h("p", {}, "All counters with this caller in their key start over, as if nothing had been used."), reason(true)],
    confirm: "Reset the counters",
    run: async (fields) => {
      await app.api.request("POST", path("counters", caller), { action: "reset", reason: text(fields, "reason") });
      notify(`The counters of ${caller.name} are reset.`);
      done();
    },
  });
}
