// What differs between two documents.

import assert from "node:assert/strict";
import test from "node:test";
import { MAX_CHANGES, changes, valueText } from "../../build/pure/changes.js";

const lines = (before, after) => changes(before, after).map((one) => `${one.path}: ${valueText(one.before)} > ${valueText(one.after)}`);

test("changed members are listed by their paths", () => {
  assert.deepEqual(lines({ tier: "free", same: [1] }, { tier: "pro", same: [1] }), ["tier: free > pro"]);
  assert.deepEqual(lines({ a: { b: 1, c: 2 } }, { a: { b: 1, c: 3 } }), ["a.c: 2 > 3"]);
  assert.deepEqual(lines({ list: [{ limit: "1/minute" }] }, { list: [{ limit: "2/minute" }] }), ["list.0.limit: 1/minute > 2/minute"]);
});

test("added and removed members are listed whole", () => {
  assert.deepEqual(lines(null, { mode: "off", until: null }), ["mode: – > off", "until: – > null"]);
  assert.deepEqual(lines({ mode: "off" }, null), ["mode: off > –"]);
  assert.deepEqual(lines({ list: [] }, { list: [{ rule: "a" }] }), ['list: [] > [{"rule":"a"}]']);
  assert.deepEqual(lines({ a: 1 }, { a: 1 }), []);
});

test("the changes of a new document are bounded", () => {
  const long = Object.fromEntries(Array.from({ length: 500 }, (_, at) => [`m${at}`, at]));
  assert.equal(changes(null, long).length, MAX_CHANGES);
});
