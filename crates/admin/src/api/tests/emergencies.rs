//! Emergencies, and what is decided under them.

use serde_json::{Value, json};
use tollgate::tenants::MAX_WILDCARDS;

use super::{Bench, SHOP};
use crate::scopes::AccessScope;

const FLOOD: &str = "/admin/v1/emergencies/flood";

/// The limit of the rule of all callers, and how it came to be.
async fn limit(bench: &Bench, caller: &str) -> (u64, &'static str) {
    let decision = bench.decide(&[("api_key", caller)], 0).await;
    let outcome = decision.outcomes().next().unwrap();
    (outcome.limit.amount(), outcome.resolved_by.name())
}

#[tokio::test]
async fn an_emergency_goes_before_all_and_ends_by_itself() {
    let bench = Bench::new(SHOP).await;
    bench.put("/admin/v1/quotas/k", &json!({"tier": "pro"})).await.ok();
    assert_eq!(limit(&bench, "k").await, (1000, "tier"));
    let reply = bench.put(FLOOD, &json!({"percent": 50, "reason": "slow"})).await.ok();
    assert_eq!((&reply["expires_at"], &reply["in_force"]), (&json!("2025-06-15T16:06:40Z"), &json!(true)));
    assert_eq!((&reply["callers"], &reply["domain"]), (&json!("*"), &Value::Null));
    assert_eq!(limit(&bench, "k").await, (500, "emergency"));
    bench.pass(3_599);
    assert_eq!(limit(&bench, "k").await.1, "emergency");
    bench.pass(1);
    assert_eq!(limit(&bench, "k").await, (1000, "tier"));
    assert_eq!(bench.get(FLOOD).await.ok()["in_force"], false);
    // Renewed it holds again, from now on.
    let reply = bench.post(&format!("{FLOOD}/renew"), &json!({"for": "2h"})).await.ok();
    assert_eq!(reply["expires_at"], "2025-06-15T18:06:40Z");
    assert_eq!(limit(&bench, "k").await, (500, "emergency"));
    bench.delete(FLOOD).await.ok();
    assert_eq!(limit(&bench, "k").await, (1000, "tier"));
    assert_eq!(bench.post(&format!("{FLOOD}/renew"), &json!({})).await.code(404), "not_found");
}

#[tokio::test]
async fn an_emergency_of_one_rule_and_some_callers() {
    let bench = Bench::new(SHOP).await;
    let body = json!({
        "callers": "acme-*", "rule": "per-key", "requests_per_unit": 3, "unit": "hour", "reason": "a loop", "for": "30m",
    });
    bench.put(&format!("{FLOOD}?domain=shop"), &body).await.ok();
    assert_eq!(limit(&bench, "acme-1").await, (3, "emergency"));
    assert_eq!(limit(&bench, "other").await, (10, "tier"));
    assert_eq!(bench.get(FLOOD).await.code(404), "not_found");
    assert_eq!(bench.get("/admin/v1/emergencies?domain=shop").await.ok()["items"][0]["name"], "flood");
    assert_eq!(bench.get("/admin/v1/emergencies?domain=bank").await.ok()["items"], json!([]));
    // One for every rule holds for those that it fits.
    bench.put("/admin/v1/emergencies/all", &json!({"limit": "2/hour", "reason": "all"})).await.ok();
    assert_eq!(limit(&bench, "other").await, (2, "emergency"));
}

#[tokio::test]
async fn emergencies_of_two_domains_whose_names_read_the_same_both_limit() {
    // Joined by a slash, `b/c` of `a` and `c` of `a/b` would be one.
    let both = SHOP.replace("domain: shop", "domain: a") + "---\n" + &SHOP.replace("domain: shop", "domain: a/b");
    let bench = Bench::new(&both).await;
    for (path, percent) in [("b%2Fc?domain=a", 50), ("c?domain=a%2Fb", 20)] {
        let body = json!({"percent": percent, "reason": "slow"});
        assert_eq!(bench.put(&format!("/admin/v1/emergencies/{path}"), &body).await.ok()["in_force"], true);
    }
    let limit = async |domain: &str| {
        let outcome = bench.decide_in(domain, &[("api_key", "k")], 0).await;
        outcome.outcomes().next().map(|outcome| (outcome.limit.amount(), outcome.resolved_by.name()))
    };
    assert_eq!(limit("a").await, Some((5, "emergency")));
    assert_eq!(limit("a/b").await, Some((2, "emergency")));
}

#[tokio::test]
async fn every_fault_of_an_emergency_is_reported() {
    let bench = Bench::new(SHOP).await;
    for (body, places) in [
        (json!({"percent": 50}), &["reason"][..]),
        (json!({"reason": " ", "percent": 50}), &["reason"]),
        (json!({"reason": "x"}), &["requests_per_unit"]),
        (json!({"reason": "x", "percent": 50, "limit": "1/s"}), &["percent"]),
        (json!({"reason": "x", "percent": 2_000_000}), &["percent"]),
        (json!({"reason": "x", "percent": -1}), &[""]),
        (json!({"reason": "x", "percent": 50, "for": "25h"}), &["for"]),
        (json!({"reason": "x", "percent": 50, "expires_at": "2030-01-01T00:00:00Z"}), &["expires_at"]),
        (json!({"reason": "x", "percent": 50, "expires_at": "2020-01-01T00:00:00Z"}), &["expires_at"]),
        (json!({"reason": "x", "limit": "1/hour", "rule": "none"}), &["rule"]),
        (json!({"reason": "x", "limit": "1/hour", "descriptor": "endpoint:GET /none"}), &["descriptor"]),
        (json!({"reason": "x", "limit": "1/hour", "rule": "per-key", "descriptor": "default"}), &["descriptor"]),
        (json!({"reason": "x", "limit": "1/hour", "rule": "busy"}), &["limit"]),
        (json!({"reason": "x", "requests_per_unit": 5, "unit": "lunch", "for": "soon"}), &["for", "unit"]),
        (json!({"reason": "x", "percent": 50, "mood": "bad"}), &[""]),
    ] {
        let answered = bench.put(FLOOD, &body).await;
        let at: Vec<&str> = answered.faults().iter().map(|(at, _)| *at).collect();
        assert_eq!(at, places, "{body}");
    }
    let good = json!({"percent": 50, "reason": "x"});
    assert_eq!(bench.put(&format!("{FLOOD}?domain=bank"), &good).await.code(404), "unknown_domain");
    let refused = bench.ask_as(&[AccessScope::Rules, AccessScope::Quota], ("PUT", FLOOD), &[], &good.to_string()).await;
    assert_eq!(refused.code(403), "forbidden");
    assert_eq!(bench.control.generation(), 0);
}

#[tokio::test]
async fn there_are_only_so_many_and_those_that_are_over_make_room() {
    let bench = Bench::new(SHOP).await;
    let body = |lasts: &str| json!({"percent": 50, "reason": "x", "for": lasts});
    for number in 0..MAX_WILDCARDS {
        let lasts = if number == 7 { "1h" } else { "24h" };
        bench.put(&format!("/admin/v1/emergencies/e{number}"), &body(lasts)).await.ok();
    }
    assert_eq!(bench.put(FLOOD, &body("1h")).await.code(422), "too_many");
    bench.put("/admin/v1/emergencies/e3", &body("2h")).await.ok();
    bench.pass(3_600);
    bench.put(FLOOD, &body("1h")).await.ok();
    assert_eq!(bench.get("/admin/v1/emergencies/e7").await.code(404), "not_found");
    assert_eq!(bench.control.limiter().tenants().wildcard_counts().emergencies, MAX_WILDCARDS);
}
