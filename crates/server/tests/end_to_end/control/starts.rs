//! Starts of a server whose store of record can't be used: a full disk, wrong credentials, nothing to start from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;
use tollgate_testing::{Postgres, Server, eventually};

use crate::control::support::{
    RULES, get, is_copied, limit, post, put, quota, send, server_on, set_limit, with_control,
};
use crate::new_server;

/// A file system of its own. It ends with this value.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None` where the machine lets nobody mount one.
    fn mount() -> Option<SmallDisk> {
        let directory = TempDir::new().unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(directory.path()).output();
        match mount {
            Ok(output) if output.status.success() => Some(SmallDisk(directory)),
            other => {
                println!("not tested: no file system can be mounted here: {other:?}");
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes until nothing more fits.
    fn fill(&self) -> PathBuf {
        let filler = self.path("filler");
        assert!(fs::write(&filler, vec![0; 16 << 20]).is_err());
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// The status of a check.
fn check(server: &Server, caller: &str) -> u16 {
    post(&server.url("http", "/v1/ratelimit/check"), &json!({"attributes": {"api_key": caller}})).status
}

#[track_caller]
fn block(server: &Server, caller: &str) {
    let url = server.url("admin", &format!("/admin/v1/blocks/{caller}"));
    let response = send("PUT", &url, "application/json", json!({"reason": "stolen"}).to_string());
    // 202 if the database takes its time: the block is written all the same.
    assert!(matches!(response.status, 200 | 202), "{response:?}");
}

fn readyz(server: &Server) -> (u16, String) {
    let response = get(&server.url("admin", "/readyz"));
    (response.status, response.body)
}

/// Why parts of a server are degraded.
fn degraded(readyz: &str) -> Vec<String> {
    let readyz = serde_json::from_str::<serde_json::Value>(readyz).unwrap();
    readyz["degraded"].as_array().unwrap().iter().map(|part| part["reason"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_server_on_a_full_disk_starts_with_the_last_records() {
    let Some(disk) = SmallDisk::mount() else { return };
    let data = disk.path("data").display().to_string();
    let builder = |from: tollgate_testing::ServerBuilder| from.listen(&["http", "admin"]).args(&["--data", &data]);
    let mut server = builder(new_server().rules(RULES)).start();
    set_limit(&server, "acme", 700);
    block(&server, "thief");
    let copy = disk.path("data/control-copy.jsonl");
    assert!(eventually(|| fs::read_to_string(&copy).ok()?.contains("thief").then_some(())).is_some());
    // With the copy, and from the file itself.
    for is_copied in [true, false] {
        server.stop();
        if !is_copied {
            fs::remove_file(&copy).unwrap();
        }
        let filler = disk.fill();
        server = builder(server.restart()).start();
        assert_eq!((limit(&server, "acme").0, check(&server, "thief")), (700, 403), "{}", server.log());
        // Each part reports it when it first fails to write: which one is first depends on what fitted on the disk.
        let is_reported = || {
            let (status, body) = readyz(&server);
            assert_eq!(status, 200, "{body}");
            let parts = degraded(&body);
            let is_clear = |why: &String| why.contains("the disk is full");
            assert_eq!(parts.iter().find(|why| why.contains("os error") && !is_clear(why)), None);
            parts.iter().any(is_clear).then_some(())
        };
        assert!(eventually(is_reported).is_some(), "{}", readyz(&server).1);
        assert_eq!(put(&server, "acme", None, &quota(1)).status, 503);
        fs::remove_file(filler).unwrap();
        let is_back = || (put(&server, "acme", None, &quota(700)).status == 200).then_some(());
        assert!(eventually(is_back).is_some(), "{}", server.log());
        assert!(eventually(|| (!readyz(&server).1.contains("disk")).then_some(())).is_some(), "{}", readyz(&server).1);
    }
}

#[test]
fn one_refused_caller_does_not_fill_the_disk() {
    let server =
        new_server().rules(RULES).listen(&["http", "admin"]).args(&["--decision-log-max-size", "1MiB"]).start();
    let long = "x".repeat(1_000);
    let mut attributes = json!({"api_key": "greedy"});
    (0..14).for_each(|n| attributes[format!("a{n}")] = json!(long));
    let refuse = || {
        let url = server.url("http", "/v1/ratelimit/check");
        assert_eq!(post(&url, &json!({"attributes": attributes, "cost": 101})).status, 429);
    };
    (0..1_500).for_each(|_| refuse());
    let decisions = || get(&server.url("admin", "/admin/v1/decisions?caller=greedy")).json();
    let counted = || {
        decisions()["decisions"].as_array().unwrap().iter().map(|one| one["count"].as_u64().unwrap_or(1)).sum::<u64>()
    };
    assert_eq!(counted(), 1_500);
    let why = decisions()["decisions"].to_string();
    assert!(why.contains("such decisions within"), "{why}");
    let size = |name: &str| fs::metadata(server.home().join("data").join(name)).map_or(0, |file| file.len());
    eventually(|| (size("control-decisions.db") > 0).then_some(())).unwrap();
    let (log, records) = (size("control-decisions.db"), size("control.db") + size("control.db-wal"));
    assert!(log <= 1 << 20 && records < 1 << 20, "{log} bytes of decisions, {records} of records");
}

/// Makes PostgreSQL ask for the password of the role `operator`.
fn require_password(postgres: &Postgres) -> String {
    postgres.query("CREATE ROLE operator SUPERUSER LOGIN PASSWORD 'right'");
    let access = postgres.query("SHOW hba_file");
    let rules =
        "host all operator 127.0.0.1/32 scram-sha-256'), ('host all all 127.0.0.1/32 trust'), ('local all all trust";
    postgres.query(&format!("COPY (VALUES ('{rules}')) TO '{}'", access.trim()));
    postgres.query("SELECT pg_reload_conf()");
    format!("postgres://operator:right@127.0.0.1:{}/postgres", postgres.port())
}

#[test]
fn wrong_credentials_do_not_keep_a_server_with_a_copy_down() {
    let postgres = Postgres::start();
    let right = require_password(&postgres);
    let server = server_on(&right, &[]);
    block(&server, "thief");
    assert!(eventually(|| is_copied(&server, "thief").then_some(())).is_some());
    let (password, database) = (right.replace(":right@", ":wrong@"), right.replace("/postgres", "/nowhere"));
    let mut server = server;
    for (wrong, reason) in [(&password, "password authentication failed"), (&database, "does not exist")] {
        server = with_control(server.restart(), wrong, &[]).start();
        assert_eq!(check(&server, "thief"), 403, "{}", server.log());
        let (status, body) = readyz(&server);
        assert!(status == 200 && body.contains(reason) && body.contains("stays in force"), "{body}");
        // Without a copy there is nothing to run on.
        let (code, log) = with_control(new_server().rules(RULES), wrong, &[]).run_to_exit();
        assert!(code == Some(1) && log.contains("the store of record can't be used") && log.contains(reason), "{log}");
    }
    let server = with_control(server.restart(), &right, &[]).start();
    assert!(!readyz(&server).1.contains("control"), "{}", readyz(&server).1);
}

#[test]
fn a_server_can_wait_for_the_store_of_record() {
    let mut postgres = Postgres::start();
    let control = postgres.url();
    let writer = server_on(&control, &[]);
    block(&writer, "thief");
    postgres.kill();
    let required = ["--control-required"];
    let (mut fresh, careless) = (server_on(&control, &required), server_on(&control, &[]));
    for (server, status) in [(&fresh, 503), (&careless, 200)] {
        let (found, body) = readyz(server);
        assert_eq!(found, status, "{body}");
        assert!(body.contains("there is no copy of it") && !body.contains("stays in force"), "{body}");
        assert_eq!(check(server, "thief"), 200);
    }
    postgres.restart();
    assert!(eventually(|| (readyz(&fresh).0 == 200).then_some(())).is_some(), "{}", readyz(&fresh).1);
    assert_eq!(check(&fresh, "thief"), 403);
    // A copy is enough.
    assert!(eventually(|| is_copied(&fresh, "thief").then_some(())).is_some());
    postgres.kill();
    fresh = with_control(fresh.restart(), &control, &required).start();
    assert_eq!((readyz(&fresh).0, check(&fresh, "thief")), (200, 403));
}

#[test]
fn the_directory_of_snapshots_is_created_or_the_server_does_not_start() {
    let (database, home) = (Postgres::database(), TempDir::new().unwrap());
    let start = |directory: &Path| {
        let directory = directory.display().to_string();
        with_control(new_server().rules(RULES), database.url(), &["--control-snapshots", &directory])
    };
    let missing = home.path().join("a/b");
    let _server = start(&missing).start();
    assert!(eventually(|| missing.join("control-snapshot.jsonl").exists().then_some(())).is_some());
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let (code, log) = start(&file).run_to_exit();
    assert!(code == Some(1) && log.contains("control_snapshots: ") && log.contains("can't be created"), "{log}");
}
