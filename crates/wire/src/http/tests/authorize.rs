//! Checks by headers, for proxies.

use tollgate_telemetry::metrics::Repair;

use super::super::AuthorizeAttribute;
use super::{HttpConfig, PathNormalization, Server, config};

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
    let rows = [("3", "2", 0), ("0", "4", 1), ("-1", "4", 1), ("x", "4", 1), ("", "4", 1), ("+2", "4", 1)];
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
async fn a_cost_beyond_all_limits_is_refused() {
    let headers = [("X-Api-Key", "k1"), ("X-RateLimit-Cost", "99999999999999999999")];
    assert_eq!(Server::new(RULES).authorize(&headers).await.status, 429);
}

/// One login limit, whatever the path is spelled like.
#[tokio::test]
async fn a_spelling_is_no_way_past_the_limits() {
    const LOGIN: &str = "
domain: d
rules:
  - {name: login, key: [], match: {endpoint: POST /login}, limit: 1/day, policy: security}
  - {name: path, key: [], match: {path: /login, method: PUT}, limit: 1/day, policy: security}
";
    let spellings =
        ["/login", "/%6cogin", "//login", "/./login", "/x/../login", "http://h/login", "/login?x", "/%6Cogin#x"];
    let more = ["/login/", "/LOGIN", "/login;x=1"];
    let all = PathNormalization { matrix_parameters: true, trailing_slash: true, lower_case: true, standard: true };
    for (normalization, refused, passed) in [
        (PathNormalization::default(), &spellings[..], &more[..]),
        (all, &[&spellings[..], &more[..]].concat()[..], &[][..]),
        (PathNormalization::NONE, &["/login", "/login?x"][..], &["/%6cogin", "//login"][..]),
    ] {
        let server = Server::build(HttpConfig { normalization, ..config(LOGIN, false, 9) });
        let ask = async |method: &str, path: &str| {
            let headers = [("X-Original-Method", method), ("X-Original-URI", path)];
            let authorized = server.authorize(&headers).await.status;
            let body = serde_json::json!({"endpoint": format!("{method} {path}"), "path": path, "method": method});
            let checked = server.check(&body.to_string()).await.status;
            (authorized, checked)
        };
        for method in ["POST", "PUT"] {
            assert_eq!(ask(method, "/login").await, (200, 429));
            for path in refused {
                // Off, `check` does not drop a query, as it never did.
                let checked = if normalization.standard || !path.contains('?') { 429 } else { 200 };
                assert_eq!(ask(method, path).await, (429, checked), "{path}");
            }
            for path in passed {
                assert_eq!(ask(method, path).await, (200, 200), "{path}");
            }
        }
        let lower = if normalization.standard { (429, 429) } else { (200, 200) };
        assert_eq!(ask("post", "/login").await, lower);
    }
}

/// As over gRPC.
#[tokio::test]
async fn values_that_are_no_text_have_counters_of_their_own() {
    let server = Server::new(RULES);
    let long = "k".repeat(5_000);
    for (key, left) in [("a", "4"), ("\\xff", "4"), (&long, "4"), (&long, "3"), (&long[1..], "4")] {
        let reply = server.authorize(&[("X-Api-Key", key)]).await;
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(left), "{}", &key[..1]);
    }
    let metrics = server.http.state.gate.metrics();
    assert_eq!([Repair::LongText, Repair::NotText].map(|repair| metrics.repairs(repair)), [3, 1]);
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
