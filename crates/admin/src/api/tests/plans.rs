//! Plans: changes that are tried on recorded requests.

use serde_json::{Value, json};

use super::{Bench, SHOP};
use crate::scopes::AccessScope;

/// Eight requests of a caller with a tier for free, and one of a caller who pays.
async fn with_traffic() -> Bench {
    let bench = Bench::new(SHOP).await;
    bench.put("/admin/v1/quotas/bob", &json!({"tier": "pro"})).await.ok();
    for _ in 0..8 {
        bench.decide(&[("api_key", "ada-12345678"), ("endpoint", "GET /a")], 1).await;
    }
    bench.decide(&[("api_key", "bob"), ("endpoint", "GET /a")], 1).await;
    bench
}

async fn planned(bench: &Bench, change: Value) -> Value {
    bench.post("/admin/v1/plan", &change).await.ok()
}

fn rule(limit: Value) -> Value {
    let rule = json!({"key": ["api_key"], "limit": limit, "algorithm": "fixed_window"});
    json!({"kind": "rule", "domain": "shop", "name": "per-key", "document": {"rule": rule}})
}

#[tokio::test]
async fn a_plan_says_whom_a_change_would_refuse() {
    let bench = with_traffic().await;
    let plan = planned(&bench, json!({"records": [rule(json!({"free": "5/year", "pro": "0/year"}))]})).await;
    let numbers = |one: &Value| [&one["requests"], &one["refused_before"], &one["newly_refused"]].map(Value::to_string);
    assert_eq!(numbers(&plan), ["9", "0", "4"]);
    assert_eq!((&plan["complete"], &plan["records"]), (&json!(true), &json!(9)));
    assert_eq!(plan["callers"], json!({"all": 2, "changed": 2}));
    let by_rule = &plan["rules"][0];
    assert_eq!(
        (&by_rule["rule"], &by_rule["newly_refused"], &by_rule["callers"]),
        (&json!("per-key"), &json!(4), &json!(2))
    );
    let example = &by_rule["examples"][0];
    assert_eq!((&example["admitted"], &example["attributes"]["endpoint"]), (&json!(false), &json!("GET /a")));
    // The key of a customer is masked, wherever it is shown.
    assert!(!plan.to_string().contains("ada-1234"), "{plan}");
    let paid = &plan["worst_paid_caller"];
    assert_eq!((&paid["tier"], &paid["newly_refused_percent"]), (&json!("pro"), &json!(100.0)));
    let tiers: Vec<_> =
        plan["tiers"].as_array().unwrap().iter().map(|one| (&one["tier"], &one["newly_refused"])).collect();
    assert_eq!(tiers, [(&json!("free"), &json!(3)), (&json!("pro"), &json!(1))]);
    // Nothing was changed.
    assert!(bench.decide(&[("api_key", "bob")], 1).await.allowed());
}

#[tokio::test]
async fn quotas_switches_emergencies_and_files_are_tried() {
    let bench = with_traffic().await;
    let newly_refused = async |change: Value| planned(&bench, change).await["newly_refused"].clone();
    let quota = |name: &str, document: Value| json!({"records": [{"kind": "quota", "domain": "shop", "name": name, "document": document}]});
    let own = json!({"overrides": [{"rule": "per-key", "limit": "2/year"}]});
    assert_eq!(newly_refused(quota("ada-12345678", own.clone())).await, json!(6));
    assert_eq!(newly_refused(quota("somebody", own.clone())).await, json!(0));
    assert_eq!(newly_refused(quota("*", own.clone())).await, json!(6));
    // It can't be known which masked callers match.
    let plan = planned(&bench, quota("ada-*", own)).await;
    assert_eq!((&plan["newly_refused"], plan["omitted"].as_array().unwrap().len()), (&json!(0), 1));
    let emergency = json!({"callers": "*", "limit": "1/year", "expires_at": "2300-01-01T00:00:00Z", "reason": "flood"});
    let emergency =
        json!({"records": [{"kind": "emergency", "domain": "shop", "name": "flood", "document": emergency}]});
    assert_eq!(newly_refused(emergency).await, json!(7));
    let off =
        json!({"kind": "switch", "domain": "shop", "name": "per-key", "document": {"mode": "off", "reason": "tests"}});
    assert_eq!(newly_refused(json!({"records": [rule(json!("1/year")), off]})).await, json!(0));
    let files = json!([{"name": "new.yaml", "text": SHOP.replace("10/year", "3/year")}]);
    assert_eq!(newly_refused(json!({"files": files})).await, json!(5));
    assert_eq!(newly_refused(json!({})).await, json!(0));
}

#[tokio::test]
async fn quotas_that_begin_later_or_end_are_tried_as_if_they_had_begun() {
    let bench = with_traffic().await;
    let newly_refused = async |document: Value| {
        let quota = json!({"kind": "quota", "domain": "shop", "name": "ada-12345678", "document": document});
        planned(&bench, json!({"records": [quota]})).await["newly_refused"].clone()
    };
    let strict = json!([{"rule": "per-key", "limit": "2/year"}]);
    assert_eq!(newly_refused(json!({"overrides": strict, "effective_at": "2300-01-01T00:00:00Z"})).await, json!(6));
    assert_eq!(newly_refused(json!({"overrides": strict, "expires_at": "2025-06-15T15:07:00Z"})).await, json!(6));
    let later = json!([{"rule": "per-key", "limit": "2/year", "effective_at": "2300-01-01T00:00:00Z"}]);
    assert_eq!(newly_refused(json!({"overrides": later})).await, json!(6));
    let next = json!({"overrides": [], "next": {"overrides": strict, "effective_at": "2300-01-01T00:00:00Z"}});
    assert_eq!(newly_refused(next).await, json!(6));
    // Of several for the same rule, the one that begins last.
    let both = json!([
        {"rule": "per-key", "limit": "3/year", "expires_at": "2300-01-01T00:00:00Z"},
        {"rule": "per-key", "limit": "4/year", "effective_at": "2300-01-01T00:00:00Z"},
    ]);
    assert_eq!(newly_refused(json!({"overrides": both})).await, json!(4));
}

#[tokio::test]
async fn quotas_need_a_domain_only_if_several_have_callers() {
    let bench = with_traffic().await;
    let own = json!({"overrides": [{"rule": "per-key", "limit": "2/year"}]});
    let quota = json!({"kind": "quota", "name": "ada-12345678", "document": own});
    assert_eq!(planned(&bench, json!({"records": [quota]})).await["newly_refused"], json!(6));
    let elsewhere = json!({"records": [{"kind": "quota", "domain": "shoe", "name": "ada-12345678", "document": own}]});
    let faulty = bench.post("/admin/v1/plan", &elsewhere).await;
    assert_eq!(faulty.faults(), [("quota ada-12345678", "there is no domain `shoe`")]);
}

#[tokio::test]
async fn a_plan_may_be_longer_than_a_write() {
    let bench = with_traffic().await;
    let comment = format!("# {}\n", "x".repeat(1_000)).repeat(2_000);
    let files = json!([{"name": "new.yaml", "text": comment + SHOP}]);
    assert_eq!(planned(&bench, json!({"files": files})).await["newly_refused"], json!(0));
    let comment = format!("# {}\n", "x".repeat(32 << 20));
    let longer = json!({"files": [{"name": "new.yaml", "text": comment}]});
    assert_eq!(bench.post("/admin/v1/plan", &longer).await.code(413), "too_large");
}

#[tokio::test]
async fn what_is_wrong_with_a_change_is_said() {
    let bench = with_traffic().await;
    let post = async |body: Value| bench.post("/admin/v1/plan", &body).await;
    let faulty = post(json!({"files": [{"name": "new.yaml", "text": "domain: shop\nrules:\n- {name: a}\n"}]})).await;
    assert!(faulty.faults()[0].0.contains("new.yaml:3"), "{:?}", faulty.faults());
    assert!(!post(json!({"records": [rule(json!("many"))]})).await.faults().is_empty());
    let quota = json!({"kind": "quota", "domain": "shop", "name": "ada", "document": {"tear": "pro"}});
    let faulty = post(json!({"records": [quota]})).await;
    assert!(faulty.faults()[0].1.contains("tear"), "{:?}", faulty.faults());
    let block = json!({"kind": "block", "domain": "shop", "name": "ada", "document": {}});
    assert_eq!(post(json!({"records": [block]})).await.code(400), "not_planned");
    assert_eq!(post(json!({"what": 1})).await.code(422), "invalid");
    assert_eq!(bench.post("/admin/v1/plan?minutes=0", &json!({})).await.code(400), "bad_query");
    let as_nobody = bench.ask_as(&[AccessScope::Rules], ("POST", "/admin/v1/plan"), &[], "{}").await;
    assert_eq!(as_nobody.code(403), "forbidden");
}

#[tokio::test]
async fn callers_are_hashed_without_the_scope_audit() {
    let bench = with_traffic().await;
    let change = json!({"records": [rule(json!("1/year"))]}).to_string();
    let plan = bench.ask_as(&[AccessScope::Read], ("POST", "/admin/v1/plan"), &[], &change).await.ok();
    assert!(plan["worst_callers"][0]["caller"].as_str().unwrap().starts_with('#'), "{plan}");
    assert_eq!(plan["rules"][0]["examples"], json!([]));
}

#[tokio::test]
async fn the_sample_is_shown() {
    let bench = with_traffic().await;
    let traffic = bench.get("/admin/v1/traffic").await.ok();
    assert_eq!(
        (&traffic["on"], &traffic["records"], &traffic["callers_percent"]),
        (&json!(true), &json!(9), &json!(100.0))
    );
    assert!(traffic["bytes"].as_u64().unwrap() > 0 && traffic["oldest"].is_string(), "{traffic}");
}
