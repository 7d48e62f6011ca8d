//! Tests of the explanations of requests.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use http::request::Parts;
use tollgate_core::Timestamp;
use tollgate_http::request_target::PathNormalization;

use super::{ExplainedRequest, RequestExplanation, explain, masked};
use crate::model::GatewayConfig;

const FILE: &str = r#"
listen: 8000
limits_path: /limits
attributes:
  api_key: [{header: X-Api-Key}, bearer]
  tenant: {path: tenant}
  user: {jwt: sub, keys: none.json}
priority:
  header: X-Priority
  critical: [{route: charges}]
  test: [{api_key: "test_*"}, {header: {X-Mode: test}}]
upstreams: {u: {servers: [10.0.0.1:80, 10.0.0.2:80]}, v: {servers: {dns: v.svc:81}}}
routes:
  - {name: charges, match: "POST /v1/charges", upstream: u, require: [api_key]}
  - {name: orders, match: {path: "/v1/orders/*", methods: [GET, POST], host: "*.example.com"}, upstream: u, strip_prefix: /v1}
  - {name: tenants, match: "/t/{tenant}/x", upstream: v, timeouts: {whole: 9s}}
  - {name: chat, match: "POST /chat", upstream: v, cost: {tokens: {reserve: "json:/max_tokens", else: 4096, settle: llm}, n: 3}}
  - {name: graph, match: "POST /graphql", upstream: v, cost: {points: {graphql: {most: 3}}}}
  - {name: rest, match: "/v1/*", upstream: v}
"#;

/// The headers of a request.
type Headers<'a> = &'a [(&'a str, &'a str)];

fn explained(method: &str, target: &str, headers: Headers<'_>, body: Option<&str>) -> RequestExplanation {
    let config = GatewayConfig::read("gateway.yaml", FILE, Path::new("")).unwrap().config;
    let mut request = http::Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if !headers.iter().any(|(name, _)| *name == "Host") {
        request = request.header("Host", "api.example.com");
    }
    let parts: Parts = request.body(()).unwrap().into_parts().0;
    let request = ExplainedRequest {
        parts: &parts,
        body: body.map(str::as_bytes),
        peer: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
        now: Timestamp::from_micros(0),
        normalization: PathNormalization::default(),
    };
    explain(&config, request)
}

fn why_not<'e>(explanation: &'e RequestExplanation, route: &str) -> &'e str {
    &explanation.other_routes.iter().find(|other| other.name == route).unwrap().why
}

#[test]
fn the_route_and_why_not_the_others() {
    let explanation = explained("GET", "/v1/orders/../orders/%61?q=1", &[], None);
    assert_eq!(explanation.route.as_ref().unwrap().name, "orders");
    assert_eq!(explanation.route.as_ref().unwrap().matches, "GET,POST *.example.com/v1/orders/*");
    assert_eq!(explanation.path.as_deref(), Some("/v1/orders/a"));
    assert_eq!(explanation.forwarded.as_deref(), Some("/orders/a?q=1"));
    assert_eq!(explanation.upstream.as_ref().unwrap().servers, "10.0.0.1:80, 10.0.0.2:80");
    assert_eq!(explanation.answer, None);
    assert_eq!(why_not(&explanation, "charges"), "its path is /v1/charges");
    assert_eq!(why_not(&explanation, "rest"), "it matches as well, but is less specific");

    let explanation = explained("DELETE", "/v1/orders/a", &[], None);
    assert_eq!(explanation.route.as_ref().unwrap().name, "rest");
    assert_eq!(why_not(&explanation, "orders"), "its methods are GET, POST");
    let explanation = explained("GET", "/v1/orders/a", &[("Host", "example.com")], None);
    assert_eq!(why_not(&explanation, "orders"), "its host is *.example.com");
    assert_eq!(explanation.timeouts.as_ref().unwrap().whole_ms, None);
}

#[test]
fn requests_that_are_not_forwarded() {
    let rows: [(&str, &str, Headers, u16, &str); 9] = [
        ("GET", "/limits", &[], 200, "limits"),
        ("POST", "/limits", &[], 404, "no_route"),
        ("GET", "/elsewhere", &[], 404, "no_route"),
        ("GET", "/chat", &[], 405, "wrong_method"),
        ("TRACE", "/chat", &[], 405, "bad_target"),
        ("GET", "/v1/a", &[("Host", "a b")], 400, "bad_target"),
        ("GET", "/v1/a%2fb", &[], 400, "odd_path"),
        ("POST", "/v1/charges", &[], 401, "unauthorized"),
        ("POST", "/v1/charges", &[("X-Api-Key", "")], 401, "unauthorized"),
    ];
    for (method, target, headers, status, code) in rows {
        let answer = explained(method, target, headers, None).answer.unwrap();
        assert_eq!((answer.status, answer.code), (status, code), "{method} {target}: {answer:?}");
    }
    let body = r#"{"query": "{a b c d e}"}"#;
    let answer = explained("POST", "/graphql", &[("Content-Type", "application/json")], Some(body)).answer.unwrap();
    assert_eq!((answer.status, answer.code), (400, "too_expensive"), "{answer:?}");
    assert_eq!(explained("POST", "/graphql", &[], None).answer, None);
}

#[test]
fn attributes_have_their_source_and_credentials_are_masked() {
    let explanation = explained("POST", "/v1/charges", &[("X-Api-Key", "0123456789abcdef")], None);
    let key = &explanation.attributes[0];
    assert_eq!((key.value.as_deref(), &*key.source), (Some("****cdef"), "header x-api-key"));
    assert!(explanation.entries.contains(&("api_key".to_owned(), "0123456789abcdef".to_owned())));
    assert!(explanation.entries.contains(&("endpoint".to_owned(), "POST /v1/charges".to_owned())));
    assert!(explanation.entries.contains(&("remote_address".to_owned(), "192.0.2.7".to_owned())));
    let user = &explanation.attributes[2];
    assert_eq!((user.value.as_deref(), &*user.source), (None, "claim sub of a verified token"));
    assert!(explanation.notes[0].starts_with("keys none.json: "), "{:?}", explanation.notes);

    let explanation = explained("GET", "/t/acme/x", &[("Authorization", "Bearer secret")], None);
    let [key, tenant, _] = &explanation.attributes[..] else { panic!("{explanation:?}") };
    assert!(key.value.as_ref().unwrap().starts_with("sha256:2bb80d537b1da3e3"), "{key:?}");
    assert_eq!(tenant.value.as_deref(), Some("acme"));
    assert_eq!(explanation.timeouts.unwrap().whole_ms, Some(9_000));

    for (name, value, shown) in [
        ("api_key", "short", "****"),
        ("tenant", "0123456789abcdef", "0123456789abcdef"),
        ("token", "äöüßäöüßäöüßäöüß", "****äöüß"),
    ] {
        assert_eq!(masked(name, value), shown, "{name}");
    }
}

#[test]
fn classes_have_their_reason() {
    let rows: [(&str, &str, Headers, &str, &str); 5] = [
        ("GET", "/v1/x", &[], "get", "by the method GET"),
        ("POST", "/v1/charges", &[("X-Api-Key", "test_1")], "critical", "by {route: charges}"),
        ("POST", "/v1/x", &[("X-Api-Key", "test_1")], "test", "by {api_key: test_*}"),
        ("POST", "/v1/x", &[("X-Mode", "test")], "test", "by {header x-mode: test}"),
        ("POST", "/v1/x", &[("X-Priority", "test")], "test", "by the method POST it is post, and x-priority lowers it"),
    ];
    for (method, target, headers, class, why) in rows {
        let priority = explained(method, target, headers, None).priority.unwrap();
        assert_eq!((priority.class, &*priority.why), (class, why), "{method} {target}");
    }
}

#[test]
fn costs_are_those_of_the_body() {
    let units = |body| explained("POST", "/chat", &[], body).costs.iter().map(|cost| cost.units).collect::<Vec<_>>();
    assert_eq!(units(Some(r#"{"max_tokens": 50}"#)), [50, 3]);
    assert_eq!(units(Some("{")), [4096, 3]);
    assert_eq!(units(None), [4096, 3]);
    let explanation = explained("POST", "/chat", &[], None);
    assert_eq!(explanation.costs[0].from, "/max_tokens in the body, else 4096");
    assert_eq!(explanation.costs[0].settled_by.as_deref(), Some("tokens that the response reports"));
    assert!(explanation.notes.iter().any(|note| note.contains("the body")), "{:?}", explanation.notes);
}
