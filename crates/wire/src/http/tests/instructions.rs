//! Instructions: in bodies, and in headers that a setting maps.

use super::super::AuthorizeSettings;
use super::{Reply, Server, config};

const RULES: &str = "
domain: shop
rules:
  - {name: per-key, key: [api_key], limit: 5/365d}
  - {name: in-flight, key: [job], limit: 2 concurrent}
";

/// The remaining units, and the status.
fn left(reply: &Reply) -> (u16, Option<&str>) {
    (reply.status, reply.header("x-ratelimit-remaining"))
}

#[tokio::test]
async fn a_check_in_each_form() {
    let server = Server::new(RULES);
    let debit = server.check(r#"{"attributes": {"tollgate.ask": "debit", "api_key": "a"}, "cost": 9}"#).await;
    assert_eq!(debit.status, 200);
    let look = r#"{"api_key": "a", "cost": 0}"#;
    assert_eq!(left(&server.check(look).await), (429, Some("0")));
    let back = r#"{"descriptors": [{"entries": [{"key": "api_key", "value": "a"}], "hits_addend": 6},
                   {"entries": [{"key": "tollgate.ask", "value": "return"}]}]}"#;
    assert_eq!(server.check(back).await.status, 200);
    assert_eq!(left(&server.check(look).await), (200, Some("2")));
    // A descriptor with only instructions does not add a cost to a peek.
    let looked = r#"{"descriptors": [{"entries": [{"key": "api_key", "value": "a"}], "hits_addend": 0},
                     {"entries": [{"key": "tollgate.claim", "value": "c"}]}]}"#;
    assert_eq!(left(&server.check(looked).await), (200, Some("2")));
    for _ in 0..2 {
        let reply = server.check(r#"{"api_key": "a", "tollgate.once": "o"}"#).await;
        assert_eq!(left(&reply), (200, Some("1")));
    }
}

#[tokio::test]
async fn a_check_with_a_bad_instruction_is_a_bad_request() {
    let server = Server::new(RULES);
    for path in ["/v1/ratelimit/check", "/v1/ratelimit/explain"] {
        let body = r#"{"attributes": {"api_key": "a", "tollgate.ask": "refund"}}"#;
        server.ask("POST", path, &[], body).await.assert_problem(400, "bad_instruction", "`debit` or `return`");
    }
    assert_eq!(left(&server.check(r#"{"api_key": "a", "cost": 0}"#).await), (200, Some("5")));
    let explained = r#"{"attributes": {"api_key": "a", "tollgate.ask": "return"}}"#;
    let explained = server.ask("POST", "/v1/ratelimit/explain", &[], explained).await.json();
    assert_eq!((&explained["rules"][0]["fate"], &explained["allowed"]), (&"applies".into(), &true.into()));
}

/// With a header for each instruction.
fn proxied() -> Server {
    let mut config = config(RULES, false, 9);
    let attributes =
        "api_key=X-Api-Key,job=X-Job,tollgate.once=Idempotency-Key,tollgate.claim=X-Request-Id,tollgate.ask=X-Ask";
    let attributes = attributes.split(',').map(|one| one.parse().unwrap()).collect();
    config.authorize = AuthorizeSettings { attributes, ..AuthorizeSettings::default() };
    Server::build(config)
}

fn conflicts(server: &Server) -> u64 {
    server.http.state.gate.metrics().conflicts.get()
}

fn bad(server: &Server) -> u64 {
    server.http.state.gate.metrics().authorize_bad_cost.get()
}

#[tokio::test]
async fn headers_may_be_instructions() {
    let server = proxied();
    let key = ("X-Api-Key", "a");
    for _ in 0..2 {
        let reply = server.authorize(&[key, ("Idempotency-Key", "o"), ("X-RateLimit-Cost", "2")]).await;
        assert_eq!(left(&reply), (200, Some("3")));
    }
    let reply = server.authorize(&[key, ("X-Ask", "debit"), ("X-RateLimit-Cost", "9")]).await;
    assert_eq!(reply.status, 200);
    assert_eq!(left(&server.authorize(&[key]).await), (429, Some("0")));
    assert_eq!(server.authorize(&[key, ("X-Ask", "return"), ("X-RateLimit-Cost", "9")]).await.status, 200);
    assert_eq!(left(&server.authorize(&[key]).await), (200, Some("2")));
    assert_eq!(bad(&server), 0);
}

#[tokio::test]
async fn requests_in_flight_need_a_name() {
    let server = proxied();
    let ask = async |id: &str, ask: &str| {
        let headers = [("X-Job", "j"), ("X-Request-Id", id), ("X-Ask", ask)];
        server.authorize(&headers[..if ask.is_empty() { 2 } else { 3 }]).await.status
    };
    assert_eq!([ask("1", "").await, ask("2", "").await, ask("3", "").await], [200, 200, 429]);
    assert_eq!([ask("1", "return").await, ask("3", "").await, ask("4", "").await], [200, 200, 429]);
    for _ in 0..3 {
        assert_eq!(server.authorize(&[("X-Job", "j")]).await.status, 200);
    }
}

/// None of them bypasses the limits.
#[tokio::test]
async fn what_can_t_be_followed_is_counted_and_not_there() {
    let server = proxied();
    let long = "x".repeat(256);
    let rows = [("Idempotency-Key", &*long), ("Idempotency-Key", ""), ("X-Request-Id", &*long), ("X-Ask", "refund")];
    for (at, row) in (1..).zip(rows) {
        let reply = server.authorize(&[("X-Api-Key", "a"), row]).await;
        assert_eq!((left(&reply), bad(&server)), ((200, Some(&*(5 - at).to_string())), at), "{row:?}");
    }
    // A long key is still a key.
    assert_eq!(left(&server.authorize(&[("X-Api-Key", "a"), rows[0]]).await), (200, Some("4")));
    assert_eq!(bad(&server), 5);
    // A key of another request: the request is decided without it.
    let key = ("Idempotency-Key", "o");
    assert_eq!(left(&server.authorize(&[("X-Api-Key", "b"), key]).await), (200, Some("4")));
    let reply = server.authorize(&[("X-Api-Key", "b"), key, ("X-RateLimit-Cost", "3")]).await;
    assert_eq!((left(&reply), conflicts(&server)), ((200, Some("1")), 1));
    let reply = server.authorize(&[("X-Api-Key", "b"), key, ("X-RateLimit-Cost", "2")]).await;
    assert_eq!((left(&reply), conflicts(&server)), ((429, Some("1")), 2));
}
