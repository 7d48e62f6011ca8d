// How much of something is used.

import { h, say } from "../dom.ts";
import { percent } from "../pure/words.ts";

/** From here on a limit is near, and from here on it is reached. */
const NEAR = 0.8;

export interface Bar {
  node: HTMLElement;
  set(ratio: number, name: string): void;
}

/** A bar with its number. What is near or full says so by more than its colour. */
export function bar(): Bar {
  const [filled, text] = [h("span", { class: "filled" }), h("span", { class: "number" })];
  const track = h("span", { class: "track", role: "meter", "aria-valuemin": 0, "aria-valuemax": 100 }, filled);
  const node = h("span", { class: "bar" }, track, text);
  return {
    node,
    set(ratio, name) {
      const parts = Math.round(Math.min(1, Math.max(0, ratio)) * 100);
      filled.style.width = `${parts}%`;
      node.dataset["level"] = ratio >= 1 ? "full" : ratio >= NEAR ? "near" : "low";
      track.setAttribute("aria-valuenow", String(parts));
      track.setAttribute("aria-label", `used of ${name}`);
      say(text, `${percent(ratio)}${ratio >= 1 ? " full" : ""}`);
    },
  };
}
