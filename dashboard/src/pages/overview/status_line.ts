// One line at the top: all is well, or what is wrong.

import { fill, h } from "../../dom.ts";
import { icon } from "../../parts/icon.ts";
import { announce } from "../../parts/notice.ts";
import { percent, rate, since, took } from "../../pure/format.ts";
import { eventText } from "../../pure/marks.ts";
import type { Finding } from "../../pure/status.ts";
import type { Overview, ServerEvent } from "../../types.ts";

export function statusLine() {
  const node = h("section", { class: "status", "aria-label": "Status", "data-test": "status" }, h("p", {}, "Loading…"));
  let shown = "";
  return {
    node,
    set(findings: Finding[], now: Overview, last: ServerEvent | undefined) {
      const worst = findings[0]?.severity;
      const isWell = worst === undefined || worst === "note";
      const summary = describe(now, last);
      const text = JSON.stringify([findings, summary]);
      if (text === shown) return;
      const headline = isWell ? "All is well" : worst === "bad" ? "Something is wrong" : "Look here";
      const wasWell = node.dataset["level"];
      node.dataset["level"] = isWell ? "good" : worst;
      if (wasWell !== undefined && wasWell !== node.dataset["level"]) announce(`${headline}. ${findings[0]?.text ?? ""}`);
      shown = text;
      // Links keep the focus: the line is replaced only if its text differs.
      const focused = node.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : null;
      fill(node, h("div", { class: "status-head" }, icon(isWell ? "check" : "alert"), h("strong", {}, headline), h("span", { class: "status-sum" }, summary)),
        findings.length > 0 && h("ul", {}, findings.map((one) => h("li", { "data-severity": one.severity }, h("span", {}, one.text), one.links.map((link) => [" ", h("a", { href: link.href }, link.text)])))));
      if (focused) node.querySelector<HTMLElement>(`a[href="${CSS.escape(focused)}"]`)?.focus();
    },
  };
}

/** The numbers that matter, and the last change. */
function describe(now: Overview, last: ServerEvent | undefined): string {
  const { rates, latency } = now;
  const parts = [`${rate(rates.decisions)} decisions/s`];
  if (rates.decisions > 0) parts.push(`${percent(rates.deny / rates.decisions)} refused`);
  if (latency.decision.p99 !== null) parts.push(`p99 ${took(latency.decision.p99)}`);
  if (last) parts.push(`last change ${since(last.at, Date.parse(now.at))}: ${eventText(last)}`);
  return parts.join(" · ");
}
