//! Limits, identities and costs, as clients and upstreams see them.

use crate::support::{App, TestGateway, everything_to, read_message, scripted, within};

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
async fn costs_that_are_estimated_are_counted() {
    let app = App::start().await;
    let usage = scripted(async |mut stream, _| {
        read_message(&mut stream).await;
        let body = r#"{"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#;
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, (head + body).as_bytes()).await;
    })
    .await;
    for (upstream, expected) in [(app.address, 1), (usage, 0)] {
        let config = everything_to(&[upstream])
            .replace("upstreams:", "attributes:\n  api_key: {header: X-Api-Key}\nupstreams:")
            .replace("upstream: app}", "upstream: app, cost: {tokens: {reserve: 400, settle: llm}}}");
        let gateway = TestGateway::start(&config, TOKENS).await;
        let response = gateway.request(&get("k")).await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        let is_settled = async || {
            let counters = gateway.limiter.peek(None, None, "k", &[]).await.unwrap().unwrap().counters;
            counters[0].1.reading.remaining != 600
        };
        within(async {
            while !is_settled().await {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(gateway.gateway.status().routes[0].estimated, expected);
    }
}

#[tokio::test]
async fn a_caller_sees_its_own_limits() {
    let app = App::start().await;
    let gateway = TestGateway::start(&with_keys(&app), RULES).await;
    gateway.request(&get("k1")).await;
    let own = |key: &str| own_limits("GET", key);
    let response = gateway.request(&own("X-Api-Key: k1\r\n")).await;
    assert!(
        response.starts_with("HTTP/1.1 200 ") && response.contains(r#""name":"per-key","limit":2,"remaining":1"#),
        "{response}"
    );
    assert!(!response.contains("retry_after") && response.contains("cache-control: no-store"), "{response}");
    let other = gateway.request(&own("X-Api-Key: k2\r\n")).await;
    assert!(other.contains(r#""remaining":2"#) && !other.contains("k1"), "{other}");
    gateway.request(&get("k1")).await;
    let used_up = gateway.request(&own("X-Api-Key: k1\r\n")).await;
    assert!(used_up.contains(r#""remaining":0"#) && used_up.contains(r#""retry_after":3"#), "{used_up}");
    let nobody = gateway.request(&own("")).await;
    assert!(nobody.starts_with("HTTP/1.1 401 ") && nobody.contains("requires `api_key`"), "{nobody}");
    assert!(nobody.contains("www-authenticate: ApiKey in=\"header\", name=\"x-api-key\"\r\n"), "{nobody}");
    let two = gateway.request(&own("X-Api-Key: k1\r\nX-Api-Key: k2\r\n")).await;
    assert!(two.starts_with("HTTP/1.1 400 ") && two.contains("ambiguous_credential"), "{two}");
    let hosts = gateway.request(&own("X-Api-Key: k1\r\nHost: y\r\n")).await;
    assert!(hosts.starts_with("HTTP/1.1 400 ") && hosts.contains("bad_target"), "{hosts}");
    assert_eq!(app.seen().len(), 2);
    // Another method is the upstream's.
    gateway.request(&own_limits("POST", "X-Api-Key: k3\r\n")).await;
    assert_eq!(app.seen().len(), 3);
}

fn own_limits(method: &str, fields: &str) -> String {
    format!("{method} /.well-known/ratelimit HTTP/1.1\r\nHost: x\r\n{fields}\r\n")
}

#[tokio::test]
async fn a_caller_sees_nothing_of_others() {
    let app = App::start().await;
    let config = everything_to(&[app.address])
        .replace("upstreams:", "attributes:\n  api_key: {header: X-Api-Key}\n  user: {header: X-User}\nupstreams:");
    let rules = "domain: api\nentity: api_key\nrules:\n  \
                 - {name: own, key: [api_key], limit: 9/hour}\n  \
                 - {name: own-user, key: [api_key, user], limit: 9/hour}\n  \
                 - {name: own-path, key: [api_key, path], limit: 9/hour}\n  \
                 - {name: user, key: [user], limit: 9/hour}\n  \
                 - {name: all, key: [], limit: 9/hour}\n";
    let gateway = TestGateway::start(&config, rules).await;
    let fields = |key: &str, user: &str| format!("X-Api-Key: {key}\r\nX-User: {user}\r\n");
    for _ in 0..3 {
        gateway.request(&format!("GET /a HTTP/1.1\r\nHost: x\r\n{}\r\n", fields("k1", "u1"))).await;
    }
    // k2 says that it is the user of k1.
    let response = gateway.request(&own_limits("GET", &fields("k2", "u1"))).await;
    let body: serde_json::Value = serde_json::from_str(response.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let shown: Vec<_> =
        body["limits"].as_array().unwrap().iter().map(|one| (&one["name"], &one["remaining"])).collect();
    assert_eq!(format!("{shown:?}"), r#"[(String("own"), Number(9)), (String("own-user"), Number(9))]"#);
    let left_out: Vec<_> =
        body["left_out"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(left_out, ["own-path", "user", "all"]);
    assert!(!response.contains("k1") && !response.contains("u1"), "{response}");
    let own = gateway.request(&own_limits("GET", &fields("k1", "u1"))).await;
    assert_eq!(own.matches(r#""remaining":6"#).count(), 2, "{own}");
}

#[tokio::test]
async fn questions_for_limits_have_bounds() {
    let app = App::start().await;
    let gateway = TestGateway::start(&with_keys(&app), RULES).await;
    let mut raw = gateway.connect().await;
    let mut refused = String::new();
    for _ in 0..1000 {
        raw.send(&own_limits("GET", "X-Api-Key: k1\r\n")).await;
        refused = raw.response().await;
        if !refused.starts_with("HTTP/1.1 200 ") {
            break;
        }
    }
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("too_many_questions"), "{refused}");
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    let other = gateway.request(&own_limits("GET", "X-Api-Key: k2\r\n")).await;
    assert!(other.starts_with("HTTP/1.1 200 "), "{other}");
    // The requests themselves are not concerned.
    assert!(gateway.request(&get("k1")).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn the_path_for_limits_is_that_of_the_file() {
    let app = App::start().await;
    let key = "X-Api-Key: k1\r\n";
    let off = TestGateway::start(&(with_keys(&app) + "limits_path: off\n"), RULES).await;
    off.request(&own_limits("GET", key)).await;
    assert_eq!(app.seen().len(), 1, "it is forwarded");
    TestGateway::to(&[app.address]).await.request(&own_limits("GET", key)).await;
    assert_eq!(app.seen().len(), 2, "without attributes there are no callers");
    let route = "  - {name: own, match: /.well-known/ratelimit, upstream: app}\nto_upstream";
    let routed = TestGateway::start(&with_keys(&app).replace("to_upstream", route), RULES).await;
    routed.request(&own_limits("GET", key)).await;
    assert_eq!(app.seen().len(), 3, "a route of this path precedes the default");
    let rules = "domain: api\nrules: [{name: a, key: [api_key], limit: 1/s}]\n";
    let nameless = TestGateway::start(&with_keys(&app), rules).await;
    let response = nameless.request(&own_limits("GET", key)).await;
    assert!(response.starts_with("HTTP/1.1 404 ") && response.contains("no_entity"), "{response}");
    assert!(response.contains(r#""by":"gateway""#), "{response}");
}

#[tokio::test]
async fn a_401_says_which_credentials_are_accepted() {
    let app = App::start().await;
    let sources = "[bearer, {header: X-Api-Key}, {query: key}, {cookie: sid}, {jwt: sub, keys: none.json}]";
    let config = everything_to(&[app.address])
        .replace("upstreams:", &format!("attributes:\n  caller: {sources}\nupstreams:"))
        .replace("upstream: app}", "upstream: app, require: caller}");
    let gateway = TestGateway::start(&config, RULES).await;
    let expected = [
        "Bearer",
        "ApiKey in=\"header\", name=\"x-api-key\"",
        "ApiKey in=\"query\", name=\"key\"",
        "ApiKey in=\"cookie\", name=\"sid\"",
    ];
    let challenges = |response: &str| {
        let fields = response.lines().filter_map(|line| line.strip_prefix("www-authenticate: "));
        fields.map(str::to_owned).collect::<Vec<_>>()
    };
    let response = gateway.get("/").await;
    assert!(response.starts_with("HTTP/1.1 401 "), "{response}");
    assert_eq!(challenges(&response), expected);
    let basic = gateway.request("GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic eDp5\r\n\r\n").await;
    assert_eq!(challenges(&basic)[0], "Bearer error=\"invalid_token\"");
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
    assert!(shed.contains("#temporary-reduced-capacity") && shed.contains(r#""code":"shed""#), "{shed}");
    assert!(shed.contains(r#""shed":"adaptive","by":"gateway""#), "{shed}");
    // 2 an hour, and none of these requests was charged.
    for _ in 0..5 {
        assert!(gateway.request(&get("k2")).await.starts_with("HTTP/1.1 503 "));
    }
    let route = &gateway.gateway.status().routes[0];
    assert!(route.shed >= 6 && route.limited == 0);
}

const BY_ADDRESS: &str = "
domain: api
rules:
  - {name: by-address, key: [remote_address], limit: 1/hour, algorithm: sliding_log}
";

#[tokio::test]
async fn the_address_of_a_rule_is_what_trusted_proxies_say() {
    let app = App::start().await;
    let request = |address: &str| format!("GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {address}\r\n\r\n");
    let behind = "trusted_proxies: [127.0.0.0/8, 10.9.0.0/16]\nupstreams:";
    let trusting = everything_to(&[app.address]).replace("upstreams:", behind);
    let gateway = TestGateway::start(&trusting, BY_ADDRESS).await;
    for (forwarded, status) in [
        ("192.0.2.1", "200"),
        ("192.0.2.2", "200"),
        ("192.0.2.1", "429"),
        // What the client itself wrote is before the first proxy's part.
        ("192.0.2.3, 192.0.2.2, 10.9.0.1", "429"),
        ("192.0.2.2, 192.0.2.3, 10.9.0.1", "200"),
    ] {
        let response = gateway.request(&request(forwarded)).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{forwarded}: {response}");
    }
    // Nobody else may say it.
    let gateway = TestGateway::start(&everything_to(&[app.address]), BY_ADDRESS).await;
    assert!(gateway.request(&request("192.0.2.1")).await.starts_with("HTTP/1.1 200 "));
    assert!(gateway.request(&request("192.0.2.2")).await.starts_with("HTTP/1.1 429 "));
    assert!(!app.seen().last().unwrap().contains("192.0.2.1"), "nor does the upstream hear it");
}
