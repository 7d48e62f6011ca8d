// Sparklines: allowed, refused and would-be refused requests of the last five minutes, in steps.

import { svg } from "../dom.ts";
import { rate } from "../pure/format.ts";

const [WIDTH, HEIGHT] = [120, 26];
/** Steps of the whole width. A young server has fewer, at the right. */
const STEPS = 60;

export interface Lines {
  allow: number[];
  deny: number[];
  would_deny: number[];
}

export function sparkline(): { node: SVGElement; set(lines: Lines): void } {
  const title = svg("title");
  // Allowed is an area, refused a thick line, would-be refused a dashed one.
  const [allow, deny, would] = ["allow", "deny", "would"].map((name) => svg("path", { class: `spark-${name}` }));
  const node = svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img" }, title, allow, deny, would);
  return {
    node,
    set(lines) {
      const all = [lines.allow, lines.deny, lines.would_deny];
      const top = Math.max(...all.flat(), 0);
      const path = (numbers: number[]) => (top > 0 && numbers.some((number) => number > 0) ? line(numbers, top) : "");
      const area = path(lines.allow);
      const left = (WIDTH * (1 - Math.min(1, lines.allow.length / STEPS))).toFixed(1);
      allow?.setAttribute("d", area && `${area}V${HEIGHT}H${left}Z`);
      deny?.setAttribute("d", path(lines.deny));
      would?.setAttribute("d", path(lines.would_deny));
      title.textContent = `highest: ${["allowed", "refused", "would refuse"].map((name, at) => `${name} ${rate(Math.max(0, ...all[at]!))}/s`).join(", ")}`;
    },
  };
}

/** Each number is a level over its whole step. */
function line(numbers: number[], top: number): string {
  const step = WIDTH / STEPS;
  const shown = numbers.slice(-STEPS);
  const left = WIDTH - shown.length * step;
  const level = (number: number) => (HEIGHT - 1 - (number / top) * (HEIGHT - 3)).toFixed(1);
  return shown.map((number, at) => `${at === 0 ? `M${left.toFixed(1)} ` : "V"}${level(number)}H${(left + (at + 1) * step).toFixed(1)}`).join("");
}
