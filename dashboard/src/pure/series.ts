// Decisions over time: what the server has, and what the stream adds to it.

import { OUTCOMES, type Outcome } from "../outcomes.ts";

export const QUANTILES = ["p50", "p99", "p999"] as const;
export type Quantile = (typeof QUANTILES)[number];

/** A number for each step; `null` where the server did not run or nothing was measured. */
export type Values = (number | null)[];

/** The history of the API. */
export type HistoryBody = Record<Outcome | Quantile, Values> & { step_seconds: number; from: string; to: string };

/** One second of the stream, in the form of the history. */
export type SecondBody = Record<Outcome, number> & Record<Quantile, number | null> & { at: string };

export class Series {
  /** The beginning of the first step, in seconds since 1970. */
  from = 0;
  step = 1;
  counts = empty(OUTCOMES);
  times = empty(QUANTILES);

  /** `max`: the number of steps that are retained. */
  constructor(readonly max: number) {}

  get length(): number {
    return this.counts.allow.length;
  }

  /** The end of the newest step. */
  get to(): number {
    return this.from + this.length * this.step;
  }

  begin(history: HistoryBody): void {
    this.from = Date.parse(history.from) / 1000;
    this.step = history.step_seconds;
    for (const outcome of OUTCOMES) this.counts[outcome] = [...history[outcome]];
    for (const quantile of QUANTILES) this.times[quantile] = [...history[quantile]];
  }

  /** Adds a second. Returns false if seconds before it are missing: then the history has to be read again. */
  add(second: SecondBody): boolean {
    const place = Math.round((Date.parse(second.at) / 1000 - this.from) / this.step);
    if (this.step !== 1 || this.length === 0 || place > this.length || place < this.length - 1) return place < this.length - 1 && this.length > 0;
    for (const outcome of OUTCOMES) this.counts[outcome][place] = second[outcome];
    for (const quantile of QUANTILES) this.times[quantile][place] = second[quantile];
    const excess = this.length - this.max;
    if (excess > 0) {
      this.from += excess * this.step;
      for (const line of [...Object.values(this.counts), ...Object.values(this.times)]) line.splice(0, excess);
    }
    return true;
  }
}

function empty<K extends string>(names: readonly K[]): Record<K, Values> {
  return Object.fromEntries(names.map((name) => [name, []])) as unknown as Record<K, Values>;
}

/**
 * The corners of a line of steps: each value holds for the whole of its step, and a gap is a gap.
 *
 * Joining the middles of steps would draw a count of one second as a triangle of two.
 */
export function corners(from: number, step: number, lines: Values[]): { at: number[]; lines: Values[] } {
  const length = lines[0]?.length ?? 0;
  const at: number[] = [];
  for (let number = 0; number < length; number += 1) at.push(from + number * step, from + (number + 1) * step - step / 1000);
  return { at, lines: lines.map((line) => line.flatMap((value) => [value, value])) };
}

/** A rise of a rate: when it began, and what it was before. */
export interface Rise {
  /** The index of the first step of it. */
  index: number;
  before: number;
  now: number;
}

/** Steps that the current rate is averaged over. */
const RECENT = 10;
/** Steps before which a rate is "before". */
const SETTLED = 60;
/** A rise is at least this much. */
const FACTOR = 3;

/** Finds a rise that lasts. `values`: a rate for each second. */
export function findRise(values: Values): Rise | undefined {
  const known = values.map((value) => value ?? 0);
  if (known.length < SETTLED + RECENT) return undefined;
  const now = mean(known.slice(-RECENT));
  // The tenth percentile: a rise that has lasted for minutes is not its own past.
  const sorted = known.slice(0, -RECENT).sort((one, other) => one - other);
  const before = sorted[Math.floor(sorted.length / 10)] ?? 0;
  if (now < 1 || now < FACTOR * before) return undefined;
  const half = (before + now) / 2;
  let index = known.length - RECENT;
  while (index > 0 && mean(known.slice(Math.max(0, index - 5), index)) >= half) index -= 1;
  return index === 0 ? undefined : { index, before, now };
}

function mean(values: number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}
