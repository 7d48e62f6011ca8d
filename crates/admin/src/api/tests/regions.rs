//! Counters of several regions: changes in all of them, and homes of callers.

use serde_json::{Value, json};
use tollgate::{RegionId, RegionNames};
use tollgate_records::Rfc3339;
use tollgate_store::Counters;
use tollgate_store::conformance::gated::GatedStore;

use super::{Bench, START};

const RULES: &str = "\
domain: shop
entity: api_key
rules:
- {name: everywhere, key: [api_key], limit: 10/day, region: global}
- {name: owned, key: [api_key], limit: 10/day, algorithm: fixed_window, region: home}
- {name: each, key: [api_key], limit: 10/day}
";
const K: &str = "/admin/v1/counters/k";
const QUOTA: &str = "/admin/v1/quotas/k";

fn names() -> RegionNames {
    RegionNames::new("us-east", ["eu-west", "us-west"]).unwrap()
}

/// A server in `us-east`, and its store, of which a region can be cut off.
async fn bench() -> (Bench, std::sync::Arc<GatedStore>) {
    let store = GatedStore::new();
    store.open();
    (Bench::in_regions(RULES, Counters::Shared(store.clone()), names()).await, store)
}

/// The regions of a counter, and the source of each.
fn regions(reply: &Value, rule: &str) -> Vec<(String, String)> {
    let counters = reply["counters"].as_array().unwrap();
    let counter = counters.iter().find(|counter| counter["rule"] == rule).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let regions = counter["regions"].as_array().map(Vec::as_slice).unwrap_or_default();
    regions.iter().map(|one| (text(&one["region"]), text(&one["source"]))).collect()
}

/// The entries about counters in the audit log: action, and document.
async fn audited(bench: &Bench) -> Vec<(String, Value)> {
    let log = bench.get("/admin/v1/audit?kind=counter").await.ok();
    let entries = log["items"].as_array().unwrap().iter();
    entries.map(|entry| (entry["action"].as_str().unwrap().to_owned(), entry["after"].clone())).collect()
}

#[tokio::test]
async fn the_answer_and_the_log_say_in_which_regions_counters_were_changed() {
    let (bench, store) = bench().await;
    let all = ["us-east", "eu-west", "us-west"];
    let stored = all.map(|name| (name.to_owned(), "store".to_owned()));
    assert_eq!(regions(&bench.get(K).await.ok(), "everywhere"), stored);
    let reply = bench.post(K, &json!({"action": "reset"})).await.ok();
    assert_eq!(regions(&reply, "everywhere"), stored);
    assert!(regions(&reply, "owned").is_empty() && regions(&reply, "each").is_empty(), "{reply}");
    assert!(reply.get("missed_regions").is_none(), "{reply}");

    let west = names().id("us-west");
    store.set_cut_off(west);
    let mut expected = stored.clone();
    expected[2].1 = "assumed".to_owned();
    let peeked = bench.get(K).await.ok();
    assert_eq!(regions(&peeked, "everywhere"), expected);
    assert!(peeked["counters"][0]["regions"][2].get("used").is_none(), "what is not known is not shown: {peeked}");
    let reply = bench.post(K, &json!({"action": "credit", "units": 1, "rule": "everywhere"})).await.ok();
    assert_eq!((regions(&reply, "everywhere"), &reply["missed_regions"]), (expected.to_vec(), &json!(["us-west"])));
    bench.post(K, &json!({"action": "debit", "units": 1, "rule": "everywhere"})).await.ok();
    bench.post(K, &json!({"action": "reset", "rule": "each"})).await.ok();
    let log = audited(&bench).await;
    let actions: Vec<&str> = log.iter().map(|(action, _)| &**action).collect();
    assert_eq!(actions, ["counter.reset", "counter.credit", "counter.missed", "counter.debit", "counter.reset"]);
    assert_eq!((&log[0].1["regions"], &log[1].1["regions"]), (&json!(all), &json!(all)));
    assert_eq!(log[2].1["failed"], "no answer from us-west");
    assert!(log[3].1.get("regions").is_none() && log[4].1.get("regions").is_none(), "{log:?}");

    // Without this region's counters it is not done.
    store.set_cut_off(Some(RegionId::HERE));
    assert_eq!(bench.post(K, &json!({"action": "reset", "rule": "everywhere"})).await.code(503), "store_away");
}

#[tokio::test]
async fn a_quota_that_resets_says_which_regions_did_not_answer() {
    let (bench, store) = bench().await;
    let quota = json!({"overrides": [{"rule": "each", "limit": "20/day"}], "reset": true});
    assert!(bench.put(QUOTA, &quota).await.ok().get("missed_regions").is_none());
    store.set_cut_off(names().id("eu-west"));
    let reply = bench.put(QUOTA, &quota).await;
    assert_eq!((reply.tag(), &reply.body["missed_regions"]), ("\"2\"", &json!(["eu-west"])));
    assert_eq!(reply.ok()["api_key"], "k");
    let log = audited(&bench).await;
    assert_eq!(log, [("counter.missed".to_owned(), json!({"failed": "no answer from eu-west"}))]);
}

#[tokio::test]
async fn the_home_of_a_quota_must_be_a_region() {
    let (bench, _) = bench().await;
    let unknown = bench.put(QUOTA, &json!({"home": "atlantis"})).await;
    let what = "there is no region `atlantis`; the regions are us-east, eu-west, us-west";
    assert_eq!(unknown.faults(), [("home", what)]);
    let alone = Bench::new(super::SHOP).await;
    alone.put(QUOTA, &json!({"home": "atlantis"})).await.ok();
}

#[tokio::test]
async fn another_home_is_said_to_begin_new_counters() {
    let (bench, _) = bench().await;
    let shown = bench.get(K).await.ok();
    let derived = shown["counters"][1]["region"].as_str().unwrap().to_owned();
    let other = names().iter().map(|(_, name)| name.to_owned()).find(|name| *name != derived).unwrap();
    let put = async |quota: Value| bench.put(QUOTA, &quota).await.ok()["counters_begin_anew"].clone();
    assert_eq!(put(json!({"home": derived})).await, Value::Null, "it is where it was");
    assert_eq!(put(json!({"home": other})).await, json!([{"from": derived, "to": other}]));
    assert_eq!(put(json!({"home": other, "tier": null})).await, Value::Null);
    let later = Rfc3339(START.after(tollgate::Span::from_secs(60))).to_string();
    let scheduled = json!([{"from": other, "to": derived, "at": later}]);
    assert_eq!(put(json!({"home": derived, "effective_at": later})).await, scheduled);
    let region = async || bench.get(K).await.ok()["counters"][1]["region"].clone();
    assert_eq!(region().await, json!(other));
    bench.pass(61);
    assert_eq!(region().await, json!(derived), "it takes effect on its own");
    assert_eq!(put(json!({"home": other})).await, json!([{"from": derived, "to": other}]));
    let deleted = bench.delete(QUOTA).await.ok();
    assert_eq!(deleted["counters_begin_anew"], json!([{"from": other, "to": derived}]));
    let log = audited(&bench).await;
    assert!(log.iter().all(|(action, _)| action == "counter.move"), "{log:?}");
    let moves: Vec<&Value> = log.iter().map(|(_, document)| document).collect();
    let (there, back) = (json!({"from": derived, "to": other}), json!({"from": other, "to": derived}));
    assert_eq!(moves, [&there, &scheduled[0], &there, &back]);
    // Of callers whose names are not known, only what is recorded is said.
    let wild = bench.put("/admin/v1/quotas/k-*", &json!({"home": other})).await.ok();
    assert_eq!(wild["counters_begin_anew"], json!([{"from": null, "to": other}]));
}
