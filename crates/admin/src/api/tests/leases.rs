//! Leases: off and on, and purges.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use serde_json::{Value as Json, json};
use smallvec::SmallVec;
use tollgate::{Algorithm, Limiter, LoadOptions, Ruleset, Span};
use tollgate_core::key::{Home, Value};
use tollgate_core::{Key, OwnedKey, Period, Scope};
use tollgate_events::Subscriptions;
use tollgate_rules::{RuleFile, load_sources};
use tollgate_store::conformance::gated::GatedStore;
use tollgate_store::{Counters, SharedStore as _};
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::Metrics;
use tower::ServiceExt as _;

use super::super::observability::{AdminState, routes};
use super::{Answered, Bench, SHOP};
use crate::auth::Auth;
use crate::observe::Observability;
use crate::scopes::{AccessScope, AccessScopes, Principal};
use crate::store_of_record::ControlPlane;

const LEASES: &str = "/admin/v1/leases";
const PURGE: &str = "/admin/v1/leases/purge";

fn key(rule: &str, values: &[&'static str]) -> OwnedKey {
    let period = Period::fixed(Span::from_secs(60)).unwrap();
    let scope = Scope::new("shop", rule, Algorithm::FixedWindow, &period, Home::Caller(0));
    let values: SmallVec<[Value<'_>; 2]> = values.iter().map(|value| Value::Text(value)).collect();
    OwnedKey::from(&Key::new(&scope, values))
}

/// A server with counters in a shared store, of which it leases two keys of `ada` and one of `bob`.
async fn bench() -> (Bench, Arc<GatedStore>) {
    let store = GatedStore::new();
    store.open();
    store.set_leased(vec![key("per-key", &["ada"]), key("orders", &["ada", "POST /orders"]), key("per-key", &["bob"])]);
    (Bench::on(SHOP, Counters::Shared(store.clone())).await, store)
}

/// Rule and key of each listed key.
async fn listed(bench: &Bench) -> Vec<String> {
    let leases = bench.get(LEASES).await.ok();
    let text = |key: &Json| format!("{} {}", key["rule"].as_str().unwrap(), key["key"].as_str().unwrap());
    leases["keys"].as_array().unwrap().iter().map(text).collect()
}

#[tokio::test]
async fn hot_keys_are_listed_with_their_callers() {
    let (bench, _) = bench().await;
    let leases = bench.get(LEASES).await.ok();
    assert_eq!(
        (&leases["server"], &leases["available"], &leases["enabled"]),
        (&json!("here"), &json!(true), &json!(true))
    );
    assert_eq!(
        leases["keys"][1],
        json!({
            "domain": "shop", "rule": "orders", "key": "ada, POST /orders", "caller": "ada",
            "units_per_second": 2.0, "chunk": 8, "units_held": 1, "local_share": 0.75,
        })
    );
    let hidden = bench.ask_as(&[AccessScope::Read], ("GET", LEASES), &[], "").await.ok();
    assert!(hidden["keys"][0]["caller"].as_str().unwrap().starts_with('#'), "{hidden}");
    for query in ["limit=0", "limit=201", "limit=x"] {
        assert_eq!(bench.get(&format!("{LEASES}?{query}")).await.code(400), "bad_query");
    }
}

#[tokio::test]
async fn leases_are_switched_off_and_on() {
    let (bench, _) = bench().await;
    let off = bench.put(LEASES, &json!({"enabled": false, "reason": "incident 12"})).await.ok();
    assert_eq!((&off["server"], &off["enabled"], &off["units_held"]), (&json!("here"), &json!(false), &json!(3)));
    assert!(off["detail"].as_str().unwrap().starts_with("on this server, until it restarts"), "{off}");
    assert_eq!((&off["audited"], &bench.get(LEASES).await.ok()["enabled"]), (&json!(true), &json!(false)));
    bench.put(LEASES, &json!({"enabled": true})).await.ok();
    assert_eq!(bench.get(LEASES).await.ok()["enabled"], true);
    let log = bench.get("/admin/v1/audit?kind=lease").await.ok();
    let entries: Vec<_> =
        log["items"].as_array().unwrap().iter().map(|entry| (&entry["action"], &entry["name"])).collect();
    assert_eq!(entries, [(&json!("lease.off"), &json!("here")), (&json!("lease.on"), &json!("here"))]);
    assert_eq!((&log["items"][0]["reason"], &log["items"][0]["by"]), (&json!("incident 12"), &json!("token tests")));
    let changes = bench.get("/admin/v1/events").await.ok();
    assert!(changes["items"].as_array().unwrap().iter().any(|event| event["kind"] == "lease"), "{changes}");
}

#[tokio::test]
async fn keys_are_purged_by_key_caller_rule_and_all() {
    for (body, left) in [
        (json!({"key": "ada"}), &["per-key bob"][..]),
        (json!({"key": "ada, POST /orders"}), &["per-key ada", "per-key bob"]),
        (json!({"key": "ada", "rule": "per-key"}), &["orders ada, POST /orders", "per-key bob"]),
        (json!({"rule": "per-key"}), &["orders ada, POST /orders"]),
        (json!({"key": "nobody"}), &["per-key ada", "orders ada, POST /orders", "per-key bob"]),
        (json!({"all": true}), &[]),
    ] {
        let (bench, _) = bench().await;
        let purged = bench.post(PURGE, &body).await.ok();
        assert_eq!(
            (listed(&bench).await, &purged["keys"]),
            (left.iter().map(|key| (*key).to_owned()).collect(), &json!(3 - left.len())),
            "{body}"
        );
        assert_eq!((&purged["units_returned"], &purged["refusals"]), (&json!(3 - left.len()), &json!(3)), "{body}");
        assert_eq!((&purged["server"], &purged["audited"]), (&json!("here"), &json!(true)));
        let log = bench.get("/admin/v1/audit?kind=lease").await.ok();
        assert_eq!(
            (&log["items"][0]["action"], &log["items"][0]["after"]["key"]),
            (&json!("lease.purge"), &body["key"])
        );
    }
}

/// Whoever may not see keys in full can purge what the list shows.
#[tokio::test]
async fn a_hashed_key_is_purged_by_its_hash() {
    let (bench, _) = bench().await;
    let scopes = [AccessScope::Read, AccessScope::Emergency];
    let leases = bench.ask_as(&scopes, ("GET", LEASES), &[], "").await.ok();
    let body = json!({"rule": leases["keys"][0]["rule"], "key": leases["keys"][0]["key"]}).to_string();
    assert_eq!(bench.ask_as(&scopes, ("POST", PURGE), &[], &body).await.ok()["keys"], 1);
    assert_eq!(listed(&bench).await, ["orders ada, POST /orders", "per-key bob"]);
}

#[tokio::test]
async fn what_is_wrong_is_reported_and_changes_nothing() {
    let (bench, _) = bench().await;
    for (path, body, places) in [
        (PURGE, json!({}), &[""][..]),
        (PURGE, json!({"all": false, "reason": "x".repeat(5_000)}), &["", "reason"]),
        (PURGE, json!({"all": true, "key": "ada"}), &["all"]),
        (PURGE, json!({"all": true, "rule": "per-key"}), &["all"]),
        (PURGE, json!({"caller": "ada"}), &[""]),
    ] {
        let answered = bench.post(path, &body).await;
        let at: Vec<&str> = answered.faults().iter().map(|(at, _)| *at).collect();
        assert_eq!(at, places, "{body}");
    }
    assert_eq!(bench.put(LEASES, &json!({"reason": "x"})).await.faults().len(), 1);
    assert_eq!(bench.put(LEASES, &json!({"enabled": "off"})).await.faults().len(), 1);
    assert_eq!(bench.post(PURGE, &json!({"rule": "none"})).await.code(404), "unknown_rule");
    let other = bench.post(&format!("{PURGE}?domain=bank"), &json!({"all": true})).await;
    assert_eq!(other.code(404), "unknown_domain");
    let conditional = bench.ask(("PUT", LEASES), &[("if-match", "*")], r#"{"enabled": false}"#).await;
    assert_eq!(conditional.code(400), "bad_precondition");
    let all = [AccessScope::Read, AccessScope::Quota, AccessScope::Rules, AccessScope::Audit];
    for (method, path, body) in [("PUT", LEASES, r#"{"enabled": false}"#), ("POST", PURGE, r#"{"all": true}"#)] {
        let refused = bench.ask_as(&all, (method, path), &[], body).await;
        assert_eq!(refused.code(403), "forbidden");
        assert!(refused.body["detail"].as_str().unwrap().contains("`emergency`: it is needed to change leases"));
    }
    assert_eq!((listed(&bench).await.len(), bench.control.generation()), (3, 0));
}

#[tokio::test]
async fn counters_in_memory_have_no_leases() {
    let bench = Bench::new(SHOP).await;
    let leases = bench.get(LEASES).await.ok();
    assert_eq!((&leases["available"], &leases["enabled"]), (&json!(false), &json!(false)));
    assert_eq!(bench.put(LEASES, &json!({"enabled": true})).await.code(409), "no_leases");
    assert_eq!(bench.post(PURGE, &json!({"all": true})).await.code(409), "no_leases");
}

#[tokio::test]
async fn a_repeated_change_is_made_once() {
    let (bench, store) = bench().await;
    let key_header = [("idempotency-key", "p1")];
    let body = r#"{"all": true}"#;
    assert_eq!(bench.ask(("POST", PURGE), &key_header, body).await.ok()["keys"], 3);
    store.set_leased(vec![key("per-key", &["eve"])]);
    let again = bench.ask(("POST", PURGE), &key_header, body).await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!((&again.ok()["keys"], listed(&bench).await.len()), (&json!(3), 1));
}

/// A kill switch must not depend on a database.
#[tokio::test]
async fn leases_are_changed_without_a_store_of_record() {
    let store = GatedStore::new();
    store.set_leased(vec![key("per-key", &["ada"])]);
    let file = RuleFile { name: "shop.yaml".to_owned(), text: SHOP.to_owned() };
    let rules = Ruleset::compile(load_sources(&[file], &LoadOptions::default()).unwrap().domains, 1).unwrap();
    let limiter = Arc::new(Limiter::new(rules, Counters::Shared(store.clone())));
    let (metrics, health) = (Metrics::new(), Arc::new(Health::default()));
    let control = ControlPlane::off(limiter, &metrics, &health);
    let auth = Auth::local(&control, &metrics);
    let state = AdminState::new(Observability::for_tests(), metrics, health, control, auth, Subscriptions::none());
    let mut request = Request::put(LEASES).header("content-type", "application/json");
    let scopes: AccessScopes = [AccessScope::Emergency].into_iter().collect();
    let (name, from) = ("token tests".to_owned(), "192.0.2.1".to_owned());
    request.extensions_mut().unwrap().insert(Principal { name, from, scopes });
    let request = request.body(Body::from(r#"{"enabled": false}"#)).unwrap();
    let answer = Answered::of(routes(state).oneshot(request).await.unwrap()).await.ok();
    assert_eq!((&answer["enabled"], &answer["audited"]), (&json!(false), &json!(false)));
    assert!(!store.leases(0).is_enabled);
}
