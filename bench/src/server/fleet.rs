//! Servers with their counters in one Redis: beside one that keeps them in memory, and beside envoyproxy/ratelimit.
//!
//! For decisions a second, all processes share both cores: what counts is what all of them together spend on a decision. For
//! latency the servers have one core and the load the other.

use super::process::{Server, on_cores, on_server_core};
use super::turns::{Contender, Turn, at_least, keys, take_turns};
use super::{BOTH_CORES, SERVER_CORE, latency, peers, tollgate};
use crate::load::{Asking, FLEET_STREAMS, GRPC_CONNECTIONS};

/// One file for both, as who moves from one to the other has it. Nobody reaches these limits.
const ONE: &str = "
domain: api
descriptors:
  - key: user_id
    rate_limit: {unit: hour, requests_per_unit: 1000000}
";

const FOUR: &str = "
domain: api
descriptors:
  - key: customer
    rate_limit: {unit: hour, requests_per_unit: 1000000}
    descriptors:
      - key: user_id
        rate_limit: {unit: hour, requests_per_unit: 1000000}
      - key: api_key
        rate_limit: {unit: hour, requests_per_unit: 1000000}
      - key: endpoint
        rate_limit: {unit: hour, requests_per_unit: 1000000}
";

/// What keeps all counters of a customer together.
const ENTITY: &str = "entity: customer\n";

/// How long a check waits for Redis while it is flooded: so long that none passes uncounted for the machine's hiccups.
const PATIENT: [&str; 2] = ["--store-deadline", "500ms"];

const RATE: u64 = 5_000;
/// What Redis may add to the time that counters in memory take, in milliseconds.
const MAY_ADD: f64 = 2.0;

pub fn run() {
    let Some(program) = tollgate::program("fleet") else { return };
    if std::process::Command::new("redis-server").arg("--version").output().is_err() {
        println!("fleet: skipped, redis-server is missing (scripts/setup.sh bench installs it)");
        return;
    }
    for (asking, rules) in [(Asking::One, ONE), (Asking::Four, FOUR)] {
        flood(&program, asking, rules);
    }
    steady(&program);
}

/// As many decisions as two cores make.
fn flood(program: &str, asking: Asking, rules: &str) {
    println!(
        "gRPC on one Redis, all on two cores, descriptors: {}, {}, {GRPC_CONNECTIONS} connections with {FLEET_STREAMS} calls at a \
         time each",
        asking.name(),
        keys()
    );
    let [redis, of_entity, theirs] = [(); 3].map(|()| peers::redis_on(BOTH_CORES));
    let start = |rules: &str, wires: &[&str], settings: &[&str]| {
        tollgate::start_as(on_cores(BOTH_CORES, program), rules, wires, settings)
    };
    let start_on = |redis: &Server, rules: &str| {
        let store = format!("redis://{}", redis.address("redis"));
        start(rules, &["grpc", "admin"], &[&["--store", &store], &PATIENT[..]].concat())
    };
    let (ours, _rules) = start_on(&redis, rules);
    let (entity, _rules) = start_on(&of_entity, &format!("{ENTITY}{rules}"));
    let (memory, _rules) = start(rules, &["grpc"], &[]);
    let peer = peers::ratelimit(rules, &theirs);
    let ask = |servers: &[&Server], seconds| {
        Turn::on(BOTH_CORES, &["fleet", asking.name()], servers[0].address("grpc"), servers, seconds)
    };
    let ask_ours = |seconds| ask(&[&ours, &redis], seconds);
    let ask_entity = |seconds| ask(&[&entity, &of_entity], seconds);
    let ask_memory = |seconds| ask(&[&memory], seconds);
    let ask_peer = |seconds| ask(&[&peer.as_ref().expect("a peer that is there").0, &theirs], seconds);
    let second: Contender<'_> = match asking {
        Asking::One => ("tollgate in memory", &ask_memory),
        Asking::Four => ("tollgate on Redis, `entity: customer` added", &ask_entity),
    };
    let mut contenders: Vec<Contender<'_>> = vec![("tollgate on Redis", &ask_ours), second];
    if peer.is_some() {
        contenders.push(("envoyproxy/ratelimit", &ask_peer));
    }
    let turns = take_turns(&contenders);
    [&ours, &entity].into_iter().for_each(tell_uncounted);
    if matches!(asking, Asking::One) {
        at_least("on Redis to in memory", turns[0].to(&turns[1]), 0.4);
    }
    if let Some(peer) = turns.get(2) {
        at_least("tollgate to envoyproxy/ratelimit", turns[0].to(peer), 2.0);
        if matches!(asking, Asking::Four) {
            at_least("tollgate with `entity` to envoyproxy/ratelimit", turns[1].to(peer), 2.0);
        }
    }
}

/// A rate that leaves all of them time to breathe.
fn steady(program: &str) {
    let redis = peers::redis_on(SERVER_CORE);
    let store = format!("redis://{}", redis.address("redis"));
    let start = |wires: &[&str], settings: &[&str]| tollgate::start_as(on_server_core(program), ONE, wires, settings);
    let (ours, _rules) = start(&["grpc", "admin"], &["--store", &store]);
    let (memory, _rules) = start(&["grpc"], &[]);
    latency::compare(RATE, ("tollgate on Redis", &ours), ("tollgate in memory", &memory), MAY_ADD);
    tell_uncounted(&ours);
}

/// A decision without Redis is not what is measured.
fn tell_uncounted(server: &Server) {
    let uncounted = tollgate::passed_uncounted(server);
    if uncounted > 0.0 {
        println!("  ! {uncounted:.0} requests passed that Redis did not count");
    }
}
