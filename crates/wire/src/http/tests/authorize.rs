//! Checks by headers, for proxies.

use super::super::AuthorizeAttribute;
use super::{Server, config};

const RULES: &str = "
domain: shop
rules:
  - {name: per-key, key: [api_key], limit: 5/day, algorithm: sliding_log}
  - {name: per-address, key: [remote_address], match: {api_key: absent}, limit: 5/day, algorithm: sliding_log}
  - {name: orders, key: [endpoint], match: {method: POST, path: /orders}, limit: 2/day, algorithm: sliding_log}
";

/// The headers of a request.
type Sent = &'static [(&'static str, &'static str)];

/// How many requests passed without a rule, and how many had an invalid cost.
fn counted(server: &Server) -> (u64, u64) {
    let metrics = server.http.state.gate.metrics();
    (metrics.authorize_unmatched.get(), metrics.authorize_bad_cost.get())
}

#[tokio::test]
async fn headers_become_attributes() {
    let server = Server::new(RULES);
    let rows: [(Sent, Option<&str>); 8] = [
        (&[("X-Api-Key", "k1")], Some("per-key;r=4")),
        (&[("X-Forwarded-For", "9.9.9.9, 10.0.0.1")], Some("per-address;r=4")),
        (&[("X-Forwarded-For", "8.8.8.8"), ("X-Forwarded-For", "10.0.0.1:4711")], Some("per-address;r=3")),
        (&[("X-Forwarded-For", "10.0.0.1, ")], Some("per-address;r=2")),
        (&[("X-Original-Method", "POST"), ("X-Original-URI", "/orders?x=/y")], Some("orders;r=1")),
        (&[("X-Forwarded-Method", "POST"), ("X-Forwarded-Uri", "/orders")], Some("orders;r=0")),
        (&[("X-Original-Method", "GET"), ("X-Original-URI", "/orders")], None),
        (&[("X-Original-URI", "/orders")], None),
    ];
    for (headers, expected) in rows {
        let reply = server.authorize(headers).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, ""), "{headers:?}");
        let limit = reply.header("ratelimit").map(|field| field.replace('"', ""));
        let limit = limit.as_deref().map(|field| field.rsplit_once(";t=").map_or(field, |(before, _)| before));
        assert_eq!(limit, expected, "{headers:?}");
    }
    assert_eq!(counted(&server), (2, 0));
}

#[tokio::test]
async fn a_refusal_is_a_429_with_headers_to_pass_on() {
    let server = Server::new(RULES);
    for _ in 0..5 {
        assert_eq!(server.authorize(&[("X-Api-Key", "k1")]).await.status, 200);
    }
    for method in ["GET", "POST", "HEAD"] {
        let reply = server.ask(method, "/v1/ratelimit/authorize", &[("X-Api-Key", "k1")], "").await;
        assert_eq!((reply.status, reply.header("x-ratelimit-denied-by")), (429, Some("per-key")));
        assert!(reply.header("retry-after").is_some());
        assert_eq!(reply.body.contains("RATE_LIMITED"), method != "HEAD");
    }
    server.ask("PUT", "/v1/ratelimit/authorize", &[], "").await.assert_problem(405, "wrong_method", "PUT");
}

#[tokio::test]
async fn nothing_that_a_proxy_leaves_out_is_an_error() {
    let two = format!("{RULES}---\ndomain: other\nrules: [{{name: x, key: [], limit: 1/day}}]\n");
    let server = Server::new(&two);
    let reply = server.authorize(&[("X-Api-Key", "k1")]).await;
    assert_eq!((reply.status, counted(&server).0), (200, 1));
    for (domain, expected) in [("shop", Some("5")), ("other", Some("1")), ("nope", None)] {
        let mut config = config(&two, false, 9);
        config.authorize.domain = Some(domain.to_owned());
        let reply = Server::build(config).authorize(&[("X-Api-Key", "k1")]).await;
        assert_eq!((reply.status, reply.header("x-ratelimit-limit")), (200, expected), "{domain}");
    }
}

#[tokio::test]
async fn a_cost_is_at_least_one() {
    let rows = [
        ("3", "2", 0),
        ("0", "4", 1),
        ("-1", "4", 1),
        ("x", "4", 1),
        ("", "4", 1),
        ("+2", "4", 1),
        ("99999999999999999999", "4", 1),
    ];
    for (cost, left, bad) in rows {
        let server = Server::new(RULES);
        let reply = server.authorize(&[("X-Api-Key", "k1"), ("X-RateLimit-Cost", cost)]).await;
        assert_eq!((reply.header("x-ratelimit-remaining"), counted(&server).1), (Some(left), bad), "{cost}");
    }
}

#[tokio::test]
async fn trusted_proxies_are_passed_over() {
    for (hops, expected) in [(0, "3.3.3.3"), (1, "2.2.2.2"), (2, "1.1.1.1"), (7, "1.1.1.1")] {
        let mut config = config("domain: d\nrules: [{name: x, key: [remote_address], limit: 0/day}]\n", false, 9);
        config.authorize.trusted_hops = hops;
        let reply = Server::build(config).authorize(&[("X-Forwarded-For", "1.1.1.1, 2.2.2.2,3.3.3.3")]).await;
        assert_eq!(reply.json()["error"]["scope"], format!("remote_address:{expected}"));
    }
}

#[tokio::test]
async fn a_long_path_is_no_way_past_the_limits() {
    let server = Server::new(
        "domain: d\nrules: [{name: x, key: [api_key], match: {endpoint: 'GET /*'}, limit: 1/day, algorithm: sliding_log}]\n",
    );
    let path = format!("/{}", "ü".repeat(5_000));
    let headers = [("X-Api-Key", "k1"), ("X-Original-Method", "GET"), ("X-Original-URI", path.as_str())];
    assert_eq!(server.authorize(&headers).await.status, 200);
    assert_eq!(server.authorize(&headers).await.status, 429);
}

#[test]
fn attributes_are_written_as_names_and_sources() {
    for good in ["a=X-A", "a=:endpoint", "a=:method", "a=:path", " a = x-a "] {
        assert!(good.parse::<AuthorizeAttribute>().is_ok(), "{good}");
    }
    for (bad, words) in
        [("a", "write api_key=X-Api-Key"), ("=X", "write api_key"), ("a=", "not a header name"), ("a=:x", ":endpoint")]
    {
        let error = bad.parse::<AuthorizeAttribute>().unwrap_err();
        assert!(error.contains(words), "{bad}: {error}");
    }
}
