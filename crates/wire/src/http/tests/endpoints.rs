//! Explanations, status, health, and unknown paths.

use serde_json::json;

use super::{RULES, Server, config};

#[tokio::test]
async fn an_explanation_takes_nothing_and_tells_every_rule() {
    let server = Server::new(RULES);
    for _ in 0..2 {
        let reply = server.ask("POST", "/v1/ratelimit/explain", &[], r#"{"api_key": "k", "cost": 2}"#).await;
        assert_eq!(
            reply.json(),
            json!({
                "domain": "shop", "cost": 2, "allowed": true, "more": 0,
                "rules": [
                    {"name": "per-key", "fate": "applies", "counters": [{
                        "key": ["k"], "limit": 3, "window": "1d", "algorithm": "sliding_log", "mode": "enforce",
                        "units": 2, "remaining": 3, "has_room": true}]},
                    {"name": "orders", "fate": "misses", "counters": [],
                     "why": "the request has no `endpoint`, and it must be \"POST /orders*\""},
                ],
            })
        );
    }
    let reply = server.ask("POST", "/v1/ratelimit/explain", &[], r#"{"api_key": "k", "cost": 4}"#).await;
    assert_eq!(reply.json()["allowed"], false);
    server.ask("POST", "/v1/ratelimit/explain", &[], "x").await.assert_problem(400, "bad_json", "line 1");
    let unknown = server.ask("POST", "/v1/ratelimit/explain", &[], r#"{"domain": "x"}"#).await;
    unknown.assert_problem(404, "unknown_domain", "`shop`");
}

#[tokio::test]
async fn health_follows_the_server() {
    let server = Server::new(RULES);
    let row = async |path: &str| {
        let reply = server.get(path).await;
        (reply.status, reply.body)
    };
    assert_eq!(row("/livez").await, (200, "OK".to_owned()));
    assert_eq!(row("/healthcheck").await.0, 500);
    assert_eq!(row("/readyz").await, (503, r#"{"ready":false,"degraded":[]}"#.to_owned()));
    server.health.started();
    server.health.degrade("rules", "the last good ones are in force".to_owned());
    assert_eq!(row("/healthcheck").await, (200, "OK".to_owned()));
    let degraded = r#"{"ready":true,"degraded":[{"part":"rules"}]}"#;
    assert_eq!(row("/readyz").await, (200, degraded.to_owned()));
    server.health.stopping();
    assert_eq!((row("/readyz").await.0, row("/livez").await.0), (503, 200));
    assert_eq!(server.ask("HEAD", "/livez", &[], "").await.status, 200);
}

#[tokio::test]
async fn what_there_is_not_is_said() {
    let server = Server::new(RULES);
    server.get("/nope").await.assert_problem(404, "unknown_path", "/nope");
    for (method, path, allow) in [
        ("GET", "/v1/ratelimit/check", "POST"),
        ("HEAD", "/v1/ratelimit/check", "POST"),
        ("DELETE", "/v1/ratelimit/explain", "POST"),
        ("POST", "/livez", "GET,HEAD"),
    ] {
        let reply = server.ask(method, path, &[], "").await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some(allow)), "{method} {path}");
        if method != "HEAD" {
            reply.assert_problem(405, "wrong_method", method);
        }
    }
}

#[tokio::test]
async fn others_may_bring_routes() {
    let mut config = config(RULES, false, 9);
    config.extra = Some(axum::Router::new().route("/json", axum::routing::post(async || "theirs")));
    let server = Server::build(config);
    assert_eq!(server.ask("POST", "/json", &[], "").await.body, "theirs");
    server.get("/json").await.assert_problem(405, "wrong_method", "GET");
}

#[tokio::test]
async fn an_explanation_tells_so_many_rules() {
    let rules: String = (0..1_003).map(|n| format!("  - {{name: r{n}, key: [k{n}], limit: 1/day}}\n")).collect();
    let server = Server::new(&format!("domain: d\nrules:\n{rules}"));
    let body = server.ask("POST", "/v1/ratelimit/explain", &[], r#"{"k1002": "x"}"#).await.json();
    let rules = body["rules"].as_array().unwrap();
    assert_eq!((rules.len(), &body["more"], &rules[1_000]["name"]), (1_001, &json!(2), &json!("r1002")));
}
