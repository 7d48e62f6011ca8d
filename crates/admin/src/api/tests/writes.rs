//! What all writes have in common: conditions, idempotency keys, bodies, paths.

use serde_json::json;

use super::{Bench, SHOP};
use crate::scopes::{AccessScope, AccessScopes, Principal};

/// Something to write of each kind: path and body.
const WRITES: &[(&str, &str, &str)] = &[
    ("PUT", "/admin/v1/quotas/k", r#"{"tier": "pro"}"#),
    ("PUT", "/v1/ratelimit/config/r", r#"{"key_pattern": "{api_key}", "rate": 7, "unit": "hour"}"#),
    ("PUT", "/admin/v1/switches/everything", r#"{"mode": "shadow"}"#),
    ("PUT", "/admin/v1/emergencies/e", r#"{"percent": 50, "reason": "why"}"#),
    ("PUT", "/admin/v1/blocks/k", r#"{"reason": "why"}"#),
];

#[tokio::test]
async fn a_lost_update_is_refused() {
    for (method, path, body) in WRITES {
        let bench = Bench::new(SHOP).await;
        let conditions = async |name: &str, value: &str| bench.ask((method, path), &[(name, value)], body).await;
        assert_eq!(conditions("if-match", "\"1\"").await.code(412), "precondition_failed", "{path}");
        assert_eq!(conditions("if-match", "*").await.code(412), "precondition_failed", "{path}");
        assert_eq!(conditions("if-none-match", "*").await.tag(), "\"1\"", "{path}");
        assert_eq!(conditions("if-none-match", "*").await.code(412), "precondition_failed", "{path}");
        assert_eq!(conditions("if-match", "\"1\"").await.tag(), "\"2\"", "{path}");
        assert_eq!(conditions("if-match", "\"1\"").await.code(412), "precondition_failed", "{path}");
        assert_eq!(conditions("if-match", "one").await.code(400), "bad_precondition", "{path}");
        assert_eq!(bench.get(path).await.tag(), "\"2\"", "{path}");
        let gone = bench.ask(("DELETE", path), &[("if-match", "\"1\"")], "").await;
        assert_eq!(gone.code(412), "precondition_failed", "{path}");
        assert_eq!(bench.ask(("DELETE", path), &[("if-match", "\"2\"")], "").await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn what_is_sent_twice_is_done_once() {
    for (method, path, body) in WRITES {
        let bench = Bench::new(SHOP).await;
        let key = [("idempotency-key", "k1")];
        let first = bench.ask((method, path), &key, body).await;
        assert!(first.headers.get("idempotent-replayed").is_none(), "{path}");
        bench.delete(path).await.ok();
        // Whatever has become of it since.
        let second = bench.ask((method, path), &key, body).await;
        assert_eq!(second.headers["idempotent-replayed"], "true", "{path}");
        assert_eq!((second.tag(), &second.body), (first.tag(), &first.body), "{path}");
        assert_eq!(bench.get(path).await.code(404), "not_found", "{path}");
        let other = bench.ask((method, path), &key, &format!("{body} ")).await;
        assert_eq!(other.code(422), "idempotency_conflict", "{path}");
        let long = "k".repeat(256);
        let bad = bench.ask((method, path), &[("idempotency-key", &long)], body).await;
        assert_eq!(bad.code(400), "bad_idempotency_key", "{path}");
    }
}

#[tokio::test]
async fn an_idempotency_key_belongs_to_one_caller() {
    let (method, path, body) = WRITES[0];
    let bench = Bench::new(SHOP).await;
    // Joined by a slash, the names and keys of the first two would be one; escaped without the percent sign, those of the last two.
    let callers = [
        ("certificate spiffe://org/a", "b/c"),
        ("certificate spiffe://org/a/b", "c"),
        ("certificate x%2Fa", "b"),
        ("certificate x/a", "b"),
    ];
    for (name, key) in callers {
        let principal = Principal { name: name.to_owned(), from: String::new(), scopes: AccessScopes::all() };
        let first = bench.ask_by(principal.clone(), (method, path), &[("idempotency-key", key)], body).await;
        assert!(first.headers.get("idempotent-replayed").is_none(), "{name}: {}", first.body);
        let second = bench.ask_by(principal, (method, path), &[("idempotency-key", key)], body).await;
        assert_eq!((second.headers["idempotent-replayed"].as_bytes(), second.tag()), (&b"true"[..], first.tag()));
    }
    assert_eq!(bench.control.generation(), callers.len() as u64);
}

#[tokio::test]
async fn what_was_answered_is_answered_again_whatever_there_is_now() {
    let bench = Bench::new(SHOP).await;
    for (made, path, body) in [
        (3, "/admin/v1/emergencies/e/renew", r#"{"for": "2h"}"#),
        (1, "/v1/ratelimit/config/r/state", r#"{"state": "shadow"}"#),
        (1, "/v1/ratelimit/config/r/rollback", r#"{"version": 1}"#),
    ] {
        let (method, thing, content) = WRITES[made];
        bench.ask((method, thing), &[], content).await.ok();
        let key = [("idempotency-key", path)];
        let first = bench.ask(("POST", path), &key, body).await;
        bench.delete(thing).await.ok();
        let second = bench.ask(("POST", path), &key, body).await;
        assert_eq!(second.headers["idempotent-replayed"], "true", "{path}");
        assert_eq!((first.tag(), &first.body), (second.tag(), &second.body), "{path}");
        let lost = bench.ask(("POST", path), &[("if-match", "\"1\"")], body).await;
        assert!([404, 412].contains(&lost.status), "{path}: {}", lost.body);
    }
}

#[tokio::test]
async fn bodies_must_be_json_and_short() {
    let huge = format!("{{\"reason\": \"{}\"}}", "x".repeat(10 << 20));
    for (method, path, body) in WRITES {
        let bench = Bench::new(SHOP).await;
        let plain = bench.ask((method, path), &[("content-type", "text/plain")], body).await;
        assert_eq!(plain.code(415), "not_json", "{path}");
        assert_eq!(bench.ask((method, path), &[], &huge).await.code(413), "too_large", "{path}");
        assert_eq!(bench.ask((method, path), &[], "{").await.code(400), "not_json", "{path}");
        assert_eq!(bench.ask((method, path), &[], "{\"strange\": 1}").await.code(422), "invalid", "{path}");
        assert_eq!(bench.ask((method, &format!("{path}?strange=1")), &[], body).await.status, 400, "{path}");
        assert_eq!(
            bench.ask_as(&[AccessScope::Check], (method, path), &[], body).await.code(403),
            "forbidden",
            "{path}"
        );
        assert_eq!(bench.control.generation(), 0, "{path}");
    }
}

#[tokio::test]
async fn paths_are_texts() {
    let bench = Bench::new(SHOP).await;
    for path in ["/admin/v1/quotas/%ff", "/v1/ratelimit/config/%c3%28", "/admin/v1/switches/domains/%ff"] {
        assert_eq!(bench.get(path).await.code(400), "bad_path", "{path}");
    }
    bench.put("/admin/v1/quotas/a%2Fb%20c", &json!({"tier": "pro"})).await.ok();
    assert_eq!(bench.get("/admin/v1/quotas/a%2Fb%20c").await.ok()["api_key"], "a/b c");
    let long = "k".repeat(600);
    assert_eq!(bench.put(&format!("/admin/v1/quotas/{long}"), &json!({"tier": "pro"})).await.code(400), "invalid");
    assert_eq!(bench.put("/admin/v1/quotas/%00", &json!({"tier": "pro"})).await.code(400), "invalid");
}
