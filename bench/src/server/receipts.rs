//! What receipts cost over HTTP: a check that gives one and the settling of it, next to a check that gives none.

use super::process::{Server, on_server_core};
use super::tollgate;
use super::turns::{Contender, Turn, at_most, keys, middle, take_turns};
use crate::load::HTTP_CONNECTIONS;

/// One limit for either kind of request, and nobody reaches it.
const RULES: &str = "
domain: api
entity: user_id
rules:
  - {name: plain, key: [user_id], match: {endpoint: /v1/charges}, limit: 1000000/hour}
  - {name: settled, key: [user_id], match: {endpoint: /v1/answers}, limit: 1000000/hour, settle: true}
";

pub fn run() {
    let Some(program) = tollgate::program("receipts") else { return };
    println!("Receipts over HTTP, {}, {HTTP_CONNECTIONS} connections with one request at a time each", keys());
    let (server, _rules) = tollgate::start_as(on_server_core(&program), RULES, &["http"], &["--workers", "1"]);
    let ask =
        |api: &str, server: &Server, seconds: f64| Turn::of(&["http", api], server.address("http"), server, seconds);
    let check = |seconds| ask("check", &server, seconds);
    let receipt = |seconds| ask("receipt", &server, seconds);
    let settle = |seconds| ask("settle", &server, seconds);
    let contenders: Vec<Contender<'_>> =
        vec![("check", &check), ("check with receipt", &receipt), ("check with receipt, and settle, in turn", &settle)];
    let turns = take_turns(&contenders);
    at_most("server's time, check with receipt to check", turns[1].cost_to(&turns[0]), 1.3);
    // Of the answers of the third, each second one is a check with a receipt.
    let (both, checks) = (turns[2].cost_to(&turns[0]), turns[1].cost_to(&turns[0]));
    let settles = middle(vec![2.0 * both.0 - checks.0, 2.0 * both.1 - checks.0, 2.0 * both.2 - checks.0]);
    at_most("server's time, settle to check", settles, 1.2);
}
