//! A server whose store of record is a PostgreSQL: the latency of decisions while that is there, and after it was killed.

use tollgate_testing::Postgres;

use super::process::{Server, load, on_server_core};
use super::turns::{middle, rounds, seconds};
use super::{LOAD_CORE, tollgate};

const RULES: &str = "
domain: api
entity: user_id
rules:
  - {name: per-user, key: [user_id], limit: {free: 1000000/hour, pro: 2000000/hour}}
";

const RATE: u64 = 5_000;
/// By how much the time of 99 % may grow.
const MAY_GROW: f64 = 1.5;

pub fn run() {
    let Some(program) = tollgate::program("control") else { return };
    let mut postgres = Postgres::start();
    let url = postgres.url();
    let (server, _rules) =
        tollgate::start_as(on_server_core(&program), RULES, &["grpc", "admin"], &["--workers", "1", "--control", &url]);
    println!(
        "latency of gRPC at {RATE} a second, with the store of record in PostgreSQL, {} windows of {} s each",
        rounds(),
        seconds()
    );
    let before = windows("PostgreSQL is there", &server);
    postgres.kill();
    let after = windows("PostgreSQL was killed", &server);
    let grown = after / before;
    let word = if grown <= MAY_GROW { "reached" } else { "MISSED" };
    println!("  = 99 % without the database to with it: {grown:.2}, at most {MAY_GROW} required: {word}");
}

/// The median of the windows' 99 %, in milliseconds. The first window does not count.
fn windows(what: &str, server: &Server) -> f64 {
    let times: Vec<f64> = (0..=rounds())
        .map(|_| load(LOAD_CORE, &["pace", server.address("grpc"), &RATE.to_string(), &seconds().to_string()])[1] / 1e6)
        .skip(1)
        .collect();
    let (median, least, most) = middle(times);
    println!("  {what:<30} ms: 99 % {median:.3} ({least:.3} to {most:.3})");
    median
}
