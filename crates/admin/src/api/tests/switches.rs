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
