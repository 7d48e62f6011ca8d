// Charts over time, in UTC like everything else here.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { h, say, svg } from "../dom.ts";
import { LOOKS, OUTCOMES, type Outcome } from "../outcomes.ts";
import { rate, took } from "../pure/words.ts";
import { colour, onTheme } from "../theme.ts";
import { pattern } from "./pattern.ts";

const HEIGHT = 200;

/** What is drawn: seconds since 1970, and for each line a number at each of them. */
export type Lines = (number | null)[][];

export interface Chart {
  node: HTMLElement;
  set(at: number[], lines: Lines): void;
  close(): void;
}

interface Drawn {
  name: string;
  series: uPlot.Series[];
  /** From what is told to what is drawn. */
  arrange: (lines: Lines) => Lines;
  /** What the chart says of the moment under the pointer. */
  reads: (lines: Lines, index: number) => string;
  number: (value: number) => string;
  /** Whether a step upwards is ten times as much. */
  byPowers?: boolean;
}

/** Decisions a second, outcome upon outcome. */
export function stacked(): Chart {
  // The sum of all is painted first, and the smaller sums over it.
  const upward = [...OUTCOMES].reverse();
  return draw({
    name: "Decisions a second by outcome over the last five minutes",
    series: upward.map((outcome) => ({
      label: LOOKS[outcome].label,
      stroke: () => colour(outcome),
      fill: (plot) => pattern(plot.ctx, outcome) as string,
      width: 1,
      points: { show: false },
    })),
    arrange: (lines) => upward.map((_, at) => sum(lines.slice(0, OUTCOMES.length - at))),
    reads: (lines, index) =>
      OUTCOMES.map((outcome, at): [Outcome, number] => [outcome, lines[at]?.[index] ?? 0])
        .filter(([outcome, number]) => number > 0 || outcome === "allow")
        .map(([outcome, number]) => `${LOOKS[outcome].label} ${rate(number)}/s`)
        .join(", "),
    number: rate,
  });
}

/** The quantiles of the time that a decision takes. Each line has dashes of its own. */
export function quantiles(): Chart {
  const lines: [string, string, number[]][] = [["p50", "quick", []], ["p99", "slow", [8, 4]], ["p99.9", "slowest", [2, 3]]];
  const sample = (name: string, dash: number[]) =>
    svg("svg", { width: 32, height: 8, "aria-hidden": "true" }, svg("path", { class: `line-${name}`, d: "M0 4H32", "stroke-dasharray": dash.join(" ") || "none" }));
  const legend = h("ul", { class: "legend" }, lines.map(([label, name, dash]) => h("li", {}, sample(name, dash), label)));
  const chart = draw({
    name: "Time of a decision over the last five minutes: half, 99 and 99.9 of a hundred are quicker",
    series: lines.map(([label, name, dash]) => ({ label, stroke: () => colour(name), dash, width: 2, points: { show: false } })),
    // A single slow decision would flatten all others. What took no time at all has no place among powers.
    byPowers: true,
    arrange: (told) => told.map((line) => line.map((took) => (took === 0 ? null : took))),
    reads: (told, index) => lines.map(([label], at) => `${label} ${took(told[at]?.[index])}`).join(", "),
    number: took,
  });
  chart.node.prepend(legend);
  return chart;
}

/** A chart of nothing but zeros has an axis too. */
const fromZero: uPlot.Range.Function = (_, _low, high) => [0, high > 0 ? high * 1.1 : 1];

/** From a power of ten to another. Where nothing was timed, from a microsecond to a millisecond. */
const powers: uPlot.Range.Function = (_, low, high) =>
  low > 0 && high > 0 ? [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high) + 0.01)] : [1e-6, 1e-3];

function sum(lines: Lines): number[] {
  return (lines[0] ?? []).map((_, at) => lines.reduce((all, line) => all + (line[at] ?? 0), 0));
}

function draw(drawn: Drawn): Chart {
  const paper = h("div", { class: "paper", role: "img", "aria-label": drawn.name });
  const reading = h("p", { class: "reading" });
  const node = h("div", { class: "chart" }, paper, reading);
  let [moments, told]: [number[], Lines] = [[], []];
  const read = (index: number | null | undefined) => {
    const at = index === null || index === undefined ? undefined : moments[index];
    if (at === undefined || index === null || index === undefined) return say(reading, "Times are UTC; point at the chart to read it.");
    say(reading, `${new Date(at * 1000).toISOString().slice(11, 19)}: ${drawn.reads(told, index)}`);
  };
  const axis: uPlot.Axis = {
    stroke: () => colour("muted"),
    grid: { stroke: () => colour("line"), width: 1 },
    ticks: { stroke: () => colour("line"), width: 1 },
    font: "12px system-ui, sans-serif",
  };
  const plot = new uPlot(
    {
      width: 300,
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      scales: { y: drawn.byPowers ? { distr: 3, range: powers } : { range: fromZero } },
      axes: [
        { ...axis, size: 30, space: 70, values: (_, splits) => splits.map((at) => new Date(at * 1000).toISOString().slice(11, 19)) },
        { ...axis, size: 64, values: (_, splits) => splits.map((at) => (at === null ? null : drawn.number(at))) },
      ],
      series: [{}, ...drawn.series],
      hooks: { setCursor: [(at) => read(at.cursor.idx)] },
    },
    [[], ...drawn.series.map(() => [])] as uPlot.AlignedData,
    paper,
  );
  const fit = new ResizeObserver(() => plot.setSize({ width: Math.max(200, paper.clientWidth), height: HEIGHT }));
  fit.observe(paper);
  const unhear = onTheme(() => plot.redraw(false, true));
  read(undefined);
  return {
    node,
    set(at, lines) {
      [moments, told] = [at, lines];
      plot.setData([at, ...drawn.arrange(lines)] as uPlot.AlignedData);
      read(plot.cursor.idx);
    },
    close() {
      fit.disconnect();
      unhear();
      plot.destroy();
    },
  };
}
