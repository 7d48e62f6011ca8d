//! Idempotency keys: requests that are decided once, however often they are sent.

use serde_json::json;
use tollgate_telemetry::metrics::Repair;

use super::*;

const ONCE: &str = "
domain: shop
entity: api_key
rules:
  - {name: in-flight, key: [api_key], limit: 9 concurrent}
  - {name: per-key, key: [api_key], limit: 3/day, algorithm: sliding_log}
  - {name: soft, key: [api_key], limit: 1/day, algorithm: sliding_log, mode: soft}
";
const BODY: &str = r#"{"api_key": "k"}"#;

impl Server {
    async fn once(&self, key: &str, body: &str) -> Reply {
        self.ask("POST", "/v1/ratelimit/check", &[("Idempotency-Key", key)], body).await
    }

    async fn per_key_left(&self) -> serde_json::Value {
        self.check(r#"{"api_key": "k", "cost": 0}"#).await.json()["remaining"].clone()
    }
}

/// The headers of the limits.
fn summary(reply: &Reply) -> Vec<&(String, String)> {
    reply.headers.iter().filter(|(name, _)| name.contains("ratelimit") || name == "retry-after").collect()
}

#[tokio::test]
async fn the_same_request_is_answered_alike_and_consumes_once() {
    let server = Server::new(ONCE);
    let first = server.once("order-1", BODY).await;
    assert_eq!((first.status, first.header("idempotent-replayed")), (200, None));
    assert_eq!(server.once("order-2", BODY).await.json()["signals"], json!(["soft"]));
    for key in ["order-1", "\"order-1\""] {
        let again = server.once(key, BODY).await;
        assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
        assert_eq!(summary(&again), summary(&first));
        let (mut one, mut other) = (first.json(), again.json());
        // The remaining seconds, not more than at first.
        assert!(other["settle_within"].as_u64() <= one["settle_within"].as_u64());
        let mut receipts = Vec::new();
        for body in [&mut one, &mut other] {
            let body = body.as_object_mut().unwrap();
            body.remove("settle_within");
            receipts.push(body.remove("receipt").unwrap().as_str().unwrap().to_owned());
        }
        assert_eq!(one, other);
        // What was taken once is released once, whichever receipt is settled.
        let [one, other] = [&receipts[0], &receipts[1]].map(|text| format!(r#"{{"receipt": "{text}"}}"#));
        let (settled, replayed) = (server.settle(&one).await, server.settle(&other).await);
        assert_eq!((settled.body, replayed.header("idempotent-replayed")), (replayed.body.clone(), Some("true")));
    }
    assert_eq!(server.per_key_left().await, 1);
    assert_eq!(server.ask("POST", "/v1/ratelimit/check", &[("X-Idempotency-Key", "order-1")], BODY).await.status, 200);
    assert_eq!(server.per_key_left().await, 1);
}

#[tokio::test]
async fn a_refusal_is_decided_anew() {
    let server = Server::new(ONCE);
    let refused = server.once("big", r#"{"api_key": "k", "cost": 4}"#).await;
    assert_eq!(refused.status, 429);
    for _ in 0..3 {
        server.check(BODY).await;
    }
    for _ in 0..2 {
        let refused = server.once("late", BODY).await;
        assert_eq!((refused.status, refused.header("idempotent-replayed")), (429, None));
    }
    // Its key is still free.
    assert_eq!(server.once("late", r#"{"api_key": "other"}"#).await.status, 200);
}

#[tokio::test]
async fn the_same_key_for_something_else_has_no_effect() {
    let gate = Gate::new(
        Arc::new(Limiter::new(ruleset(ONCE), MemoryConfig::default().build().into())),
        false,
        1024,
        Metrics::new().wire("http"),
    );
    let gate = Arc::new(gate);
    let server = Server::build(HttpConfig { gate: gate.clone(), ..config(ONCE, true, 1) });
    server.once("order-1", BODY).await;
    let reply = server.once("order-1", r#"{"api_key": "k", "cost": 2}"#).await;
    assert_eq!((reply.status, &reply.json()["remaining"]), (200, &json!(0)));
    assert_eq!(server.once("order-1", r#"{"api_key": "k", "cost": 2}"#).await.status, 429);
    // The first request is still known.
    assert_eq!(server.once("order-1", BODY).await.header("idempotent-replayed"), Some("true"));
    // Another caller's key is another key.
    assert_eq!(server.once("order-1", r#"{"api_key": "other"}"#).await.header("idempotent-replayed"), None);
    let metrics = gate.metrics();
    assert_eq!((metrics.replays.get(), metrics.conflicts.get(), metrics.repairs(Repair::KeyConflict)), (1, 2, 2));
    assert_eq!(metrics.not_held.get(), 0);
}

#[tokio::test]
async fn keys_that_are_none_are_no_errors() {
    let server = Server::new("domain: d\nrules: [{name: r, key: [api_key], limit: 20/day, algorithm: sliding_log}]\n");
    let mut left = 20;
    for key in ["", "\"\"", " "] {
        for _ in 0..2 {
            left -= 1;
            assert_eq!(server.once(key, BODY).await.json()["remaining"], left, "{key:?}");
        }
    }
    let long = "k".repeat(256);
    for key in ["schl\u{fc}ssel", long.as_str()] {
        left -= 1;
        for _ in 0..2 {
            assert_eq!(server.once(key, BODY).await.json()["remaining"], left, "{key:?}");
        }
    }
    let two = [("Idempotency-Key", "a"), ("X-Idempotency-Key", "b")];
    for _ in 0..2 {
        left -= 1;
        assert_eq!(server.ask("POST", "/v1/ratelimit/check", &two, BODY).await.json()["remaining"], left);
    }
}
