//! Servers with their counters in one Redis: next to one whose counters are in memory, and next to envoyproxy/ratelimit.
//!
//! For decisions a second, all processes share both cores: what counts is what all of them together spend on a decision. For
//! latency the servers have one core and the load the other.

use super::process::{Server, on_cores, on_server_core};
use super::tollgate::Rules;
use super::turns::{Contender, Turn, at_least, keys, take_turns};
use super::{BOTH_CORES, LOAD_CORE, SERVER_CORE, latency, peers, tollgate};
use crate::load::{Asking, GRPC_CONNECTIONS, GRPC_STREAMS};

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
    one(&program);
    four(&program);
    steady(&program);
}

/// As many decisions as two cores make, of one limit.
fn one(program: &str) {
    println!("gRPC on one Redis, all on two cores, one descriptor, {}", calls());
    let redis = peers::redis_on(BOTH_CORES);
    let (ours, _rules) = on_redis(program, ONE, &redis, "tg:");
    let (memory, _rules) = tollgate::start_as(on_cores(BOTH_CORES, program), ONE, &["grpc"], &[]);
    let (apart, _rules) = tollgate::start_as(on_server_core(program), ONE, &["grpc"], &[]);
    let peer = peers::ratelimit(ONE, &redis);
    let ask = |cores, servers: &[&Server], seconds| ask(Asking::One, cores, servers, seconds);
    let ask_ours = |seconds| ask(BOTH_CORES, &[&ours, &redis], seconds);
    let ask_apart = |seconds| ask(LOAD_CORE, &[&apart], seconds);
    let ask_memory = |seconds| ask(BOTH_CORES, &[&memory], seconds);
    let ask_peer = |seconds| ask(BOTH_CORES, &[&peer.as_ref().expect("a peer that is there").0, &redis], seconds);
    let mut contenders: Vec<Contender<'_>> = vec![
        ("tollgate on Redis", &ask_ours),
        ("tollgate in memory, server and load a core each", &ask_apart),
        ("tollgate in memory", &ask_memory),
    ];
    if peer.is_some() {
        contenders.push(("envoyproxy/ratelimit", &ask_peer));
    }
    let turns = take_turns(&contenders);
    tell_uncounted(&ours);
    at_least("on Redis to in memory, server and load a core each", turns[0].to(&turns[1]), 0.4);
    let (ratio, least, most) = turns[0].to(&turns[2]);
    println!("  = on Redis to in memory: {ratio:.2} ({least:.2} to {most:.2})");
    if let Some(peer) = turns.get(3) {
        at_least("tollgate to envoyproxy/ratelimit", turns[0].to(peer), 2.0);
    }
}

/// The same, of four limits.
fn four(program: &str) {
    println!("gRPC on one Redis, all on two cores, four descriptors, {}", calls());
    let redis = peers::redis_on(BOTH_CORES);
    let (ours, _rules) = on_redis(program, FOUR, &redis, "tg:");
    let (entity, _rules) = on_redis(program, &format!("{ENTITY}{FOUR}"), &redis, "entity:");
    let peer = peers::ratelimit(FOUR, &redis);
    let ask = |servers: &[&Server], seconds| ask(Asking::Four, BOTH_CORES, servers, seconds);
    let ask_ours = |seconds| ask(&[&ours, &redis], seconds);
    let ask_entity = |seconds| ask(&[&entity, &redis], seconds);
    let ask_peer = |seconds| ask(&[&peer.as_ref().expect("a peer that is there").0, &redis], seconds);
    let mut contenders: Vec<Contender<'_>> =
        vec![("tollgate on Redis", &ask_ours), ("tollgate on Redis, `entity: customer` added", &ask_entity)];
    if peer.is_some() {
        contenders.push(("envoyproxy/ratelimit", &ask_peer));
    }
    let turns = take_turns(&contenders);
    [&ours, &entity].into_iter().for_each(tell_uncounted);
    if let Some(peer) = turns.get(2) {
        at_least("tollgate to envoyproxy/ratelimit", turns[0].to(peer), 2.0);
        at_least("tollgate with `entity` to envoyproxy/ratelimit", turns[1].to(peer), 2.0);
    }
}

/// A server whose keys in Redis begin with this.
fn on_redis(program: &str, rules: &str, redis: &Server, prefix: &str) -> (Server, Rules) {
    let store = format!("redis://{}", redis.address("redis"));
    let settings = [&["--store", &store, "--store-prefix", prefix], &PATIENT[..]].concat();
    tollgate::start_as(on_cores(BOTH_CORES, program), rules, &["grpc", "admin"], &settings)
}

/// Floods the first of these servers, which asks the others in turn.
fn ask(asking: Asking, cores: &str, servers: &[&Server], seconds: f64) -> Turn {
    Turn::on(cores, &["grpc", asking.name()], servers[0].address("grpc"), servers, seconds)
}

fn calls() -> String {
    format!("{}, {GRPC_CONNECTIONS} connections with {GRPC_STREAMS} calls at a time each", keys())
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
