//! The decision log of a fleet: all servers answer for all, and a database that dies under load costs no decision.

use serde_json::json;
use tollgate_testing::{Postgres, Server, eventually};

use crate::control::world::{get, now, post, server_on};

/// Asks for more than there ever is: a refusal.
pub(crate) fn refuse(server: &Server, caller: &str) {
    let told =
        post(&server.url("http", "/v1/ratelimit/check"), &json!({"attributes": {"api_key": caller}, "cost": 101}));
    assert_eq!(told.json()["allowed"], false, "{told:?}");
}

/// How many decisions about a caller a server knows of; none while it can't be asked.
pub(crate) fn known(server: &Server, caller: &str) -> Option<usize> {
    let told = get(&server.url("admin", &format!("/admin/v1/decisions?caller={caller}&limit=1000")));
    Some(told.json()["decisions"].as_array()?.len())
}

/// Entries by what became of them.
fn entries(server: &Server, result: &str) -> u64 {
    let metrics = get(&server.url("admin", "/metrics")).body;
    let name = format!("tollgate_decision_log_entries_total{{result=\"{result}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

#[test]
fn a_database_that_dies_under_load_costs_no_decision_and_no_entry() {
    let mut postgres = Postgres::start();
    let server = server_on(&postgres.url(), &[]);
    let refuse_all = |from: u64, to: u64| (from..to).for_each(|n| refuse(&server, &format!("k{}", n % 7)));
    refuse_all(0, 100);
    postgres.kill();
    let begun = now();
    refuse_all(100, 300);
    // Two hundred decisions, none of which waited for it.
    assert!(now() - begun < 10_000_000);
    let is_degraded = || get(&server.url("admin", "/readyz")).body.contains("decisions can't be logged");
    eventually(|| is_degraded().then_some(())).unwrap();
    assert_eq!(get(&server.url("admin", "/admin/v1/decisions?caller=k1")).status, 503);
    postgres.restart();
    eventually(|| (entries(&server, "written") == 300).then_some(())).unwrap();
    eventually(|| (!is_degraded()).then_some(())).unwrap();
    assert_eq!((entries(&server, "dropped"), entries(&server, "failed")), (0, 0));
    // Each once, also those of which nobody knew whether they had been written.
    assert_eq!(postgres.query("SELECT count(*) FROM decisions").trim(), "300");
    let all: Option<usize> = (0..7).map(|n| known(&server, &format!("k{n}"))).sum();
    assert_eq!(all, Some(300));
}
