// Utilisation bars.

import { h, setText } from "../dom.ts";
import { percent } from "../pure/format.ts";

/** From this ratio on a limit is near. */
const NEAR = 0.8;

export interface Bar {
  node: HTMLElement;
  set(ratio: number, name: string): void;
}

/**
 * A bar with its number. Near and full bars differ by more than colour, if it is about the use of a limit; a share has no
 * limit.
 */
export function bar(kind: "use" | "share" = "use"): Bar {
  const [filled, text] = [h("span", { class: "filled" }), h("span", { class: "number" })];
  const track = h("span", { class: "track", role: "meter", "aria-valuemin": 0, "aria-valuemax": 100 }, filled);
  const node = h("span", { class: "bar" }, track, text);
  return {
    node,
    set(ratio, name) {
      const parts = Math.round(Math.min(1, Math.max(0, ratio)) * 100);
      filled.style.width = `${parts}%`;
      const isFull = kind === "use" && ratio >= 1;
      node.dataset["level"] = isFull ? "full" : kind === "use" && ratio >= NEAR ? "near" : "low";
      track.setAttribute("aria-valuenow", String(parts));
      track.setAttribute("aria-label", kind === "use" ? `utilisation of ${name}` : `share of ${name}`);
      setText(text, `${percent(ratio)}${isFull ? " full" : ""}`);
    },
  };
}
