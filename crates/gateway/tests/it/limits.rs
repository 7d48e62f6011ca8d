//! Limits, identities and costs, as clients and upstreams see them.

use crate::support::{App, TestGateway, everything_to};

const RULES: &str = "
domain: api
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: 2/hour, algorithm: sliding_log}
  - {name: in-flight, key: [host], limit: 3 concurrent}
";

fn with_keys(app: &App) -> String {
    let config =
        everything_to(&[app.address]).replace("upstreams:", "attributes:\n  api_key: {header: X-Api-Key}\nupstreams:");
    config + "to_upstream: [caller, priority, rule, remaining]\n"
}

fn get(key: &str) -> String {
    format!("GET /orders HTTP/1.1\r\nHost: x\r\nX-Api-Key: {key}\r\n\r\n")
}

#[tokio::test]
async fn limits_hold_and_headers_say_so() {
    let app = App::start().await;
    let gateway = TestGateway::start(&with_keys(&app), RULES).await;
    let first = gateway.request(&get("k1")).await;
    assert!(first.starts_with("HTTP/1.1 200 ") && first.contains("x-ratelimit-remaining: 1"), "{first}");
    let seen = &app.seen()[0];
    assert!(seen.contains("\nx-tollgate-caller: k1\n") && seen.contains("\nx-tollgate-priority: get\n"), "{seen}");
    assert!(seen.contains("\nx-tollgate-remaining: 1\n") && seen.contains("\nx-tollgate-rule: per-key"), "{seen}");
    assert!(gateway.request(&get("k1")).await.starts_with("HTTP/1.1 200 "));
    let refused = gateway.request(&get("k1")).await;
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("retry-after: "), "{refused}");
    assert!(refused.contains("application/problem+json") && refused.contains("RATE_LIMITED"), "{refused}");
    assert!(gateway.request(&get("k2")).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(app.seen().len(), 3);
}

#[tokio::test]
async fn slots_are_released_when_requests_end() {
    let app = App::start().await;
    let gateway = TestGateway::start(&with_keys(&app), RULES).await;
    for number in 0..10 {
        let response = gateway.request(&get(&format!("k{number}"))).await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{number}: {response}");
    }
}

#[tokio::test]
async fn a_required_credential_that_is_missing_is_401() {
    let app = App::start().await;
    let config = with_keys(&app).replace("upstream: app}", "upstream: app, require: [api_key]}");
    let gateway = TestGateway::start(&config, RULES).await;
    let response = gateway.get("/").await;
    assert!(response.starts_with("HTTP/1.1 401 ") && app.seen().is_empty(), "{response}");
    assert!(gateway.request(&get("k")).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_refused_upload_is_not_read() {
    let app = App::start().await;
    let gateway = TestGateway::start(&with_keys(&app), RULES).await;
    for _ in 0..2 {
        gateway.request(&get("k")).await;
    }
    let mut client = gateway.connect().await;
    client
        .send("POST /orders HTTP/1.1\r\nHost: x\r\nX-Api-Key: k\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
        .await;
    let response = client.response().await;
    assert!(response.starts_with("HTTP/1.1 429 "), "not 100: {response}");
    assert_eq!(app.seen().len(), 2);
}

#[tokio::test]
async fn an_upload_that_is_admitted_is_requested() {
    let app = App::start().await;
    let gateway = TestGateway::start(&with_keys(&app), RULES).await;
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n").await;
    assert!(client.response().await.starts_with("HTTP/1.1 100 "));
    client.send("ok").await;
    assert!(client.response().await.starts_with("HTTP/1.1 200 "));
    assert!(app.seen()[0].ends_with("\n\nok") && !app.seen()[0].contains("expect"));
}

const TOKENS: &str = "
domain: api
entity: api_key
rules:
  - {name: tokens, key: [api_key], limit: 1000/hour, cost: tokens, settle: true, algorithm: token_bucket, burst: 1000}
";

#[tokio::test]
async fn what_a_request_really_cost_is_settled() {
    let app = App::start().await;
    let cost = "cost: {tokens: {reserve: \"json:/max_tokens\", else: 10, settle: \"json:/usage/total_tokens\"}}";
    let config = with_keys(&app).replace("upstream: app}", &format!("upstream: app, {cost}}}"));
    let gateway = TestGateway::start(&config, TOKENS).await;
    let request = |body: &str| {
        let length = body.len();
        format!(
            "POST / HTTP/1.1\r\nHost: x\r\nX-Api-Key: k\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let first = gateway.request(&request(r#"{"max_tokens": 400}"#)).await;
    assert!(first.contains("x-ratelimit-remaining: 600"), "{first}");
    assert!(app.seen()[0].ends_with(r#"{"max_tokens": 400}"#), "the body arrives: {:?}", app.seen());
}

#[tokio::test]
async fn a_caller_sees_its_own_limits() {
    let app = App::start().await;
    let config = with_keys(&app) + "limits_path: /.well-known/ratelimit\n";
    let gateway = TestGateway::start(&config, RULES).await;
    gateway.request(&get("k1")).await;
    let own = |key: &str| format!("GET /.well-known/ratelimit HTTP/1.1\r\nHost: x\r\n{key}\r\n");
    let response = gateway.request(&own("X-Api-Key: k1\r\n")).await;
    assert!(
        response.starts_with("HTTP/1.1 200 ") && response.contains(r#""name":"per-key","limit":2,"remaining":1"#),
        "{response}"
    );
    let other = gateway.request(&own("X-Api-Key: k2\r\n")).await;
    assert!(other.contains(r#""remaining":2"#), "{other}");
    let nobody = gateway.request(&own("")).await;
    assert!(nobody.starts_with("HTTP/1.1 401 ") && app.seen().len() == 1, "{nobody}");
}

#[tokio::test]
async fn an_upstream_under_too_much_load_is_protected_and_nothing_is_charged() {
    let slow = crate::support::scripted(async |mut stream, _| {
        crate::support::read_message(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let config = everything_to(&[slow])
        .replace("servers:", "adaptive: {mode: enforce, min: 1, max: 1}, servers:")
        .replace("upstreams:", "attributes:\n  api_key: {header: X-Api-Key}\nupstreams:");
    let gateway = TestGateway::start(&config, RULES).await;
    let mut first = gateway.connect().await;
    first.send(&get("k1")).await;
    let mut shed = String::new();
    for _ in 0..100 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        shed = gateway.request(&get("k2")).await;
        if shed.starts_with("HTTP/1.1 503 ") {
            break;
        }
    }
    assert!(shed.starts_with("HTTP/1.1 503 ") && shed.contains("x-tollgate-shed: adaptive"), "{shed}");
    assert!(shed.contains("retry-after: ") && !shed.contains("x-ratelimit"), "{shed}");
    // 2 an hour, and none of these requests was charged.
    for _ in 0..5 {
        assert!(gateway.request(&get("k2")).await.starts_with("HTTP/1.1 503 "));
    }
    let route = &gateway.gateway.status().routes[0];
    assert!(route.shed >= 6 && route.limited == 0);
}
