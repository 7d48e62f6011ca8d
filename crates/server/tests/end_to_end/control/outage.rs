//! Outages of the store of record, and its replacement by another one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_testing::{Postgres, Redis, Server, eventually};

use crate::control::support::{
    TOKEN, file_contains, generation, get, is_copied, limit, post, put, quota, send, send_token, server_on, set_limit,
    try_limit, with_control,
};
use crate::http::{new_agent, read};

const CALLERS: u64 = 5;

fn caller(n: u64) -> String {
    format!("caller-{n}")
}

/// The limits of all callers on a server, and of an unknown one.
fn all_limits(server: &Server) -> Vec<(u64, String)> {
    (0..=CALLERS).map(|n| limit(server, &caller(n))).collect()
}

#[track_caller]
fn wait_for_limit(server: &Server, caller: &str, limit: u64) {
    let reached = eventually(|| (try_limit(server, caller)?.0 == limit).then_some(()));
    assert!(reached.is_some(), "{caller} has {:?}, not {limit}\n{}", try_limit(server, caller), server.log());
}

fn is_degraded(server: &Server) -> bool {
    get(&server.url("admin", "/readyz")).body.contains("the store of record is unavailable")
}

#[test]
fn an_outage_changes_no_decision_and_recovery_is_automatic() {
    let (mut postgres, redis, shared) = (Postgres::start(), Redis::start(), TempDir::new().unwrap());
    let (control, store) = (postgres.url(), redis.url());
    let snapshots = shared.path().display().to_string();
    // A token in the store of record turns access by loopback off.
    let token = shared.path().join("token");
    fs::write(&token, TOKEN).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    send_token();
    let token = token.display().to_string();
    let args = ["--store", &*store, "--control-snapshots", &*snapshots, "--admin-token-file", &*token];
    let first = server_on(&control, &args);
    for n in 0..CALLERS {
        set_limit(&first, &caller(n), 500 + n);
    }
    postgres.query(
        "BEGIN; UPDATE control SET generation = generation + 1; INSERT INTO records VALUES \
         ('token', '', 'secret', (SELECT generation FROM control), '{\"hash\":\"x\"}', 1, 1, 'test', ''); COMMIT",
    );
    // The second server writes a snapshot for servers that start without any state.
    let (second, third) = (server_on(&control, &args), server_on(&control, &args));
    let snapshot = shared.path().join("control-snapshot.jsonl");
    let last = caller(CALLERS - 1);
    assert!(eventually(|| file_contains(&snapshot, &last).then_some(())).is_some());
    for server in [&first, &second, &third] {
        wait_for_limit(server, &last, 500 + CALLERS - 1);
        assert!(eventually(|| (is_copied(server, &last) && is_copied(server, "secret")).then_some(())).is_some());
    }
    let before = all_limits(&first);
    assert_eq!(before.last(), Some(&(100, "tier".to_owned())), "{before:?}");
    let written = postgres.query("SELECT generation FROM control");

    let (stop, observed) = (AtomicBool::new(false), Mutex::new(BTreeSet::new()));
    std::thread::scope(|scope| {
        for server in [&first, &third] {
            let (stop, observed) = (&stop, &observed);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    observed.lock().unwrap().insert(all_limits(server));
                }
            });
        }
        postgres.kill();
        // The threads end even if an assertion fails.
        let outage = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let response = put(&first, &caller(0), None, &quota(1));
            assert_eq!(
                (response.status, response.json()["code"].as_str()),
                (503, Some("control_away")),
                "{response:?}"
            );
            assert!(eventually(|| is_degraded(&first).then_some(())).is_some());
            assert_eq!(get(&first.url("admin", "/readyz")).status, 200);
            // The snapshot is now the server's own copy, without tokens.
            let response = get(&first.url("admin", "/v1/control/snapshot"));
            assert_eq!(response.status, 200);
            assert!(
                response.body.contains(&last) && !response.body.contains("secret") && !response.body.contains("token")
            );
            assert!(
                response.body.lines().last().unwrap().contains(&format!("\"records\":{CALLERS}")),
                "{}",
                response.body
            );
        }));
        let restarted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let second = with_control(second.restart(), &control, &args).start();
            second.wait_for_log("the store of record is unavailable; its state at generation");
            let fresh = server_on(&control, &args);
            for server in [&second, &fresh] {
                assert_eq!(all_limits(server), before);
                assert!(is_degraded(server));
            }
            // A server without any state starts too, and serves no snapshot.
            let bare = server_on(&control, &["--store", &store, "--admin-token-file", &token]);
            assert_eq!(limit(&bare, &last).0, 100);
            let response = get(&bare.url("admin", "/v1/control/snapshot"));
            assert_eq!((response.status, response.json()["code"].as_str()), (503, Some("control_away")));
            [second, fresh, bare]
        }));
        stop.store(true, Ordering::SeqCst);
        outage.unwrap();
        let restarted = restarted.unwrap();
        postgres.restart();
        assert_eq!(postgres.query("SELECT generation FROM control"), written, "a partial write");
        let is_writable = || {
            let response = put(&first, &caller(0), None, &quota(900));
            (response.status == 200).then_some(())
        };
        assert!(eventually(is_writable).is_some());
        for server in [&first, &third].into_iter().chain(&restarted) {
            wait_for_limit(server, &caller(0), 900);
            wait_for_limit(server, &last, 500 + CALLERS - 1);
            assert!(eventually(|| (!is_degraded(server)).then_some(())).is_some());
        }
    });
    assert_eq!(observed.into_inner().unwrap(), BTreeSet::from([before]), "decisions differed");
}

/// Whether a server waits for the confirmation of another store of record.
fn is_unconfirmed(server: &Server) -> bool {
    let ready = get(&server.url("admin", "/readyz")).body;
    ready.contains("the known state stays in force, and nothing is written, until an operator")
}

#[track_caller]
fn wait_until_unconfirmed(server: &Server) {
    assert!(eventually(|| is_unconfirmed(server).then_some(())).is_some(), "{}", server.log());
}

/// Accepts the store of record that a server has found, as an operator does.
#[track_caller]
fn confirm(server: &Server) {
    let state = get(&server.url("admin", "/admin/v1/control")).json();
    let body = json!({"identity": state["unconfirmed"]["found"]["identity"], "reason": "it was restored"});
    let response = post(&server.url("admin", "/admin/v1/control/confirm"), &body);
    assert_eq!((response.status, &response.json()["unconfirmed"]), (200, &Value::Null), "{response:?}");
}

#[test]
fn records_of_another_database_replace_the_local_copy_when_they_are_confirmed() {
    let (one, mut other) = (Postgres::database(), Postgres::start());
    let server = server_on(one.url(), &[]);
    for n in 0..CALLERS {
        set_limit(&server, &caller(n), 500 + n);
    }
    assert!(eventually(|| is_copied(&server, &caller(CALLERS - 1)).then_some(())).is_some());
    // The other database reaches a higher generation with other callers.
    let writer = server_on(&other.url(), &[]);
    for n in 0..2 * CALLERS {
        set_limit(&writer, "other-caller", 700 + n);
    }
    drop(writer);
    other.kill();
    let server = with_control(server.restart(), &other.url(), &[]).start();
    assert_eq!(limit(&server, &caller(1)), (501, "override".to_owned()));
    other.restart();
    wait_until_unconfirmed(&server);
    assert_eq!(limit(&server, &caller(1)), (501, "override".to_owned()));
    confirm(&server);
    assert_eq!(limit(&server, "other-caller").0, 700 + 2 * CALLERS - 1);
    assert_eq!(limit(&server, &caller(1)).0, 100);
    assert!(
        eventually(|| (!is_copied(&server, &caller(1)) && is_copied(&server, "other-caller")).then_some(())).is_some()
    );
}

#[test]
fn a_restored_backup_replaces_the_known_records_when_it_is_confirmed() {
    let database = Postgres::database();
    let (first, second) = (server_on(database.url(), &[]), server_on(database.url(), &[]));
    for n in 0..3 {
        set_limit(&first, &caller(n), 500 + n);
    }
    wait_for_limit(&second, &caller(2), 502);
    let identity = database.query("SELECT identity FROM control");
    database.query("BEGIN; DELETE FROM records WHERE generation > 1; UPDATE control SET generation = 1; COMMIT");
    // A write finds it before the follower does, and is refused.
    let response = put(&first, &caller(10), None, &quota(510));
    assert_eq!((response.status, &response.json()["code"]), (409, &json!("control_unconfirmed")), "{response:?}");
    assert_ne!(database.query("SELECT identity FROM control"), identity);
    // The generation passes the previous one, by a server that knew nothing, before the second server polls.
    let fresh = server_on(database.url(), &[]);
    for n in 10..15 {
        set_limit(&fresh, &caller(n), 500 + n);
    }
    for server in [&first, &second] {
        wait_until_unconfirmed(server);
        for n in 0..3 {
            assert_eq!(limit(server, &caller(n)).0, 500 + n);
        }
        assert_eq!((limit(server, &caller(14)).0, generation(server)), (100, 3));
        assert!(get(&server.url("admin", "/metrics")).body.contains("\ntollgate_control_unconfirmed 1\n"));
    }
    // One confirmation is enough.
    confirm(&second);
    for server in [&first, &second] {
        wait_for_limit(server, &caller(14), 514);
        wait_for_limit(server, &caller(1), 100);
        assert_eq!(limit(server, &caller(0)).0, 500);
        assert!(eventually(|| (!is_unconfirmed(server)).then_some(())).is_some());
        assert!(get(&server.url("admin", "/metrics")).body.contains("\ntollgate_control_unconfirmed 0\n"));
    }
    set_limit(&first, &caller(20), 520);
    wait_for_limit(&second, &caller(20), 520);
}

/// Servers on a database with a token, a block and a tier, which is emptied and set up anew by another server.
#[test]
fn an_emptied_database_ends_no_block_and_opens_nothing() {
    let database = Postgres::database();
    let token_file = TempDir::new().unwrap();
    let path = token_file.path().join("token");
    fs::write(&path, TOKEN).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    send_token();
    let args = ["--admin-token-file", &path.display().to_string()];
    let (first, second) = (server_on(database.url(), &args), server_on(database.url(), &[]));
    let admin = |server: &Server, path: &str| server.url("admin", path);
    let created = post(
        &admin(&first, "/admin/v1/tokens"),
        &json!({"name": "ops", "scopes": ["read", "quota", "rules", "emergency", "audit"]}),
    );
    assert_eq!(created.status, 200, "{created:?}");
    put(&first, "tiered", None, &json!({"tier": "pro"}));
    let block =
        send("PUT", &admin(&first, "/admin/v1/blocks/stolen"), "application/json", json!({"reason": "x"}).to_string());
    assert_eq!(block.status, 200, "{block:?}");
    for server in [&first, &second] {
        wait_for_limit(server, "tiered", 1000);
        assert!(eventually(|| (is_copied(server, "stolen") && is_copied(server, "ops")).then_some(())).is_some());
    }
    let is_blocked = |server: &Server| {
        let body = json!({"attributes": {"api_key": "stolen"}});
        post(&server.url("http", "/v1/ratelimit/check"), &body).status == 403
    };
    let without_token = |server: &Server| read(new_agent().get(admin(server, "/admin/v1/me")).call()).unwrap().status;
    let holds = |server: &Server| {
        assert!(is_blocked(server), "{}", server.log());
        assert_eq!(limit(server, "tiered").0, 1000);
        assert_eq!(without_token(server), 401);
    };
    assert!(eventually(|| (is_blocked(&first) && is_blocked(&second)).then_some(())).is_some());

    database.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
    // As any deploy would do.
    let third = server_on(database.url(), &[]);
    assert_eq!(limit(&third, "tiered").0, 100);
    for server in [&first, &second] {
        wait_until_unconfirmed(server);
        server.wait_for_log(
            "tokens: 1 missing, 0 changed, 0 added; blocks: 1 missing, 0 changed, 0 added; quotas: 1 missing",
        );
        holds(server);
    }
    let refused = put(&first, "tiered", None, &json!({"tier": "free"}));
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("control_unconfirmed")), "{refused:?}");
    // What can't wait is in force, and is written when the database is confirmed.
    let put_block = |server: &Server, name: &str| {
        let url = admin(server, &format!("/admin/v1/blocks/{name}"));
        send("PUT", &url, "application/json", json!({"reason": "x"}).to_string()).status
    };
    assert_eq!(put_block(&first, "urgent"), 202);
    let is_urgent_blocked = |server: &Server| {
        let body = json!({"attributes": {"api_key": "urgent"}});
        post(&server.url("http", "/v1/ratelimit/check"), &body).status == 403
    };
    assert!(is_urgent_blocked(&first));
    // The copy remembers, over restarts.
    let second = with_control(second.restart(), database.url(), &[]).start();
    assert!(is_unconfirmed(&second));
    holds(&second);
    // Nobody who is only near the third server confirms it for the others.
    let state = get(&admin(&first, "/admin/v1/control")).json();
    assert_eq!(state["unconfirmed"]["differences"]["tokens"]["missing"], 1, "{state}");
    let body = json!({"identity": state["unconfirmed"]["found"]["identity"], "reason": "x"});
    let nearby =
        new_agent().post(admin(&third, "/admin/v1/control/confirm")).header("Content-Type", "application/json");
    assert_eq!(read(nearby.send(body.to_string())).unwrap().status, 409);
    confirm(&first);
    for server in [&first, &second] {
        assert!(eventually(|| (!is_blocked(server)).then_some(())).is_some(), "{}", server.log());
        wait_for_limit(server, "tiered", 100);
        assert!(eventually(|| is_urgent_blocked(server).then_some(())).is_some(), "{}", server.log());
    }
    assert_eq!((without_token(&first), without_token(&second)), (401, 200), "the first one has a token file");
}

/// The newest backup is restored after an old one: nothing has to be confirmed.
#[test]
fn the_known_database_that_comes_back_needs_no_confirmation() {
    let database = Postgres::database();
    let server = server_on(database.url(), &[]);
    for n in 0..3 {
        set_limit(&server, &caller(n), 500 + n);
    }
    let identity = database.query("SELECT identity FROM control");
    database.query("CREATE TABLE backup AS SELECT * FROM records");
    database.query("BEGIN; DELETE FROM records WHERE generation > 1; UPDATE control SET generation = 1; COMMIT");
    wait_until_unconfirmed(&server);
    database.query(&format!(
        "BEGIN; DELETE FROM records; INSERT INTO records SELECT * FROM backup; \
         UPDATE control SET generation = 3, identity = '{}'; COMMIT",
        identity.trim()
    ));
    assert!(eventually(|| (!is_unconfirmed(&server)).then_some(())).is_some(), "{}", server.log());
    set_limit(&server, &caller(3), 503);
    assert_eq!(limit(&server, &caller(2)).0, 502);
}

/// A local copy that can't be written degrades the server and has no other effect.
#[test]
fn a_local_copy_that_cannot_be_written_degrades_the_server() {
    let database = Postgres::database();
    let server = server_on(database.url(), &[]);
    set_limit(&server, "a", 7);
    assert!(eventually(|| is_copied(&server, "\"a\"").then_some(())).is_some());
    let copy = server.home().join("data/control-copy.jsonl");
    // A directory in place of the file can be neither appended to nor replaced.
    std::fs::remove_file(&copy).unwrap();
    std::fs::create_dir_all(copy.join("full")).unwrap();
    set_limit(&server, "b", 8);
    let is_reported = || get(&server.url("admin", "/readyz")).body.contains("control-copy").then_some(());
    assert!(eventually(is_reported).is_some());
    wait_for_limit(&server, "b", 8);
    assert_eq!(std::fs::read_dir(server.home().join("data")).unwrap().filter(is_temporary).count(), 0);
}

fn is_temporary(entry: &std::io::Result<std::fs::DirEntry>) -> bool {
    entry.as_ref().unwrap().file_name().to_str().unwrap().ends_with(".new")
}
