//! Checks: decisions, and their responses.

use serde_json::json;

use super::{RULES, Server, config};

const KEY: &str = r#"{"attributes": {"api_key": "abcdefghij", "endpoint": "POST /orders"}}"#;

#[tokio::test]
async fn a_check_takes_and_says_what_is_left() {
    let server = Server::new(RULES);
    let first = server.check(KEY).await;
    let body = first.json();
    assert_eq!((first.status, first.header("content-type")), (200, Some("application/json")));
    let reset_at = body["reset_at"].as_u64().unwrap();
    assert_eq!(
        body,
        json!({"allowed": true, "limit": 2, "remaining": 1, "reset_at": reset_at, "rule": "orders", "resolved_by": "default", "burst": 2, "source": "store"})
    );
    assert_eq!(server.check(KEY).await.json()["remaining"], 0);
    assert_eq!(server.check(KEY).await.status, 429);
    // The refused request took nothing from the other rule.
    let flat = server.check(r#"{"api_key": "abcdefghij"}"#).await.json();
    assert_eq!((&flat["rule"], &flat["remaining"]), (&json!("per-key"), &json!(0)));
}

#[tokio::test]
async fn a_look_takes_nothing() {
    let server = Server::new(RULES);
    for _ in 0..3 {
        let body = server.check(r#"{"api_key": "k", "cost": 0}"#).await.json();
        assert_eq!((&body["allowed"], &body["remaining"]), (&json!(true), &json!(3)));
    }
}

#[tokio::test]
async fn a_refusal_is_a_problem_with_the_members_of_an_answer() {
    let server = Server::new(RULES);
    for _ in 0..2 {
        assert_eq!(server.check(KEY).await.status, 200);
    }
    let reply = server.check(KEY).await;
    let body = reply.json();
    assert_eq!((reply.status, reply.header("content-type")), (429, Some("application/problem+json")));
    let wait = body["retry_after"].as_u64().unwrap();
    assert!((80_000..=86_400).contains(&wait), "{wait}");
    assert_eq!(reply.header("retry-after"), Some(wait.to_string().as_str()));
    let message = format!("Rate limit exceeded for POST /orders. Retry after {wait} seconds.");
    assert_eq!(
        body,
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Rate limit exceeded",
            "status": 429,
            "detail": message,
            "violated-policies": ["orders"],
            "allowed": false,
            "limit": 2,
            "remaining": 0,
            "reset_at": body["reset_at"],
            "resolved_by": "default",
            "retry_after": wait,
            "retryable": true,
            "denied_by": "writes",
            "source": "store",
            "error": {
                "code": "RATE_LIMITED",
                "message": message,
                "retry_after": wait,
                "limit": 2,
                "window": "1d",
                "scope": "api_key:abcd…:endpoint:POST /orders",
            },
        })
    );
}

#[tokio::test]
async fn what_never_fits_is_not_to_be_retried() {
    let server = Server::new(RULES);
    let reply = server.check(r#"{"api_key": "k", "cost": 4}"#).await;
    let body = reply.json();
    assert_eq!((reply.status, reply.header("retry-after")), (429, None));
    assert_eq!((body.get("retry_after"), &body["retryable"]), (None, &json!(false)));
    assert_eq!(body["error"].get("retry_after"), None);
    assert!(body["detail"].as_str().unwrap().contains("retrying does not help"));
    // `t` is omitted if there is no end.
    assert!(reply.header("ratelimit").unwrap().starts_with("\"per-key\";r=3;pk=:"));
}

#[tokio::test]
async fn where_nothing_applies_there_are_no_numbers() {
    let server = Server::new(RULES);
    let reply = server.check(r#"{"nobody": "k"}"#).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, r#"{"allowed":true}"#));
    assert!(reply.headers.iter().all(|(name, _)| !name.contains("ratelimit")));

    let server = Server::new("domain: d\nrules: [{name: x, key: [k], limit: unlimited}]\n");
    assert_eq!(server.check(r#"{"k": "k"}"#).await.body, r#"{"allowed":true,"unlimited":true}"#);

    let server = Server::new("domain: d\nrules: [{name: x, key: [k], limit: 1/day, mode: shadow}]\n");
    assert_eq!(server.check(r#"{"k": "k"}"#).await.body, r#"{"allowed":true,"source":"store"}"#);
}

#[tokio::test]
async fn a_global_shadow_passes_and_says_so() {
    let server = Server::build(config(RULES, true, 1024));
    for _ in 0..3 {
        assert_eq!(server.check(r#"{"api_key": "k"}"#).await.json().get("shadow"), None);
    }
    let reply = server.check(r#"{"api_key": "k"}"#).await;
    let body = reply.json();
    assert_eq!((reply.status, reply.header("retry-after"), reply.header("x-ratelimit-denied-by")), (200, None, None));
    assert_eq!(
        (&body["allowed"], &body["shadow"], &body["denied_by"]),
        (&json!(true), &json!(true), &json!("per-key"))
    );
}

#[tokio::test]
async fn past_its_capacity_the_policies_decide() {
    let rules = "domain: d\nrules:\n  - {name: soft, key: [a], limit: 5/day, algorithm: sliding_log}\n  \
                 - {name: login, key: [b], limit: 5/day, policy: security}\n";
    let server = Server::build(config(rules, false, 0));
    let allowed = server.check(r#"{"a": "x"}"#).await;
    assert_eq!(
        allowed.body,
        r#"{"allowed":true,"limit":5,"remaining":5,"rule":"soft","resolved_by":"default","burst":5,"source":"shed"}"#
    );
    assert_eq!(allowed.header("x-ratelimit-reset"), None);
    let refused = server.check(r#"{"b": "x"}"#).await;
    let body = refused.json();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.header("x-ratelimit-limit"), None);
    assert_eq!(
        body,
        json!({
            "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "title": "Temporarily reduced capacity",
            "status": 503,
            "detail": "The limiter can't count requests at the moment, and the rules of this request refuse it in that case.",
            "violated-policies": ["login"],
            "allowed": false,
            "retry_after": 1,
            "retryable": true,
            "denied_by": "login",
            "source": "shed",
            "error": {
                "code": "REDUCED_CAPACITY",
                "message": "The limiter can't count requests at the moment, and the rules of this request refuse it in that case.",
                "retry_after": 1,
            },
        })
    );
}

#[tokio::test]
async fn a_rule_that_sheds_answers_503_and_leaves_critical_work_its_reserve() {
    let server = Server::new(
        "domain: d\nrules:\n  - {name: per-key, key: [k], limit: 100/day}\n  \
         - {name: fleet, key: [], limit_by: priority, limit: {critical: 3 concurrent, default: 2 concurrent}, shed: true}\n",
    );
    let check = async |class: &str| server.check(&format!(r#"{{"k": "k", "priority": "{class}"}}"#)).await;
    let first = check("get").await;
    assert_eq!((first.status, first.header("x-ratelimit-limit")), (200, Some("100")), "the fleet's numbers are hidden");
    assert_eq!(check("critical").await.status, 200);
    let shed = check("get").await;
    assert_eq!((shed.status, shed.header("x-tollgate-shed")), (503, Some("fleet")));
    for header in
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-denied-by", "ratelimit", "ratelimit-policy"]
    {
        assert_eq!(shed.header(header), None, "{header}");
    }
    let wait: u64 = shed.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3).contains(&wait), "{wait}");
    assert_eq!(
        shed.json(),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "title": "Temporarily reduced capacity",
            "status": 503,
            "detail": "The service is under too much load to answer this request now.",
            "violated-policies": [],
            "allowed": false,
            "retry_after": wait,
            "retryable": true,
            "shed": "fleet",
            "source": "store",
            "error": {
                "code": "REDUCED_CAPACITY",
                "message": "The service is under too much load to answer this request now.",
                "retry_after": wait,
            },
        })
    );
    let critical = check("critical").await;
    assert_eq!(critical.status, 200, "the reserve");
    assert_eq!(
        (check("critical").await.status, check("post").await.status),
        (503, 503),
        "critical work has a limit too"
    );
    let settled = server.settle(&json!({"receipt": critical.json()["receipt"], "outcome": "ok"}).to_string()).await;
    assert_eq!(settled.status, 200);
    assert_eq!((check("get").await.status, check("critical").await.status), (503, 200));
}

#[tokio::test]
async fn a_leaky_bucket_says_how_long_to_hold_a_request_back() {
    let server =
        Server::new("domain: d\nrules: [{name: even, key: [k], limit: 1/hour, burst: 3, algorithm: leaky_bucket}]\n");
    let first = server.check(r#"{"k": "k"}"#).await.json();
    assert_eq!((&first["burst"], first.get("delay_ms")), (&json!(3), None));
    let second = server.check(r#"{"k": "k"}"#).await.json();
    assert!((3_500_000..=3_600_000).contains(&second["delay_ms"].as_u64().unwrap()), "{second}");
}

#[tokio::test]
async fn descriptors_reach_a_tree() {
    let rules = "domain: d\ndescriptors:\n  - key: api_key\n    descriptors:\n      - key: endpoint\n        value: 'POST /x'\n        \
                 rate_limit: {unit: day, requests_per_unit: 1, name: writes}\n        algorithm: sliding_log\n";
    let server = Server::new(rules);
    let body = r#"{"descriptors": [
        {"entries": [{"key": "other", "value": "x"}]},
        {"entries": [{"key": "api_key", "value": "abc123"}, {"key": "endpoint", "value": "POST /x"}]}]}"#;
    assert_eq!(server.check(body).await.json()["rule"], "writes");
    let refused = server.check(body).await.json();
    assert_eq!(refused["error"]["scope"], "api_key:abc123:endpoint:POST /x");
}
