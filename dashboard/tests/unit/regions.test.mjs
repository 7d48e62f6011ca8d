// What is said of other regions, and of the rules that count in several of them.

import assert from "node:assert/strict";
import test from "node:test";
import { effect, lagText, linkText, nodesText, oldestText, troubles, worst } from "../../build/pure/regions.js";

const node = (state = "closed") => ({ shard: "x:1", state, error: state === "closed" ? null : "no answer" });
const here = { name: "us-east", this: true, servers: 1, decisions_per_second: 0, nodes: [node()] };
const other = (name, link = "together", step = 0, nodes = [node()]) => ({ name, this: false, servers: 0, decisions_per_second: 0, link, step, oldest_seconds: step / 4, waiting: 0, nodes });
const of = (...others) => ({ server: "host-1", at: "", region: "us-east", available: true, regions: [here, ...others], rules: [], omitted: 0 });
const rule = (region, terms = region, apart = null) => ({ domain: "d", rule: "r", mode: "enforce", region, terms, apart });

const well = of(other("eu-west"), other("us-west"));
const lagging = of(other("eu-west", "lagging", 2), other("us-west", "lagging", 3));
const apart = of(other("eu-west", "apart", 7, [node("open"), node("open")]), other("us-west"));

test("links and nodes in words", () => {
  assert.deepEqual(lagging.regions.map(linkText), ["this region", "lagging, step 2 of 6", "lagging, step 3 of 6"]);
  assert.deepEqual(apart.regions.map(nodesText), ["1 node", "2 of 2 nodes away", "1 node"]);
  assert.deepEqual([0, undefined, 0.25, 90].map((age) => oldestText({ oldest_seconds: age })), ["none", "none", "250 ms", "1 min 30 s"]);
  assert.deepEqual([null, 0.15, 2, 10].map(lagText), ["–", "150 ms", "2.00 s", "> 2 s"]);
  assert.deepEqual([well, lagging, apart].map((now) => worst(now).name), ["eu-west", "us-west", "eu-west"]);
});

test("what a rule does depends on the worst region", () => {
  const said = (one, now) => Object.values(effect(one, now)).map(String);
  const global = rule("global", "global", "alone");
  assert.deepEqual(said(global, well), ["what one region admits counts in all", "false"]);
  assert.deepEqual(said(global, lagging), ["lowered by 3 of 6 steps, towards 1/3 of the limit: us-west hears of units too late", "true"]);
  assert.deepEqual(said(global, apart), ["the whole limit, without what eu-west admits", "true"]);
  assert.deepEqual(said(rule("global", "global: {apart: share}", "share"), apart), ["lowered to 1/3 of the limit until eu-west can be reached", "true"]);
  assert.deepEqual(said(rule("split"), apart), ["each region counts its share", "false"]);
});

test("rules with a home depend on the region that owns the counter", () => {
  const said = (terms, now) => effect(rule("home", terms), now);
  assert.deepEqual(said("home: us-east", apart), { text: "counted here, for all regions", isBad: false });
  assert.deepEqual(said("home: eu-west", well), { text: "counted in eu-west", isBad: false });
  assert.deepEqual(said("home: us-west", apart), { text: "counted in us-west", isBad: false });
  assert.equal(said("home: eu-west", apart).isBad, true);
  assert.deepEqual(said("home", well), { text: "counted in the home of the caller", isBad: false });
  assert.match(said("home", apart).text, /^counters of eu-west can't be reached/);
});

test("troubles name the region, the lag and the node", () => {
  assert.deepEqual(troubles(well), []);
  assert.deepEqual(troubles(lagging).map(({ text }) => text)[1], "us-west is lagging: the oldest debit has waited 750 ms, and limits are lowered (step 3 of 6).");
  assert.deepEqual(troubles(apart), [{ isBad: true, text: "eu-west is apart: debits do not arrive there, and limits count without it. 2 of 2 nodes away: no answer." }]);
  const half = of(other("eu-west", "together", 0, [node(), node("half-open")]));
  assert.deepEqual(troubles(half), [{ isBad: false, text: "eu-west: 1 of 2 nodes away: no answer." }]);
});
