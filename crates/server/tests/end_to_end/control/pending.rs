//! Blocks, switches and emergencies while the store of record is unavailable.

use serde_json::{Value, json};
use tollgate_testing::{Postgres, Redis, Server, eventually};

use crate::control::support::{get, post, send, server_on, with_control};
use crate::http::HttpResponse;

const THIEF: &str = "/admin/v1/blocks/thief";
const EVERYTHING: &str = "/admin/v1/switches/everything";

/// The status of a check with this cost. The limit is 100.
fn check(server: &Server, caller: &str, cost: u64) -> u16 {
    let body = json!({"attributes": {"api_key": caller}, "cost": cost});
    post(&server.url("http", "/v1/ratelimit/check"), &body).status
}

#[track_caller]
fn put(server: &Server, path: &str, body: &Value) -> HttpResponse {
    send("PUT", &server.url("admin", path), "application/json", body.to_string())
}

#[track_caller]
fn wait_for(server: &Server, caller: &str, cost: u64, status: u16) {
    let reached = eventually(|| (check(server, caller, cost) == status).then_some(()));
    assert!(reached.is_some(), "{caller} gets {}, not {status}\n{}", check(server, caller, cost), server.log());
}

fn pending(server: &Server) -> Vec<Value> {
    get(&server.url("admin", "/admin/v1/pending")).json()["items"].as_array().unwrap().clone()
}

fn readyz(server: &Server) -> String {
    get(&server.url("admin", "/readyz")).body
}

#[test]
fn urgent_changes_are_in_force_without_the_database_and_written_when_it_is_back() {
    let (mut postgres, redis) = (Postgres::start(), Redis::start());
    let (control, store) = (postgres.url(), redis.url());
    let args = ["--store", &*store];
    let (first, second) = (server_on(&control, &args), server_on(&control, &args));
    postgres.kill();
    let response = put(&first, THIEF, &json!({"reason": "stolen"}));
    assert_eq!((response.status, &response.json()["pending"]["in_force"]), (202, &json!("fleet")), "{response:?}");
    assert_eq!(check(&first, "thief", 1), 403);
    wait_for(&second, "thief", 1, 403);
    // The kill switch, and its end. Other writes wait for the database.
    assert_eq!(check(&second, "other", 101), 429);
    assert_eq!(put(&second, EVERYTHING, &json!({"mode": "off"})).status, 202);
    for server in [&first, &second] {
        wait_for(server, "other", 101, 200);
        eventually(|| (pending(server).len() == 2).then_some(())).unwrap();
        assert!(readyz(server).contains("control-pending"), "{}", readyz(server));
    }
    assert_eq!(send("DELETE", &first.url("admin", EVERYTHING), "application/json", String::new()).status, 202);
    for server in [&first, &second] {
        wait_for(server, "other", 101, 429);
    }
    let quota = json!({"tier": "pro"});
    assert_eq!(put(&first, "/admin/v1/quotas/a", &quota).json()["code"], "control_away");
    let conditional = http::Request::put(first.url("admin", THIEF))
        .header("Content-Type", "application/json")
        .header("If-Match", "\"1\"");
    let conditional =
        crate::http::read(crate::http::new_agent().run(conditional.body(json!({"reason": "x"}).to_string()).unwrap()));
    assert_eq!(conditional.unwrap().status, 503, "what it depends on is not known");
    // They survive a restart.
    let first = with_control(first.restart(), &control, &args).start();
    assert_eq!((check(&first, "thief", 1), pending(&first).len()), (403, 3), "{}", first.log());

    postgres.restart();
    for server in [&first, &second] {
        assert!(eventually(|| pending(server).is_empty().then_some(())).is_some(), "{}", server.log());
        assert!(eventually(|| (!readyz(server).contains("control")).then_some(())).is_some(), "{}", readyz(server));
        assert_eq!((check(server, "thief", 1), check(server, "other", 101)), (403, 429));
    }
    // Each is written once, as made by its author during the outage.
    let audit = "SELECT action, who, reason FROM audit ORDER BY id";
    let during = "(made while the store of record was unavailable)";
    let expected = [
        format!("block.put|loopback|stolen {during}"),
        format!("switch.put|loopback|{during}"),
        format!("switch.delete|loopback|{during}"),
    ];
    assert_eq!(postgres.query(audit).trim().lines().collect::<Vec<_>>(), expected);
    assert!(!first.home().join("data/control-pending.jsonl").exists());
}

#[test]
fn a_change_that_waited_does_not_replace_a_later_one() {
    let mut postgres = Postgres::start();
    let control = postgres.url();
    let server = server_on(&control, &[]);
    postgres.kill();
    let response = put(&server, THIEF, &json!({"reason": "early", "status": 429}));
    let pending_part = &response.json()["pending"];
    assert_eq!(
        (response.status, &pending_part["in_force"], &pending_part["saved"]),
        (202, &json!("server"), &json!(true))
    );
    assert_eq!(check(&server, "thief", 1), 429);
    let builder = server.restart();
    postgres.restart();
    let other = server_on(&control, &[]);
    assert_eq!(put(&other, THIEF, &json!({"reason": "late", "status": 403})).status, 200);
    let server = with_control(builder, &control, &[]).start();
    assert!(eventually(|| pending(&server).is_empty().then_some(())).is_some(), "{}", server.log());
    assert_eq!((check(&server, "thief", 1), check(&other, "thief", 1)), (403, 403));
    let note = postgres.query("SELECT reason FROM audit WHERE action = 'block.discard'");
    assert!(note.contains("block.put by loopback at ") && note.contains("Its reason: early"), "{note}");
    server.wait_for_log("a change that waited is discarded");
    assert_eq!(postgres.query("SELECT count(*) FROM audit WHERE action = 'block.put'").trim(), "1");
}

/// A long import holds the lock that all writers take.
#[test]
fn a_block_does_not_wait_for_other_writers() {
    let database = Postgres::database();
    let server = server_on(database.url(), &[]);
    let import = database.clone();
    let importing = std::thread::spawn(move || {
        import.try_query("BEGIN; UPDATE control SET generation = generation; SELECT pg_sleep(60); COMMIT")
    });
    let importers = "FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND wait_event = 'PgSleep' AND datname = current_database()";
    let is_locked = || (database.query(&format!("SELECT count(*) {importers}")).trim() == "1").then_some(());
    eventually(is_locked).unwrap();
    let response = put(&server, THIEF, &json!({"reason": "stolen"}));
    assert_eq!((response.status, check(&server, "thief", 1)), (202, 403), "{response:?}");
    assert!(is_locked().is_some(), "it waited for the import");
    database.query(&format!("SELECT pg_terminate_backend(pid) {importers}"));
    assert!(importing.join().unwrap().is_err());
    assert!(eventually(|| pending(&server).is_empty().then_some(())).is_some(), "{}", server.log());
    assert_eq!(database.query("SELECT name FROM records WHERE kind = 'block'").trim(), "thief");
    assert_eq!(check(&server, "thief", 1), 403);
}
