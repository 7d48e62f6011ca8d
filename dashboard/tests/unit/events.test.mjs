// Events out of pieces that end anywhere.

import assert from "node:assert/strict";
import test from "node:test";
import { LONGEST_WAIT, MOST_CHARACTERS, Reader, wait } from "../../build/events.js";

const TEXT = ": here\n\nevent: overview\ndata: {\"at\": 1}\n\r\ndata: one\r\ndata:two\r\n\r\nevent: nothing\n\nevent: rules\ndata: {}\n\n";
const EVENTS = [
  { event: "overview", data: '{"at": 1}' },
  { event: "message", data: "one\ntwo" },
  { event: "rules", data: "{}" },
];

test("events are the same wherever their pieces end", () => {
  assert.deepEqual(new Reader().push(TEXT), EVENTS);
  for (let first = 0; first < TEXT.length; first += 1) {
    const reader = new Reader();
    const all = [...reader.push(TEXT.slice(0, first)), ...reader.push(TEXT.slice(first))];
    assert.deepEqual(all, EVENTS, `cut at ${first}`);
  }
});

test("what is not whole is not told", () => {
  assert.deepEqual(new Reader().push("event: overview\ndata: {}\n"), []);
});

test("an event without end is an error", () => {
  const reader = new Reader();
  const line = `data: ${"x".repeat(1 << 20)}\n`;
  assert.throws(() => {
    for (let length = 0; length <= MOST_CHARACTERS; length += 1 << 20) reader.push(line);
  }, /no end/);
  assert.throws(() => new Reader().push("x".repeat(MOST_CHARACTERS + 1)), /no end/);
});

test("waits grow up to a bound, and are spread", () => {
  assert.deepEqual([1, 2, 3, 4, 5, 50].map((failures) => wait(failures, 1)), [1, 2, 4, 8, LONGEST_WAIT, LONGEST_WAIT]);
  assert.equal(wait(1, 0), 0.5);
});
