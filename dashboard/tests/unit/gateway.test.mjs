// What the numbers of a gateway mean.

import assert from "node:assert/strict";
import test from "node:test";
import { healthText, isUsable, loweredText, refusedByTier, refusedText, responses, routeRates, serverState, shedText, shedding } from "../../build/pure/gateway.js";
import { eventText } from "../../build/pure/marks.js";

const server = (healthy, ejected) => ({ address: "10.0.0.1:80", healthy, ejected, in_flight: 0, connections: 0 });
const route = (name, successful) => ({ name, matches: "/*", upstream: "u", informational: 1, successful, redirected: 2, client_errors: 3, server_errors: 4, limited: 0, shed: 0 });
const upstream = (name, refused, mode = "enforce") => ({ name, servers: [], cap: { mode, refused: { test: 0, post: 0, critical: 0, get: refused }, reserves: [] }, fairness: null });
const NONE = { test: 0, get: 0, post: 0, critical: 0 };
const worker = (mode, amount) => ({ mode, utilisation: 0.9, amount, refused: NONE });
const reading = (at, routes, upstreams = [], of = worker("off", 0)) => ({ at, status: { server: "here", routes, upstreams, worker: of, shed: [] } });

test("health checks outlast an ejection", () => {
  assert.deepEqual([[true, false], [true, true], [false, false], [false, true]].map(([healthy, ejected]) => serverState(server(healthy, ejected))), ["healthy", "ejected", "unhealthy", "unhealthy"]);
});

test("an upstream is usable as long as one server is", () => {
  const of = (...servers) => ({ servers });
  for (const [servers, usable, text] of [
    [[], false, "no server is known"],
    [[server(true, false)], true, "1 server, healthy"],
    [[server(true, false), server(false, true), server(true, true)], true, "3 servers: 1 unhealthy, 1 ejected"],
    [[server(false, false), server(false, false)], false, "2 servers: 2 unhealthy"],
  ]) {
    assert.equal(isUsable(of(...servers)), usable, text);
    assert.equal(healthText(of(...servers)), text);
  }
});

test("refusals are named by class", () => {
  assert.equal(refusedText({ refused: { test: 0, get: 0, post: 0, critical: 0 } }), "none");
  assert.equal(refusedText({ refused: { test: 20_000, get: 0, post: 3, critical: 0 } }), "20.0 k test, 3 post");
});

test("rates are the difference of two readings, and a counter may begin again", () => {
  assert.equal(responses(route("a", 90)), 100);
  assert.equal(routeRates(undefined, reading(1_000, [route("a", 5)])).size, 0);
  const rates = routeRates(reading(1_000, [route("a", 10), route("b", 50)]), reading(3_000, [route("a", 30), route("b", 10), route("c", 1)]));
  assert.deepEqual([...rates], [["a", 10], ["b", 10]]);
  assert.equal(routeRates(reading(1_000, []), reading(1_000, [])).size, 0);
});

test("a cap sheds if it refused since the last reading, and is enforced", () => {
  const before = reading(0, [], [upstream("a", 1), upstream("b", 1), upstream("c", 1, "shadow")]);
  const now = reading(1, [], [upstream("a", 2), upstream("b", 1), upstream("c", 9, "shadow"), upstream("new", 5)]);
  assert.deepEqual(shedding(before, now), ["a"]);
  assert.deepEqual(shedding(undefined, now), []);
});

test("a server that sheds for itself says so, unless it only counts", () => {
  const shed = (mode, amount) => shedding(undefined, reading(1, [], [], worker(mode, amount)));
  assert.deepEqual([shed("enforce", 0.2), shed("enforce", 0), shed("shadow", 0.2), shed("off", 0.2)], [["this server"], [], [], []]);
});

test("what was shed is named by shedder", () => {
  const shed = (by, get) => ({ by, refused: { ...NONE, get } });
  assert.equal(shedText({ shed: [shed("adaptive", 0), shed("worker", 0), shed("fleet", 0)] }), "");
  assert.equal(shedText({ shed: [shed("adaptive", 12), shed("worker", 0), shed("fleet", 3)] }), "caps 12, rules 3");
});

test("callers that are lowered are named by tier", () => {
  const tier = (tier, ceiling, refused) => ({ tier, lowered: ceiling === null ? 0 : 1, ceiling, refused });
  assert.equal(loweredText({ tiers: [tier("free", null, 0)] }), "nobody");
  assert.equal(loweredText({ tiers: [tier("free", 20, 3), tier("pro", 80, 0), tier("enterprise", null, 0)] }), "free to 20.0/s, pro to 80.0/s");
  assert.equal(refusedByTier({ tiers: [tier("free", null, 20_000), tier("pro", null, 3), tier("enterprise", null, 0)] }), "20.0 k free, 3 pro");
  assert.equal(refusedByTier({ tiers: [] }), "none");
});

test("a fairness shedder that refuses sheds too", () => {
  const fair = (refused, mode) => ({ ...upstream("a", 0), fairness: { mode, tiers: [{ tier: "free", lowered: 1, ceiling: 1, refused }] } });
  assert.deepEqual(shedding(reading(0, [], [fair(1, "enforce")]), reading(1, [], [fair(2, "enforce")])), ["a"]);
  assert.deepEqual(shedding(reading(0, [], [fair(1, "shadow")]), reading(1, [], [fair(2, "shadow")])), []);
});

test("a switch of the shedding is an event", () => {
  const event = { at: "2026-01-01T00:00:00Z", kind: "gateway", text: "gateway.shedding-off", domain: "", name: "host-1", by: "ann", reason: "incident 12" };
  assert.equal(eventText(event), "host-1: shedding of the gateway switched off by ann (incident 12)");
});
