// Blocks of callers, addresses and networks.

import { withQuery } from "../api.ts";
import { h } from "../dom.ts";
import { type AppContext, domains } from "../context.ts";
import { field, lasting, openDialog, reason, text } from "../parts/dialog.ts";
import { notify, warn } from "../parts/notice.ts";
import { segment } from "../pure/route.ts";
import type { Block } from "../types.ts";

const LASTS: [string, string][] = [["1h", "1 hour"], ["24h", "24 hours"], ["168h", "7 days"], ["", "permanently"]];

/** Whose requests are refused. */
export type BlockTarget = { caller: string; domain: string } | undefined;

/** Blocks a caller, an address or a network. */
export async function openBlock(app: AppContext, target: BlockTarget, done: () => void): Promise<void> {
  const all = target ? [] : await domains(app).catch((error) => (warn(error), []));
  const named = all.filter((domain) => domain.entity !== null);
  const kind = h("select", { name: "kind" }, h("option", { value: "range" }, "an address or a network"), named.map(({ name }) => h("option", { value: name }, `a caller of ${name}`)));
  openDialog({
    title: target ? `Block ${target.caller}` : "Block",
    body: [
      h("p", {}, "All its requests are refused, whatever its limits are."),
      !target && field("What", kind),
      !target && field("Name", h("input", { name: "name", required: true, autocomplete: "off", placeholder: "203.0.113.0/24" }), "An address, a network, or the name of a caller; * stands for any text in the name of a caller."),
      field("Response", h("select", { name: "status" }, h("option", { value: "403" }, "403 Forbidden"), h("option", { value: "429" }, "429 Too Many Requests"), h("option", { value: "shadow" }, "none: serve it, and mark it for the gateway"))),
      lasting(LASTS),
      reason(true),
    ],
    confirm: "Block",
    harmful: true,
    run: async (fields) => {
      const [lasts, status, chosen] = [text(fields, "for"), text(fields, "status"), text(fields, "kind")];
      const name = target?.caller ?? text(fields, "name");
      const isRange = !target && chosen === "range";
      const answer = status === "shadow" ? { shadow: true } : { status: Number(status) };
      const path = withQuery(`/admin/v1/blocks/${segment(name)}`, isRange ? {} : { domain: target?.domain ?? chosen });
      await app.api.request("PUT", path, { range: isRange, reason: text(fields, "reason"), ...answer, ...(lasts ? { for: lasts } : {}) });
      notify(`${name} is blocked.`);
      done();
    },
  });
}

export function openUnblock(app: AppContext, block: Pick<Block, "name" | "domain" | "range" | "reason">, done: () => void): void {
  openDialog({
    title: `End the block of ${block.name}`,
    body: [h("p", {}, `It is blocked: ${block.reason}`)],
    confirm: "End the block",
    run: async () => {
      const query = { domain: block.domain, ...(block.range ? {} : { range: "false" }) };
      await app.api.request("DELETE", withQuery(`/admin/v1/blocks/${segment(block.name)}`, query));
      notify(`${block.name} is no longer blocked.`);
      done();
    },
  });
}
