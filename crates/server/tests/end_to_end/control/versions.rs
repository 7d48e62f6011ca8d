//! The previous version and this one on one Redis and one database, as during an upgrade of a fleet.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tollgate_testing::{Postgres, Redis, Server, ServerBuilder, eventually};

use crate::control::support::{get, post, send, with_control};
use crate::{new_server, repository_path};

/// The version before this one, until there are releases: the commit that rolling upgrades start from.
const PREVIOUS: &str = "f292092f43ca479fb54a9798f174ea1a5eef2e71";
/// Names a binary of that version, if it need not be built.
const PREVIOUS_BINARY: &str = "TOLLGATE_PREVIOUS_BINARY";

const LIMIT: usize = 400;
const RULES: &str = "
domain: shop
entity: user
rules:
  - {name: yearly, key: [user], match: {kind: yearly}, limit: 400/year, algorithm: fixed_window}
  - {name: bucket, key: [user], match: {kind: bucket}, limit: 400/year, algorithm: token_bucket}
  - {name: usual, key: [user], match: {kind: usual}, limit: {free: 100/hour, pro: 1000/hour}}
";

/// The binary of the previous version, which is built once. `None` where there is no history to build it from.
fn previous_binary() -> Option<PathBuf> {
    if let Ok(path) = std::env::var(PREVIOUS_BINARY) {
        return Some(PathBuf::from(path));
    }
    let repository = repository_path("");
    let has_commit =
        |command: &mut Command| command.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    let object = format!("{PREVIOUS}^{{commit}}");
    if !has_commit(Command::new("git").arg("-C").arg(&repository).args(["cat-file", "-e", &object])) {
        println!("not tested: there is no commit {PREVIOUS} here; fetch the history, or set {PREVIOUS_BINARY}");
        return None;
    }
    let home = repository.join("target/previous").join(PREVIOUS);
    let binary = home.join("build/debug/tollgate");
    if !binary.exists() {
        let source = home.join("source");
        std::fs::create_dir_all(&source).unwrap();
        let mut archive = Command::new("git")
            .arg("-C")
            .arg(&repository)
            .args(["archive", PREVIOUS])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let unpacked =
            Command::new("tar").arg("-x").arg("-C").arg(&source).stdin(archive.stdout.take().unwrap()).status();
        assert!(unpacked.unwrap().success() && archive.wait().unwrap().success());
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--locked",
                "-p",
                "tollgate-server",
                "--no-default-features",
                "--features",
                "redis,postgres",
            ])
            .arg("--target-dir")
            .arg(home.join("build"))
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .current_dir(&source)
            .status();
        assert!(built.unwrap().success(), "the previous version can't be built in {}", source.display());
    }
    Some(binary)
}

/// A check: its status, and the limit that applied.
fn check(server: &Server, user: &str, kind: &str, cost: u64) -> (u16, Value) {
    let body = json!({"attributes": {"user": user, "kind": kind}, "cost": cost});
    let response = post(&server.url("http", "/v1/ratelimit/check"), &body);
    (response.status, response.json())
}

#[track_caller]
fn put(server: &Server, path: &str, body: &Value) {
    let response = send("PUT", &server.url("admin", path), "application/json", body.to_string());
    assert_eq!(response.status, 200, "{response:?}");
}

#[track_caller]
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    assert!(eventually(|| holds().then_some(())).is_some(), "{what}");
}

/// Decisions about a caller that a server finds.
fn decisions(server: &Server, user: &str) -> usize {
    let response = get(&server.url("admin", &format!("/admin/v1/decisions?caller={user}")));
    response.json()["decisions"].as_array().map_or(0, Vec::len)
}

#[test]
#[ignore = "builds the previous version: make test-long"]
fn the_previous_version_and_this_one_work_together() {
    let Some(previous) = previous_binary() else { return };
    let (database, redis) = (Postgres::database(), Redis::start());
    let store = redis.url();
    // A busy machine must not make Redis look slow.
    let args = ["--store", &*store, "--store-deadline", "500ms"];
    let on_both = |builder: ServerBuilder| with_control(builder, database.url(), &args);
    let old = on_both(Server::builder(previous).rules(RULES)).start();
    let new = on_both(new_server().rules(RULES)).start();

    // Under load each limit holds over both.
    for kind in ["yearly", "bucket"] {
        let allowed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for server in [&old, &new, &old, &new] {
                scope.spawn(|| {
                    for _ in 0..LIMIT / 2 {
                        let (status, body) = check(server, "ann", kind, 1);
                        assert!(matches!(status, 200 | 429), "{body}");
                        allowed.fetch_add(usize::from(status == 200), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(allowed.into_inner(), LIMIT, "{kind}");
    }

    // What is written through one is in force on the other.
    for (writer, reader, user) in [(&old, &new, "by-old"), (&new, &old, "by-new")] {
        put(writer, &format!("/admin/v1/quotas/{user}"), &json!({"tier": "pro"}));
        put(writer, &format!("/admin/v1/blocks/{user}-blocked"), &json!({"reason": "stolen"}));
        wait_until("the quota", || check(reader, user, "usual", 0).1["limit"] == 1_000);
        wait_until("the block", || check(reader, &format!("{user}-blocked"), "usual", 1).0 == 403);
        put(writer, "/admin/v1/switches/everything", &json!({"mode": "off"}));
        wait_until("the kill switch", || check(reader, "bob", "usual", 2_000).0 == 200);
        let url = writer.url("admin", "/admin/v1/switches/everything");
        assert_eq!(send("DELETE", &url, "application/json", String::new()).status, 200);
        // The rules without it are compiled on both, which takes a while on a busy machine.
        for server in [reader, writer] {
            wait_until("the end of the kill switch", || check(server, "bob", "usual", 2_000).0 == 429);
        }
        // And its decisions are found, summaries too.
        (0..30).for_each(|_| assert_eq!(check(writer, &format!("{user}-loud"), "usual", 2_000).0, 429));
        wait_until("the decisions", || decisions(reader, &format!("{user}-loud")) >= 20);
    }

    // Both start again, on what the other has written.
    let old = on_both(old.restart()).start();
    let new = on_both(new.restart()).start();
    for server in [&old, &new] {
        assert_eq!(check(server, "by-new", "usual", 0).1["limit"], 1_000);
        assert_eq!(check(server, "ann", "yearly", 1).0, 429);
        wait_until("health", || get(&server.url("admin", "/readyz")).json()["degraded"] == json!([]));
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    }
}
