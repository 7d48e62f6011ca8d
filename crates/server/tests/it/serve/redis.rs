//! Counters in Redis: a real one, which dies and comes back.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use serde_json::Value;
use tollgate_testing::{Redis, Server, ServerBuilder, TIMEOUT, eventually};

use crate::http::{Answer, get, post};
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

/// A server that tries soon again, and waits for Redis also where others have all cores: time is not what is tested here.
fn builder(redis: &Redis) -> ServerBuilder {
    let store = ["--store", &redis.url(), "--store-deadline", "500ms", "--store-cool-down", "100ms"];
    new_server().rules(RULES).listen(&ALL).args(&store)
}

pub(crate) fn check(server: &Server, attribute: &str, value: &str) -> Answer {
    let body = format!(r#"{{"attributes":{{"{attribute}":"{value}"}}}}"#);
    post(&server.url("http", "/v1/ratelimit/check"), &body)
}

/// Whether it passes, and what says so.
pub(crate) fn told(answer: &Answer) -> (u16, String) {
    (answer.status, answer.json()["source"].as_str().unwrap_or_default().to_owned())
}

/// What is not as it should be, by part.
pub(crate) fn degraded(server: &Server) -> Vec<(String, String)> {
    let page = get(&server.url("admin", "/readyz"));
    assert_eq!(page.status, 200, "degraded is not unready");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let conditions = page.json()["degraded"].as_array().unwrap().clone();
    conditions.iter().map(|one| (text(&one["part"]), text(&one["reason"]))).collect()
}

#[track_caller]
pub(crate) fn wait_for_health(server: &Server, well: impl Fn(&[(String, String)]) -> bool) {
    let seen = eventually(|| well(&degraded(server)).then_some(()));
    assert!(seen.is_some(), "{:?}\n{}", degraded(server), server.log());
}

/// The value of a series, whatever its other labels.
fn metric(server: &Server, family: &str, label: &str) -> f64 {
    let text = get(&server.url("admin", "/metrics")).body;
    let of = |line: &&str| line.starts_with(family) && line.contains(label);
    let values = text.lines().filter(of).map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap());
    values.sum()
}

/// All that a RESP client is told to these commands.
fn say(server: &Server, commands: &str) -> String {
    let mut stream = TcpStream::connect(server.address("resp")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(commands.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The third numbers of throttles' answers: what is left.
fn left(answer: &str) -> Vec<i64> {
    let third = |five: &str| five.lines().nth(2).unwrap().trim_start_matches(':').parse().unwrap();
    answer.split("*5\r\n").skip(1).map(third).collect()
}

#[tokio::test]
async fn all_servers_and_wires_share_the_counters_and_a_restart_forgets_nothing() {
    let redis = Redis::start();
    let (one, mut two) = (builder(&redis).start(), builder(&redis).start());
    assert!(one.startup_output().contains(&format!("store  {}", redis.url())), "{}", one.startup_output());
    let (mut first, mut second) = (grpc::client(&one).await, grpc::client(&two).await);
    assert_eq!(grpc::ask(&mut first, "u").await, (true, 2));
    assert_eq!(grpc::ask(&mut second, "u").await, (true, 1));
    let third = check(&one, "user", "u");
    assert_eq!((told(&third), &third.json()["remaining"]), ((200, "store".to_owned()), &Value::from(0)));
    assert_eq!(check(&two, "user", "u").status, 429);
    assert_eq!(left(&say(&one, "CL.THROTTLE k 9 1 3600\r\n")), [9]);
    assert_eq!(left(&say(&two, "CL.THROTTLE k 9 1 3600 4\r\n")), [5]);
    assert!(eventually(|| (metric(&one, "tollgate_store_replicas", "") == 2.0).then_some(())).is_some());
    assert!(metric(&one, "tollgate_store_script_calls_total", "") >= 3.0);
    assert_eq!(degraded(&one), []);
    // Nothing of it is kept here, and nothing need be.
    // Clients hear that it stops, and go.
    let stop = move || (two.stop().success(), two);
    let (stopped, two) = tokio::task::spawn_blocking(stop).await.unwrap();
    assert!(stopped);
    assert!(!two.home().join("data/counters.snapshot").exists());
    let two = two.restart().listen(&ALL).args(&["--store", &redis.url(), "--store-deadline", "500ms"]).start();
    assert_eq!(grpc::ask(&mut grpc::client(&two).await, "u").await, (false, 0));
    two.wait_for_log("the data directory stores only the last good rules");
}

#[test]
fn while_redis_is_away_rules_follow_their_policies_and_all_of_it_is_told() {
    let mut redis = Redis::start();
    let server = builder(&redis).start();
    assert_eq!(told(&check(&server, "caller", "c")), (200, "store".to_owned()));
    assert_eq!(told(&check(&server, "address", "a")), (200, "store".to_owned()));
    redis.kill();
    // A rule for comfort is counted here, one for security refuses.
    let comfort: Vec<u16> = (0..3).map(|_| check(&server, "caller", "d").status).collect();
    assert_eq!(comfort, [200, 200, 429]);
    let refused = check(&server, "address", "a");
    assert_eq!(told(&refused), (503, "assumed".to_owned()));
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
    assert_eq!((told(&local), &local.json()["level"]), ((200, "local".to_owned()), &Value::from("local-only")));
    server.wait_for_log("the store is local-only: unavailable: 127.0.0.1:");
    redis.restart();
    wait_for_health(&server, |conditions| conditions.is_empty());
    server.wait_for_log("the store is healthy again");
    assert_eq!(told(&check(&server, "address", "a")), (200, "store".to_owned()));
    assert_eq!(metric(&server, "tollgate_circuit_state", ""), 0.0);
}

#[test]
fn a_server_starts_without_redis_says_so_and_finds_it_when_it_comes() {
    let mut redis = Redis::start();
    redis.kill();
    let server = builder(&redis).start();
    // Nobody has asked for anything yet.
    wait_for_health(&server, |conditions| conditions.iter().any(|(part, _)| part == "store"));
    server.wait_for_log("the store is degraded: it does not answer: ");
    assert_eq!(check(&server, "caller", "c").status, 200);
    assert_eq!(check(&server, "address", "a").status, 503);
    redis.restart();
    wait_for_health(&server, |conditions| conditions.is_empty());
    assert_eq!(told(&check(&server, "address", "a")), (200, "store".to_owned()));
}

#[test]
fn a_redis_that_may_evict_counters_is_told() {
    let redis = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let server = builder(&redis).start();
    wait_for_health(&server, |conditions| {
        conditions.iter().any(|(part, reason)| part == "store_config" && reason.contains("allkeys-lru"))
    });
    server.wait_for_log("the store may lose counters: ");
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let redis = Redis::start();
    let server = builder(&redis).start();
    let commands = format!(
        "{}ECHO between\r\n{}PING\r\n",
        "CL.THROTTLE k 299 1 3600\r\n".repeat(200),
        "THROTTLE k 300 1 3600\r\n".repeat(50)
    );
    let answer = say(&server, &commands);
    let (first, second) = answer.split_once("$7\r\nbetween\r\n").unwrap();
    assert_eq!(left(first), (100..300).rev().collect::<Vec<_>>());
    assert_eq!(left(second), (50..100).rev().collect::<Vec<_>>());
    assert!(second.ends_with("+PONG\r\n"), "{second}");
}
