//! One caller's counters: peek, reset, credit, debit, and what the audit log says of it.

use serde_json::{Value, json};

use super::{Bench, SHOP};
use crate::scopes::AccessScope;
use tollgate_store::Counters;
use tollgate_store::conformance::gated::{Behaviour, GatedStore};

const K: &str = "/admin/v1/counters/k";

fn of<'v>(reply: &'v Value, rule: &str) -> &'v Value {
    reply["counters"].as_array().unwrap().iter().find(|counter| counter["rule"] == rule).unwrap()
}

#[tokio::test]
async fn counters_are_seen_and_changed() {
    let bench = Bench::new(SHOP).await;
    let orders = [("api_key", "k"), ("endpoint", "POST /orders")];
    assert!(bench.decide(&orders, 4).await.allowed());
    let reply = bench.get(K).await.ok();
    assert_eq!((&of(&reply, "per-key")["used"], &of(&reply, "per-key")["remaining"]), (&json!(4), &json!(6)));
    assert_eq!(of(&reply, "per-key")["limit"], json!({"requests_per_unit": 10, "unit": "year"}));
    assert_eq!((&of(&reply, "per-key")["key"], &of(&reply, "per-key")["resolved_by"]), (&json!(["k"]), &json!("tier")));
    assert!(reply["left_out"].as_array().unwrap().iter().any(|left| left["rule"] == "orders"), "{reply}");
    let reply = bench.get(&format!("{K}?rule=orders&endpoint=POST%20/orders")).await.ok();
    assert_eq!(reply["counters"].as_array().unwrap().len(), 1);
    assert_eq!(of(&reply, "orders")["used"], 4);

    let body = json!({"action": "credit", "units": 3, "rule": "per-key", "reason": "our fault"});
    let reply = bench.post(K, &body).await.ok();
    assert_eq!((&of(&reply, "per-key")["moved"], &of(&reply, "per-key")["remaining"]), (&json!(3), &json!(9)));
    let body = json!({"action": "debit", "units": 2, "rule": "orders", "attributes": {"endpoint": "POST /orders"}});
    let reply = bench.post(K, &body).await.ok();
    assert_eq!(of(&reply, "orders")["remaining"], 0);
    assert!(!bench.decide(&orders, 1).await.allowed());
    let body = json!({"action": "reset", "attributes": {"endpoint": "POST /orders"}});
    let reply = bench.post(K, &body).await.ok();
    assert_eq!((&of(&reply, "per-key")["used"], &of(&reply, "orders")["used"]), (&json!(0), &json!(0)));
    assert!(bench.decide(&orders, 5).await.allowed());

    let log = bench.get("/admin/v1/audit?kind=counter").await.ok();
    let actions: Vec<_> = log["items"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["counter.credit", "counter.debit", "counter.reset"]);
    let first = &log["items"][0];
    assert_eq!(
        (&first["name"], &first["by"], &first["reason"]),
        (&json!("k"), &json!("token tests"), &json!("our fault"))
    );
    assert_eq!((&first["after"]["units"], &first["after"]["rule"]), (&json!(3), &json!("per-key")));
}

#[tokio::test]
async fn an_order_under_a_key_is_done_once() {
    let bench = Bench::new(SHOP).await;
    let body = json!({"action": "debit", "units": 3, "rule": "per-key"}).to_string();
    let key = [("idempotency-key", "d1")];
    let first = bench.ask(("POST", K), &key, &body).await.ok();
    assert_eq!(of(&first, "per-key")["remaining"], 7);
    let second = bench.ask(("POST", K), &key, &body).await;
    assert_eq!(second.headers["idempotent-replayed"], "true");
    assert_eq!(of(&second.ok(), "per-key")["remaining"], 7);
    let other = bench.ask(("POST", K), &key, &body.replace('3', "4")).await;
    assert_eq!(other.code(422), "idempotency_conflict");
    assert_eq!(of(&bench.get(K).await.ok(), "per-key")["remaining"], 7);
}

#[tokio::test]
async fn what_is_wrong_with_an_order_is_reported() {
    let bench = Bench::new(SHOP).await;
    for (body, places) in [
        (json!({"action": "reset", "units": 3}), &["units"][..]),
        (json!({"action": "credit"}), &["units"]),
        (json!({"action": "debit", "units": 0}), &["units"]),
        (json!({"action": "debit", "units": u64::MAX}), &["units"]),
        (json!({"action": "debit", "units": -4}), &[""]),
        (json!({"action": "debit", "units": 1.5}), &[""]),
        (json!({"action": "steal", "units": 4}), &[""]),
        (json!({"action": "credit", "attributes": {"endpoint": 7}}), &["units", "attributes.endpoint"]),
        (json!({"action": "reset", "all": true}), &[""]),
        (json!({"action": "reset", "reason": "x".repeat(5_000)}), &["reason"]),
    ] {
        let answered = bench.post(K, &body).await;
        let at: Vec<&str> = answered.faults().iter().map(|(at, _)| *at).collect();
        assert_eq!(at, places, "{body}");
    }
    let reset = json!({"action": "reset"});
    assert_eq!(bench.post(K, &json!({"action": "reset", "rule": "none"})).await.code(404), "unknown_rule");
    assert_eq!(bench.post(&format!("{K}?domain=bank"), &reset).await.code(404), "unknown_domain");
    assert_eq!(bench.get(&format!("{K}?rule=none")).await.code(404), "unknown_rule");
    assert_eq!(bench.get(&format!("{K}?endpoint=a&endpoint=b")).await.code(400), "bad_query");
    let conditional = bench.ask(("POST", K), &[("if-match", "\"3\"")], &reset.to_string()).await;
    assert_eq!(conditional.code(400), "bad_precondition");
    let refused = bench.ask_as(&[AccessScope::Read, AccessScope::Rules], ("POST", K), &[], &reset.to_string()).await;
    assert_eq!(refused.code(403), "forbidden");
    assert_eq!(bench.control.generation(), 0);
}

#[tokio::test]
async fn what_the_store_did_not_do_is_reported_and_can_be_sent_again() {
    let held = GatedStore::new();
    held.open();
    let bench = Bench::on(SHOP, Counters::Shared(held.clone())).await;
    let key = [("idempotency-key", "d1")];
    let body = json!({"action": "debit", "units": 3, "rule": "per-key"}).to_string();
    held.set_behaviour(Behaviour::Unavailable);
    let away = bench.ask(("POST", K), &key, &body).await;
    assert_eq!(away.code(503), "store_away");
    assert!(away.body["detail"].as_str().unwrap().contains("per-key"), "{}", away.body);
    held.set_behaviour(Behaviour::Normal);
    let done = bench.ask(("POST", K), &key, &body).await;
    assert!(done.headers.get("idempotent-replayed").is_none());
    assert_eq!(of(&done.ok(), "per-key")["remaining"], 7);
    let log = bench.get("/admin/v1/audit?kind=counter").await.ok();
    let actions: Vec<_> = log["items"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["counter.debit", "counter.failed", "counter.debit"]);

    // A quota that starts afresh is the same.
    let quota = r#"{"tier": "pro", "reset": true}"#;
    let key = [("idempotency-key", "q1")];
    held.set_behaviour(Behaviour::Unavailable);
    assert_eq!(bench.ask(("PUT", "/admin/v1/quotas/k"), &key, quota).await.code(503), "not_reset");
    held.set_behaviour(Behaviour::Normal);
    bench.ask(("PUT", "/admin/v1/quotas/k"), &key, quota).await.ok();
    assert_eq!(of(&bench.get(K).await.ok(), "per-key")["used"], 0);
}
