//! A store that does not respond, behind an Envoy with its default timeout of 20 ms, after which it lets the request pass.

use tollgate_testing::{Redis, eventually, machine};

use crate::clients::envoy::EnvoyConfig;
use crate::fleet::load::{Load, Plan};
use crate::fleet::servers::{Fleet, MEMORY, callers};
use crate::fleet::statistics::LoadStatistics;
use crate::new_server;

const RULES: &str = "
domain: edge
rules:
  - {name: login, key: [route], limit: 1000/hour, policy: security}
";

/// How often the test is repeated while the machine is too busy.
const MAX_ATTEMPTS: usize = 5;

/// More than it takes to open the breaker; each failure takes the whole deadline.
const REQUESTS: usize = 12;

/// The difference of Envoy's timeout and the server's deadline for its store, in microseconds: 20 ms less 8 ms. If the machine
/// pauses a server without a store for as long, Envoy's timeout says nothing about the deadline.
const MARGIN: u64 = 12_000;

/// Requests a second to that server: so many that a pause of that length shows.
const RATE: u64 = 300;

#[test]
fn a_security_rule_refuses_when_redis_stalls() {
    machine::alone();
    for _ in 0..MAX_ATTEMPTS {
        let (statuses, paused) = with_stalled_redis();
        if statuses == [429; REQUESTS] {
            return;
        }
        assert!(paused >= MARGIN, "Envoy timed out: {statuses:?}; the machine paused for {paused} µs at most");
    }
    panic!("not judged: in {MAX_ATTEMPTS} attempts the machine paused for longer than {MARGIN} µs");
}

/// The statuses, and the longest pause of the machine meanwhile, in microseconds.
fn with_stalled_redis() -> (Vec<u16>, u64) {
    let mut redis = Redis::start();
    let server = new_server().rules(RULES).listen(&["grpc"]).args(&["--store", &redis.url()]).start();
    let envoy = EnvoyConfig::new(server.address("grpc")).with("timeout: 10s", "# Not set: 20 ms").start();
    let statuses = || envoy.statuses(REQUESTS, "/public", &[]);
    assert!(
        eventually(|| (statuses() == [200; REQUESTS]).then_some(())).is_some(),
        "the server is not connected to Redis"
    );
    let bystander = Fleet::start(MEMORY, 1);
    let checks = callers("bystander").into_iter().map(|caller| caller.check).collect();
    let load = Load::start(Plan { servers: bystander.addresses(), checks, rate: RATE });
    load.wait_for_more(RATE / 10);
    redis.pause();
    let stalled = statuses();
    (stalled, LoadStatistics::from_samples(&load.stop()).max)
}
