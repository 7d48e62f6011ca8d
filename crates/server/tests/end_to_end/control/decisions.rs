//! The decision log of a fleet: every server has the decisions of all, and an outage of the database loses none.

use serde_json::json;
use tollgate_testing::{Postgres, Server, eventually};

use crate::control::support::{get, now, post, server_on};

/// So many that no caller has more refusals than are logged one by one.
const CALLERS: u64 = 31;

/// Makes a check that is refused: it costs more than the limit.
pub(crate) fn check_refused(server: &Server, caller: &str) {
    let response =
        post(&server.url("http", "/v1/ratelimit/check"), &json!({"attributes": {"api_key": caller}, "cost": 101}));
    assert_eq!(response.json()["allowed"], false, "{response:?}");
}

/// How many decisions about a caller a server has; `None` while its database is unavailable.
pub(crate) fn decision_count(server: &Server, caller: &str) -> Option<usize> {
    let response = get(&server.url("admin", &format!("/admin/v1/decisions?caller={caller}&limit=1000")));
    Some(response.json()["decisions"].as_array()?.len())
}

/// The number of log entries with this result.
fn entries(server: &Server, result: &str) -> u64 {
    let metrics = get(&server.url("admin", "/metrics")).body;
    let name = format!("tollgate_decision_log_entries_total{{result=\"{result}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

#[test]
fn an_outage_of_the_database_loses_no_decision_and_no_log_entry() {
    let mut postgres = Postgres::start();
    let server = server_on(&postgres.url(), &[]);
    let refuse_all = |from: u64, to: u64| (from..to).for_each(|n| check_refused(&server, &format!("k{}", n % CALLERS)));
    refuse_all(0, 100);
    postgres.kill();
    let started = now();
    refuse_all(100, 300);
    // None of the two hundred decisions waited for the database.
    assert!(now() - started < 10_000_000);
    let is_degraded = || get(&server.url("admin", "/readyz")).body.contains("decisions can't be logged");
    eventually(|| is_degraded().then_some(())).unwrap();
    assert_eq!(get(&server.url("admin", "/admin/v1/decisions?caller=k1")).status, 503);
    postgres.restart();
    eventually(|| (entries(&server, "written") == 300).then_some(())).unwrap();
    eventually(|| (!is_degraded()).then_some(())).unwrap();
    assert_eq!((entries(&server, "dropped"), entries(&server, "failed")), (0, 0));
    // Each exactly once, also those whose write was interrupted.
    assert_eq!(postgres.query("SELECT count(*) FROM decisions").trim(), "300");
    let all: Option<usize> = (0..CALLERS).map(|n| decision_count(&server, &format!("k{n}"))).sum();
    assert_eq!(all, Some(300));
}
