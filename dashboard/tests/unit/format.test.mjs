// Numbers and times as they are written: a row each.

import assert from "node:assert/strict";
import test from "node:test";
import { count, limit, timestamp, percent, rate, since, plural, duration, took } from "../../build/pure/format.js";

const rows = (write, table) => () => {
  for (const [value, text] of table) assert.equal(write(value), text, `of ${value}`);
};

test("counts", rows(count, [[0, "0"], [999, "999"], [9999, "9,999"], [10_000, "10.0 k"], [123_456, "123 k"], [999_400, "999 k"],
  [999_960, "1.00 M"], [4_560_000, "4.56 M"], [7.2e9, "7.20 G"], [3e13, "30.0 T"]]));

test("rates", rows(rate, [[0, "0"], [0.001, "< 0.01"], [0.2, "0.20"], [9.99, "9.99"], [12.34, "12.3"], [99.97, "100"], [1200.5, "1,201"], [43_210, "43.2 k"]]));

test("what is not all used does not read as if it were", rows(percent, [[0, "0 %"], [0.001, "< 1 %"], [0.5, "50 %"], [0.999, "99 %"], [1, "100 %"], [1.2, "120 %"]]));

test("times taken", rows(took, [[null, "–"], [0.000_004, "4 µs"], [0.000_999_9, "1.00 ms"], [0.0123, "12.3 ms"], [1.5, "1.50 s"]]));

test("stretches", rows(duration, [[0, "0 s"], [-5, "0 s"], [41, "41 s"], [60, "1 min"], [96, "1 min 36 s"], [3600, "1 h"], [90_061, "1 d 1 h"]]));

test("moments", () => {
  const at = Date.parse("2026-11-16T14:32:17Z");
  assert.equal(timestamp("2026-11-16T14:32:17.123456Z"), "2026-11-16 14:32:17 UTC");
  assert.equal(timestamp("2026-11-16T15:32:17+01:00"), "2026-11-16 14:32:17 UTC");
  assert.equal(timestamp(null), "–");
  assert.equal(timestamp("some day"), "some day");
  assert.equal(since("2026-11-16T14:31:17Z", at), "1 min ago");
  assert.equal(since("2026-11-16T14:33:17Z", at), "in 1 min");
});

test("limits and numbers of things", () => {
  assert.equal(limit({ requests_per_unit: 5000, unit: "minute" }), "5,000/minute");
  assert.equal(limit({ limit: "20 concurrent" }), "20 concurrent");
  assert.equal(plural(1, "rule"), "1 rule");
  assert.equal(plural(1200, "rule"), "1,200 rules");
});
