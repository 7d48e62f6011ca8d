//! Busy keys in Redis, of which the server leases units, next to counters in memory. The server has one core; Redis and the
//! load share the other.

use super::process::{Server, on_server_core};
use super::turns::{Turn, at_least, at_most, rounds, seconds, take_turns};
use super::{LOAD_CORE, peers, tollgate};
use crate::load::{Asking, BUSY_KEYS, GRPC_CONNECTIONS, GRPC_STREAMS, RARE_KEYS};

const RULES: &str = "
domain: api
entity: user_id
rules:
  - {name: per-user, key: [user_id], limit: 100000000/hour}
";

const TARGET: f64 = 0.9;
/// What the server may spend more on a request of a key that is not leased.
const RARE_TARGET: f64 = 1.03;
/// Microseconds of Redis's core for a decision.
const REDIS_TARGET: f64 = 0.5;

pub fn run() {
    let Some(program) = tollgate::program("leases") else { return };
    println!(
        "gRPC with leases, {BUSY_KEYS} keys, {} rounds of {} s, {GRPC_CONNECTIONS} connections with {GRPC_STREAMS} calls at a time each",
        rounds(),
        seconds()
    );
    let redis = peers::redis_on(LOAD_CORE);
    let store = format!("redis://{}", redis.address("redis"));
    let start = |settings: &[&str]| {
        tollgate::start_as(on_server_core(&program), RULES, &["grpc"], &[&["--workers", "1"], settings].concat())
    };
    let (leased, _rules) = start(&["--store", &store, "--store-deadline", "500ms"]);
    let (called, _rules) =
        start(&["--store", &store, "--store-deadline", "500ms", "--store-prefix", "off:", "--leases", "off"]);
    let (memory, _rules) = start(&[]);
    let ask = |asking: Asking, servers: &[&Server], seconds: f64| {
        Turn::on(LOAD_CORE, &["grpc", asking.name()], servers[0].address("grpc"), servers, seconds)
    };
    let turns = take_turns(&[
        ("tollgate on Redis, leases", &|seconds| ask(Asking::Busy, &[&leased, &redis], seconds)),
        ("tollgate on Redis, a call for each", &|seconds| ask(Asking::Busy, &[&called, &redis], seconds)),
        ("tollgate in memory", &|seconds| ask(Asking::Busy, &[&memory], seconds)),
    ]);
    at_least("leases to in memory", turns[0].to(&turns[2]), TARGET);
    let (ratio, least, most) = turns[0].to(&turns[1]);
    println!("  = leases to a call for each: {ratio:.2} ({least:.2} to {most:.2})");
    at_most("µs of Redis's time for a decision", turns[0].backend_cost(), REDIS_TARGET);

    println!("gRPC with rare keys, {RARE_KEYS} keys, {} rounds of {} s, as before", rounds(), seconds());
    let turns = take_turns(&[
        ("tollgate on Redis, leases", &|seconds| ask(Asking::Rare, &[&leased, &redis], seconds)),
        ("tollgate on Redis, `leases: off`", &|seconds| ask(Asking::Rare, &[&called, &redis], seconds)),
    ]);
    at_most("server's time, leases to `leases: off`", turns[0].cost_to(&turns[1]), RARE_TARGET);
}
