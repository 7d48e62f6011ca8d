// Decisions over time: seams, gaps, corners and rises.

import assert from "node:assert/strict";
import test from "node:test";
import { OUTCOMES } from "../../build/outcomes.js";
import { QUANTILES, Series, corners, findRise } from "../../build/pure/series.js";

const FROM = "2026-11-16T14:00:00Z";

function history(values) {
  const lines = Object.fromEntries([...OUTCOMES, ...QUANTILES].map((name) => [name, values.map(() => 0)]));
  return { ...lines, deny: values, step_seconds: 1, from: FROM, to: FROM };
}

function second(number, deny) {
  const lines = Object.fromEntries([...OUTCOMES, ...QUANTILES].map((name) => [name, 0]));
  return { ...lines, deny, at: new Date(Date.parse(FROM) + number * 1000).toISOString() };
}

test("the stream continues the history without a seam", () => {
  const series = new Series(4);
  series.begin(history([1, 2]));
  assert.equal(series.add(second(2, 3)), true);
  assert.deepEqual(series.counts.deny, [1, 2, 3]);
  assert.equal(series.add(second(2, 4)), true, "the newest second may be sent again");
  assert.deepEqual(series.counts.deny, [1, 2, 4]);
  assert.equal(series.add(second(0, 9)), true, "what is known is left as it is");
  assert.deepEqual(series.counts.deny, [1, 2, 4]);
  series.add(second(3, 5));
  series.add(second(4, 6));
  assert.deepEqual([series.counts.deny, series.from, series.to], [[2, 4, 5, 6], Date.parse(FROM) / 1000 + 1, Date.parse(FROM) / 1000 + 5]);
  assert.equal(series.add(second(9, 7)), false, "seconds are missing");
  assert.equal(series.length, 4);
  assert.equal(new Series(4).add(second(0, 1)), false, "nothing is known yet");
});

test("a step is a level, and a gap is a gap", () => {
  const { at, lines } = corners(100, 10, [[1, null, 3]]);
  assert.deepEqual(lines, [[1, 1, null, null, 3, 3]]);
  assert.deepEqual(at.map(Math.round), [100, 110, 110, 120, 120, 130]);
  assert.ok(at.every((value, place) => place === 0 || value > at[place - 1]), "times ascend");
});

test("a rise is found with its beginning", () => {
  const calm = new Array(300).fill(10);
  const rise = findRise([...calm, ...new Array(40).fill(100)]);
  assert.equal(rise.before, 10);
  assert.equal(rise.now, 100);
  assert.ok(Math.abs(rise.index - 300) <= 3, String(rise.index));
  assert.equal(findRise(calm), undefined, "steady");
  assert.equal(findRise([...new Array(300).fill(0), ...new Array(20).fill(0.5)]), undefined, "too little to mention");
  assert.equal(findRise(new Array(50).fill(100)), undefined, "a young server has no past");
  assert.equal(findRise([...calm, ...new Array(20).fill(25)]), undefined, "less than three times");
  assert.equal(findRise([...calm, ...new Array(60).fill(100), ...new Array(20).fill(10)]), undefined, "it is over");
  assert.ok(findRise([null, null, ...calm, ...new Array(20).fill(90)]), "gaps are no traffic");
});
