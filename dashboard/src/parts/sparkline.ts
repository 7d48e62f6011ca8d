// Sparklines: allowed, refused and would-be refused requests of the last minutes.

import { svg } from "../dom.ts";
import { rate } from "../pure/format.ts";

const [WIDTH, HEIGHT] = [120, 26];

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
      allow?.setAttribute("d", area && `${area}V${HEIGHT}H0Z`);
      deny?.setAttribute("d", path(lines.deny));
      would?.setAttribute("d", path(lines.would_deny));
      title.textContent = `highest: ${["allowed", "refused", "would refuse"].map((name, at) => `${name} ${rate(Math.max(0, ...all[at]!))}/s`).join(", ")}`;
    },
  };
}

function line(numbers: number[], top: number): string {
  const step = WIDTH / Math.max(1, numbers.length - 1);
  return numbers.map((number, at) => `${at === 0 ? "M" : "L"}${(at * step).toFixed(1)} ${(HEIGHT - 1 - (number / top) * (HEIGHT - 3)).toFixed(1)}`).join("");
}
