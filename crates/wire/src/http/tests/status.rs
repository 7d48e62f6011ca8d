//! The status of a caller.

use serde_json::{Value, json};

use super::Server;

const RULES: &str = "
domain: shop
entity: api_key
tiers: {free: {}, pro: {}}
tier_from: tier
rules:
  - {name: per-key, key: [api_key], limit: {free: 3/day, pro: unlimited}, algorithm: sliding_log}
  - {name: orders, key: [api_key], match: {endpoint: 'POST /orders*'}, limit: 2/day, algorithm: sliding_log}
  - {name: per-user, key: [api_key, user], limit: 2/day, algorithm: sliding_log}
  - {name: maybe, key: [api_key, session?], limit: 9/day, algorithm: sliding_log, mode: shadow}
  - {name: everyone, key: [], limit: 9/day}
  - {name: anonymous, key: [remote_address], match: {api_key: absent}, limit: 9/day}
  - {name: gone, key: [api_key], limit: 9/day, mode: off}
  - {name: abuse, key: [api_key], limit: 9/day, headers: hidden}
  - {name: only-pro, key: [api_key], limit: {pro: 7/day}, algorithm: sliding_log}
descriptors:
  - key: api_key
    rate_limit: {unit: day, requests_per_unit: 5, name: tree}
    algorithm: sliding_log
    descriptors:
      - {key: path, value: /a, rate_limit: {unit: day, requests_per_unit: 6, name: fixed-path}}
      - {key: path, rate_limit: {unit: day, requests_per_unit: 7, name: any-path}}
  - {key: api_key, value: vip, rate_limit: {unit: day, requests_per_unit: 8, name: vip}}
";

/// Names, with a value each.
type Named<T> = Vec<(String, T)>;

/// The remaining units by rule, and the reasons of the omitted rules.
fn summary(body: &Value) -> (Named<u64>, Named<String>) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let limits = body["limits"].as_array().unwrap().iter();
    let left_out = body["left_out"].as_array().unwrap().iter();
    (
        limits.map(|limit| (text(&limit["name"]), limit["remaining"].as_u64().unwrap())).collect(),
        left_out.map(|rule| (text(&rule["name"]), text(&rule["why"]))).collect(),
    )
}

fn pairs<T: Clone>(rows: &[(&str, T)]) -> Named<T> {
    rows.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

#[tokio::test]
async fn every_counter_of_the_caller_is_reported_and_nothing_is_taken() {
    let server = Server::new(RULES);
    let body = r#"{"api_key": "k 1/x", "endpoint": "POST /orders", "user": "u"}"#;
    assert_eq!(server.check(body).await.status, 200);
    for _ in 0..2 {
        let reply = server.get("/v1/ratelimit/status/k%201%2Fx").await;
        let body = reply.json();
        assert_eq!((reply.status, &body["domain"], &body["entity"]), (200, &json!("shop"), &json!("api_key")));
        let (limits, left_out) = summary(&body);
        let expected = [("per-key", 2), ("orders", 1), ("maybe", 8), ("tree", 5), ("fixed-path", 6)];
        assert_eq!(limits, pairs(&expected));
        let needs = |name: &str| format!("its key needs `{name}`, which is not known");
        let expected = [
            ("per-user", needs("user")),
            ("everyone", "its key does not have `api_key`".to_owned()),
            ("anonymous", "its key does not have `api_key`".to_owned()),
            ("gone", "it is switched off".to_owned()),
            ("only-pro", "it has no limit for tier free".to_owned()),
            ("any-path", needs("path")),
            ("vip", "it is for other values".to_owned()),
        ];
        assert_eq!(left_out, pairs(&expected));
        assert_eq!(body["hidden"], 1);
        assert!(!reply.body.contains("abuse"));
    }
    // Requests name the tier: before the first one, limits by tier are not known.
    let unknown = summary(&server.get("/v1/ratelimit/status/other").await.json());
    assert_eq!(unknown.0[0], ("orders".to_owned(), 2));
    let why = |name: &str| unknown.1.iter().find(|(known, _)| known == name).map(|(_, why)| why.as_str());
    let reason = "its limit depends on the tier, which requests name in `tier` and which has not been seen: ";
    assert_eq!(why("per-key"), Some(format!("{reason}free 3").as_str()));
    assert_eq!(why("only-pro"), Some(format!("{reason}pro 7").as_str()));
    assert_eq!(server.check(r#"{"api_key": "other", "cost": 0}"#).await.status, 200);
    let body = server.get("/v1/ratelimit/status/other").await.json();
    let reset_at = &body["limits"][0]["reset_at"];
    assert_eq!(
        body["limits"][0],
        json!({"name": "per-key", "limit": 3, "remaining": 3, "reset_at": reset_at, "window": "1d", "burst": 3,
               "algorithm": "sliding_log", "mode": "enforce"})
    );
    assert_eq!(body["limits"][2]["mode"], "shadow");
    for _ in 0..3 {
        server.check(r#"{"api_key": "other"}"#).await;
    }
    let used_up = &server.get("/v1/ratelimit/status/other").await.json()["limits"][0];
    assert_eq!((&used_up["name"], &used_up["remaining"]), (&json!("per-key"), &json!(0)));
    let wait = used_up["retry_after"].as_u64().unwrap();
    assert!((1..=86_400).contains(&wait), "{wait}");
}

#[tokio::test]
async fn other_parts_of_keys_come_as_parameters() {
    let server = Server::new(RULES);
    let (limits, left_out) =
        summary(&server.get("/v1/ratelimit/status/k?user=u&path=/b&endpoint=GET+/x&tier=pro").await.json());
    let expected = [("per-user", 2), ("maybe", 9), ("only-pro", 7), ("tree", 5), ("any-path", 7)];
    assert_eq!(limits, pairs(&expected));
    let why = |name: &str| left_out.iter().find(|(known, _)| known == name).map(|(_, why)| why.as_str());
    assert_eq!(why("orders"), Some("it is for another `endpoint`"));
    assert_eq!(why("per-key"), Some("it does not limit tier pro"));
    assert_eq!(why("fixed-path"), Some("it is for other values"));
}

#[tokio::test]
async fn what_is_missing_is_said() {
    let server = Server::new(
        "domain: a\nrules: [{name: x, key: [user], limit: 5/day}]\n---\ndomain: b\nentity: k\nrules: [{name: y, key: [k], limit: 6/day}]\n",
    );
    let path = "/v1/ratelimit/status/u";
    server.get(path).await.assert_problem(400, "no_domain", "`a`, `b`");
    server.get(&format!("{path}?domain=c")).await.assert_problem(404, "unknown_domain", "there is no domain `c`");
    server.get(&format!("{path}?domain=a")).await.assert_problem(400, "no_entity", "?attribute=");
    server.get(&format!("{path}?domain=b&x=1&x=2")).await.assert_problem(400, "bad_query", "`x` occurs twice");
    server.get(&format!("{path}?domain=b&domain=b")).await.assert_problem(400, "bad_query", "`domain` occurs twice");
    server.get("/v1/ratelimit/status/%ff?domain=b").await.assert_problem(400, "bad_query", "UTF-8");
    server
        .get(&format!("/v1/ratelimit/status/{}?domain=b", "u".repeat(5000)))
        .await
        .assert_problem(400, "too_long", "4096");
    let reply = server.get(&format!("{path}?domain=a&attribute=user")).await;
    assert_eq!(summary(&reply.json()).0, pairs(&[("x", 5)]));
    assert_eq!(summary(&server.get(&format!("{path}?domain=b")).await.json()).0, pairs(&[("y", 6)]));
}

#[tokio::test]
async fn rules_left_out_are_named_up_to_a_bound() {
    let rules: String = (0..120).map(|n| format!("  - {{name: r{n}, key: [k], limit: 1/day}}\n")).collect();
    let server = Server::new(&format!("domain: d\nentity: e\nrules:\n{rules}"));
    assert_eq!(summary(&server.get("/v1/ratelimit/status/x").await.json()).1.len(), 100);
}
