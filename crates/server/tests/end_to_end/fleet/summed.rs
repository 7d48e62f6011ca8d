//! A fleet whose servers count concurrent requests by themselves: servers that are killed, hang and stop, and a Redis that is
//! killed.

use tollgate_testing::{Redis, Server, eventually, until};

use crate::http::{HttpResponse, get, post};
use crate::new_server;
use crate::serve::redis::wait_for_health;

const RULES: &str = "
domain: fleet
rules:
  - name: fleet
    key: []
    limit_by: priority
    limit: {critical: 6 concurrent, default: 4 concurrent}
    count: summed
    hold: 1h
    shed: true
";

fn server(redis: &Redis) -> Server {
    let store = ["--store", &redis.url(), "--store-deadline", "1s", "--replicas", "3"];
    new_server().rules(RULES).listen(&["http", "admin"]).args(&store).start()
}

fn check(server: &Server, class: &str) -> HttpResponse {
    let body = format!(r#"{{"attributes":{{"priority":"{class}"}}}}"#);
    post(&server.url("http", "/v1/ratelimit/check"), &body)
}

/// Admits a request, and returns its receipt.
#[track_caller]
fn take(server: &Server, class: &str) -> String {
    let response = check(server, class);
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()["receipt"].as_str().unwrap().to_owned()
}

fn settle(server: &Server, receipt: &str) -> HttpResponse {
    post(&server.url("http", "/v1/ratelimit/settle"), &format!(r#"{{"receipt":"{receipt}","outcome":"ok"}}"#))
}

/// The value of a family with one series.
fn metric(server: &Server, family: &str) -> Option<f64> {
    let text = get(&server.url("admin", "/metrics")).body;
    let line = text.lines().find(|line| line.starts_with(family) && line[family.len()..].starts_with(['{', ' ']))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// Waits until each server knows how many requests are in flight.
#[track_caller]
fn until_in_flight(servers: &[&Server], count: u32) {
    for server in servers {
        // A peek, so that a server without requests takes part.
        let peek = || post(&server.url("http", "/v1/ratelimit/check"), r#"{"attributes":{},"cost":0}"#);
        let knows = || {
            drop(peek());
            let is_known = metric(server, "tollgate_summed_stale") == Some(0.0);
            is_known && metric(server, "tollgate_summed_in_flight_fleet") == Some(f64::from(count))
        };
        let seen = eventually(|| knows().then_some(()));
        assert!(seen.is_some(), "{:?}, not {count}", metric(server, "tollgate_summed_in_flight_fleet"));
    }
}

#[test]
fn servers_admit_against_their_sum_and_forget_those_that_are_gone() {
    let redis = Redis::start();
    let (one, mut two, mut three) = (server(&redis), server(&redis), server(&redis));
    until_in_flight(&[&one, &two, &three], 0);
    let first = [take(&one, "get"), take(&one, "post")];
    until_in_flight(&[&two, &three], 2);
    take(&two, "get");
    take(&two, "test");
    until_in_flight(&[&one, &two, &three], 4);
    let refused = check(&three, "get");
    assert_eq!((refused.status, &refused.headers["x-tollgate-shed"]), (503, &"fleet".parse().unwrap()));
    let admitted = check(&three, "critical");
    assert_eq!((admitted.status, &admitted.json()["source"]), (200, &"summed".into()), "{}", admitted.body);
    until_in_flight(&[&one, &two, &three], 5);
    assert_eq!(metric(&one, "tollgate_summed_in_flight"), Some(2.0));
    // A request may end on another server than it began: that one is notified.
    let settled = settle(&one, &first[0]);
    assert_eq!((settled.status, &settled.json()["settled"]), (200, &true.into()), "{}", settled.body);
    assert_eq!(settle(&three, &first[1]).status, 202);
    until_in_flight(&[&one, &two, &three], 3);
    // A server that hangs is forgotten, and counted again when it goes on.
    three.signal("STOP");
    until_in_flight(&[&one, &two], 2);
    three.signal("CONT");
    until_in_flight(&[&one, &two, &three], 3);
    two.kill();
    until_in_flight(&[&one, &three], 1);
    assert!(three.stop().success());
    until_in_flight(&[&one], 0);
}

#[test]
fn without_redis_each_server_enforces_its_share() {
    let mut redis = Redis::start();
    let (one, two) = (server(&redis), server(&redis));
    until_in_flight(&[&one, &two], 0);
    let receipts: Vec<String> = (0..3).map(|_| take(&one, "get")).collect();
    until_in_flight(&[&one, &two], 3);
    redis.kill();
    for server in [&one, &two] {
        until("the sum is unknown", || metric(server, "tollgate_summed_stale") == Some(1.0));
        wait_for_health(server, |parts| {
            parts.iter().any(|(part, reason)| part == "sums" && reason.contains("enforces its share of 1 limits"))
        });
    }
    // A third of 4 and of 6, rounded up: the first server has more than that already.
    assert_eq!(check(&one, "critical").status, 503);
    let admitted = check(&two, "get");
    assert_eq!((admitted.status, &admitted.json()["source"]), (200, &"local".into()));
    assert_eq!([check(&two, "get").status, check(&two, "critical").status], [200, 503]);
    // A request ends without Redis, too.
    assert_eq!(settle(&one, &receipts[0]).status, 200);
    redis.restart();
    until_in_flight(&[&one, &two], 4);
    wait_for_health(&one, |parts| parts.iter().all(|(part, _)| part != "sums"));
    assert_eq!([check(&two, "get").status, check(&two, "critical").status], [503, 200]);
}
