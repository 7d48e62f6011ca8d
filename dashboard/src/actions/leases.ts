// Leases of the server that serves the page: off and on, and purges of keys.

import { withQuery } from "../api.ts";
import { h } from "../dom.ts";
import type { AppContext } from "../context.ts";
import { openDialog, reason, text } from "../parts/dialog.ts";
import { notify, warn } from "../parts/notice.ts";
import { plural } from "../pure/format.ts";
import type { HotKey, Leases } from "../types.ts";

interface Answer {
  audited: boolean;
}

interface Purged extends Answer {
  keys: number;
  units_returned: number;
  refusals: number;
}

/** Changes of leases do not wait for the store of record. */
function warnIfNotAudited({ audited }: Answer): void {
  if (!audited) warn(new Error("The change is made, but the audit log could not be written."));
}

export function openLeaseSwitch(app: AppContext, { server, enabled }: Leases, changed: () => void): void {
  const effect = enabled
    ? "Redis decides every request of this server. What the server holds is given back within a second."
    : "This server takes units of busy keys ahead of requests again.";
  openDialog({
    title: enabled ? "Switch leases off" : "Switch leases on",
    body: [h("p", {}, `${effect} Only ${server} is changed; after a restart, its setting “leases” applies.`), reason(true)],
    confirm: enabled ? "Switch off" : "Switch on",
    harmful: enabled,
    run: async (fields) => {
      warnIfNotAudited(await app.api.request<Answer>("PUT", "/admin/v1/leases", { enabled: !enabled, reason: text(fields, "reason") }));
      notify(`Leases of ${server} are ${enabled ? "off" : "on"}.`);
      changed();
    },
  });
}

/** Purges a key, or all. */
export function openPurge(app: AppContext, server: string, key: HotKey | undefined, changed: () => void): void {
  const of = key ? `${key.key || "the counter of all callers"} of ${key.rule}` : "all keys";
  openDialog({
    title: `Purge ${of}`,
    body: [
      h("p", {}, `Units that ${server} holds are given back, and refusals that it remembers are forgotten: Redis decides the next request. Keys that stay busy are leased again.`),
      h("p", {}, "Other servers are not changed."),
      reason(true),
    ],
    confirm: "Purge",
    harmful: key === undefined,
    run: async (fields) => {
      const selection = key ? { key: key.key, rule: key.rule } : { all: true };
      const path = withQuery("/admin/v1/leases/purge", { domain: key?.domain });
      const purged = await app.api.request<Purged>("POST", path, { ...selection, reason: text(fields, "reason") });
      warnIfNotAudited(purged);
      notify(`${plural(purged.keys, "key")} purged: ${plural(purged.units_returned, "unit")} given back, ${plural(purged.refusals, "refusal")} forgotten.`);
      changed();
    },
  });
}
