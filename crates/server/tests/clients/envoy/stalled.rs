//! A store that does not answer, behind an Envoy that waits no longer than it does by default and lets pass what it knows nothing
//! about.

use tollgate_testing::Redis;

use super::Config;
use crate::server::{Start, eventually};

const RULES: &str = "
domain: edge
rules:
  - {name: login, key: [route], limit: 1000/hour, policy: security}
";

/// Envoy's patience is 20 ms of this machine, which may be busy with something else that long: then Envoy lets pass, whatever
/// Tollgate says. That is so once in a while; a server that asks its store for too long is late each time.
const TRIES: usize = 5;

/// More than it takes to open the breaker, whose every failure costs the whole deadline.
const REQUESTS: usize = 12;

#[test]
fn a_security_rule_refuses_when_redis_stalls() {
    let seen: Vec<Vec<u16>> = (0..TRIES)
        .map_while(|_| {
            let statuses = with_stalled_redis();
            (statuses != [429; REQUESTS]).then_some(statuses)
        })
        .collect();
    assert!(seen.len() < TRIES, "some passed each time: {seen:?}");
}

fn with_stalled_redis() -> Vec<u16> {
    let mut redis = Redis::start();
    let server = Start::new().rules(RULES).listen(&["grpc"]).args(&["--store", &redis.url()]).ready();
    let envoy = Config::new(server.address("grpc")).with("timeout: 10s", "# Not set: 20 ms").start();
    let asked = || envoy.statuses(REQUESTS, "/public", &[]);
    assert!(eventually(|| (asked() == [200; REQUESTS]).then_some(())).is_some(), "the server does not find Redis");
    redis.pause();
    asked()
}
