// Fills that differ by more than colour, in charts and legends.

import { h } from "../dom.ts";
import { OUTCOME_STYLES, type Outcome, type Pattern } from "../outcomes.ts";
import { colour, onTheme } from "../theme.ts";

/** The size of a tile, in screen pixels. */
const TILE = 8;

type Pen = CanvasRenderingContext2D;

/** What a fill stands for. */
export type Fill = Outcome;

const STROKES: Record<Pattern, (pen: Pen) => void> = {
  plain: () => {},
  diagonal: (pen) => lines(pen, [-2, 2, 2, -2], [0, 8, 8, 0], [6, 10, 10, 6]),
  dots: (pen) => [2, 6].forEach((at) => pen.fillRect(at - 1, at - 1, 2, 2)),
  lines: (pen) => lines(pen, [0, 4, 8, 4]),
  bars: (pen) => lines(pen, [4, 0, 4, 8]),
  cross: (pen) => lines(pen, [0, 0, 8, 8], [8, 0, 0, 8]),
  grid: (pen) => lines(pen, [0, 4, 8, 4], [4, 0, 4, 8]),
};

function lines(pen: Pen, ...all: [number, number, number, number][]): void {
  pen.beginPath();
  for (const [fromX, fromY, toX, toY] of all) {
    pen.moveTo(fromX, fromY);
    pen.lineTo(toX, toY);
  }
  pen.stroke();
}

/** Paints a tile of an outcome. */
function paint(canvas: HTMLCanvasElement, outcome: Outcome): void {
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.setTransform(canvas.width / TILE, 0, 0, canvas.height / TILE, 0, 0);
  pen.fillStyle = colour(outcome);
  pen.fillRect(0, 0, TILE, TILE);
  pen.fillStyle = pen.strokeStyle = colour("card");
  pen.globalAlpha = 0.75;
  pen.lineWidth = 1.4;
  STROKES[OUTCOME_STYLES[outcome].pattern](pen);
  pen.globalAlpha = 1;
}

/** The fill of an outcome's area. */
export function pattern(pen: Pen, outcome: Outcome): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = tile.height = TILE * devicePixelRatio;
  paint(tile, outcome);
  return pen.createPattern(tile, "repeat") ?? colour(outcome);
}

/** A sample of an outcome's fill, for legends. */
export function swatch(outcome: Outcome): { node: HTMLElement; close(): void } {
  const node = h("canvas", { class: "swatch", width: TILE * 2, height: TILE * 2, "aria-hidden": "true" });
  paint(node, outcome);
  return { node, close: onTheme(() => paint(node, outcome)) };
}
