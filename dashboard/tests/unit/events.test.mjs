// Events out of pieces that end anywhere.

import assert from "node:assert/strict";
import test from "node:test";
import { MAX_WAIT, MAX_CHARACTERS, EventParser, retryDelay } from "../../build/pure/events.js";

const TEXT = ": here\n\nevent: overview\ndata: {\"at\": 1}\n\r\ndata: one\r\ndata:two\r\n\r\nevent: nothing\n\nevent: rules\ndata: {}\n\n";
const EVENTS = [
  { event: "overview", data: '{"at": 1}' },
  { event: "message", data: "one\ntwo" },
  { event: "rules", data: "{}" },
];

test("events are the same wherever their pieces end", () => {
  assert.deepEqual(new EventParser().push(TEXT), EVENTS);
  for (let first = 0; first < TEXT.length; first += 1) {
    const reader = new EventParser();
    const all = [...reader.push(TEXT.slice(0, first)), ...reader.push(TEXT.slice(first))];
    assert.deepEqual(all, EVENTS, `cut at ${first}`);
  }
});

test("incomplete events are not returned", () => {
  assert.deepEqual(new EventParser().push("event: overview\ndata: {}\n"), []);
});

test("an event without end is an error", () => {
  const reader = new EventParser();
  const line = `data: ${"x".repeat(1 << 20)}\n`;
  assert.throws(() => {
    for (let length = 0; length <= MAX_CHARACTERS; length += 1 << 20) reader.push(line);
  }, /too long/);
  assert.throws(() => new EventParser().push("x".repeat(MAX_CHARACTERS + 1)), /too long/);
});

test("waits grow up to a bound, and are spread", () => {
  assert.deepEqual([1, 2, 3, 4, 5, 50].map((failures) => retryDelay(failures, 1)), [1, 2, 4, 8, MAX_WAIT, MAX_WAIT]);
  assert.equal(retryDelay(1, 0), 0.5);
});
