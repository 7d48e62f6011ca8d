//! The store of record goes away, comes back, or is another one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;
use tollgate_testing::{Postgres, Redis, Server, eventually};

use crate::control::world::{
    TOKEN, contains, decided, generation, get, is_kept, limited, on, put, server_on, set_limit, show_token, try_decided,
};

const CALLERS: u64 = 5;

fn caller(n: u64) -> String {
    format!("caller-{n}")
}

/// What a server decides all callers by, and one that nobody knows.
fn all_decided(server: &Server) -> Vec<(u64, String)> {
    (0..=CALLERS).map(|n| decided(server, &caller(n))).collect()
}

#[track_caller]
fn until_limit(server: &Server, caller: &str, limit: u64) {
    let there = eventually(|| (try_decided(server, caller)?.0 == limit).then_some(()));
    assert!(there.is_some(), "{caller} has {:?}, not {limit}\n{}", try_decided(server, caller), server.log());
}

fn condition(server: &Server) -> bool {
    get(&server.url("admin", "/readyz")).body.contains("the store of record is unavailable")
}

#[test]
fn an_outage_changes_no_decision_and_heals_by_itself() {
    let (mut postgres, redis, shared) = (Postgres::start(), Redis::start(), TempDir::new().unwrap());
    let (control, store) = (postgres.url(), redis.url());
    let snapshots = shared.path().display().to_string();
    // There is a token in the store of record, so that nobody is let in for being on this machine.
    let token = shared.path().join("token");
    fs::write(&token, TOKEN).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    show_token();
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
    // The second writes what there is by now for servers that will start without anything.
    let (second, third) = (server_on(&control, &args), server_on(&control, &args));
    let snapshot = shared.path().join("control-snapshot.jsonl");
    let last = caller(CALLERS - 1);
    assert!(eventually(|| contains(&snapshot, &last).then_some(())).is_some());
    for server in [&first, &second, &third] {
        until_limit(server, &last, 500 + CALLERS - 1);
        assert!(eventually(|| (is_kept(server, &last) && is_kept(server, "secret")).then_some(())).is_some());
    }
    let before = all_decided(&first);
    assert_eq!(before.last(), Some(&(100, "tier".to_owned())), "{before:?}");
    let written = postgres.query("SELECT generation FROM control");

    let (over, seen) = (AtomicBool::new(false), Mutex::new(BTreeSet::new()));
    std::thread::scope(|scope| {
        for server in [&first, &third] {
            let (over, seen) = (&over, &seen);
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    seen.lock().unwrap().insert(all_decided(server));
                }
            });
        }
        postgres.kill();
        // Whatever becomes of the rest, the threads end.
        let outage = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let told = put(&first, &caller(0), None, &limited(1));
            assert_eq!((told.status, told.json()["code"].as_str()), (503, Some("control_away")), "{told:?}");
            assert!(eventually(|| condition(&first).then_some(())).is_some());
            assert_eq!(get(&first.url("admin", "/readyz")).status, 200);
            // What it hands out now is its own copy, and nobody's token is in it.
            let told = get(&first.url("admin", "/v1/control/snapshot"));
            assert_eq!(told.status, 200);
            assert!(told.body.contains(&last) && !told.body.contains("secret") && !told.body.contains("token"));
            assert!(told.body.lines().last().unwrap().contains(&format!("\"records\":{CALLERS}")), "{}", told.body);
        }));
        let restarted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let second = on(second.restart(), &control, &args).start();
            assert!(
                second.log().contains("the store of record is unavailable; its state at generation"),
                "{}",
                second.log()
            );
            let fresh = server_on(&control, &args);
            for server in [&second, &fresh] {
                assert_eq!(all_decided(server), before);
                assert!(condition(server));
            }
            // One that has nothing at all starts too, and says what that means.
            let bare = server_on(&control, &["--store", &store, "--admin-token-file", &token]);
            assert_eq!(decided(&bare, &last).0, 100);
            let told = get(&bare.url("admin", "/v1/control/snapshot"));
            assert_eq!((told.status, told.json()["code"].as_str()), (503, Some("control_away")));
            [second, fresh, bare]
        }));
        over.store(true, Ordering::SeqCst);
        outage.unwrap();
        let restarted = restarted.unwrap();
        postgres.restart();
        assert_eq!(postgres.query("SELECT generation FROM control"), written, "half of a write");
        let back = || {
            let told = put(&first, &caller(0), None, &limited(900));
            (told.status == 200).then_some(())
        };
        assert!(eventually(back).is_some());
        for server in [&first, &third].into_iter().chain(&restarted) {
            until_limit(server, &caller(0), 900);
            until_limit(server, &last, 500 + CALLERS - 1);
            assert!(eventually(|| (!condition(server)).then_some(())).is_some());
        }
    });
    assert_eq!(seen.into_inner().unwrap(), BTreeSet::from([before]), "decisions differed");
}

#[test]
fn what_another_database_says_is_not_mixed_with_what_was_known() {
    let (one, mut other) = (Postgres::database(), Postgres::start());
    let server = server_on(one.url(), &[]);
    for n in 0..CALLERS {
        set_limit(&server, &caller(n), 500 + n);
    }
    assert!(eventually(|| is_kept(&server, &caller(CALLERS - 1)).then_some(())).is_some());
    // The other one comes to a higher generation with other callers.
    let writer = server_on(&other.url(), &[]);
    for n in 0..2 * CALLERS {
        set_limit(&writer, "of-the-other", 700 + n);
    }
    drop(writer);
    other.kill();
    let server = on(server.restart(), &other.url(), &[]).start();
    assert_eq!(decided(&server, &caller(1)), (501, "override".to_owned()));
    other.restart();
    until_limit(&server, "of-the-other", 700 + 2 * CALLERS - 1);
    assert_eq!(decided(&server, &caller(1)).0, 100);
    assert!(eventually(|| (!is_kept(&server, &caller(1)) && is_kept(&server, "of-the-other")).then_some(())).is_some());
}

#[test]
fn a_restored_backup_is_another_history() {
    let database = Postgres::database();
    let (first, second) = (server_on(database.url(), &[]), server_on(database.url(), &[]));
    for n in 0..3 {
        set_limit(&first, &caller(n), 500 + n);
    }
    until_limit(&second, &caller(2), 502);
    let identity = database.query("SELECT identity FROM control");
    database.query("BEGIN; DELETE FROM records WHERE generation > 1; UPDATE control SET generation = 1; COMMIT");
    // It passes where it was, and then the other one looks.
    for n in 10..15 {
        set_limit(&first, &caller(n), 500 + n);
    }
    for server in [&first, &second] {
        until_limit(server, &caller(14), 514);
        until_limit(server, &caller(1), 100);
        assert_eq!(decided(server, &caller(0)).0, 500);
        assert_eq!(generation(server), 6);
    }
    assert_ne!(database.query("SELECT identity FROM control"), identity);
}

/// A copy that can't be written is told, and is no reason to do anything else.
#[test]
fn a_disk_that_is_full_leaves_the_old_copy() {
    let database = Postgres::database();
    let server = server_on(database.url(), &[]);
    set_limit(&server, "a", 7);
    assert!(eventually(|| is_kept(&server, "\"a\"").then_some(())).is_some());
    let copy = server.home().join("data/control-copy.jsonl");
    // Nothing can be added to a directory, and no file can take its place.
    std::fs::remove_file(&copy).unwrap();
    std::fs::create_dir_all(copy.join("full")).unwrap();
    set_limit(&server, "b", 8);
    let told = || get(&server.url("admin", "/readyz")).body.contains("control-copy").then_some(());
    assert!(eventually(told).is_some());
    until_limit(&server, "b", 8);
    assert_eq!(std::fs::read_dir(server.home().join("data")).unwrap().filter(is_half).count(), 0);
}

fn is_half(entry: &std::io::Result<std::fs::DirEntry>) -> bool {
    entry.as_ref().unwrap().file_name().to_str().unwrap().ends_with(".new")
}
