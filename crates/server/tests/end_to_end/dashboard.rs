//! The dashboard of real servers in a real browser: Debian's Chromium, driven by `dashboard/tests/`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{http, new_server, repository_path};
use serde_json::{Value, json};
use tollgate_testing::{Redis, Relay, Server, eventually, programs};

/// A few rules of every mode, for the traffic of the tests. Logs have no windows that could end meanwhile.
const RULES: &str = "
domain: api
entity: user_id
tiers: {free: {paid: false}, pro: {}}
default_tier: free
rules:
  - {name: per-user, key: [user_id], limit: {free: 10/hour, pro: 1000/hour}, algorithm: sliding_log}
  - {name: new-idea, key: [user_id], limit: 8/hour, algorithm: sliding_log, mode: shadow}
  - {name: orders, key: [user_id, endpoint], match: {endpoint: \"POST /orders*\"}, limit: 6/minute, algorithm: sliding_log, mode: soft}
  - {name: everyone, key: [], limit: 100000/second}
";

/// The rules of a shop, for screenshots.
const SHOP: &str = "
domain: api
entity: user_id
tiers: {free: {paid: false}, pro: {}, enterprise: {}}
default_tier: free
rules:
  - {name: per-user, key: [user_id], limit: {free: 120/minute, pro: 1200/minute, enterprise: 12000/minute}}
  - {name: orders, key: [user_id], match: {endpoint: \"POST /orders*\"}, limit: {free: 20/minute, pro: 200/minute, enterprise: 2000/minute}}
  - {name: search-v2, key: [user_id], match: {endpoint: \"GET /search*\"}, limit: 40/minute, mode: shadow}
  - {name: exports, key: [user_id], match: {endpoint: \"POST /exports*\"}, limit: 30/minute, mode: soft}
  - {name: login, key: [remote_address], match: {endpoint: \"POST /login\"}, limit: 5/5m, policy: security}
  - {name: everyone, key: [], limit: 10000/second, algorithm: token_bucket}
";

/// The dashboard stays small: it is in the binary, and people open it over slow lines.
const MAX_BYTES: usize = 200_000;

const TOKEN: &str = "tg_the-token-of-the-dashboards-tests-0123456789";

/// A thousand rules, which the dashboard shows without a delay.
fn thousand_rules() -> String {
    let rules = (0..1_000)
        .map(|number| format!("  - {{name: rule-{number:04}, key: [user_id], limit: {}/hour}}\n", number + 1));
    format!("domain: big\nentity: user_id\nrules:\n{}", rules.collect::<String>())
}

/// Sends JSON to the admin API, which must accept it.
#[track_caller]
fn send(method: &str, url: &str, token: Option<&str>, body: &Value) -> Value {
    let request = ureq::http::Request::builder().method(method).uri(url).header("Content-Type", "application/json");
    let request = match token {
        Some(token) => request.header("Authorization", format!("Bearer {token}")),
        None => request,
    };
    let mut response = ureq::run(request.body(body.to_string()).unwrap()).unwrap();
    serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap()
}

/// A server without access control, and one that requires a token.
fn servers() -> (Server, Server) {
    // The tests change what they like.
    let open = new_server().rules(RULES).listen(&["http", "admin"]).args(&["--guardrails=false"]).start();
    let quota = json!({
        "tier": "pro", "reason": "contract 4711",
        "overrides": [{"rule": "per-user", "limit": "500/hour", "expires_at": "2100-01-01T00:00:00Z"}],
    });
    send("PUT", &open.url("admin", "/admin/v1/quotas/tenant-a"), None, &quota);
    let builder = new_server().rules(&thousand_rules()).listen(&["admin"]);
    let file = builder.home().join("token");
    fs::write(&file, TOKEN).unwrap();
    let guarded = builder.args(&["--admin-token-file", &file.display().to_string()]).start();
    (open, guarded)
}

#[test]
fn the_dashboard_is_in_the_binary_and_its_assets_are_cached() {
    let server = new_server().rules(RULES).listen(&["admin"]).start();
    let page = http::get(&server.url("admin", "/"));
    assert_eq!(page.headers["cache-control"], "no-cache");
    assert!(page.body.contains("/assets/"), "the binary was built without the dashboard: run make dashboard");
    // The content security policy forbids inline styles and scripts.
    assert!(!page.body.contains("<style") && !page.body.contains("<script>"), "{}", page.body);
    let assets: Vec<&str> = page.body.split('"').filter(|text| text.starts_with("/assets/")).collect();
    assert!(assets.len() >= 3, "{assets:?}");
    let mut bytes = page.body.len();
    for path in assets {
        let asset = http::get(&server.url("admin", path));
        bytes += asset.body.len();
        assert_eq!(asset.status, 200, "{path}");
        assert_eq!(asset.headers["cache-control"], "public, max-age=31536000, immutable");
        let kind = match path.rsplit('.').next() {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            _ => "image/svg+xml",
        };
        assert_eq!(asset.headers["content-type"], kind, "{path}");
        let tag = asset.headers["etag"].to_str().unwrap();
        for tags in [tag.to_owned(), format!("\"other\", W/{tag}")] {
            let again = ureq::get(server.url("admin", path)).header("If-None-Match", &tags).call().unwrap();
            assert_eq!(again.status(), 304, "{path}");
        }
    }
    assert!(bytes <= MAX_BYTES, "the dashboard has {bytes} bytes");
    assert_eq!(http::get(&server.url("admin", "/assets/nothing.js")).status, 404);
}

#[test]
fn the_dashboard_works_in_a_browser() {
    let (open, guarded) = servers();
    let reader = json!({"name": "reader", "scopes": ["read"]});
    let reader = send("POST", &guarded.url("admin", "/admin/v1/tokens"), Some(TOKEN), &reader);
    let mut node = node("all.mjs", &open);
    node.env("GUARDED", guarded.url("admin", ""));
    node.env("TOKEN", TOKEN).env("READER", reader["token"].as_str().unwrap());
    assert_success(node);
}

#[test]
fn a_change_that_is_held_is_confirmed() {
    let server = new_server().rules(RULES).listen(&["http", "admin"]).start();
    assert_success(node("held.mjs", &server));
}

#[test]
fn a_lost_store_is_the_first_thing_to_see() {
    let mut redis = Redis::start();
    let server = new_server().rules(RULES).listen(&["http", "admin"]).args(&["--store", &redis.url()]).start();
    redis.kill();
    let level = || http::get(&server.url("admin", "/admin/v1/overview")).json()["store"]["level"].clone();
    assert!(eventually(|| (level() != "normal").then_some(())).is_some(), "{}", server.log());
    assert_success(node("outage.mjs", &server));
}

#[test]
fn hot_keys_are_listed_and_purged_and_leases_are_switched() {
    let redis = Redis::start();
    let rules = "domain: api\nentity: user_id\nrules: [{name: leased, key: [user_id], limit: 1000000/hour}]\n";
    let store = ["--store", &redis.url(), "--store-deadline", "1s"];
    let server = new_server().rules(rules).listen(&["http", "admin"]).args(&store).start();
    assert_success(node("hot_keys.mjs", &server));
}

/// A gateway in front of an application that the browser's test runs, and of a server that does not exist.
#[test]
fn a_gateway_is_shown_and_its_shedding_is_switched() {
    let rules = "domain: api\nentity: user_id\nrules: [{name: per-user, key: [user_id], limit: 5/hour, algorithm: sliding_log}]\n";
    let builder = new_server().rules(rules).listen(&["http", "admin"]);
    let (socket, file) = (builder.home().join("app.sock"), builder.home().join("gateway.yaml"));
    let config = format!(
        "listen: 127.0.0.1:0\n\
         domain: api\n\
         attributes: {{user_id: {{header: X-User}}}}\n\
         upstreams:\n  \
           app: {{servers: \"unix:{}\", adaptive: enforce}}\n  \
           gone: {{servers: [\"127.0.0.1:1\"], health: {{path: /up, every: 1s, fails: 1}}, adaptive: enforce}}\n\
         routes:\n  \
           - {{name: shop, match: \"/shop/*\", upstream: app}}\n  \
           - {{name: lost, match: \"/lost/*\", upstream: gone}}\n",
        socket.display()
    );
    fs::write(&file, config).unwrap();
    let server = builder.args(&["--gateway", &file.display().to_string()]).start();
    let mut node = node("gateway.mjs", &server);
    node.env("GATEWAY", server.url("gateway", "")).env("APP_SOCKET", &socket);
    assert_success(node);
}

/// A server in one of two regions; the other has no Redis.
#[test]
fn other_regions_are_shown_with_what_it_means_for_rules() {
    let rules = "domain: api\nentity: user_id\nrules:\n\
        - {name: search, key: [user_id], limit: 600/hour, algorithm: sliding_log, region: {global: {debit_threshold: 0%}}}\n\
        - {name: signups, key: [user_id], limit: 50/hour, algorithm: sliding_log, region: {home: us-east}}\n";
    let (redis, far) = (Redis::start(), Redis::start());
    let relay = Relay::to(far.port());
    let regions = format!("eu-west=redis://127.0.0.1:{}", relay.port());
    let args = ["--store", &redis.url(), "--region", "us-east", "--regions", &regions, "--store-deadline", "1s"];
    let server = new_server().rules(rules).listen(&["http", "admin"]).args(&args).start();
    assert_success(node("regions.mjs", &server));
    relay.stall();
    assert_success(node("regions_apart.mjs", &server));
}

#[test]
fn requests_that_meet_no_rule_are_seen() {
    let rules = "domain: api\nentity: user_id\nrules: [{name: per-user, key: [user_id], limit: 1000/hour}]\n";
    let server = new_server().rules(rules).listen(&["http", "admin"]).start();
    assert_success(node("unmatched.mjs", &server));
}

#[test]
fn history_and_events_survive_a_restart() {
    let mut server = new_server().rules(RULES).listen(&["http", "admin"]).start();
    let counted = |server: &Server| {
        let history = http::get(&server.url("admin", "/admin/v1/history?range=2h")).json();
        history["allow"].as_array().unwrap().iter().filter_map(Value::as_f64).sum::<f64>()
    };
    let starts = |server: &Server| {
        let events = http::get(&server.url("admin", "/admin/v1/events")).json();
        events["items"].as_array().unwrap().iter().filter(|event| event["kind"] == "start").count()
    };
    http::post(&server.url("http", "/v1/ratelimit/check"), r#"{"attributes":{"user_id":"x"}}"#);
    assert!(eventually(|| (counted(&server) > 0.0).then_some(())).is_some());
    let of_rule = |server: &Server, rule: &str| {
        let rule = http::get(&server.url("admin", &format!("/admin/v1/domains/api/rules/{rule}?range=2h"))).json();
        rule["line"]["allow"].as_array().unwrap().iter().filter_map(Value::as_f64).sum::<f64>()
    };
    assert!(of_rule(&server, "per-user") > 0.0);
    assert_eq!((starts(&server), of_rule(&server, "orders")), (1, 0.0));
    assert!(server.stop().success());
    let mut server = server.restart().listen(&["http", "admin"]).start();
    assert!(counted(&server) > 0.0);
    // Also after samples in which the rule had no requests.
    let sampled = || http::get(&server.url("admin", "/admin/v1/overview")).json()["second"].is_object().then_some(());
    assert!(eventually(sampled).is_some());
    assert!(of_rule(&server, "per-user") > 0.0);
    assert_eq!(of_rule(&server, "orders"), 0.0);
    assert_eq!(starts(&server), 2);
    // A damaged file is not a reason not to start.
    assert!(server.stop().success());
    fs::write(server.home().join("data/history.json"), "{").unwrap();
    let server = server.restart().listen(&["http", "admin"]).start();
    assert_eq!((counted(&server), starts(&server)), (0.0, 1));
    server.wait_for_log("the history of earlier runs can't be read");
}

#[test]
#[ignore = "takes the screenshots of the docs, with four minutes of traffic: make pictures"]
fn pictures_are_taken() {
    let open = new_server().rules(SHOP).listen(&["http", "admin"]).start();
    let mut node = node("pictures.mjs", &open);
    node.env("PICTURES", repository_path("docs/pictures"));
    assert_success(node);
}

#[test]
#[ignore = "takes a screenshot of the docs, with a minute of traffic: make pictures"]
fn hot_keys_pictures_are_taken() {
    let redis = Redis::start();
    let args = ["--store", &redis.url(), "--store-deadline", "1s", "--server-name", "host-1"];
    let open = new_server().rules(SHOP).listen(&["http", "admin"]).args(&args).start();
    let mut node = node("hot_keys_picture.mjs", &open);
    node.env("PICTURES", repository_path("docs/pictures"));
    assert_success(node);
}

/// Runs one of the dashboard's tests on a server without access control.
fn node(test: &str, open: &Server) -> Command {
    let mut node = Command::new(programs::system("node"));
    node.arg(Path::new("tests").join(test)).current_dir(repository_path("dashboard"));
    node.env("ADMIN", open.url("admin", "")).env("HTTP", open.url("http", ""));
    node.env("CHROMIUM", programs::system("chromium"));
    node
}

#[track_caller]
fn assert_success(mut node: Command) {
    let output = node.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    // What passed before the first failure says nothing about it.
    let failures = stdout.find("\nnot ok").map_or(&*stdout, |at| &stdout[at..]);
    assert!(output.status.success(), "{failures}\n{}", String::from_utf8_lossy(&output.stderr));
}
