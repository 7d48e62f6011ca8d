// On a server that has decided nothing: what to do next.

import { h, setText } from "../../dom.ts";
import { type AppContext, domains } from "../../context.ts";
import { href } from "../../pure/route.ts";
import type { Overview } from "../../types.ts";

/** The default port of the HTTP listener. The page can't know another one. */
const HTTP_PORT = 8080;

export function firstSteps(app: AppContext) {
  const command = h("code", {}, "");
  const node = h("section", { class: "card first-steps", hidden: true },
    h("h2", {}, "No requests yet"),
    h("p", {}, "This server has decided nothing so far. Send it a check, and it appears here within a second:"),
    h("pre", {}, command),
    h("p", { class: "hint" }, `${HTTP_PORT} is the default port of the HTTP listener. `,
      h("a", { href: href("rules") }, "See the rules in force"), ", ", h("a", { href: href("try") }, "try a request"),
      ", or read docs/README.md in the source tree: how to connect Envoy, nginx or a service."));
  let isKnown = false;
  return {
    node,
    set(now: Overview) {
      node.hidden = now.totals.decisions > 0;
      if (node.hidden || isKnown) return;
      isKnown = true;
      // Errors are shown by the rest of the page.
      void domains(app).then(([domain]) => {
        const body = JSON.stringify({ ...(domain ? { domain: domain.name } : {}), attributes: { [domain?.entity ?? "api_key"]: "ada" } });
        setText(command, `curl -i http://${location.hostname}:${HTTP_PORT}/v1/ratelimit/check -d '${body}'`);
      }, () => {});
    },
  };
}
