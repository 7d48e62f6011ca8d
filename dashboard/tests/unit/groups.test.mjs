// Groups of logged decisions, refusals over time, and marks.

import assert from "node:assert/strict";
import test from "node:test";
import { byKey, group, numbered, refusalsOverTime } from "../../build/pure/groups.js";
import { eventText, marks } from "../../build/pure/marks.js";
import { span } from "../../build/pure/format.js";

const entry = (at, more = {}) => ({ at: `2026-11-16T14:${at}Z`, domain: "shop", rule: "orders", verdict: "deny", source: "store", why: "ada was refused: it had used 5 of 5, and there was room again 12.1 s later.", ...more });

test("the same rule, outcome and reason within a minute are one", () => {
  const groups = group([
    entry("01:30.000"), entry("01:20.500", { why: "ada was refused: it had used 5 of 5, and there was room again 300 ms later; the entry stands for 40 such decisions within 9 s.", count: 40, until: "2026-11-16T14:01:29.500Z" }),
    entry("01:10.000", { verdict: "allow", why: "ada passed." }), entry("00:29.000"), entry("00:28.000", { rule: "other" }),
  ]);
  assert.deepEqual(groups.map((one) => [one.first.rule, one.first.verdict, one.count, one.entries.length]), [["orders", "deny", 41, 2], ["orders", "allow", 1, 1], ["orders", "deny", 1, 1], ["other", "deny", 1, 1]]);
  assert.equal(span(groups[0].from, groups[0].to), "14:01:20.500 – 30.000");
  assert.equal(span(groups[1].from, groups[1].to), "14:01:10.000");
});

test("refusals are spread over the time that they took", () => {
  const from = Date.parse("2026-11-16T14:00:00Z") / 1000;
  const { refused, would } = refusalsOverTime([
    entry("00:05.000"), entry("00:10.000", { count: 30, until: "2026-11-16T14:00:40.000Z" }), entry("00:25.000", { verdict: "shadow" }), entry("00:25.000", { verdict: "allow" }),
    { ...entry("00:00.000"), at: "2026-11-16T13:00:00Z" },
  ], from, 10, 4);
  assert.deepEqual(refused, [1, 10, 10, 10]);
  assert.deepEqual(would, [0, 0, 1, 0]);
});

test("before the oldest entry that was read, refusals are not known", () => {
  const from = Date.parse("2026-11-16T14:00:00Z") / 1000;
  const { refused, would } = refusalsOverTime([entry("00:35.000"), entry("00:25.000")], from, 10, 4, from + 25);
  assert.deepEqual([refused, would], [[null, null, 1, 1], [null, null, 0, 0]]);
});

test("keys of one caller are one group, in the order of the highest", () => {
  const key = (key, rule, caller = null, domain = "shop") => ({ domain, key, rule, caller });
  const groups = byKey([key("", "everyone"), key("ada", "per-key", "ada"), key("bob", "per-key", "bob"), key("ada · /x", "orders", "ada"), key("ada", "per-key", "ada", "other"), key("ada", "shadowed", "ada")]);
  assert.deepEqual(groups.map((group) => group.map((one) => one.rule)), [["everyone"], ["per-key", "orders", "shadowed"], ["per-key"], ["per-key"]]);
});

test("ranks are those of the rows, without gaps", () => {
  const key = (rank, key, rule) => ({ rank, domain: "shop", key, rule, caller: key });
  const groups = numbered(byKey([key(1, "ada", "per-key"), key(2, "ada", "orders"), key(3, "bob", "per-key"), key(4, "ada", "shadowed"), key(5, "eve", "per-key")]));
  assert.deepEqual(groups.map((group) => group.map((one) => [one.rank, one.key, one.rule])), [
    [[1, "ada", "per-key"], [1, "ada", "orders"], [1, "ada", "shadowed"]], [[2, "bob", "per-key"]], [[3, "eve", "per-key"]],
  ]);
});

const event = (at, kind, more = {}) => ({ at: `2026-11-16T14:${at}Z`, kind, text: "x", domain: null, name: null, by: null, reason: null, ...more });

test("events become marks, and those too close to tell apart become one", () => {
  const from = Date.parse("2026-11-16T14:00:00Z") / 1000;
  const found = marks([event("05:00", "reload"), event("05:02", "switch", { text: "switch.put", domain: "shop", name: "orders", by: "ann", reason: "storm" }), event("01:00", "start"), event("59:00", "store")], from, from + 600, 10);
  assert.deepEqual(found.map((mark) => [mark.at - from, mark.kind]), [[60, "start"], [300, "switch"]]);
  assert.equal(found[1].text, "x; shop · orders: switched by ann (storm)");
});

test("events in words", () => {
  assert.equal(eventText(event("00:00", "reload_failed", { text: "rules.yaml:2" })), "rules could not be loaded: rules.yaml:2");
  assert.equal(eventText(event("00:00", "block", { text: "block.delete", name: "key-1", by: "ann" })), "key-1: block ended by ann");
  assert.equal(eventText(event("00:00", "lease", { text: "lease.off", name: "host-1", by: "ann", reason: "incident 12" })), "host-1: leases switched off by ann (incident 12)");
  assert.equal(eventText(event("00:00", "block", { text: "block.discard", name: "key-1", by: "ann" })), "key-1: block discard by ann");
});
