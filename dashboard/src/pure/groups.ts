// Groups logged decisions: the same rule, outcome and reason within a minute are one row.

import type { LoggedDecision } from "../types.ts";
import type { Values } from "./series.ts";

/** Decisions that are shown as one row. */
export interface Group {
  first: LoggedDecision;
  /** Newest first. */
  entries: LoggedDecision[];
  /** The number of decisions: an entry of the log may stand for several. */
  count: number;
  /** Milliseconds since 1970. */
  from: number;
  to: number;
}

/** The longest time that a group covers. */
const MAX_SPAN_MS = 60_000;

/** Groups entries, which are newest first. */
export function group(entries: LoggedDecision[]): Group[] {
  const groups: Group[] = [];
  const open = new Map<string, Group>();
  for (const entry of entries) {
    const key = JSON.stringify([entry.domain, entry.rule, entry.verdict, entry.source, reason(entry.why)]);
    const [from, to] = span(entry);
    const known = open.get(key);
    if (known && Math.max(known.to, to) - Math.min(known.from, from) <= MAX_SPAN_MS) {
      known.entries.push(entry);
      known.count += entry.count ?? 1;
      known.from = Math.min(known.from, from);
      known.to = Math.max(known.to, to);
    } else {
      const fresh = { first: entry, entries: [entry], count: entry.count ?? 1, from, to };
      open.set(key, fresh);
      groups.push(fresh);
    }
  }
  return groups.sort((one, other) => other.to - one.to);
}

/** The time that an entry covers. */
function span(entry: LoggedDecision): [number, number] {
  const at = Date.parse(entry.at);
  return [at, entry.until ? Date.parse(entry.until) : at];
}

/** A reason without its numbers: "retry in 12.1 s" and "retry in 12.2 s" are the same one. */
function reason(why: string): string {
  return why.replace(/; the entry stands for .*$/, ".").replace(/\d[\d,.]*( ?[mµ]?s)?/g, "#");
}

/**
 * Refusals for each step, from entries of the log. An entry counts in each step by how much of its time is in the step. Before `since`, in
 * seconds, the entries are not all there: these steps are gaps.
 */
export function refusalsOverTime(entries: LoggedDecision[], from: number, step: number, steps: number, since = from): { refused: Values; would: Values } {
  const lines = { refused: new Array<number>(steps).fill(0), would: new Array<number>(steps).fill(0) };
  for (const entry of entries) {
    const line = entry.verdict === "deny" || entry.verdict === "blocked" ? lines.refused : entry.verdict === "shadow" ? lines.would : undefined;
    if (!line) continue;
    const [begin, end] = span(entry).map((at) => (at / 1000 - from) / step) as [number, number];
    for (let place = Math.max(0, Math.floor(begin)); place <= Math.min(steps - 1, Math.floor(end)); place += 1) {
      const part = end > begin ? (Math.min(end, place + 1) - Math.max(begin, place)) / (end - begin) : 1;
      line[place]! += part * (entry.count ?? 1);
    }
  }
  const known = (line: number[]): Values => line.map((value, place) => (from + (place + 1) * step <= since ? null : value));
  return { refused: known(lines.refused), would: known(lines.would) };
}

/** Keys of several rules that are one caller's, or one key: those that are highest in the list come first. */
export function byKey<T extends { domain: string; key: string; caller: string | null }>(keys: T[]): T[][] {
  const groups = new Map<string, T[]>();
  for (const one of keys) {
    const name = JSON.stringify([one.domain, one.caller ?? one.key]);
    const known = groups.get(name);
    if (known) known.push(one);
    else groups.set(name, [one]);
  }
  return [...groups.values()];
}

/** Groups with the ranks of what is shown: rows that became part of another one leave no gap. */
export function numbered<T extends { rank: number }>(groups: T[][]): T[][] {
  return groups.map((group, at) => group.map((one) => ({ ...one, rank: at + 1 })));
}
