//! A store that does not answer, behind an Envoy that waits for 20 ms, as it does by default, and then lets the request pass.

use tollgate_testing::{Redis, eventually, machine};

use crate::clients::envoy::Config;
use crate::fleet::figures::Figures;
use crate::fleet::load::{Load, Plan};
use crate::fleet::servers::{Fleet, MEMORY, callers};
use crate::new_server;

const RULES: &str = "
domain: edge
rules:
  - {name: login, key: [route], limit: 1000/hour, policy: security}
";

/// How often it is tried while the machine is too busy for it.
const TRIES: usize = 5;

/// More than it takes to open the breaker, whose every failure costs the whole deadline.
const REQUESTS: usize = 12;

/// The time that Envoy leaves beyond the server's deadline for its store, in microseconds: 20 ms less 8 ms. If the machine holds up
/// a server without a store for as long, Envoy's timeout says nothing about the deadline.
const MARGIN: u64 = 12_000;

/// Requests a second to that server, so many that a pause of that length is noticed.
const RATE: u64 = 300;

#[test]
fn a_security_rule_refuses_when_redis_stalls() {
    machine::alone();
    for _ in 0..TRIES {
        let (statuses, paused) = with_stalled_redis();
        if statuses == [429; REQUESTS] {
            return;
        }
        assert!(paused >= MARGIN, "Envoy waited in vain: {statuses:?}; the machine paused for {paused} µs at most");
    }
    panic!("not judged: in {TRIES} tries the machine paused for longer than {MARGIN} µs");
}

/// The answers, and the longest pause of the machine meanwhile, in microseconds.
fn with_stalled_redis() -> (Vec<u16>, u64) {
    let mut redis = Redis::start();
    let server = new_server().rules(RULES).listen(&["grpc"]).args(&["--store", &redis.url()]).start();
    let envoy = Config::new(server.address("grpc")).with("timeout: 10s", "# Not set: 20 ms").start();
    let ask = || envoy.statuses(REQUESTS, "/public", &[]);
    assert!(eventually(|| (ask() == [200; REQUESTS]).then_some(())).is_some(), "the server does not find Redis");
    let bystander = Fleet::start(MEMORY, 1);
    let asks = callers("bystander").into_iter().map(|caller| caller.ask).collect();
    let load = Load::start(Plan { servers: bystander.addresses(), asks, rate: RATE });
    load.until_more(RATE / 10);
    redis.pause();
    let statuses = ask();
    (statuses, Figures::of(&load.stop()).max)
}
