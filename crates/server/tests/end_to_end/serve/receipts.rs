//! Receipts of a real server: settled by the server, after its restart, and by others with the same store.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use tollgate_testing::{Redis, Server, ServerBuilder, eventually};

use crate::http::{HttpResponse, get, post, post_once};
use crate::new_server;

const RULES: &str = "
domain: llm
entity: key
rules:
  - {name: in-flight, key: [key], limit: 2 concurrent}
  - {name: tokens, key: [key], limit: 1000/day, algorithm: sliding_log, cost: tokens, settle: true, policy: quota}
";
const CALL: &str = r#"{"key": "k", "tokens": 400}"#;

fn builder() -> ServerBuilder {
    new_server().rules(RULES).listen(&["http", "admin"])
}

/// A server with counters in this Redis, and a deadline that a busy machine does not exceed.
fn with_redis(redis: &Redis) -> ServerBuilder {
    builder().args(&["--store", &redis.url(), "--store-deadline", "1s", "--data", "off"])
}

fn check(server: &Server, body: &str) -> Value {
    let response = post(&server.url("http", "/v1/ratelimit/check"), body);
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()
}

fn settle(server: &Server, checked: &Value, outcome: &str, cost: Option<u64>) -> HttpResponse {
    let mut body = json!({"receipt": checked["receipt"], "outcome": outcome});
    if let Some(cost) = cost {
        body["cost"] = cost.into();
    }
    post(&server.url("http", "/v1/ratelimit/settle"), &body.to_string())
}

#[track_caller]
fn assert_problem(response: &HttpResponse, status: u16, code: &str) {
    assert_eq!((response.status, response.json()["code"].as_str()), (status, Some(code)), "{}", response.body);
}

/// A metric of the server, by its name with labels.
fn metric(server: &Server, name: &str) -> i64 {
    let text = get(&server.url("admin", "/metrics")).body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::to_owned);
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[test]
fn a_receipt_is_valid_after_a_restart() {
    let mut server = builder().args(&["--snapshot-interval", "1s"]).start();
    let (one, other) = (check(&server, CALL), check(&server, r#"{"key": "k", "tokens": 300}"#));
    assert_eq!(settle(&server, &other, "ok", Some(100)).json()["rules"][1]["returned"], 200);
    let key = server.home().join("data/receipt.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(metric(&server, "tollgate_receipts_issued_total"), 2);
    assert_eq!(metric(&server, r#"tollgate_receipts_settled_total{outcome="ok"}"#), 1);
    // The first snapshot may have begun before the check.
    let snapshot = server.home().join("data/counters.snapshot");
    let modified = || std::fs::metadata(&snapshot).and_then(|file| file.modified()).ok();
    for _ in 0..2 {
        let before = modified();
        check(&server, r#"{"key": "another"}"#);
        assert!(eventually(|| (modified() != before).then_some(())).is_some(), "{}", server.log());
    }
    server.kill();
    let server = server.restart().listen(&["http", "admin"]).start();
    let settled = settle(&server, &one, "ok", Some(150));
    assert_eq!((settled.status, &settled.json()["rules"][1]["returned"]), (200, &json!(250)), "{}", settled.body);
    assert_eq!(settled.json()["rules"][1]["remaining"], 750);
    // The earlier settlement of the other receipt is final too.
    let again = settle(&server, &other, "ok", Some(100));
    assert!(again.is_replay(), "{}", again.body);
    assert_problem(&settle(&server, &other, "failed", None), 409, "already_settled");
    assert_eq!(metric(&server, r#"tollgate_receipts_refused_total{reason="already_settled"}"#), 1);
}

#[test]
fn without_a_data_directory_receipts_end_with_the_process() {
    let server = builder().args(&["--data", "off"]).start();
    server.wait_for_log("receipts can be settled only until this process ends: set receipt_keys or a data directory");
    let checked = check(&server, CALL);
    let server = server.restart().listen(&["http"]).args(&["--data", "off"]).start();
    let response = settle(&server, &checked, "ok", None);
    assert_problem(&response, 400, "foreign_receipt");
}

#[test]
fn keys_are_rotated_without_losing_a_receipt() {
    const OLD: &str = "an old secret of the fleet";
    const NEW: &str = "a new secret of the fleet";
    let with = |keys: &str| builder().args(&["--data", "off"]).env("TOLLGATE_RECEIPT_KEYS", keys).start();
    let (old, both) = (with(OLD), with(&format!("{NEW},{OLD}")));
    // The servers share keys but not counters: each accepts the receipts of the other.
    let (from_old, from_both) = (check(&old, CALL), check(&both, CALL));
    assert_eq!(settle(&both, &from_old, "ok", None).status, 200);
    assert_problem(&settle(&old, &from_both, "ok", None), 400, "foreign_receipt");
    let file = builder();
    let path = file.home().join("keys");
    std::fs::write(&path, format!("{NEW}\n")).unwrap();
    let new = file.args(&["--data", "off", "--receipt-keys-file", &path.display().to_string()]).start();
    assert_eq!(settle(&new, &from_both, "ok", None).status, 200);
    assert_problem(&settle(&new, &from_old, "ok", None), 400, "foreign_receipt");
    let (code, log) = builder().args(&["--receipt-keys-file", "missing"]).run_to_exit();
    assert!(code == Some(1) && log.contains("receipt_keys_file: missing can't be read"), "{log}");
}

#[test]
fn servers_with_one_redis_settle_each_others_receipts() {
    let redis = Redis::start();
    let (one, other) = (with_redis(&redis).start(), with_redis(&redis).start());
    for server in [&one, &other] {
        server.wait_for_log("no receipt_keys are set: receipts are signed with a key in the store");
    }
    let first = check(&one, CALL);
    assert_eq!(first["remaining"], 1, "{first}");
    let settled = settle(&other, &first, "ok", Some(150));
    assert_eq!((settled.status, &settled.json()["rules"][1]["returned"]), (200, &json!(250)), "{}", settled.body);
    for server in [&one, &other] {
        let again = settle(server, &first, "ok", Some(150));
        assert_eq!((again.is_replay(), &again.body), (true, &settled.body));
        assert_problem(&settle(server, &first, "ok", Some(151)), 409, "already_settled");
    }
    // The same request under one key on both servers is charged once, and both return it.
    let (url, more) = ("/v1/ratelimit/check", r#"{"key": "k", "tokens": 100}"#);
    let responses = [&one, &other].map(|server| post_once(&server.url("http", url), "call-1", more));
    assert_eq!([responses[0].is_replay(), responses[1].is_replay()], [false, true]);
    // Another request under the same key is decided by itself.
    let own = post_once(&other.url("http", url), "call-1", CALL);
    assert_eq!((own.status, own.is_replay()), (200, false), "{}", own.body);
    assert_eq!(settle(&one, &own.json(), "ok", Some(0)).status, 200);
    assert_eq!(settle(&other, &responses[0].json(), "ok", Some(100)).json()["rules"][0]["released"], true);
    assert!(settle(&one, &responses[1].json(), "ok", Some(100)).is_replay());
    // A settlement past the limit is accepted.
    let debited = settle(&one, &check(&one, r#"{"key": "k", "tokens": 1}"#), "failed", Some(5_000));
    assert_eq!((debited.status, &debited.json()["rules"][1]["debited"]), (200, &json!(4_999)), "{}", debited.body);
    let left = check(&one, r#"{"key": "k", "cost": 0}"#);
    assert_eq!(left["remaining"], 2, "all slots are free: {left}");
    assert_eq!(metric(&other, r#"tollgate_idempotent_replays_total{wire="http"}"#), 1);
    assert_eq!(metric(&other, r#"tollgate_idempotency_conflicts_total{wire="http"}"#), 1);
    assert_eq!(metric(&one, "tollgate_receipts_issued_total"), 3);
    assert_eq!(metric(&other, r#"tollgate_receipts_settled_total{outcome="ok"}"#), 2);
}

#[test]
fn servers_agree_on_the_key_once_redis_is_available() {
    let mut redis = Redis::start();
    let one = with_redis(&redis).start();
    let fleet = check(&one, CALL);
    redis.kill();
    let other = with_redis(&redis).start();
    other.wait_for_log("receipts are signed with a key of this server only, until the store is available");
    assert_problem(&settle(&other, &fleet, "ok", None), 400, "foreign_receipt");
    let early = check_anything(&other);
    redis.restart();
    // An empty Redis: the first server stores its key there, and the other adopts it.
    let is_known = |server: &Server, checked: &Value| (settle(server, checked, "ok", None).status != 400).then_some(());
    assert!(eventually(|| is_known(&one, &check_anything(&other))).is_some(), "{}", other.log());
    assert!(eventually(|| is_known(&other, &check_anything(&one))).is_some(), "{}", one.log());
    assert!(is_known(&other, &early).is_some(), "it accepts its earlier receipts");
}

/// Makes a check without a matching rule, for its receipt.
fn check_anything(server: &Server) -> Value {
    check(server, r#"{"nobody": "x", "receipt": true}"#)
}
