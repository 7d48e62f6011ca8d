//! Who a request is from, to the gateway and to the upstream: they must not read two callers in one request.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use tollgate_rules::tenants::{Quota, QuotaStage, Tenants, TimeRange};

use crate::support::{App, NO_RULES, TestGateway, everything_to, http2, within};

const RULES: &str = "
domain: api
entity: api_key
tier_from: plan
rules:
  - {name: per-key, key: [api_key], limit: 100/hour}
";

fn config(app: &App, attributes: &str, more: &str) -> String {
    everything_to(&[app.address]).replace("upstreams:", &format!("attributes: {attributes}\nupstreams:")) + more
}

#[tokio::test]
async fn what_an_untrusted_client_says_of_its_address_does_not_arrive() {
    let app = App::start().await;
    let gateway = TestGateway::to(&[app.address]).await;
    let names = ["Proxy-Client-IP", "WL-Proxy-Client-IP", "HTTP-Client-IP", "HTTP_X_FORWARDED_FOR", "Forwarded-For"];
    let fields: String = names.iter().map(|name| format!("{name}: 6.6.6.6\r\n")).collect();
    gateway.request(&format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}Proxy-Support: Session\r\n\r\n")).await;
    let seen = &app.seen()[0];
    assert!(!seen.contains("6.6.6.6") && !seen.contains("proxy"), "{seen}");
}

#[tokio::test]
async fn a_request_of_two_callers_is_refused() {
    let app = App::start().await;
    let attributes = "{api_key: [{header: X-Api-Key}, {query: key}, {cookie: key}], token: bearer}";
    let gateway = TestGateway::start(&config(&app, attributes, ""), RULES).await;
    for (target, fields) in [
        ("/", "X-Api-Key: a\r\nX-Api-Key: b\r\n"),
        ("/", "X-Api-Key:\r\nX-Api-Key: b\r\n"),
        ("/?key=a&key=b", ""),
        ("/", "Cookie: key=a; key=b\r\n"),
        ("/", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"),
    ] {
        let response = gateway.request(&format!("GET {target} HTTP/1.1\r\nHost: x\r\n{fields}\r\n")).await;
        assert!(response.starts_with("HTTP/1.1 400 ") && response.contains("ambiguous_credential"), "{response}");
        assert!(!response.contains("x-ratelimit"), "nobody is charged: {response}");
    }
    assert!(app.seen().is_empty());
    let twice = "GET / HTTP/1.1\r\nHost: x\r\nX-Api-Key: a\r\nX-Api-Key: a\r\n\r\n";
    assert!(gateway.request(twice).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn another_spelling_of_a_credential_does_not_arrive() {
    let app = App::start().await;
    let gateway = TestGateway::start(&config(&app, "{api_key: {header: X-Api-Key}}", ""), RULES).await;
    gateway.request("GET / HTTP/1.1\r\nHost: x\r\nX-Api-Key: a\r\nX_Api_Key: b\r\nX_Own: c\r\n\r\n").await;
    let seen = &app.seen()[0];
    assert!(seen.contains("\nx-api-key: a\n") && seen.contains("\nx_own: c") && !seen.contains("x_api_key"), "{seen}");
}

#[tokio::test]
async fn cookies_of_http2_are_one_field_in_http1() {
    let app = App::start().await;
    let h2 = everything_to(&[app.address]).replace("servers:", "protocol: http2, servers:");
    for (config, expected) in [
        (everything_to(&[app.address]), &["cookie: a=1; b=2; c=3"][..]),
        (h2, &["cookie: a=1", "cookie: b=2", "cookie: c=3"]),
    ] {
        let gateway = TestGateway::start(&config, NO_RULES).await;
        let mut sender = http2(&gateway).await;
        let request = Request::get("http://x/").header("cookie", "a=1").header("x-other", "1");
        let request = request.header("cookie", "b=2").header("cookie", "c=3").body(Empty::<Bytes>::new()).unwrap();
        assert_eq!(within(sender.send_request(request)).await.unwrap().status(), 200);
        let seen = app.seen().last().unwrap().clone();
        let cookies: Vec<_> = seen.lines().filter(|line| line.starts_with("cookie: ")).collect();
        assert_eq!(cookies, expected, "{seen}");
    }
}

#[tokio::test]
async fn a_query_in_a_form_with_files_is_refused() {
    let app = App::start().await;
    let cost = "upstream: app, cost: {points: {graphql: on}}}";
    let config = everything_to(&[app.address]).replace("upstream: app}", cost);
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let post = |content_type: &str, body: &str| {
        let length = body.len();
        format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let operations =
        "--x\r\nContent-Disposition: form-data; name=\"operations\"\r\n\r\n{\"query\": \"{ a }\"}\r\n--x--\r\n";
    let refused = gateway.request(&post("multipart/form-data; boundary=x", operations)).await;
    assert!(refused.starts_with("HTTP/1.1 400 ") && refused.contains("too_expensive"), "{refused}");
    assert!(app.seen().is_empty());
    assert!(gateway.request(&post("application/json", "{\"query\": \"{ a }\"}")).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn upstreams_learn_the_tier_that_the_rules_use_and_the_cost() {
    let app = App::start().await;
    let attributes = "{api_key: {header: X-Api-Key}, plan: {header: X-Plan}}";
    let cost = "upstream: app, cost: {points: {reserve: 7}}}";
    let config = config(&app, attributes, "to_upstream: [tier, cost]\n").replace("upstream: app}", cost);
    let gateway = TestGateway::start(&config, RULES).await;
    let enterprise = QuotaStage {
        during: TimeRange::ALWAYS,
        tier: Some("enterprise".to_owned()),
        home: None,
        overrides: Vec::new(),
    };
    let tenants = Tenants::default();
    tenants.set_quota("api", "k1", Some(&Quota { stages: vec![enterprise] }));
    gateway.limiter.install_tenants(Arc::new(tenants));
    for (fields, tier) in [
        ("X-Api-Key: k1\r\nX-Plan: pro\r\n", "enterprise"),
        ("X-Api-Key: k2\r\nX-Plan: pro\r\n", "pro"),
        ("X-Api-Key: k2\r\nX-Plan: gold\r\n", "free"),
        ("X-Api-Key: k2\r\n", "free"),
        ("X-Tollgate-Tier: enterprise\r\n", "free"),
    ] {
        gateway.request(&format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n")).await;
        let seen = app.seen().last().unwrap().clone();
        let expected = format!("\nx-tollgate-request-cost: 7\nx-tollgate-tier: {tier}\n\n");
        assert!(seen.contains(&expected), "{fields}: {seen}");
    }
}
