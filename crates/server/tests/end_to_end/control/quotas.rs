//! The life of a quota: a tier, an override of one endpoint, its usage, its end on schedule. And the import of many quotas.

use serde_json::{Value, json};
use tollgate::Timestamp;
use tollgate::control::Rfc3339;
use tollgate_testing::{Postgres, Redis, Server, eventually};

use crate::control::support::{get, now, post, put, send, with_control};
use crate::new_server;

const RULES: &str = "
domain: api
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: {free: 100/h, pro: 1000/h, enterprise: 5000/h}, algorithm: fixed_window}
  - {name: orders, key: [api_key], match: {endpoint: POST /api/v1/orders}, limit: 20/h, algorithm: fixed_window}
";

/// Checks an order of a caller: the limit of the endpoint, how it was resolved, and the remaining units.
fn check_order(server: &Server, caller: &str) -> (u64, String, u64) {
    let request = json!({"attributes": {"api_key": caller, "endpoint": "POST /api/v1/orders"}});
    let response = post(&server.url("http", "/v1/ratelimit/check"), &request).json();
    let number = |name: &str| response[name].as_u64().unwrap_or_else(|| panic!("{response}"));
    (number("limit"), response["resolved_by"].as_str().unwrap().to_owned(), number("remaining"))
}

fn usage(server: &Server, caller: &str) -> Value {
    get(&server.url("admin", &format!("/admin/v1/usage/{caller}"))).json()
}

fn check_quota_lifecycle(servers: &[Server]) {
    let (first, last) = (&servers[0], &servers[servers.len() - 1]);
    assert_eq!(check_order(first, "abc123"), (20, "default".to_owned(), 19));
    let quota = json!({
        "tier": "enterprise",
        "overrides": [{"descriptor": "endpoint:POST /api/v1/orders", "requests_per_unit": 500, "unit": "hour"}],
        "effective_at": "2025-02-01T00:00:00Z",
        "expires_at": null,
    });
    let response = put(first, "abc123", None, &quota);
    assert_eq!((response.status, response.etag()), (200, "\"1\""), "{response:?}");
    let response = response.json();
    assert_eq!((&response["api_key"], &response["tier"]), (&json!("abc123"), &json!("enterprise")));
    assert_eq!(response["quotas"]["default"], json!({"requests_per_unit": 5000, "unit": "hour"}));
    assert_eq!(response["quotas"]["overrides"], quota["overrides"]);

    // The used units are preserved, on every server.
    for (at, server) in servers.iter().enumerate() {
        let is_known = || (get(&server.url("admin", "/admin/v1/quotas/abc123")).status == 200).then_some(());
        eventually(is_known).unwrap();
        let raised_limit = || Some(order_limit(server)).filter(|limit| *limit == 500);
        eventually(raised_limit).unwrap_or_else(|| panic!("server {at} has {}", order_limit(server)));
    }
    let left = check_order(last, "abc123").2;
    assert!(left < 499, "{left}: the order before the raise is counted");
    let response = usage(first, "abc123");
    let orders = &response["usage"]["endpoint:POST /api/v1/orders"];
    assert_eq!((&orders["limit"], &orders["remaining"]), (&json!(500), &json!(left)), "{response}");
    assert_eq!(orders["used"], json!(500 - left), "{response}");
    assert_eq!(response["usage"]["default"]["limit"], json!(5000), "{response}");
    let (start, end) = (&response["current_window"]["start"], &response["current_window"]["end"]);
    let moment = |text: &Value| text.as_str().unwrap().parse::<Rfc3339>().unwrap().0.as_micros();
    assert_eq!(moment(end) - moment(start), 3_600_000_000, "{response}");
    assert!((moment(start)..moment(end)).contains(&now()), "{response}");

    // It ends on schedule.
    let soon = Rfc3339(Timestamp::from_micros(now() + 2_000_000));
    let mut quota = quota;
    quota["expires_at"] = json!(soon);
    assert_eq!(put(last, "abc123", None, &quota).status, 200);
    assert_eq!(check_order(last, "abc123").0, 500);
    for server in servers {
        eventually(|| (order_limit(server) == 20).then_some(())).unwrap();
        assert!(now() >= soon.0.as_micros(), "the quota ended too early");
    }
}

/// The limit of the endpoint, by a peek.
fn order_limit(server: &Server) -> u64 {
    let request = json!({"attributes": {"api_key": "abc123", "endpoint": "POST /api/v1/orders"}, "cost": 0});
    let response = post(&server.url("http", "/v1/ratelimit/check"), &request).json();
    response["limit"].as_u64().unwrap_or_else(|| panic!("{response}"))
}

#[test]
fn a_quota_begins_and_ends_on_one_server_with_sqlite() {
    let server = with_control(new_server().rules(RULES), "auto", &[]).start();
    check_quota_lifecycle(&[server]);
}

#[test]
fn a_quota_begins_and_ends_on_three_servers_with_postgresql_and_redis() {
    let (database, redis) = (Postgres::database(), Redis::start());
    // A deadline that a busy machine does not exceed.
    let builder = || {
        with_control(new_server().rules(RULES), database.url(), &["--store", &redis.url(), "--store-deadline", "1s"])
    };
    check_quota_lifecycle(&[builder().start(), builder().start(), builder().start()]);
}

#[test]
fn an_import_is_all_or_nothing_and_an_export_can_be_imported() {
    let server = with_control(new_server().rules(RULES), "auto", &[]).start();
    let import = |text: String, query: &str| {
        send("POST", &server.url("admin", &format!("/admin/v1/import{query}")), "application/jsonl", text)
    };
    let line = |n: usize| {
        let limit = 1_000 + n;
        let overrides = json!([{"descriptor": "default", "requests_per_unit": limit, "unit": "hour"}]);
        json!({"api_key": format!("caller {n:05}"), "tier": "pro", "overrides": overrides}).to_string()
    };
    let lines = |count: usize| (0..count).map(line).collect::<Vec<_>>().join("\n");

    let bad = format!(
        "{}\n{}\nnonsense\n\n{}\n{}\n",
        lines(2_500),
        r#"{"api_key": "x", "tier": "gold"}"#,
        r#"{"tier": "pro"}"#,
        r#"{"api_key": "caller 00003", "tier": "pro"}"#
    );
    let response = import(bad, "");
    assert_eq!(response.status, 422, "{response:?}");
    let faults = response.json()["faults"].clone();
    let locations: Vec<&str> = faults.as_array().unwrap().iter().map(|fault| fault["at"].as_str().unwrap()).collect();
    assert_eq!(locations, ["line 2501: tier", "line 2502", "line 2504: api_key", "line 2505: api_key"], "{faults}");
    let page = get(&server.url("admin", "/admin/v1/quotas")).json();
    assert_eq!(page["items"], json!([]), "nothing was written");

    assert!(import(lines(10), "?dry_run").body.contains(r#""dry_run":true"#));
    assert_eq!(get(&server.url("admin", "/admin/v1/quotas")).json()["items"], json!([]));

    let response = import(lines(2_500), "");
    let last: Value = serde_json::from_str(response.body.lines().last().unwrap()).unwrap();
    assert_eq!(
        (response.status, last),
        (200, json!({"done": true, "read": 2500, "written": 2500})),
        "{}",
        response.body
    );
    assert!(response.body.lines().count() >= 3, "progress is reported: {}", response.body);
    let limit = crate::control::support::limit(&server, "caller 00042");
    assert_eq!(limit, (1_042, "override".to_owned()));

    let exported = get(&server.url("admin", "/admin/v1/export")).body;
    assert_eq!(exported.lines().count(), 2_500);
    let first: Value = serde_json::from_str(exported.lines().next().unwrap()).unwrap();
    let mut expected: Value = serde_json::from_str(&line(0)).unwrap();
    expected["domain"] = json!("api");
    assert_eq!(first, expected);
    // The export can be imported unchanged.
    let response = import(exported, "");
    assert!(response.body.trim_end().ends_with(r#"{"done":true,"read":2500,"written":2500}"#), "{}", response.body);

    // Page by page.
    let (mut after, mut count) = (String::new(), 0);
    loop {
        let page = get(&server.url("admin", &format!("/admin/v1/quotas?limit=999&after={after}"))).json();
        count += page["items"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else { break };
        after = next.replace(' ', "%20");
    }
    assert_eq!(count, 2_500);
    let found = get(&server.url("admin", "/admin/v1/quotas?prefix=caller%200001&tier=pro")).json();
    assert_eq!(found["items"].as_array().unwrap().len(), 10);
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let server = with_control(new_server().rules(RULES), "auto", &[]).start();
    let huge = format!(r#"{{"tier": "pro", "reason": "{}"}}"#, "x".repeat(10 << 20));
    let response = send("PUT", &server.url("admin", "/admin/v1/quotas/a"), "application/json", huge);
    assert_eq!(response.status, 413, "{response:?}");
    assert_eq!(get(&server.url("admin", "/admin/v1/quotas/a")).status, 404);
}
