// Places in the dashboard, there and back.

import assert from "node:assert/strict";
import test from "node:test";
import { href, parse, segment } from "../../build/pure/route.js";

test("a place is what it was when it was written", () => {
  const name = "<b>&=?#/ü";
  assert.deepEqual(parse(href("caller", { name, domain: "api", rule: "" })), { page: "caller", query: { name, domain: "api" } });
  assert.equal(href("rules"), "#/rules");
});

test("what is not known is the overview", () => {
  for (const hash of ["", "#", "#/", "#/nowhere", "#/__proto__?a=b"]) assert.deepEqual(parse(hash), { page: "overview", query: {} }, hash);
});

test("a name is one part of a path", () => {
  assert.equal(segment("203.0.113.0/24"), "203.0.113.0%2F24");
  assert.equal(segment("a b?c"), "a%20b%3Fc");
  for (const name of ["", ".", ".."]) assert.throws(() => segment(name), /can't be requested/);
});
