//! Decisions over time, what changed, and the page of a rule.

use serde_json::{Value, json};
use tollgate::{Clock as _, SystemClock};
use tollgate_store::Counters;
use tollgate_store::conformance::gated::GatedStore;
use tollgate_store::guarded::Level;

use super::super::{Bench, SHOP};
use super::{decide, second, some};
use crate::observe::events::EventKind;
use crate::scopes::AccessScope;

const HISTORY: &str = "/admin/v1/history";
const EVENTS: &str = "/admin/v1/events";

#[tokio::test]
async fn history_has_a_point_for_each_step_of_the_range() {
    let bench = Bench::new(SHOP).await;
    decide(&bench, "k", 12).await;
    second(&bench);
    second(&bench);
    let seconds = bench.get(HISTORY).await.ok();
    assert_eq!(
        some(&seconds, ["range", "step_seconds", "from", "to"]),
        [json!("10m"), json!(1.0), json!("2025-06-15T15:06:40Z"), json!("2025-06-15T15:06:42Z")]
    );
    assert_eq!(some(&seconds, ["allow", "deny"]), [json!([10.0, 0.0]), json!([2.0, 0.0])]);
    assert!(seconds["p99"][0].as_f64().unwrap() > 0.0 && seconds["p99"][1].is_null());
    let day = bench.get(&format!("{HISTORY}?range=24h")).await.ok();
    assert_eq!(
        some(&day, ["step_seconds", "from", "deny"]),
        [json!(60.0), json!("2025-06-15T15:06:00Z"), json!([1.0])]
    );
    assert_eq!(bench.get(&format!("{HISTORY}?range=2h")).await.ok()["step_seconds"], 10.0);
    assert_eq!(bench.get(&format!("{HISTORY}?range=1y")).await.code(400), "bad_query");
}

#[tokio::test]
async fn the_newest_second_is_the_last_point_of_the_history() {
    let bench = Bench::new(SHOP).await;
    assert_eq!(bench.get("/admin/v1/overview").await.ok()["second"], json!(null));
    for number in [12, 3] {
        decide(&bench, "k", number).await;
        bench.observability.observer.decision_latency().record(1_000_000 * number as u64, 1);
        second(&bench);
        let (overview, history) = (bench.get("/admin/v1/overview").await.ok(), bench.get(HISTORY).await.ok());
        let last = |member: &str| history[member].as_array().unwrap().last().unwrap().clone();
        for member in ["allow", "deny", "shadow", "p50", "p99", "p999"] {
            assert_eq!(overview["second"][member], last(member), "{member}");
        }
        assert!(overview["second"]["p999"].as_f64().unwrap() >= 0.001 * f64::from(number as u8));
    }
    let overview = bench.get("/admin/v1/overview").await.ok();
    assert_eq!(overview["second"]["at"], "2025-06-15T15:06:41Z");
    assert!(overview["second"]["p999"].as_f64().unwrap() < 0.01, "the slow second before it is over");
    assert!(overview["latency"]["decision"]["p999"].as_f64().unwrap() > 0.01, "the last minute has it");
}

#[tokio::test]
async fn the_rules_that_refuse_most_come_first() {
    let bench = Bench::new(SHOP).await;
    decide(&bench, "k", 16).await;
    second(&bench);
    let refusing = bench.get("/admin/v1/overview").await.ok()["refusing"].clone();
    assert_eq!(refusing.as_array().unwrap().len(), 1);
    assert_eq!(some(&refusing[0], ["domain", "rule", "mode"]), ["shop", "per-key", "enforce"].map(Value::from));
    assert!(refusing[0]["rates"]["deny"].as_f64().unwrap() > 0.0);
}

#[tokio::test]
async fn events_of_the_server_and_changes_by_operators_are_listed_together() {
    let held = GatedStore::new();
    let bench = Bench::on(SHOP, Counters::Shared(held.clone())).await;
    second(&bench);
    held.set_level(Level::LocalOnly);
    second(&bench);
    bench.rewrite(&SHOP.replace("5/year", "6/year"));
    second(&bench);
    bench.rewrite("domain: shop\nrules: 7\n");
    second(&bench);
    bench.put("/admin/v1/blocks/key-1", &json!({"reason": "stolen"})).await.ok();
    let reply = bench.get(EVENTS).await.ok();
    assert_eq!(reply["changes"], "shown");
    let items = reply["items"].as_array().unwrap();
    let mut kinds: Vec<_> = items.iter().map(|item| item["kind"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["block", "reload", "reload_failed", "store"]);
    let block = items.iter().find(|item| item["kind"] == "block").unwrap();
    assert_eq!(some(block, ["name", "reason", "text"]), ["key-1", "stolen", "block.put"].map(Value::from));
    let store = items.iter().find(|item| item["kind"] == "store").unwrap();
    assert_eq!(
        some(store, ["at", "text"]),
        ["2025-06-15T15:06:42Z", "the counter store is local-only"].map(Value::from)
    );
    // Names of callers are for those who may read the audit log.
    let reply = bench.ask_as(&[AccessScope::Read], ("GET", EVENTS), &[], "").await.ok();
    assert_eq!((&reply["changes"], reply["items"].as_array().unwrap().len()), (&json!("not_allowed"), 3));
    assert_eq!(bench.get(&format!("{EVENTS}?limit=1")).await.ok()["items"].as_array().unwrap().len(), 1);
    let later = bench.get(&format!("{EVENTS}?since=2100-01-01T00:00:00Z")).await.ok();
    assert_eq!(later["items"], json!([]));
    bench.observability.sampler.events.add(bench.control.now(), EventKind::Start, "started");
    assert_eq!(bench.get(EVENTS).await.ok()["items"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn a_rule_is_shown_with_what_it_says_and_does() {
    let extra = "- {name: burst, key: [api_key], match: {plan: {not: free}}, limit: 10/minute, algorithm: token_bucket, burst: 25, policy: security}\n";
    let bench = Bench::new(&format!("{SHOP}{extra}")).await;
    decide(&bench, "k", 12).await;
    second(&bench);
    let reply = bench.get("/admin/v1/domains/shop/rules/burst?range=2h").await.ok();
    assert_eq!(reply["conditions"], json!([{"attribute": "plan", "test": "is not \"free\""}]));
    assert_eq!(
        some(&reply, ["policy", "version", "by_tier", "range"]),
        [json!("security"), json!(null), json!(false), json!("2h")]
    );
    let terms = &reply["terms"][0];
    assert_eq!(some(terms, ["amount", "burst", "algorithm"]), [json!(10), json!(25), json!("token_bucket")]);
    assert!(
        reply["file"].as_str().unwrap().ends_with("rules.yaml") && reply["line_number"].as_u64().unwrap() > 3,
        "{reply}"
    );
    assert_eq!(
        some(&reply["activity"], ["rule", "mode", "key"]),
        [json!("burst"), json!("enforce"), json!(["api_key"])]
    );
    assert_eq!(some(&reply["line"], ["step_seconds", "deny"]), [json!(60.0), json!([0.0])]);
    let reply = bench.get("/admin/v1/domains/shop/rules/per-key").await.ok();
    assert_eq!((reply["terms"].as_array().unwrap().len(), &reply["terms"][0]["tier"]), (2, &json!("free")));
    assert_eq!(reply["line"]["deny"], json!([2.0]));
    assert_eq!(bench.get("/admin/v1/domains/shop/rules/nothing").await.code(404), "unknown_rule");
    assert_eq!(bench.get("/admin/v1/domains/nobody/rules/burst").await.code(404), "unknown_domain");
    let counters = bench.get("/admin/v1/counters/k").await.ok()["counters"].clone();
    let burst = counters.as_array().unwrap().iter().find(|one| one["rule"] == "burst").unwrap();
    assert_eq!(some(burst, ["mode", "used", "remaining"]), [json!("enforce"), json!(10), json!(15)]);
    assert_eq!(burst["limit"], json!({"requests_per_unit": 10, "unit": "minute", "burst": 25}));
}

#[tokio::test]
async fn keys_are_found_by_a_part_of_their_names() {
    let bench = Bench::new(SHOP).await;
    // Keys are counted by the clock of the store.
    bench.clock.set(SystemClock::default().now());
    for caller in ["Ada", "bob"] {
        decide(&bench, caller, 2).await;
    }
    let path = |search: &str| format!("/admin/v1/top?search={search}");
    let found = async |search: &str| bench.get(&path(search)).await.ok()["keys"].as_array().unwrap().len();
    assert_eq!((found("aD").await, found("per-").await, found("nobody").await), (1, 2, 0));
    // Keys that are hashed can't be guessed.
    let hashed = async |search: &str| {
        let reply = bench.ask_as(&[AccessScope::Read], ("GET", &path(search)), &[], "").await.ok();
        reply["keys"].as_array().unwrap().len()
    };
    assert_eq!((hashed("ada").await, hashed("PER").await), (0, 2));
}
