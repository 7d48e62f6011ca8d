//! Checks, then settlements.

use serde_json::json;
use tollgate::{ManualClock, RequestOutcome, Span, Timestamp};

use super::super::settle::SettleRequest;
use super::*;
use crate::receipts::keys::from_secrets;
use tollgate_store::conformance::gated::{Behaviour, GatedStore};
use tollgate_telemetry::metrics::ReceiptMetrics;

const LLM: &str = "
domain: llm
entity: key
rules:
  - {name: in-flight, key: [key], limit: 2 concurrent, hold: 30s}
  - {name: tokens, key: [key], limit: 1000/day, algorithm: fixed_window, cost: tokens, settle: true, hold: 2m}
  - {name: orders, key: [key], match: {what: order}, limit: 5/day, algorithm: fixed_window, refund: on_failure}
  - {name: abuse, key: [key], match: {what: order}, limit: 9/day, algorithm: fixed_window, refund: on_failure, headers: hidden}
  - {name: plain, key: [other], limit: 100/day, algorithm: fixed_window}
";
const CALL: &str = r#"{"key": "k", "tokens": 400}"#;
const START: Timestamp = Timestamp::from_secs(1_767_225_600);

impl Server {
    /// The receipt of a check.
    #[track_caller]
    fn receipt_of(reply: &Reply) -> String {
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()["receipt"].as_str().unwrap_or_else(|| panic!("no receipt in {}", reply.body)).to_owned()
    }

    async fn receipt(&self, body: &str) -> String {
        Server::receipt_of(&self.check(body).await)
    }

    /// The remaining tokens, slots and orders.
    async fn left(&self) -> [u64; 3] {
        let body = r#"{"attributes": {"key": "k", "tokens": "0", "what": "order"}, "cost": 0}"#;
        let body = self.ask("POST", "/v1/ratelimit/explain", &[], body).await.json();
        ["tokens", "in-flight", "orders"].map(|name| {
            let rule = body["rules"].as_array().unwrap().iter().find(|rule| rule["name"] == name).unwrap();
            rule["counters"][0]["remaining"].as_u64().unwrap()
        })
    }
}

/// The body of a settlement.
fn telling(receipt: &str, rest: &str) -> String {
    format!(r#"{{"receipt": "{receipt}"{rest}}}"#)
}

fn at(clock: &ManualClock) -> Arc<Receipts> {
    let keys = from_secrets(["a secret of the fleet"]).unwrap();
    Arc::new(Receipts::new(keys, Arc::new(clock.clone()), ReceiptMetrics::default()))
}

#[tokio::test]
async fn a_receipt_is_issued_if_it_is_needed_or_requested() {
    let server = Server::new(LLM);
    let body = server.check(CALL).await.json();
    assert!(body["receipt"].as_str().unwrap().starts_with("tgr_"), "{body}");
    assert_eq!(body["settle_within"], 120, "the longest of its rules");
    let rows = [
        (r#"{"other": "x"}"#, None),
        (r#"{"other": "x", "receipt": false}"#, None),
        (r#"{"other": "x", "receipt": true}"#, Some(60)),
        (r#"{"attributes": {"other": "x"}, "receipt": true}"#, Some(60)),
        (r#"{"descriptors": [{"entries": [{"key": "other", "value": "x"}]}], "receipt": true}"#, Some(60)),
        (r#"{"nobody": "x", "receipt": true}"#, Some(60)),
        // A peek takes nothing.
        (r#"{"key": "k", "cost": 0, "tokens": 0}"#, None),
    ];
    for (body, settle_within) in rows {
        let response = server.check(body).await.json();
        assert_eq!(
            (response["settle_within"].as_u64(), response.get("receipt").is_some()),
            (settle_within, settle_within.is_some()),
            "{body}"
        );
    }
    // An attribute with that name has no effect.
    server.check(r#"{"other": "x", "receipt": "true"}"#).await.assert_problem(
        400,
        "bad_member",
        "`receipt` must be true or false, not `\"true\"`",
    );
    let refused = server.check(r#"{"key": "k", "tokens": 601, "receipt": true}"#).await;
    assert_eq!((refused.status, refused.json().get("receipt")), (429, None), "a refusal has taken nothing");
}

#[tokio::test]
async fn the_real_cost_takes_the_place_of_the_estimate_once() {
    let server = Server::new(LLM);
    let receipt = server.receipt(CALL).await;
    assert_eq!(server.left().await, [600, 1, 5]);
    let first = server.settle(&telling(&receipt, r#", "outcome": "ok", "cost": 150"#)).await;
    assert_eq!((first.status, first.header("content-type")), (200, Some("application/json")));
    assert_eq!(
        first.json(),
        json!({
            "settled": true,
            "outcome": "ok",
            "rules": [
                {"rule": "in-flight", "released": true, "limit": 2, "remaining": 2},
                {"rule": "tokens", "returned": 250, "limit": 1000, "remaining": 850},
            ],
        })
    );
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_eq!(server.left().await, [850, 2, 5]);
    server.receipt(r#"{"key": "k", "tokens": 7}"#).await;
    // Also as a string, which is the same number.
    let again = server.settle(&telling(&receipt, r#", "cost": "150""#)).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(again.body, first.body);
    for other in [r#", "cost": 151"#, "", r#", "outcome": "failed", "cost": 150"#, r#", "outcome": "running""#] {
        let words = "the receipt was settled before, with another outcome or cost; the first settlement stands, and nothing was changed";
        server.settle(&telling(&receipt, other)).await.assert_problem(409, "already_settled", words);
    }
    assert_eq!(server.left().await, [843, 1, 5]);
}

#[tokio::test]
async fn a_cost_above_the_estimate_is_debited() {
    let server = Server::new(LLM);
    let receipt = server.receipt(CALL).await;
    let body = server.settle(&telling(&receipt, r#", "cost": 1874"#)).await.json();
    assert_eq!(body["rules"][1], json!({"rule": "tokens", "debited": 1474, "limit": 1000, "remaining": 0}));
    assert_eq!(server.check(r#"{"key": "k", "tokens": 1}"#).await.status, 429);
}

#[tokio::test]
async fn a_failure_is_refunded_and_hidden_rules_stay_hidden() {
    let server = Server::new(LLM);
    let receipt = server.receipt(r#"{"key": "k", "what": "order"}"#).await;
    assert_eq!(server.left().await, [1000, 1, 4]);
    let reply = server.settle(&telling(&receipt, r#", "outcome": "failed""#)).await;
    let rules = json!([
        {"rule": "in-flight", "released": true, "limit": 2, "remaining": 2},
        {"rule": "orders", "returned": 1, "limit": 5, "remaining": 5},
    ]);
    assert_eq!(reply.json(), json!({"settled": true, "outcome": "failed", "rules": rules}));
    assert_eq!(server.left().await, [1000, 2, 5]);
}

#[tokio::test]
async fn a_request_that_goes_on_gets_another_receipt() {
    let clock = ManualClock::at(START);
    let server = Server::build(HttpConfig { receipts: at(&clock), ..config(LLM, false, 1024) });
    let first = server.receipt(CALL).await;
    let mut receipt = first.clone();
    for round in 1..=3 {
        clock.set(START.after(Span::from_secs(100 * round)));
        let body = server.settle(&telling(&receipt, r#", "outcome": "running""#)).await.json();
        let renewed = body["receipt"].as_str().unwrap().to_owned();
        let rules = json!([{"rule": "in-flight", "extended": true, "limit": 2, "remaining": 1}]);
        assert_eq!(
            body,
            json!({"settled": false, "outcome": "running", "receipt": renewed, "settle_within": 120, "rules": rules})
        );
        assert_ne!(renewed, receipt);
        receipt = renewed;
    }
    server.settle(&telling(&first, "")).await.assert_problem(400, "expired_receipt", "the receipt has expired");
    assert_eq!(server.settle(&telling(&receipt, "")).await.json()["settled"], true);
}

#[tokio::test]
async fn nothing_is_settled_by_what_is_no_receipt_of_ours() {
    let clock = ManualClock::at(START);
    let server = Server::build(HttpConfig { receipts: at(&clock), ..config(LLM, false, 1024) });
    let receipt = server.receipt(CALL).await;
    let mut forged = receipt.clone().into_bytes();
    let middle = forged.len() / 2;
    forged[middle] = if forged[middle] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    let foreign = Server::new(LLM).receipt(CALL).await;
    let rows = [
        (
            forged.as_str(),
            "forged_receipt",
            "the receipt or its signature was modified; send it exactly as the check returned it",
        ),
        (
            &foreign,
            "foreign_receipt",
            "signed with a key that this server does not have; configure the same receipt_keys on all servers",
        ),
        ("", "malformed_receipt", "not a receipt; send the `receipt` from the response to a check, unchanged"),
        ("tgr_", "malformed_receipt", "not a receipt"),
        (&receipt[..20], "malformed_receipt", "not a receipt"),
    ];
    for (text, code, words) in rows {
        server.settle(&telling(text, r#", "outcome": "failed", "cost": 0"#)).await.assert_problem(400, code, words);
    }
    clock.set(START.after(Span::from_secs(120)));
    server.settle(&telling(&receipt, "")).await.assert_problem(400, "expired_receipt", "stay spent; settle it within");
    assert_eq!(server.left().await, [600, 1, 5]);
}

#[tokio::test]
async fn costs_that_make_no_sense_change_nothing() {
    let server = Server::new(LLM);
    let receipt = server.receipt(CALL).await;
    let running = server.settle(&telling(&receipt, r#", "outcome": "running", "cost": 1"#)).await;
    running.assert_problem(
        400,
        "bad_cost",
        "a running request has no cost yet; send `cost` when the request has ended",
    );
    let large = server.settle(&telling(&receipt, r#", "cost": 9007199254740992"#)).await;
    large.assert_problem(400, "bad_cost", "it must be below 2^53");
    assert_eq!(server.left().await, [600, 1, 5]);
    assert_eq!(server.settle(&telling(&receipt, r#", "cost": 400"#)).await.status, 200);
}

#[test]
fn what_is_wrong_with_a_body_is_named() {
    let rows = [
        ("", "empty_body: the body is empty; send a JSON object such as {\"receipt\": \"tgr_…\", \"outcome\": \"ok\"}"),
        (" \n", "empty_body"),
        ("{", "bad_json: the body is invalid: EOF while parsing an object at line 1 column 1"),
        ("[]", "bad_member: the body is invalid: invalid type: sequence, expected a JSON object"),
        ("{}", "bad_member: the body is invalid: `receipt` is missing: send the one from the check's response"),
        (r#"{"receipt": 7}"#, "`receipt` must be a string, not `7`"),
        (r#"{"receipt": null}"#, "`receipt` must be a string, not `null`"),
        (r#"{"receipt": "a", "receipt": "b"}"#, "`receipt` occurs twice"),
        (r#"{"receipt": "a", "outcome": "done"}"#, r#"`outcome` must be "ok", "failed" or "running", not `done`"#),
        (r#"{"receipt": "a", "outcome": true}"#, "`outcome` must be a string, not `true`"),
        (r#"{"receipt": "a", "outcome": null}"#, "`outcome` must be a string, not `null`"),
        (r#"{"receipt": "a", "cost": -1}"#, "`cost` must be a whole number, at least 0 and below 2^64, not `-1`"),
        (r#"{"receipt": "a", "cost": 1.5}"#, "`cost` must be a whole number"),
        (r#"{"receipt": "a", "cost": null}"#, "`cost` must be a string, a number"),
        (r#"{"receipt": "a", "costs": 1}"#, "unknown member `costs`; expected `receipt`, `outcome` or `cost`"),
        (r#"{"receipt": "\ud800"}"#, "half of a surrogate pair"),
    ];
    for (body, expected) in rows {
        let problem = SettleRequest::parse(body.as_bytes()).unwrap_err();
        let message = format!("{}: {}", problem.code, problem.detail);
        assert!(message.contains(expected) && message.contains("; send "), "{body}: {message}");
    }
    for outcome in [RequestOutcome::Ok, RequestOutcome::Failed, RequestOutcome::Running] {
        let body = format!(r#"{{"cost": 5, "outcome": "{}", "receipt": "r"}}"#, outcome.name());
        assert!(format!("{:?}", SettleRequest::parse(body.as_bytes()).unwrap()).contains(&format!("{outcome:?}")));
    }
}

#[tokio::test]
async fn past_the_bound_a_receipt_is_not_dropped_in_silence() {
    let receipts = Receipts::ephemeral().unwrap();
    let server = Server::build(HttpConfig { receipts: receipts.clone(), ..config(LLM, false, 1024) });
    let busy = Server::build(HttpConfig { receipts, ..config(LLM, false, 0) });
    let receipt = server.receipt(CALL).await;
    let reply = busy.settle(&telling(&receipt, "")).await;
    reply.assert_problem(503, "too_busy", "the receipt was not settled; retry: settling the same receipt twice");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(server.settle(&telling(&receipt, "")).await.status, 200);
}

#[tokio::test]
async fn settlements_are_deferred_while_the_store_is_unavailable() {
    let store = GatedStore::new();
    store.open();
    let gate =
        Gate::new(crate::test_support::limiter_on(&store, ruleset(LLM)), false, 1024, Metrics::new().wire("http"));
    let server = Server::build(HttpConfig { gate: Arc::new(gate), ..config(LLM, false, 1) });
    let (one, other) = (server.receipt(CALL).await, server.receipt(r#"{"key": "k", "tokens": 1}"#).await);
    store.set_behaviour(Behaviour::Unavailable);
    let reply = server.settle(&telling(&one, r#", "cost": 5"#)).await;
    let rules = json!([{"rule": "in-flight", "deferred": true}, {"rule": "tokens", "deferred": true}]);
    let expected = json!({"settled": false, "deferred": true, "outcome": "ok", "rules": rules});
    assert_eq!((reply.status, reply.json()), (202, expected));
    let reply = server.settle(&telling(&other, r#", "outcome": "running""#)).await;
    assert_eq!((reply.status, &reply.json()["deferred"], &reply.json()["settled"]), (202, &json!(true), &json!(false)));
    store.set_behaviour(Behaviour::Normal);
    let renewed = Server::receipt_of(&Reply { status: 200, ..reply });
    assert_eq!(server.settle(&telling(&renewed, "")).await.json()["settled"], true);
}

#[tokio::test]
async fn what_another_has_begun_to_settle_is_to_be_settled_again() {
    let store = GatedStore::new();
    store.open();
    let gate =
        Gate::new(crate::test_support::limiter_on(&store, ruleset(LLM)), false, 1024, Metrics::new().wire("http"));
    let server = Server::build(HttpConfig { gate: Arc::new(gate), ..config(LLM, false, 1) });
    let receipt = server.receipt(CALL).await;
    store.set_behaviour(Behaviour::Pending);
    let reply = server.settle(&telling(&receipt, r#", "cost": 5"#)).await;
    reply.assert_problem(503, "pending", "another request is settling this receipt; retry");
    assert_eq!(reply.header("retry-after"), Some("1"));
    store.set_behaviour(Behaviour::Normal);
    assert_eq!(server.settle(&telling(&receipt, r#", "cost": 5"#)).await.json()["settled"], true);
}

#[tokio::test]
async fn other_methods_are_rejected() {
    let server = Server::new(LLM);
    let reply = server.get("/v1/ratelimit/settle").await;
    reply.assert_problem(405, "wrong_method", "GET");
    assert_eq!(reply.header("allow"), Some("POST"));
    let long = telling(&"r".repeat(600_000), "");
    server.settle(&long).await.assert_problem(413, "body_too_large", "524288");
}

#[test]
fn receipts_do_not_show_themselves() {
    let receipts = Receipts::ephemeral().unwrap();
    let carried = tollgate_http::response::SignedReceipt { text: "tgr_secret", settle_within: Span::from_secs(60) };
    assert!(!format!("{receipts:?}{carried:?}").contains("tgr_"));
}
