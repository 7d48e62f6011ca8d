// Charts over time, in UTC.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { h, setText, svg } from "../dom.ts";
import { OUTCOME_STYLES, OUTCOMES, type Outcome } from "../outcomes.ts";
import { rate, took } from "../pure/format.ts";
import { colour, onTheme } from "../theme.ts";
import { pattern } from "./pattern.ts";

const HEIGHT = 200;

/** The data of a chart: timestamps in seconds, and a value per line and timestamp. */
export type Lines = (number | null)[][];

export interface Chart {
  node: HTMLElement;
  set(at: number[], lines: Lines): void;
  close(): void;
}

interface ChartOptions {
  name: string;
  series: uPlot.Series[];
  /** Converts data to drawn lines. */
  arrange: (lines: Lines) => Lines;
  /** The text for the position of the pointer. */
  reads: (lines: Lines, index: number) => string;
  number: (value: number) => string;
  /** Whether the scale is logarithmic. */
  logarithmic?: boolean;
}

/** Decisions per second, stacked by outcome. */
export function stacked(): Chart {
  // The largest sum is painted first, smaller ones over it.
  const upward = [...OUTCOMES].reverse();
  return draw({
    name: "Decisions per second by outcome over the last five minutes",
    series: upward.map((outcome) => ({
      label: OUTCOME_STYLES[outcome].label,
      stroke: () => colour(outcome),
      fill: (plot) => pattern(plot.ctx, outcome) as string,
      width: 1,
      points: { show: false },
    })),
    arrange: (lines) => upward.map((_, at) => sum(lines.slice(0, OUTCOMES.length - at))),
    reads: (lines, index) =>
      OUTCOMES.map((outcome, at): [Outcome, number] => [outcome, lines[at]?.[index] ?? 0])
        .filter(([outcome, number]) => number > 0 || outcome === "allow")
        .map(([outcome, number]) => `${OUTCOME_STYLES[outcome].label} ${rate(number)}/s`)
        .join(", "),
    number: rate,
  });
}

/** Quantiles of decision latency. Each line has its own dash pattern. */
export function quantiles(): Chart {
  const lines: [string, string, number[]][] = [["p50", "quick", []], ["p99", "slow", [8, 4]], ["p99.9", "slowest", [2, 3]]];
  const sample = (name: string, dash: number[]) =>
    svg("svg", { width: 32, height: 8, "aria-hidden": "true" }, svg("path", { class: `line-${name}`, d: "M0 4H32", "stroke-dasharray": dash.join(" ") || "none" }));
  const legend = h("ul", { class: "legend" }, lines.map(([label, name, dash]) => h("li", {}, sample(name, dash), label)));
  const chart = draw({
    name: "Decision latency over the last five minutes: 50th, 99th and 99.9th percentile",
    series: lines.map(([label, name, dash]) => ({ label, stroke: () => colour(name), dash, width: 2, points: { show: false } })),
    // A single slow decision would flatten all others. Zero has no place on a logarithmic scale.
    logarithmic: true,
    arrange: (values) => values.map((line) => line.map((took) => (took === 0 ? null : took))),
    reads: (values, index) => lines.map(([label], at) => `${label} ${took(values[at]?.[index])}`).join(", "),
    number: took,
  });
  chart.node.prepend(legend);
  return chart;
}

/** A chart of zeros has an axis too. */
const fromZero: uPlot.Range.Function = (_, _low, high) => [0, high > 0 ? high * 1.1 : 1];

/** Full powers of ten. Without measurements, from a microsecond to a millisecond. */
const powers: uPlot.Range.Function = (_, low, high) =>
  low > 0 && high > 0 ? [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high) + 0.01)] : [1e-6, 1e-3];

function sum(lines: Lines): number[] {
  return (lines[0] ?? []).map((_, at) => lines.reduce((all, line) => all + (line[at] ?? 0), 0));
}

function draw(options: ChartOptions): Chart {
  const paper = h("div", { class: "paper", role: "img", "aria-label": options.name });
  const reading = h("p", { class: "reading" });
  const node = h("div", { class: "chart" }, paper, reading);
  let [times, data]: [number[], Lines] = [[], []];
  const read = (index: number | null | undefined) => {
    const at = index === null || index === undefined ? undefined : times[index];
    if (at === undefined || index === null || index === undefined) return setText(reading, "Times are UTC; point at the chart to read it.");
    setText(reading, `${new Date(at * 1000).toISOString().slice(11, 19)}: ${options.reads(data, index)}`);
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
      scales: { y: options.logarithmic ? { distr: 3, range: powers } : { range: fromZero } },
      axes: [
        { ...axis, size: 30, space: 70, values: (_, splits) => splits.map((at) => new Date(at * 1000).toISOString().slice(11, 19)) },
        { ...axis, size: 64, values: (_, splits) => splits.map((at) => (at === null ? null : options.number(at))) },
      ],
      series: [{}, ...options.series],
      hooks: { setCursor: [(at) => read(at.cursor.idx)] },
    },
    [[], ...options.series.map(() => [])] as uPlot.AlignedData,
    paper,
  );
  const fit = new ResizeObserver(() => plot.setSize({ width: Math.max(200, paper.clientWidth), height: HEIGHT }));
  fit.observe(paper);
  const unsubscribe = onTheme(() => plot.redraw(false, true));
  read(undefined);
  return {
    node,
    set(at, lines) {
      [times, data] = [at, lines];
      plot.setData([at, ...options.arrange(lines)] as uPlot.AlignedData);
      read(plot.cursor.idx);
    },
    close() {
      fit.disconnect();
      unsubscribe();
      plot.destroy();
    },
  };
}
