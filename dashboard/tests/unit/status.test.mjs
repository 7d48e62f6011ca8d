// Is all well? Rows of evidence, and what is said of them.

import assert from "node:assert/strict";
import test from "node:test";
import { assess } from "../../build/pure/status.js";

const well = {
  overview: {
    at: "2026-11-16T14:10:00Z",
    rates: { allow: 100, deny: 1, shadow: 0, soft: 0, shed: 0, blocked: 0, assumed: 0, decisions: 101 },
    store: { level: "normal", since: null, circuits: [{ shard: "a", state: "closed" }], evicted: 0 },
    rules: { valid: true, last_error: null },
    health: [{ part: "store", degraded: false, why: null }],
    log: { dropped: 0 },
  },
  rise: undefined, refusing: [], topKeys: [], switches: [], emergencies: [],
};
const overview = (more) => ({ ...well, overview: { ...well.overview, ...more } });
const said = (evidence) => assess(evidence).map(({ severity, text }) => `${severity}: ${text}`);

test("nothing is said if all is well", () => assert.deepEqual(said(well), []));

test("the store, its breakers, the rules and other parts", () => {
  const { store, rules } = well.overview;
  assert.match(said(overview({ store: { ...store, level: "local-only", since: "2026-11-16T14:06:00Z" } }))[0], /^bad: The counter store has been local-only for 4 min: no part of it answers/);
  assert.deepEqual(said(overview({ store: { ...store, circuits: [{ shard: "b", state: "open" }] } })), ["warn: Breaker open: b."]);
  assert.match(said(overview({ rules: { ...rules, valid: false, last_error: "rules.yaml:2" } }))[0], /^bad: The rule files are invalid.*rules.yaml:2/);
  assert.deepEqual(said(overview({ health: [{ part: "tls", degraded: true, why: "An old certificate." }] })), ["warn: Degraded: tls. An old certificate."]);
  assert.match(said(overview({ store: { ...store, evicted: 12 } }))[0], /^warn: 12 counters in use were evicted/);
  assert.match(said(overview({ rates: { ...well.overview.rates, shed: 3 } }))[0], /^bad: 3.00 decisions per second are shed/);
});

test("other regions, with a link to their page", () => {
  const health = [{ part: "regions", degraded: true, why: "eu is apart (debits of 3.0 s)" }];
  assert.deepEqual(said(overview({ health })), ["warn: Degraded: regions. eu is apart (debits of 3.0 s)"]);
  const eu = { name: "eu", this: false, nodes: [], link: "apart", step: 7, oldest_seconds: 3 };
  const [finding, ...more] = assess({ ...overview({ health }), regions: { regions: [eu], rules: [] } });
  assert.deepEqual([finding.severity, more.length, finding.links[0].href], ["bad", 0, "#/regions"]);
  assert.match(finding.text, /^eu is apart: debits do not arrive there/);
});

test("requests that no rule applies to are said if they are many", () => {
  assert.deepEqual(said(overview({ unmatched: { share: 0.49, attributes: ["apikey"] } })), []);
  assert.deepEqual(said(overview({ unmatched: { share: 0.75, attributes: [] } })), ["warn: No rule applies to 75 % of the requests, which pass without a limit."]);
  assert.match(said(overview({ unmatched: { share: 1, attributes: ["apikey", "userid"] } }))[0], /No rule reads apikey, userid\.$/);
});

test("a rise of refusals names the rule and the caller, with links", () => {
  const rise = { index: 3, before: 10, now: 900, at: Date.parse("2026-11-16T14:03:20Z") / 1000 };
  const refusing = [{ domain: "shop", rule: "orders", mode: "enforce", rates: { deny: 92, would_deny: 0 } }, { domain: "shop", rule: "other", mode: "enforce", rates: { deny: 8, would_deny: 0 } }];
  const topKeys = [{ domain: "shop", rule: "orders", key: "ada", caller: "ada" }];
  const [finding] = assess({ ...well, rise, refusing, topKeys });
  assert.equal(finding.text, "Refusals rose at 14:03:20 UTC: 900 per second, 10.0 before. 92 % are by the rule orders, and the most refused caller is ada.");
  assert.deepEqual(finding.links.map((link) => link.href), ["#/rule?domain=shop&name=orders", "#/caller?domain=shop&name=ada"]);
  assert.equal(assess({ ...well, rise, refusing, topKeys: [{ ...topKeys[0], caller: "#5f" }] })[0].links.length, 1, "hashed callers have no page");
});

test("what operators put in force, the worst first", () => {
  const one = { what: "everything", domain: null, rule: null, mode: "off", reason: "storm", in_force: true };
  const emergency = { name: "flood", reason: "slow", expires_at: "2026-11-16T15:00:00Z", in_force: true };
  assert.deepEqual(said({ ...well, switches: [one, { ...one, what: "rule", rule: "orders" }, { ...one, in_force: false }], emergencies: [emergency, { ...emergency, in_force: false }] }), [
    "bad: All rules are switched to off: storm.", "warn: Switched off: orders.", "warn: Emergency flood is in force until 15:00 UTC: slow.",
  ]);
});
