// The switch of the shedders of a gateway.

import { h } from "../dom.ts";
import type { AppContext } from "../context.ts";
import { openDialog, reason, text } from "../parts/dialog.ts";
import { notify, warn } from "../parts/notice.ts";
import type { SheddingMode, UpstreamShedder } from "../types.ts";

const ENFORCES: Record<UpstreamShedder | "worker", string> = {
  adaptive: "Requests beyond the concurrency limit are refused with 503, the least important first.",
  fairness: "While the upstream is overloaded, requests of the busiest callers are refused with 503, the lowest tier first.",
  worker: "While this server is overloaded, a part of its requests is refused with 503, the least important first.",
};

/** What is switched: a shedder of an upstream, those of all, or the shedder of the server. */
export type Switched = { shedder: UpstreamShedder; upstream?: string | undefined } | { shedder: "worker" };

const MEANS: Record<SheddingMode, string> = {
  enforce: "",
  shadow: "What would be refused is counted, and nothing is refused.",
  off: "Nothing is measured and nothing is refused.",
};

/** Switches a shedder. `mode` is the one in force, if it is the same for all of them. */
export function openShedding(app: AppContext, server: string, what: Switched, mode: SheddingMode | undefined, changed: () => void): void {
  const { shedder } = what;
  const choice = (name: SheddingMode) =>
    h("label", { class: "choice" }, h("input", { type: "radio", name: "mode", value: name, required: true, checked: name === mode }), h("span", {}, h("strong", {}, name), ` ${MEANS[name] || ENFORCES[shedder]}`));
  const of = what.shedder === "worker" ? "this server" : (what.upstream ?? "all upstreams");
  const until = what.shedder === "worker" ? "the worker shedder changes" : "the upstream changes";
  openDialog({
    title: `Switch the ${shedder} shedding of ${of}`,
    body: [
      h("fieldset", {}, h("legend", {}, "Switch to"), (Object.keys(MEANS) as SheddingMode[]).map(choice)),
      h("p", {}, `Only ${server} is changed, until it restarts or ${until} in the file of the gateway.`),
      reason(true),
    ],
    confirm: "Switch",
    harmful: true,
    run: async (fields) => {
      const to = text(fields, "mode");
      const body = { mode: to, reason: text(fields, "reason"), ...what };
      const { audited } = await app.api.request<{ audited: boolean }>("PUT", "/admin/v1/gateway/shedding", body);
      if (!audited) warn(new Error("The change is made, but the audit log could not be written."));
      notify(`The ${shedder} shedding of ${of} is switched to ${to} on ${server}.`);
      changed();
    },
  });
}
