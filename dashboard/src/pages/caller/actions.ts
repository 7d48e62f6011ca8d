// What can be done about a caller: another limit, a tier, a block, a fresh start. Each is confirmed, and in the audit log.

import { h } from "../../dom.ts";
import { type House, domains, lacks } from "../../house.ts";
import { ask, field, lasting, reason, text } from "../../parts/dialog.ts";
import { tell, warn } from "../../parts/notice.ts";
import { segment } from "../../pure/route.ts";
import { limit, moment } from "../../pure/words.ts";
import type { Override, Scope } from "../../types.ts";
import { withQuery } from "../../api.ts";
import type { Known } from "../caller.ts";

const HOUR = 3_600;
/** How long an override may hold, in seconds; none is for good. */
const ENDS: [string, string][] = [["", "for good"], [`${HOUR}`, "1 hour"], [`${24 * HOUR}`, "1 day"], [`${7 * 24 * HOUR}`, "7 days"], [`${30 * 24 * HOUR}`, "30 days"]];
const BLOCKED_FOR: [string, string][] = [["1h", "1 hour"], ["24h", "24 hours"], ["168h", "7 days"], ["", "for good"]];

export function actions(house: House, changed: () => void) {
  let known: Known | undefined;
  const button = (label: string, scope: Scope, does: (known: Known) => void, style = "") => {
    const lacking = lacks(house, scope);
    return h("button", { type: "button", class: style, disabled: lacking !== undefined, title: lacking, on: { click: () => known && does(known) } }, label);
  };
  const done = (says: string) => {
    tell(says);
    changed();
  };
  const block = button("Block…", "emergency", (of) => askBlock(house, of, done), "harmful");
  const unblock = button("End the block…", "emergency", (of) => askUnblock(house, of, done));
  const node = h("div", { class: "buttons" },
    button("Override a limit…", "quota", (of) => askOverride(house, of, done)),
    button("Change the tier…", "quota", (of) => void askTier(house, of, done)),
    button("Reset counters…", "quota", (of) => askReset(house, of, done)),
    block, unblock);
  unblock.hidden = true;
  const lacking = [lacks(house, "quota"), lacks(house, "emergency")].filter((one) => one !== undefined);
  return {
    node: h("div", {}, node, lacking.length > 0 && h("p", { class: "hint" }, `Some of this can't be done here: ${lacking.join("; ")}.`)),
    show(now: Known) {
      known = now;
      block.hidden = now.block?.in_force ?? false;
      unblock.hidden = !block.hidden;
    },
  };
}

type Done = (says: string) => void;

function path(kind: string, { name, domain }: Known): string {
  return withQuery(`/admin/v1/${kind}/${segment(name)}`, { domain });
}

/** Writes a whole quota, unless somebody else has written it since it was read. */
async function write(house: House, known: Known, wanted: { tier?: string; overrides: Override[] }, why: string): Promise<void> {
  const now = known.quota;
  const body = {
    ...wanted,
    ...(now?.effective_at ? { effective_at: now.effective_at } : {}),
    ...(now?.expires_at ? { expires_at: now.expires_at } : {}),
    reason: why,
  };
  const condition: Record<string, string> = now ? { "If-Match": `"${now.generation}"` } : { "If-None-Match": "*" };
  await house.api.ask("PUT", path("quotas", known), body, condition);
}

/** A change that waits would be forgotten by a write that does not know of it. */
function refuseScheduled(known: Known): boolean {
  if (known.quota?.next === undefined) return false;
  warn(new Error("A change of this quota is scheduled, which a change from here would undo; use the API or `tollgate quota`."));
  return true;
}

function askOverride(house: House, known: Known, done: Done): void {
  if (refuseScheduled(known)) return;
  const rules = [...new Map(known.counters.map((counter) => [counter.rule, counter])).values()];
  const select = h("select", { name: "rule", required: true }, rules.map((counter) => h("option", { value: counter.rule }, `${counter.rule} (now ${limit(counter.limit)})`)));
  ask({
    title: `Another limit for ${known.name}`,
    body: [
      field("Rule", select),
      field("Limit", h("input", { name: "limit", required: true, placeholder: "500/minute", autocomplete: "off" }), "As rule files write it: 500/minute, 20/30s, 20 concurrent, unlimited."),
      lasting(ENDS),
      reason(true),
    ],
    does: "Set the limit",
    run: async (fields) => {
      const [rule, wanted, seconds] = [text(fields, "rule"), text(fields, "limit"), Number(text(fields, "for"))];
      const now = Date.parse(house.live.last?.at ?? "") || Date.now();
      const override: Override = { rule, limit: wanted, ...(seconds > 0 ? { expires_at: new Date(now + seconds * 1000).toISOString() } : {}) };
      const { quota } = known;
      const others = (quota?.overrides ?? []).filter((one) => one.rule !== rule);
      await write(house, known, { ...(quota?.tier ? { tier: quota.tier } : {}), overrides: [...others, override] }, text(fields, "reason"));
      done(`${known.name} has ${wanted} at ${rule}${override.expires_at ? ` until ${moment(override.expires_at)}` : ""}.`);
    },
  });
}

async function askTier(house: House, known: Known, done: Done): Promise<void> {
  if (refuseScheduled(known)) return;
  const all = await domains(house).catch((error) => (warn(error), []));
  const tiers = all.find((domain) => domain.name === known.domain)?.tiers ?? [];
  const { quota } = known;
  const options = [h("option", { value: "" }, "the domain’s default"), ...tiers.map((tier) => h("option", { value: tier, selected: tier === quota?.tier }, tier))];
  ask({
    title: `The tier of ${known.name}`,
    body: [field("Tier", h("select", { name: "tier" }, options)), reason(true)],
    does: "Change the tier",
    run: async (fields) => {
      const tier = text(fields, "tier");
      await write(house, known, { ...(tier ? { tier } : {}), overrides: quota?.overrides ?? [] }, text(fields, "reason"));
      done(`${known.name} is in ${tier ? `the tier ${tier}` : "the domain’s default tier"}.`);
    },
  });
}

function askReset(house: House, known: Known, done: Done): void {
  ask({
    title: `A fresh start for ${known.name}`,
    body: [h("p", {}, "Every counter that its name leads to begins again, as if nothing had been used."), reason(true)],
    does: "Reset the counters",
    run: async (fields) => {
      await house.api.ask("POST", path("counters", known), { action: "reset", reason: text(fields, "reason") });
      done(`The counters of ${known.name} are reset.`);
    },
  });
}

function askBlock(house: House, known: Known, done: Done): void {
  ask({
    title: `Block ${known.name}`,
    body: [h("p", {}, "Every request of it is refused with 403, whatever its limits are."), lasting(BLOCKED_FOR), reason(true)],
    does: "Block",
    harmful: true,
    run: async (fields) => {
      const lasts = text(fields, "for");
      await house.api.ask("PUT", path("blocks", known), { range: false, reason: text(fields, "reason"), ...(lasts ? { for: lasts } : {}) });
      done(`${known.name} is blocked.`);
    },
  });
}

function askUnblock(house: House, known: Known, done: Done): void {
  ask({
    title: `End the block of ${known.name}`,
    body: [h("p", {}, `It is blocked: ${known.block?.reason ?? ""}`)],
    does: "End the block",
    run: async () => {
      await house.api.ask("DELETE", withQuery(`/admin/v1/blocks/${segment(known.name)}`, { domain: known.domain, range: "false" }));
      done(`${known.name} is no longer blocked.`);
    },
  });
}
