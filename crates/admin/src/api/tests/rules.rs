//! Rules by API: both forms, what is refused, versions, states, and what is decided then.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answered, Bench, SHOP};

const RULE: &str = "/v1/ratelimit/config/extra";

fn short() -> Value {
    json!({"key_pattern": "user:{api_key}", "algorithm": "fixed_window", "rate": 2, "unit": "year"})
}

async fn allowed(bench: &Bench, caller: &str, times: usize) -> Vec<bool> {
    let mut reply = Vec::new();
    for _ in 0..times {
        reply.push(bench.decide(&[("api_key", caller)], 1).await.allowed());
    }
    reply
}

#[tokio::test]
async fn a_rule_is_in_force_when_its_write_is_answered() {
    let bench = Bench::new(SHOP).await;
    let answered = bench.put(RULE, &short()).await;
    assert_eq!(answered.tag(), "\"1\"");
    let expected = json!({"rule_id": "extra", "domain": "shop", "status": "active", "version": 1});
    assert_eq!(answered.ok(), expected);
    assert_eq!(allowed(&bench, "k", 3).await, [true, true, false]);
    let shown = bench.get(RULE).await;
    assert_eq!(shown.tag(), "\"1\"");
    let shown = shown.ok();
    assert_eq!(shown["rule"], json!({"key": ["api_key"], "algorithm": "fixed_window", "limit": "2/year"}));
    assert_eq!((&shown["author"], &shown["version"]), (&json!("token tests"), &json!(1)));
    assert_eq!(shown["created_at"], "2025-06-15T15:06:40Z");

    // The full form takes the place of a file's rule.
    let body = json!({"rule": {"key": ["api_key"], "limit": "1/year", "algorithm": "fixed_window"}, "reason": "less"});
    bench.put("/v1/ratelimit/config/per-key?domain=shop", &body).await.ok();
    assert_eq!(allowed(&bench, "other", 2).await, [true, false]);
    let items = bench.get("/v1/ratelimit/config").await.ok();
    let named: Vec<_> = items["items"].as_array().unwrap().iter().map(|item| &item["rule_id"]).collect();
    assert_eq!(named, ["extra", "per-key"]);
    assert_eq!(items["items"][1]["reason"], "less");

    // And gives it back.
    let gone = bench.delete("/v1/ratelimit/config/per-key").await.ok();
    assert_eq!(gone, json!({"rule_id": "per-key", "domain": "shop", "deleted": true}));
    assert_eq!(bench.get("/v1/ratelimit/config/per-key").await.code(404), "not_found");
    assert_eq!(bench.delete("/v1/ratelimit/config/per-key").await.code(404), "not_found");
    bench.delete(RULE).await.ok();
    assert_eq!(allowed(&bench, "third", 11).await, [vec![true; 10], vec![false]].concat());
}

#[tokio::test]
async fn every_fault_of_a_rule_is_reported_and_nothing_is_written() {
    let bench = Bench::new(SHOP).await;
    let full = |rule: Value| json!({"rule": rule});
    let good = json!({"key": ["api_key"], "limit": "1/hour"});
    for (body, expected) in [
        (full(json!({"key": ["api_key"], "limit": "some"})), &[("rule extra:1", "not a limit")][..]),
        (
            full(json!({"key": ["api_key"], "limit": "1/hour", "algorithm": "magic", "lim": 3})),
            &[("rule extra:1", "magic"), ("rule extra:1", "lim")],
        ),
        (full(json!({"key": [], "name": "another", "limit": "1/hour"})), &[("rule extra:1", "another")]),
        (full(json!({"key": ["api_key"], "limit": {"gold": "1/hour"}})), &[("rule extra:1", "gold")]),
        (full(json!("text")), &[("rule extra:1", "")]),
        (full(Value::Null), &[("rule extra:1", "no text")]),
        (json!({"rule": good, "rate": 7, "mood": "good"}), &[("rate", "unknown member"), ("mood", "unknown member")]),
        (json!({"rule": good, "state": "on"}), &[("state", "unknown variant")]),
        (json!({"rule": good, "reason": "x".repeat(5_000)}), &[("reason", "longer")]),
        (
            json!({"key_pattern": "{a}", "rate": -1, "window": "1 lunch", "color": "red"}),
            &[("", "color"), ("", "rate"), ("", "window")],
        ),
        (
            json!({"key_pattern": "{api_key}", "rate": 9_007_199_254_740_993_u64, "window": "1h"}),
            &[("rule extra:1", "too large")],
        ),
        (json!({}), &[("", "key_pattern"), ("", "rate"), ("", "window")]),
    ] {
        let answered = bench.put(RULE, &body).await;
        let reply = answered.faults();
        assert_eq!(reply.len(), expected.len(), "{body}: {reply:?}");
        for (at, what) in expected {
            assert!(
                reply.iter().any(|(reported_at, reply)| reported_at == at && reply.contains(what)),
                "{body}: {reply:?}"
            );
        }
        assert_eq!(bench.put(&format!("{RULE}?dry_run"), &body).await.status, 422, "{body}");
    }
    let unknown = bench.put(&format!("{RULE}?domain=bank"), &short()).await;
    assert_eq!(unknown.code(404), "unknown_domain");
    assert!(unknown.body["detail"].as_str().unwrap().contains("`shop`"), "{}", unknown.body);
    assert_eq!(bench.ask(("PUT", RULE), &[], "{\"rule\": ").await.code(400), "not_json");
    assert_eq!(bench.ask(("PUT", RULE), &[], "[]").await.faults().len(), 1);
    assert_eq!(bench.put(&format!("{RULE}?dry=1"), &short()).await.code(400), "bad_query");
    assert_eq!(bench.put(&format!("{RULE}?dry_run=perhaps"), &short()).await.code(400), "bad_query");
    assert_eq!(bench.get("/v1/ratelimit/config").await.ok()["items"], json!([]));
    assert_eq!(bench.control.generation(), 0);
}

#[tokio::test]
async fn the_name_of_a_tree_limit_is_taken() {
    let tree = "domain: d\ndescriptors:\n- {key: k, rate_limit: {name: leaf, unit: minute, requests_per_unit: 7}}\n";
    let bench = Bench::new(tree).await;
    let name = bench.control.limiter().rules().domains()[0].rules()[0].name().to_owned();
    let answered = bench.put(&format!("/v1/ratelimit/config/{name}"), &short()).await;
    assert!(answered.faults()[0].1.contains("taken"), "{:?}", answered.faults());
}

#[tokio::test]
async fn a_dry_run_says_what_would_change() {
    let bench = Bench::new(SHOP).await;
    let reply = bench.put(&format!("{RULE}?dry_run"), &short()).await.ok();
    assert_eq!((&reply["dry_run"], &reply["valid"]), (&json!(true), &json!(true)));
    let changes = reply["changes"].as_array().unwrap();
    assert!(changes.contains(&json!({"path": "limit", "before": null, "after": "2/year"})), "{changes:?}");
    assert_eq!(bench.control.generation(), 0);
    bench.put(RULE, &short()).await.ok();
    let body =
        json!({"key_pattern": "{api_key}", "algorithm": "fixed_window", "rate": 3, "unit": "year", "state": "shadow"});
    let reply = bench.put(&format!("{RULE}?dry_run=true"), &body).await.ok();
    let expected = json!([
        {"path": "limit", "before": "2/year", "after": "3/year"},
        {"path": "state", "before": "active", "after": "shadow"},
    ]);
    assert_eq!(reply["changes"], expected);
    let lost = bench.ask(("PUT", &format!("{RULE}?dry_run")), &[("if-match", "\"7\"")], &body.to_string()).await;
    assert_eq!(lost.code(412), "precondition_failed");
    assert_eq!(bench.get(RULE).await.ok()["version"], 1);
}

#[tokio::test]
async fn states_decide_what_a_rule_does() {
    let bench = Bench::new(SHOP).await;
    let draft = bench.post(&format!("{RULE}/state"), &json!({"state": "active"})).await;
    assert_eq!(draft.code(404), "not_found");
    for (state, third) in [("draft", true), ("pending", true), ("shadow", true), ("active", false), ("off", true)] {
        let mut body = short();
        body["state"] = json!(state);
        assert_eq!(bench.put(RULE, &body).await.ok()["status"], state);
        assert_eq!(allowed(&bench, &format!("put-{state}"), 3).await[2], third, "{state}");
    }
}

#[tokio::test]
async fn a_state_is_changed_without_the_rule() {
    let bench = Bench::new(SHOP).await;
    let set = async |state: &str| -> Answered { bench.post(&format!("{RULE}/state"), &json!({"state": state})).await };
    bench.put(RULE, &short()).await.ok();
    for (state, third) in [("active", false), ("shadow", true), ("active", false), ("draft", true)] {
        assert_eq!(set(state).await.ok()["status"], state);
        let caller = format!("set-{state}-{}", bench.control.generation());
        assert_eq!(allowed(&bench, &caller, 3).await[2], third, "{state}");
    }
    // One that is off, or not there, takes the file's rule of that name with it, or not.
    let body = json!({"rule": {"key": ["api_key"], "limit": "1/hour"}, "state": "off"});
    bench.put("/v1/ratelimit/config/per-key", &body).await.ok();
    assert_eq!(allowed(&bench, "much", 12).await, [true; 12]);
    assert_eq!(set("on").await.faults().len(), 1);
    let drafts = bench.get("/v1/ratelimit/config?state=draft").await.ok();
    assert_eq!(drafts["items"].as_array().unwrap().len(), 1);
    assert_eq!(bench.get("/v1/ratelimit/config?state=tired").await.code(400), "bad_query");
}

#[tokio::test]
async fn versions_are_retained_compared_and_brought_back() {
    let bench = Bench::new(SHOP).await;
    for rate in 1..=12 {
        let body = json!({"key_pattern": "{api_key}", "rate": rate, "unit": "hour", "reason": format!("to {rate}")});
        assert_eq!(bench.put(RULE, &body).await.ok()["version"], rate);
    }
    let first = bench.get(&format!("{RULE}/versions?limit=5")).await.ok();
    let numbers = |page: &Value| -> Vec<u64> {
        page["items"].as_array().unwrap().iter().map(|item| item["version"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&first), [12, 11, 10, 9, 8]);
    let path = format!("{RULE}/versions?limit=5&after={}", first["next"].as_str().unwrap());
    let second = bench.get(&path).await.ok();
    assert_eq!(numbers(&second), [7, 6, 5, 4, 3]);
    let path = format!("{RULE}/versions?limit=5&after={}", second["next"].as_str().unwrap());
    let last = bench.get(&path).await.ok();
    assert_eq!((numbers(&last), &last["next"]), (vec![2, 1], &Value::Null));
    let third = bench.get(&format!("{RULE}/versions/3")).await.ok();
    assert_eq!((&third["rule"]["limit"], &third["reason"]), (&json!("3/hour"), &json!("to 3")));
    assert_eq!(bench.get(&format!("{RULE}/versions/13")).await.code(404), "not_found");
    assert_eq!(bench.get(&format!("{RULE}/versions/x")).await.code(400), "bad_path");

    let diff = bench.get(&format!("{RULE}/diff?from=3&to=5")).await.ok();
    let changed = json!([{"path": "limit", "before": "3/hour", "after": "5/hour"}]);
    assert_eq!(diff, json!({"from": 3, "to": 5, "changes": changed}));
    assert_eq!(bench.get(&format!("{RULE}/diff")).await.ok()["from"], 11);
    assert_eq!(bench.get(&format!("{RULE}/diff?to=99")).await.code(404), "not_found");

    let back = bench.post(&format!("{RULE}/rollback"), &json!({"version": 2, "reason": "too many"})).await.ok();
    assert_eq!((&back["version"], &back["status"]), (&json!(13), &json!("active")));
    assert_eq!(bench.get(RULE).await.ok()["rule"]["limit"], "2/hour");
    assert_eq!(bench.post(&format!("{RULE}/rollback"), &json!({"version": 99})).await.code(404), "not_found");

    // They outlive the rule, and it goes on where it ended.
    bench.delete(RULE).await.ok();
    assert_eq!(numbers(&bench.get(&format!("{RULE}/versions?limit=2")).await.ok()), [13, 12]);
    let back = bench.post(&format!("{RULE}/rollback"), &json!({"version": 4})).await.ok();
    assert_eq!(back["version"], 14);
    bench.delete(RULE).await.ok();
    assert_eq!(bench.put(RULE, &short()).await.ok()["version"], 15);
    assert_eq!(bench.get("/v1/ratelimit/config/nobody/versions").await.code(404), "not_found");
}

#[tokio::test]
async fn a_rule_that_no_longer_fits_can_be_mended() {
    let bench = Bench::new(SHOP).await;
    for name in ["one", "two"] {
        let body = json!({"rule": {"key": ["api_key"], "limit": {"pro": "7/hour"}}});
        bench.put(&format!("/v1/ratelimit/config/{name}"), &body).await.ok();
    }
    bench.rewrite(&SHOP.replace(", pro: {}", "").replace(", pro: 1000/year", ""));
    // The files wait for the rules above them.
    assert_eq!(bench.control.limiter().rules().domains()[0].tiers().len(), 2);
    bench.post("/v1/ratelimit/config/one/state", &json!({"state": "off"})).await.ok();
    bench.delete("/v1/ratelimit/config/two").await.ok();
    assert_eq!(bench.control.limiter().rules().domains()[0].tiers().len(), 1);
}

#[tokio::test]
async fn the_warnings_of_a_rule_are_not_those_of_its_namesake() {
    let bench = Bench::new(&format!("{SHOP}---\ndomain: bank\nentity: api_key\n")).await;
    let for_one_tier = json!({"rule": {"key": ["api_key"], "limit": {"pro": "7/hour"}}});
    let written = bench.put(&format!("{RULE}?domain=shop"), &for_one_tier).await.ok();
    assert!(written["warnings"][0]["what"].as_str().unwrap().contains("`free`"), "{written}");
    let for_all = json!({"rule": {"key": ["api_key"], "limit": "7/hour"}});
    let written = bench.put(&format!("{RULE}?domain=bank"), &for_all).await.ok();
    assert_eq!(written, json!({"rule_id": "extra", "domain": "bank", "status": "active", "version": 1}));
}

#[tokio::test]
async fn a_page_of_versions_is_full_whatever_other_rules_are_called() {
    let bench = Bench::new(SHOP).await;
    let namesakes =
        ["extra", "extra@0000000001", "extra@0000000003"].map(|name| format!("/v1/ratelimit/config/{name}"));
    for (path, count) in namesakes.iter().zip([4, 5, 5]) {
        for _ in 0..count {
            bench.put(path, &short()).await.ok();
        }
    }
    for limit in 1..=5 {
        let (mut numbers, mut after) = (Vec::new(), String::new());
        loop {
            let page = bench.get(&format!("{RULE}/versions?limit={limit}{after}")).await.ok();
            let items = page["items"].as_array().unwrap();
            numbers.extend(items.iter().map(|item| item["version"].as_u64().unwrap()));
            assert_eq!(items.len(), limit.min(4 - (numbers.len() - items.len())), "{page}");
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(numbers, [4, 3, 2, 1], "{limit} at a time");
    }
}

#[tokio::test]
async fn many_writers_make_as_many_versions() {
    const WRITERS: u64 = 30;
    let bench = Arc::new(Bench::new(SHOP).await);
    let mut writers = tokio::task::JoinSet::new();
    for rate in 1..=WRITERS {
        let bench = bench.clone();
        let body = json!({"key_pattern": "{api_key}", "rate": rate, "unit": "hour"});
        writers.spawn(async move { bench.put(RULE, &body).await.ok()["version"].as_u64().unwrap() });
    }
    let mut versions = writers.join_all().await;
    versions.sort_unstable();
    assert_eq!(versions, (1..=WRITERS).collect::<Vec<_>>());
    assert_eq!(bench.get(RULE).await.ok()["version"], WRITERS);
    let stored = bench.get(&format!("{RULE}/versions")).await.ok();
    assert_eq!(stored["items"].as_array().unwrap().len() as u64, WRITERS);
}
