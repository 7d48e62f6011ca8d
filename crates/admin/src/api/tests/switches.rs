//! Switches, and what is decided under them.

use serde_json::json;

use super::{Bench, SHOP};
use crate::scopes::AccessScope;

const ALL: &str = "/admin/v1/switches/everything";
const DOMAIN: &str = "/admin/v1/switches/domains/shop";
const RULE: &str = "/admin/v1/switches/domains/shop/rules/per-key";

#[tokio::test]
async fn switches_turn_rules_off_and_on() {
    let bench = Bench::new(SHOP).await;
    let passes = async |caller: &str| bench.decide(&[("api_key", caller)], 11).await.allowed();
    assert!(!passes("a").await);
    for place in [ALL, DOMAIN, RULE] {
        let reply = bench.put(place, &json!({"mode": "off", "reason": "it burns"})).await.ok();
        assert_eq!((&reply["mode"], &reply["in_force"]), (&json!("off"), &json!(true)));
        assert!(passes("a").await, "{place}");
        assert_eq!(bench.get(place).await.ok()["reason"], "it burns");
        bench.delete(place).await.ok();
        assert!(!passes("a").await, "{place}");
        assert_eq!(bench.get(place).await.code(404), "not_found");
    }
    // The most specific one counts.
    bench.put(ALL, &json!({"mode": "off"})).await.ok();
    bench.put(RULE, &json!({"mode": "enforce"})).await.ok();
    assert!(!passes("b").await);
    for mode in ["shadow", "soft"] {
        bench.put(RULE, &json!({"mode": mode})).await.ok();
        assert!(passes("b").await, "{mode}");
    }
    let listed = bench.get("/admin/v1/switches").await.ok();
    let what: Vec<_> = listed["items"].as_array().unwrap().iter().map(|item| &item["what"]).collect();
    assert_eq!(what, ["everything", "rule"]);
    assert_eq!(listed["items"][1]["rule"], "per-key");
    let page = bench.get("/admin/v1/switches?limit=1").await.ok();
    let next = page["next"].as_str().unwrap();
    let page = bench.get(&format!("/admin/v1/switches?limit=1&after={next}")).await.ok();
    assert_eq!(page["items"][0]["what"], "rule");
    assert_eq!(bench.get("/admin/v1/switches?after=nonsense").await.code(400), "bad_after");
    assert_eq!(bench.get("/admin/v1/switches?limit=0").await.code(400), "bad_limit");
}

#[tokio::test]
async fn a_switch_ends_by_itself() {
    let bench = Bench::new(SHOP).await;
    let reply = bench.put(DOMAIN, &json!({"mode": "off", "for": "2h"})).await.ok();
    assert_eq!(reply["expires_at"], "2025-06-15T17:06:40Z");
    assert_eq!(bench.control.current_layer().switches.len(), 1);
    bench.pass(7_199);
    assert_eq!(bench.control.current_layer().switches.len(), 1);
    bench.pass(1);
    assert_eq!(bench.control.current_layer().switches.len(), 0);
    assert_eq!(bench.get(DOMAIN).await.ok()["in_force"], false);
}

#[tokio::test]
async fn what_is_wrong_with_a_switch_is_reported() {
    let bench = Bench::new(SHOP).await;
    for (body, at) in [
        (json!({"mode": "loud"}), ""),
        (json!({}), ""),
        (json!({"mode": "off", "why": "x"}), ""),
        (json!({"mode": "off", "for": "1h", "expires_at": "2030-01-01T00:00:00Z"}), "for"),
        (json!({"mode": "off", "for": "long"}), "for"),
        (json!({"mode": "off", "for": "0s"}), "for"),
        (json!({"mode": "off", "expires_at": "2020-01-01T00:00:00Z"}), "expires_at"),
        (json!({"mode": "off", "expires_at": "tomorrow"}), ""),
        (json!({"mode": "off", "reason": "x".repeat(600)}), "reason"),
    ] {
        let answered = bench.put(ALL, &body).await;
        assert_eq!(answered.faults()[0].0, at, "{body}");
    }
    let body = json!({"mode": "off"});
    assert_eq!(bench.put("/admin/v1/switches/domains/bank", &body).await.code(404), "unknown_domain");
    let unknown = bench.put("/admin/v1/switches/domains/shop/rules/none", &body).await;
    assert_eq!(unknown.code(404), "unknown_rule");
    assert!(unknown.body["detail"].as_str().unwrap().contains("`per-key`"), "{}", unknown.body);
    assert_eq!(bench.control.generation(), 0);
}

#[tokio::test]
async fn the_kill_switch_is_for_emergencies() {
    let bench = Bench::new(SHOP).await;
    let off = r#"{"mode": "off"}"#;
    let shadow = r#"{"mode": "shadow"}"#;
    for (scopes, body, status) in [
        (&[AccessScope::Read, AccessScope::Quota][..], shadow, 403),
        (&[AccessScope::Rules], shadow, 200),
        (&[AccessScope::Rules], off, 403),
        (&[AccessScope::Emergency], off, 200),
        (&[AccessScope::Emergency], shadow, 200),
    ] {
        assert_eq!(bench.ask_as(scopes, ("PUT", ALL), &[], body).await.status, status, "{scopes:?} {body}");
    }
    assert_eq!(bench.ask_as(&[AccessScope::Rules], ("GET", ALL), &[], "").await.code(403), "forbidden");
    assert_eq!(bench.ask_as(&[AccessScope::Rules], ("DELETE", ALL), &[], "").await.status, 200);
}

#[tokio::test]
async fn only_who_may_set_a_kill_switch_may_end_it() {
    let bench = Bench::new(SHOP).await;
    let enforce = r#"{"mode": "enforce"}"#;
    bench.put(ALL, &json!({"mode": "off", "for": "1h"})).await.ok();
    for (method, body) in [("PUT", enforce), ("DELETE", "")] {
        let refused = bench.ask_as(&[AccessScope::Rules], (method, ALL), &[], body).await;
        assert_eq!(refused.code(403), "forbidden");
        assert!(refused.body["detail"].as_str().unwrap().contains("needed to end a kill switch"), "{}", refused.body);
    }
    assert!(bench.decide(&[("api_key", "a")], 11).await.allowed());
    bench.ask_as(&[AccessScope::Emergency], ("DELETE", ALL), &[], "").await.ok();
    // One that has ended is nobody's.
    bench.put(ALL, &json!({"mode": "off", "for": "1h"})).await.ok();
    bench.pass(3_600);
    bench.ask_as(&[AccessScope::Rules], ("PUT", ALL), &[], enforce).await.ok();
}

#[tokio::test]
async fn a_rule_is_put_out_of_force_by_who_may_set_a_kill_switch() {
    let bench = Bench::new(SHOP).await;
    let (rules, both) = (&[AccessScope::Rules][..], &[AccessScope::Rules, AccessScope::Emergency][..]);
    let path = "/v1/ratelimit/config/per-key";
    let put = async |scopes, rule: serde_json::Value, state| {
        let body = json!({"rule": rule, "state": state}).to_string();
        bench.ask_as(scopes, ("PUT", path), &[], &body).await
    };
    let (limited, unlimited) = (
        json!({"key": ["api_key"], "limit": "5/hour"}),
        json!({"key": ["api_key"], "limit": {"free": "unlimited", "pro": "unlimited"}}),
    );
    let off = json!({"key": ["api_key"], "limit": "5/hour", "mode": "off"});
    put(rules, limited.clone(), "active").await.ok();
    for (rule, state) in [(&limited, "off"), (&off, "active"), (&unlimited, "active")] {
        assert_eq!(put(rules, rule.clone(), state).await.code(403), "forbidden", "{rule} {state}");
        assert!(!bench.decide(&[("api_key", "a")], 11).await.allowed(), "{rule} {state}");
    }
    // What is not in force yet is a proposal.
    put(rules, off.clone(), "draft").await.ok();
    let state = |state: &str| json!({"state": state}).to_string();
    let change =
        async |scopes, to: &str| bench.ask_as(scopes, ("POST", &format!("{path}/state")), &[], &state(to)).await;
    assert_eq!(change(rules, "active").await.code(403), "forbidden");
    put(rules, limited.clone(), "active").await.ok();
    assert_eq!(change(rules, "off").await.code(403), "forbidden");
    change(both, "off").await.ok();
    assert!(bench.decide(&[("api_key", "a")], 11).await.allowed());
    // Nor is it put in force again by others.
    for refused in [
        change(rules, "active").await,
        put(rules, limited.clone(), "active").await,
        bench.ask_as(rules, ("DELETE", path), &[], "").await,
        bench.ask_as(rules, ("POST", &format!("{path}/rollback")), &[], r#"{"version": 1}"#).await,
    ] {
        assert_eq!(refused.code(403), "forbidden");
    }
    bench.ask_as(both, ("DELETE", path), &[], "").await.ok();
    assert!(!bench.decide(&[("api_key", "a")], 11).await.allowed());
}

#[tokio::test]
async fn a_quota_of_many_callers_is_no_kill_switch() {
    let bench = Bench::new(SHOP).await;
    let (quota, both) = (&[AccessScope::Quota][..], &[AccessScope::Quota, AccessScope::Emergency][..]);
    let limit = |limit: &str| json!({"overrides": [{"rule": "per-key", "limit": limit}]}).to_string();
    for (caller, body, by_quota) in [
        ("a", limit("unlimited"), true),
        ("a", limit("0/day"), true),
        ("team-*", limit("7/day"), true),
        ("team-*", limit("unlimited"), false),
        ("team-*", limit("0/day"), false),
        ("*", limit("7/day"), false),
        ("**", limit("7/day"), false),
        ("*", limit("unlimited"), false),
    ] {
        let path = format!("/admin/v1/quotas/{caller}");
        let status = if by_quota { 200 } else { 403 };
        assert_eq!(bench.ask_as(quota, ("PUT", &path), &[], &body).await.status, status, "{caller} {body}");
        assert_eq!(bench.ask_as(both, ("PUT", &path), &[], &body).await.status, 200, "{caller} {body}");
        assert_eq!(bench.ask_as(quota, ("DELETE", &path), &[], "").await.status, status, "{caller} {body}");
    }
    let jsonl = &[("content-type", "application/jsonl")][..];
    let line = r#"{"api_key": "team-*", "overrides": [{"rule": "per-key", "limit": "unlimited"}]}"#;
    let import = ("POST", "/admin/v1/import?dry_run");
    assert_eq!(bench.ask_as(quota, import, jsonl, line).await.code(422), "invalid");
    assert_eq!(bench.ask_as(both, import, jsonl, line).await.status, 200);
}
