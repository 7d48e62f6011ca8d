//! Counters in a real Redis, which fails and recovers.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use serde_json::Value;
use tollgate_testing::{Redis, Server, ServerBuilder, TIMEOUT, eventually};

use crate::http::{HttpResponse, get, post};
use crate::new_server;
use crate::serve::grpc;

pub(crate) const RULES: &str = "
domain: d
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 3}}
rules:
  - {name: comfort, key: [caller], limit: 2/day}
  - {name: login, key: [address], limit: 100/day, policy: security}
";
const ALL: [&str; 4] = ["grpc", "http", "admin", "resp"];

/// A server that probes a failed Redis soon, with a deadline that a busy machine does not exceed.
fn builder(redis: &Redis) -> ServerBuilder {
    let store = ["--store", &redis.url(), "--store-deadline", "500ms", "--store-cool-down", "100ms"];
    new_server().rules(RULES).listen(&ALL).args(&store)
}

pub(crate) fn check(server: &Server, attribute: &str, value: &str) -> HttpResponse {
    let body = format!(r#"{{"attributes":{{"{attribute}":"{value}"}}}}"#);
    post(&server.url("http", "/v1/ratelimit/check"), &body)
}

/// The status of a check, and the source of its decision.
pub(crate) fn outcome(response: &HttpResponse) -> (u16, String) {
    (response.status, response.json()["source"].as_str().unwrap_or_default().to_owned())
}

/// The degraded parts, with messages.
pub(crate) fn degraded_parts(server: &Server) -> Vec<(String, String)> {
    let page = get(&server.url("admin", "/readyz"));
    assert_eq!(page.status, 200, "degraded is not unready");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let conditions = page.json()["degraded"].as_array().unwrap().clone();
    conditions.iter().map(|one| (text(&one["part"]), text(&one["reason"]))).collect()
}

#[track_caller]
pub(crate) fn wait_for_health(server: &Server, is_expected: impl Fn(&[(String, String)]) -> bool) {
    let seen = eventually(|| is_expected(&degraded_parts(server)).then_some(()));
    assert!(seen.is_some(), "{:?}\n{}", degraded_parts(server), server.log());
}

/// The value of a series with this label.
fn metric(server: &Server, family: &str, label: &str) -> f64 {
    let text = get(&server.url("admin", "/metrics")).body;
    let of = |line: &&str| line.starts_with(family) && line.contains(label);
    let values = text.lines().filter(of).map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap());
    values.sum()
}

/// The replies to these RESP commands.
fn send_resp(server: &Server, commands: &str) -> String {
    let mut stream = TcpStream::connect(server.address("resp")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(commands.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// The remaining units in the replies to throttle commands.
fn remaining(replies: &str) -> Vec<i64> {
    let third = |five: &str| five.lines().nth(2).unwrap().trim_start_matches(':').parse().unwrap();
    replies.split("*5\r\n").skip(1).map(third).collect()
}

#[tokio::test]
async fn all_servers_and_protocols_share_counters_that_survive_a_restart() {
    let redis = Redis::start();
    let (one, mut two) = (builder(&redis).start(), builder(&redis).start());
    assert!(one.startup_output().contains(&format!("store   {}", redis.url())), "{}", one.startup_output());
    let (mut first, mut second) = (grpc::client(&one).await, grpc::client(&two).await);
    assert_eq!(grpc::check(&mut first, "u").await, (true, 2));
    assert_eq!(grpc::check(&mut second, "u").await, (true, 1));
    let third = check(&one, "user", "u");
    assert_eq!((outcome(&third), &third.json()["remaining"]), ((200, "store".to_owned()), &Value::from(0)));
    assert_eq!(check(&two, "user", "u").status, 429);
    assert_eq!(remaining(&send_resp(&one, "CL.THROTTLE k 9 1 3600\r\n")), [9]);
    assert_eq!(remaining(&send_resp(&two, "CL.THROTTLE k 9 1 3600 4\r\n")), [5]);
    assert!(eventually(|| (metric(&one, "tollgate_store_replicas", "") == 2.0).then_some(())).is_some());
    assert!(metric(&one, "tollgate_store_script_calls_total", "") >= 3.0);
    assert_eq!(degraded_parts(&one), []);
    // The counters are in Redis only.
    // The clients are disconnected by the stop.
    let stop = move || (two.stop().success(), two);
    let (stopped, two) = tokio::task::spawn_blocking(stop).await.unwrap();
    assert!(stopped);
    assert!(!two.home().join("data/counters.snapshot").exists());
    let two = two.restart().listen(&ALL).args(&["--store", &redis.url(), "--store-deadline", "500ms"]).start();
    assert_eq!(grpc::check(&mut grpc::client(&two).await, "u").await, (false, 0));
    two.wait_for_log("the data directory stores the last good rules, and the state for an outage of Redis");
}

/// Callers for whom there is no room in local memory have one limit together, and do not pass uncounted.
#[test]
fn while_redis_is_unavailable_new_callers_beyond_the_bound_share_one_limit() {
    let mut redis = Redis::start();
    let server = builder(&redis).args(&["--local-keys", "5"]).start();
    assert_eq!(outcome(&check(&server, "caller", "c")), (200, "store".to_owned()));
    redis.kill();
    let statuses = |name: &str| -> Vec<u16> {
        (0..5).map(|number| check(&server, "caller", &format!("{name}-{number}")).status).collect()
    };
    assert_eq!(statuses("known"), [200; 5]);
    assert_eq!(statuses("new"), [200, 200, 429, 429, 429]);
    assert_eq!(statuses("known"), [200; 5], "those with a counter have their own limit");
    assert_eq!(outcome(&check(&server, "caller", "newer")), (429, "local".to_owned()));
    assert_eq!(metric(&server, "tollgate_store_coarse_charges_total", ""), 2.0);
}

#[test]
fn while_redis_is_unavailable_policies_decide_and_the_server_is_degraded() {
    let mut redis = Redis::start();
    let server = builder(&redis).start();
    assert_eq!(outcome(&check(&server, "caller", "c")), (200, "store".to_owned()));
    assert_eq!(outcome(&check(&server, "address", "a")), (200, "store".to_owned()));
    redis.kill();
    // A comfort rule is counted locally, a security rule refuses.
    let comfort: Vec<u16> = (0..3).map(|_| check(&server, "caller", "d").status).collect();
    assert_eq!(comfort, [200, 200, 429]);
    let refused = check(&server, "address", "a");
    assert_eq!(outcome(&refused), (503, "assumed".to_owned()));
    let opened = eventually(|| {
        check(&server, "address", "a");
        (metric(&server, "tollgate_circuit_state", "") > 0.0).then_some(())
    });
    assert!(opened.is_some(), "{}", server.log());
    wait_for_health(&server, |conditions| {
        conditions
            .iter()
            .any(|(part, reason)| part == "store" && reason.starts_with("local-only: unavailable: 127.0.0.1:"))
    });
    assert_eq!(metric(&server, "tollgate_degraded", r#"part="store""#), 1.0);
    assert_eq!(metric(&server, "tollgate_store_level", ""), 2.0);
    assert!(metric(&server, "tollgate_store_errors_total", "shard=") > 0.0);
    assert!(metric(&server, "ratelimit_redis_errors_total", "shard=") > 0.0);
    assert!(metric(&server, "tollgate_failopen_total", "") >= 2.0);
    let local = check(&server, "caller", "e");
    assert_eq!((outcome(&local), &local.json()["level"]), ((200, "local".to_owned()), &Value::from("local-only")));
    server.wait_for_log("the store is local-only: unavailable: 127.0.0.1:");
    redis.restart();
    wait_for_health(&server, |conditions| conditions.is_empty());
    server.wait_for_log("the store is healthy again");
    assert_eq!(outcome(&check(&server, "address", "a")), (200, "store".to_owned()));
    assert_eq!(metric(&server, "tollgate_circuit_state", ""), 0.0);
}

#[test]
fn a_server_starts_degraded_without_redis_and_connects_later() {
    let mut redis = Redis::start();
    redis.kill();
    let server = builder(&redis).start();
    // Before any check.
    wait_for_health(&server, |conditions| conditions.iter().any(|(part, _)| part == "store"));
    server.wait_for_log("the store is degraded: it does not answer: ");
    assert_eq!(check(&server, "caller", "c").status, 200);
    assert_eq!(check(&server, "address", "a").status, 503);
    redis.restart();
    wait_for_health(&server, |conditions| conditions.is_empty());
    assert_eq!(outcome(&check(&server, "address", "a")), (200, "store".to_owned()));
}

#[test]
fn a_redis_that_can_evict_counters_is_reported() {
    let redis = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let server = builder(&redis).start();
    wait_for_health(&server, |conditions| {
        conditions.iter().any(|(part, reason)| part == "store_config" && reason.contains("allkeys-lru"))
    });
    server.wait_for_log("the store may lose counters: ");
}

#[test]
fn replies_to_a_pipeline_are_in_order() {
    let redis = Redis::start();
    let server = builder(&redis).start();
    let commands = format!(
        "{}ECHO between\r\n{}PING\r\n",
        "CL.THROTTLE k 299 1 3600\r\n".repeat(200),
        "THROTTLE k 300 1 3600\r\n".repeat(50)
    );
    let response = send_resp(&server, &commands);
    let (first, second) = response.split_once("$7\r\nbetween\r\n").unwrap();
    assert_eq!(remaining(first), (100..300).rev().collect::<Vec<_>>());
    assert_eq!(remaining(second), (50..100).rev().collect::<Vec<_>>());
    assert!(second.ends_with("+PONG\r\n"), "{second}");
}
