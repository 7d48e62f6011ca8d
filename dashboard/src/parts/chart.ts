// Charts over time, in UTC. A value holds for its whole step, a gap is a gap, and marks say what changed.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { h, setText, svg } from "../dom.ts";
import { OUTCOME_STYLES, type Outcome } from "../outcomes.ts";
import { rate, took } from "../pure/format.ts";
import type { Mark } from "../pure/marks.ts";
import { type Values, corners } from "../pure/series.ts";
import { colour, onTheme } from "../theme.ts";
import { type Fill, pattern } from "./pattern.ts";

/** The data of a chart. */
export interface ChartData {
  /** The beginning of the first step, and the length of a step, in seconds. */
  from: number;
  step: number;
  /** The time that the axis shows, in seconds; it ends with the newest step. */
  range: number;
  lines: Values[];
  marks?: Mark[];
}

export interface Chart {
  node: HTMLElement;
  set(data: ChartData): void;
  close(): void;
}

interface ChartOptions {
  name: string;
  height: number;
  series: uPlot.Series[];
  /** Converts data to drawn lines. */
  arrange: (lines: Values[]) => Values[];
  /** The text for a step. */
  reads: (lines: Values[], index: number) => string;
  number: (value: number) => string;
  /** Whether the scale is logarithmic. */
  logarithmic?: boolean;
}

/** How near the pointer must be to a mark, in pixels. */
const NEAR = 6;

/** Lines of counts, stacked: the first is at the bottom. */
function stack(name: string, height: number, lines: { fill: Fill; label: string }[]): Chart {
  // The largest sum is painted first, smaller ones over it.
  const upward = lines.map((line, at) => ({ ...line, at })).reverse();
  return draw({
    name,
    height,
    series: upward.map(({ fill, label }) => ({
      label,
      stroke: () => colour(fill),
      fill: (plot) => pattern(plot.ctx, fill) as string,
      width: 1,
      points: { show: false },
    })),
    // What does not occur has no line, not even along the axis.
    arrange: (values) => upward.map(({ at }) => {
      const occurs = at === lines.length - 1 || (values[at] ?? []).some((value) => value !== null && value > 0);
      return sum(values.slice(0, at + 1)).map((value) => (occurs ? value : null));
    }),
    reads: (values, index) => {
      const parts = lines.map((line, at): [string, number] => [line.label, values[at]?.[index] ?? 0]).filter(([, number], at) => number > 0 || at === 0);
      return parts.map(([label, number]) => `${label} ${rate(number)}/s`).join(", ");
    },
    number: rate,
  });
}

/** The outcomes from the bottom: what is refused rests on the axis, so that its height can be read. */
export const STACK: Outcome[] = ["deny", "blocked", "shed", "assumed", "shadow", "soft", "allow"];

/** Decisions per second, stacked by outcome. */
export function decisionChart(): Chart {
  return stack("Decisions per second by outcome", 220, STACK.map((outcome) => ({ fill: outcome, label: OUTCOME_STYLES[outcome].label })));
}

/** What a rule did, per second. */
export function ruleChart(): Chart {
  return stack("Decisions of the rule per second", 200, [{ fill: "deny", label: "refused" }, { fill: "shadow", label: "would refuse" }, { fill: "allow", label: "allowed" }]);
}

/** Refusals of a caller, per second. */
export function refusalChart(): Chart {
  return stack("Refusals of the caller per second", 140, [{ fill: "deny", label: "refused" }, { fill: "shadow", label: "would refuse" }]);
}

/** Quantiles of decision latency. Each line has its own dash pattern. */
export function quantileChart(): Chart {
  const lines: [string, string, number[]][] = [["p50", "quick", []], ["p99", "slow", [8, 4]], ["p99.9", "slowest", [2, 3]]];
  const sample = (name: string, dash: number[]) =>
    svg("svg", { width: 32, height: 8, "aria-hidden": "true" }, svg("path", { class: `line-${name}`, d: "M0 4H32", "stroke-dasharray": dash.join(" ") || "none" }));
  const legend = h("ul", { class: "legend" }, lines.map(([label, name, dash]) => h("li", {}, sample(name, dash), label)));
  const chart = draw({
    name: "Decision latency: 50th, 99th and 99.9th percentile",
    height: 180,
    series: lines.map(([label, name, dash]) => ({ label, stroke: () => colour(name), dash, width: 1.5, points: { show: false } })),
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
const fromZero: uPlot.Range.Function = (_, _low, high) => [0, high > 0 ? high * 1.12 : 1];

/** Full powers of ten. Without measurements, from a microsecond to a millisecond. */
const powers: uPlot.Range.Function = (_, low, high) =>
  low > 0 && high > 0 ? [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high) + 0.01)] : [1e-6, 1e-3];

/** The powers of ten of the axis: lines for all digits would be a hedge. */
function powersBetween(_: uPlot, _axis: number, low: number, high: number): number[] {
  const [first, last] = [Math.round(Math.log10(low)), Math.round(Math.log10(high))];
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, at) => 10 ** (first + at));
}

/** The sum of lines; a gap where all have one. */
function sum(lines: Values[]): Values {
  return (lines[0] ?? []).map((_, at) => {
    const known = lines.map((line) => line[at]).filter((value): value is number => value !== null && value !== undefined);
    return known.length === 0 ? null : known.reduce((all, value) => all + value, 0);
  });
}

function clock(at: number, range: number): string {
  return new Date(at * 1000).toISOString().slice(11, range > 3600 ? 16 : 19);
}

function draw(options: ChartOptions): Chart {
  const paper = h("div", { class: "paper", role: "img", "aria-label": options.name });
  paper.style.height = `${options.height}px`;
  const reading = h("p", { class: "reading" });
  const node = h("div", { class: "chart" }, paper, reading);
  let data: ChartData = { from: 0, step: 1, range: 600, lines: [] };
  const read = (plot: uPlot | undefined) => {
    const index = plot?.cursor.idx;
    const step = index === null || index === undefined ? undefined : index >> 1;
    const left = plot?.cursor.left ?? -1;
    const near = left < 0 ? undefined : data.marks?.find((mark) => Math.abs((plot?.valToPos(mark.at, "x") ?? -99) - left) <= NEAR);
    node.classList.toggle("on-mark", near !== undefined);
    if (near) return setText(reading, `${clock(near.at, 0)}: ${near.text}`);
    if (step === undefined || data.lines.every((line) => (line[step] ?? null) === null)) return setText(reading, "Times are UTC. Point at the chart to read it.");
    setText(reading, `${clock(data.from + step * data.step, data.range)}: ${options.reads(data.lines, step)}`);
  };
  const axis: uPlot.Axis = {
    stroke: () => colour("muted"),
    grid: { stroke: () => colour("grid"), width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
  };
  // The axis has its full length from the start: a young server's minute is not an hour.
  const span: uPlot.Range.Function = () => {
    const to = data.from + (data.lines[0]?.length ?? 0) * data.step;
    return [to - data.range, to];
  };
  const plot = new uPlot(
    {
      width: 300,
      height: options.height,
      legend: { show: false },
      padding: [18, 26, 0, 0],
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      scales: { x: { range: span }, y: options.logarithmic ? { distr: 3, range: powers } : { range: fromZero } },
      axes: [
        { ...axis, size: 30, space: 70, grid: { show: false }, values: (_, splits) => splits.map((at) => clock(at, data.range)) },
        { ...axis, size: 60, ...(options.logarithmic ? { splits: powersBetween } : {}), values: (_, splits) => splits.map((at) => (at === null ? null : options.number(at))) },
      ],
      series: [{}, ...options.series],
      hooks: { setCursor: [(at) => read(at)], draw: [(at) => drawMarks(at, data.marks ?? [])] },
    },
    [[], ...options.series.map(() => [])] as uPlot.AlignedData,
    paper,
  );
  const fit = new ResizeObserver(() => plot.setSize({ width: Math.max(200, paper.clientWidth), height: options.height }));
  fit.observe(paper);
  const unsubscribe = onTheme(() => plot.redraw(false, true));
  read(undefined);
  return {
    node,
    set(now) {
      data = now;
      const drawn = corners(now.from, now.step, options.arrange(now.lines));
      plot.setData([drawn.at, ...drawn.lines] as uPlot.AlignedData);
      read(plot);
    },
    close() {
      fit.disconnect();
      unsubscribe();
      plot.destroy();
    },
  };
}

/** The sign at the top of a mark, and its colour. */
const SIGNS: Record<string, [string, string]> = {
  store: ["S", "bad"], reload_failed: ["!", "bad"], signal: ["!", "near"], emergency: ["E", "bad"], switch: ["M", "near"], block: ["B", "near"], lease: ["L", "near"], gateway: ["G", "near"], start: ["▲", "good"], rule: ["R", "link"], reload: ["R", "link"],
};

function drawMarks(plot: uPlot, marks: Mark[]): void {
  const pen = plot.ctx;
  const size = 7 * devicePixelRatio;
  pen.save();
  pen.font = `600 ${10 * devicePixelRatio}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (const { at, kind } of marks) {
    const x = Math.round(plot.valToPos(at, "x", true));
    if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
    const [sign, name] = SIGNS[kind] ?? ["•", "muted"];
    pen.strokeStyle = pen.fillStyle = colour(name);
    pen.lineWidth = devicePixelRatio;
    pen.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    pen.beginPath();
    pen.moveTo(x, plot.bbox.top);
    pen.lineTo(x, plot.bbox.top + plot.bbox.height);
    pen.stroke();
    pen.setLineDash([]);
    pen.beginPath();
    pen.arc(x, plot.bbox.top - size - devicePixelRatio, size, 0, 2 * Math.PI);
    pen.fill();
    pen.fillStyle = colour("ground");
    pen.fillText(sign, x, plot.bbox.top - size);
  }
  pen.restore();
}
