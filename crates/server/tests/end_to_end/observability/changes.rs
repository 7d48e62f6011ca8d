//! The time from a change being written to it being in force.

use serde_json::json;
use tollgate_testing::{Server, eventually};

use crate::control::fleet::ControlFleet;
use crate::control::support::{RULES, get, send, set_limit};
use crate::new_server;

/// The number of changes of a kind on a server, and of those that were in force within five seconds.
fn changes(server: &Server, kind: &str) -> (u64, u64) {
    let metrics = get(&server.url("admin", "/metrics")).body;
    let sample = |name: &str, labels: &str| {
        let start = format!("tollgate_change_in_force_seconds_{name}{{{labels}}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start} is missing:\n{metrics}")).parse().unwrap()
    };
    let within = sample("bucket", &format!("le=\"5.0\",kind=\"{kind}\""));
    (sample("count", &format!("kind=\"{kind}\"")), within)
}

#[test]
fn each_kind_of_change_is_measured() {
    let server = new_server().rules(RULES).listen(&["http", "admin"]).start();
    let write = |method: &str, path: &str, body: serde_json::Value| {
        let response = send(method, &server.url("admin", path), "application/json", body.to_string());
        assert!([200, 201].contains(&response.status), "{path}: {response:?}");
    };
    set_limit(&server, "ada", 7);
    let put = |path: &str, body| write("PUT", path, body);
    put("/admin/v1/blocks/eve", json!({"reason": "abuse"}));
    put("/admin/v1/switches/domains/api", json!({"mode": "shadow"}));
    put("/admin/v1/emergencies/flood", json!({"callers": "*", "percent": 50, "reason": "slow"}));
    put("/v1/ratelimit/config/extra?domain=api", json!({"rule": {"key": ["api_key"], "limit": "5/m"}}));
    let scopes = ["read", "quota", "rules", "emergency", "audit"];
    write("POST", "/admin/v1/tokens", json!({"name": "ci", "scopes": scopes, "reason": "a test"}));
    server.write_rules(&RULES.replace("free: 100/m", "free: 101/m"));
    for kind in ["quota", "block", "switch", "emergency", "rule", "token", "files"] {
        let measured = eventually(|| Some(changes(&server, kind)).filter(|(count, _)| *count > 0));
        assert_eq!(measured, Some((1, 1)), "{kind}");
    }
}

#[test]
fn a_change_is_measured_on_every_server_and_not_by_those_that_start_later() {
    let fleet = ControlFleet::start();
    set_limit(&fleet.servers[0], "ada", 7);
    for server in &fleet.servers {
        let measured = eventually(|| Some(changes(server, "quota")).filter(|(count, _)| *count > 0));
        assert_eq!(measured, Some((1, 1)));
    }
    let later = crate::control::support::server_on(fleet.database.url(), &[]);
    assert_eq!(changes(&later, "quota"), (0, 0));
}
