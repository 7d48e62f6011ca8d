//! The walk that the seed documents describe: raise a caller, override one endpoint, see its usage, have it end by itself. And many
//! callers at once.

use serde_json::{Value, json};
use tollgate::Timestamp;
use tollgate::control::Rfc3339;
use tollgate_testing::{Postgres, Redis, Server, eventually};

use crate::control::world::{get, now, on, post, put, send};
use crate::new_server;

const RULES: &str = "
domain: api
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: {free: 100/h, pro: 1000/h, enterprise: 5000/h}, algorithm: fixed_window}
  - {name: orders, key: [api_key], match: {endpoint: POST /api/v1/orders}, limit: 20/h, algorithm: fixed_window}
";

/// What a caller is told of an order: the limit of that endpoint, how it came to be, and what is left.
fn order(server: &Server, caller: &str) -> (u64, String, u64) {
    let asked = json!({"attributes": {"api_key": caller, "endpoint": "POST /api/v1/orders"}});
    let told = post(&server.url("http", "/v1/ratelimit/check"), &asked).json();
    let number = |name: &str| told[name].as_u64().unwrap_or_else(|| panic!("{told}"));
    (number("limit"), told["resolved_by"].as_str().unwrap().to_owned(), number("remaining"))
}

fn usage(server: &Server, caller: &str) -> Value {
    get(&server.url("admin", &format!("/admin/v1/usage/{caller}"))).json()
}

fn walk(servers: &[Server]) {
    let (first, last) = (&servers[0], &servers[servers.len() - 1]);
    assert_eq!(order(first, "abc123"), (20, "default".to_owned(), 19));
    let quota = json!({
        "tier": "enterprise",
        "overrides": [{"descriptor": "endpoint:POST /api/v1/orders", "requests_per_unit": 500, "unit": "hour"}],
        "effective_at": "2025-02-01T00:00:00Z",
        "expires_at": null,
    });
    let told = put(first, "abc123", None, &quota);
    assert_eq!((told.status, &*told.tag), (200, "\"1\""), "{told:?}");
    let told = told.json();
    assert_eq!((&told["api_key"], &told["tier"]), (&json!("abc123"), &json!("enterprise")));
    assert_eq!(told["quotas"]["default"], json!({"requests_per_unit": 5000, "unit": "hour"}));
    assert_eq!(told["quotas"]["overrides"], quota["overrides"]);

    // What was used is kept, on every server.
    for (at, server) in servers.iter().enumerate() {
        let there = || (get(&server.url("admin", "/admin/v1/quotas/abc123")).status == 200).then_some(());
        eventually(there).unwrap();
        let raised = || Some(order_limit(server)).filter(|limit| *limit == 500);
        eventually(raised).unwrap_or_else(|| panic!("server {at} has {}", order_limit(server)));
    }
    let left = order(last, "abc123").2;
    assert!(left < 499, "{left}: the one before it was raised counts");
    let told = usage(first, "abc123");
    let orders = &told["usage"]["endpoint:POST /api/v1/orders"];
    assert_eq!((&orders["limit"], &orders["remaining"]), (&json!(500), &json!(left)), "{told}");
    assert_eq!(orders["used"], json!(500 - left), "{told}");
    assert_eq!(told["usage"]["default"]["limit"], json!(5000), "{told}");
    let (start, end) = (&told["current_window"]["start"], &told["current_window"]["end"]);
    let moment = |text: &Value| text.as_str().unwrap().parse::<Rfc3339>().unwrap().0.as_micros();
    assert_eq!(moment(end) - moment(start), 3_600_000_000, "{told}");
    assert!((moment(start)..moment(end)).contains(&now()), "{told}");

    // It ends by itself.
    let soon = Rfc3339(Timestamp::from_micros(now() + 2_000_000));
    let mut quota = quota;
    quota["expires_at"] = json!(soon);
    assert_eq!(put(last, "abc123", None, &quota).status, 200);
    assert_eq!(order(last, "abc123").0, 500);
    for server in servers {
        eventually(|| (order_limit(server) == 20).then_some(())).unwrap();
        assert!(now() >= soon.0.as_micros(), "it ended before its end");
    }
}

/// The limit of the endpoint, by a look, which takes nothing.
fn order_limit(server: &Server) -> u64 {
    let asked = json!({"attributes": {"api_key": "abc123", "endpoint": "POST /api/v1/orders"}, "cost": 0});
    let told = post(&server.url("http", "/v1/ratelimit/check"), &asked).json();
    told["limit"].as_u64().unwrap_or_else(|| panic!("{told}"))
}

#[test]
fn the_walk_on_one_server_with_a_file() {
    let server = on(new_server().rules(RULES), "auto", &[]).start();
    walk(&[server]);
}

#[test]
fn the_walk_on_three_servers_with_postgresql_and_redis() {
    let (database, redis) = (Postgres::database(), Redis::start());
    // Time is not what is tested here, and the machine may be busy.
    let builder =
        || on(new_server().rules(RULES), database.url(), &["--store", &redis.url(), "--store-deadline", "1s"]);
    walk(&[builder().start(), builder().start(), builder().start()]);
}

#[test]
fn many_quotas_are_imported_all_or_none_and_exported_as_they_were() {
    let server = on(new_server().rules(RULES), "auto", &[]).start();
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
    let told = import(bad, "");
    assert_eq!(told.status, 422, "{told:?}");
    let faults = told.json()["faults"].clone();
    let places: Vec<&str> = faults.as_array().unwrap().iter().map(|fault| fault["at"].as_str().unwrap()).collect();
    assert_eq!(places, ["line 2501: tier", "line 2502", "line 2504: api_key", "line 2505: api_key"], "{faults}");
    let page = get(&server.url("admin", "/admin/v1/quotas")).json();
    assert_eq!(page["items"], json!([]), "nothing was written");

    assert!(import(lines(10), "?dry_run").body.contains(r#""dry_run":true"#));
    assert_eq!(get(&server.url("admin", "/admin/v1/quotas")).json()["items"], json!([]));

    let told = import(lines(2_500), "");
    let last: Value = serde_json::from_str(told.body.lines().last().unwrap()).unwrap();
    assert_eq!((told.status, last), (200, json!({"done": true, "read": 2500, "written": 2500})), "{}", told.body);
    assert!(told.body.lines().count() >= 3, "progress is told: {}", told.body);
    let decided = crate::control::world::decided(&server, "caller 00042");
    assert_eq!(decided, (1_042, "override".to_owned()));

    let exported = get(&server.url("admin", "/admin/v1/export")).body;
    assert_eq!(exported.lines().count(), 2_500);
    let first: Value = serde_json::from_str(exported.lines().next().unwrap()).unwrap();
    let mut expected: Value = serde_json::from_str(&line(0)).unwrap();
    expected["domain"] = json!("api");
    assert_eq!(first, expected);
    // It can be imported as it is.
    let told = import(exported, "");
    assert!(told.body.trim_end().ends_with(r#"{"done":true,"read":2500,"written":2500}"#), "{}", told.body);

    // Page by page.
    let (mut after, mut seen) = (String::new(), 0);
    loop {
        let page = get(&server.url("admin", &format!("/admin/v1/quotas?limit=999&after={after}"))).json();
        seen += page["items"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else { break };
        after = next.replace(' ', "%20");
    }
    assert_eq!(seen, 2_500);
    let found = get(&server.url("admin", "/admin/v1/quotas?prefix=caller%200001&tier=pro")).json();
    assert_eq!(found["items"].as_array().unwrap().len(), 10);
}

#[test]
fn a_body_without_end_is_refused() {
    let server = on(new_server().rules(RULES), "auto", &[]).start();
    let huge = format!(r#"{{"tier": "pro", "reason": "{}"}}"#, "x".repeat(10 << 20));
    let told = send("PUT", &server.url("admin", "/admin/v1/quotas/a"), "application/json", huge);
    assert_eq!(told.status, 413, "{told:?}");
    assert_eq!(get(&server.url("admin", "/admin/v1/quotas/a")).status, 404);
}
