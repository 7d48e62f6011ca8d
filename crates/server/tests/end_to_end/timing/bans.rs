//! How soon a subject that was refused too often is banned on all servers.

use tollgate_testing::{Postgres, Redis, machine};

use crate::control::bans::{attack, servers, wait_for};
use crate::control::fleet::print_percentiles;
use crate::control::support::now;

/// The time within which a ban is in force on every server, in microseconds.
const MAX_PROPAGATION: u64 = 1_000_000;

#[test]
#[ignore = "takes half a minute: make test-long"]
fn slow_a_ban_is_in_force_on_every_server_within_a_second() {
    machine::alone();
    let (database, redis) = (Postgres::database(), Redis::start());
    let servers = servers(Some(database.url()), &redis, 3);
    let took = (0..100).map(|n| {
        let address = format!("203.0.113.{n}");
        attack(&servers, &address);
        let since = now();
        wait_for(&servers, &address, 403);
        now() - since
    });
    let took = took.collect();
    assert!(print_percentiles("banned on 3 servers after the last refusal that it needs", took) < MAX_PROPAGATION);
}
