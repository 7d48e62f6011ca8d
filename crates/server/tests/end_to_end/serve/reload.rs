//! Rules that change while the server runs.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tollgate_testing::{Server, eventually, sleep, until};

use crate::http::{get, post};
use crate::new_server;
use crate::serve::grpc::{self, RULES};

fn with_amount(amount: u32) -> String {
    RULES.replace("requests_per_unit: 3", &format!("requests_per_unit: {amount}"))
}

fn readiness(server: &Server) -> serde_json::Value {
    get(&server.url("admin", "/readyz")).json()
}

/// Waits until this limit is in force.
#[track_caller]
fn wait_for_amount(server: &Server, amount: u64) {
    let body = r#"{"domain":"d","attributes":{"user":"nobody"},"cost":0}"#;
    let limit = || post(&server.url("http", "/v1/ratelimit/check"), body).json()["limit"].as_u64();
    let reached = eventually(|| (limit() == Some(amount)).then_some(()));
    assert!(reached.is_some(), "the limit is {:?}, not {amount}:\n{}", limit(), server.log());
}

#[tokio::test]
async fn a_changed_file_takes_effect_and_counters_are_preserved() {
    let server = new_server().rules(RULES).listen(&["grpc", "http", "admin"]).start();
    let mut client = grpc::client(&server).await;
    assert_eq!(grpc::check(&mut client, "u").await, (true, 2));
    server.write_rules(&with_amount(5));
    wait_for_amount(&server, 5);
    assert_eq!(grpc::check(&mut client, "u").await, (true, 3));
    let metrics = get(&server.url("admin", "/metrics")).body;
    assert!(metrics.contains("tollgate_rules_generation 2"), "{metrics}");
}

#[test]
fn invalid_rules_degrade_the_server_and_the_last_valid_ones_stay() {
    let server = new_server().rules(RULES).listen(&["http", "admin"]).start();
    server
        .write_rules("domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: fortnight, requests_per_unit: 1}}\n");
    let degraded = eventually(|| readiness(&server)["degraded"][0]["reason"].as_str().map(str::to_owned));
    let reason = degraded.unwrap_or_else(|| panic!("{}", server.log()));
    assert!(reason.contains("rules.yaml:3") && reason.contains("fortnight"), "{reason}");
    assert_eq!(readiness(&server)["ready"], true);
    assert!(get(&server.url("admin", "/metrics")).body.contains("tollgate_rules_valid 0"));
    server.wait_for_log("the last good rules stay in force");
    wait_for_amount(&server, 3);
    server.write_rules(&with_amount(7));
    wait_for_amount(&server, 7);
    assert_eq!(readiness(&server)["degraded"], serde_json::json!([]));
    assert!(get(&server.url("admin", "/metrics")).body.contains("tollgate_rules_valid 1"));
}

#[test]
fn a_swapped_config_map_takes_effect() {
    let builder = new_server();
    // As Kubernetes mounts one: files are links into `..data`, which is a link that is swapped.
    let mount = builder.home().join("mount");
    let version = |name: &str, amount: u32| {
        fs::create_dir_all(mount.join(name)).unwrap();
        fs::write(mount.join(name).join("rules.yaml"), with_amount(amount)).unwrap();
    };
    version("..1", 3);
    symlink("..1", mount.join("..data")).unwrap();
    symlink("..data/rules.yaml", mount.join("rules.yaml")).unwrap();
    // With a long poll interval only the watcher can notice the change.
    let args = ["--rules", mount.to_str().unwrap(), "--rules-poll", "1h"];
    let server = builder.args(&args).listen(&["http"]).start();
    wait_for_amount(&server, 3);
    version("..2", 4);
    symlink("..2", mount.join("..new")).unwrap();
    fs::rename(mount.join("..new"), mount.join("..data")).unwrap();
    wait_for_amount(&server, 4);
}

#[test]
fn a_changed_link_above_the_rules_takes_effect() {
    let builder = new_server();
    let root = builder.home().join("root");
    for (name, amount) in [("a", 3), ("b", 4)] {
        fs::create_dir_all(root.join(name).join("config")).unwrap();
        fs::write(root.join(name).join("config/rules.yaml"), with_amount(amount)).unwrap();
    }
    symlink("a", root.join("current")).unwrap();
    let rules = root.join("current/config");
    let server = builder.args(&["--rules", rules.to_str().unwrap(), "--rules-poll", "1h"]).listen(&["http"]).start();
    wait_for_amount(&server, 3);
    symlink("b", root.join("new")).unwrap();
    fs::rename(root.join("new"), root.join("current")).unwrap();
    wait_for_amount(&server, 4);
    // From now on the new directory is watched.
    fs::write(root.join("b/config/rules.yaml"), with_amount(5)).unwrap();
    wait_for_amount(&server, 5);
}

#[test]
fn polling_finds_changes_that_cannot_be_watched() {
    let builder = new_server();
    // A missing directory can't be watched.
    let rules = builder.home().join("later/rules.yaml");
    fs::create_dir_all(rules.parent().unwrap()).unwrap();
    fs::write(&rules, with_amount(3)).unwrap();
    let server = builder.args(&["--rules", rules.to_str().unwrap(), "--rules-poll", "100ms"]).listen(&["http"]).start();
    wait_for_amount(&server, 3);
    fs::write(&rules, with_amount(6)).unwrap();
    wait_for_amount(&server, 6);
}

const THREE_RULES: &str = "domain: d
rules:
  - {name: a, key: [user], limit: 1/hour}
  - {name: b, key: [user], limit: 1/hour}
  - {name: c, key: [user], limit: 1/hour}
";

fn rule_names(server: &Server) -> Vec<String> {
    let rules = get(&server.url("admin", "/admin/v1/rules")).json();
    rules["items"].as_array().unwrap().iter().map(|rule| rule["name"].as_str().unwrap().to_owned()).collect()
}

/// As `cp`, `scp` and `rsync --inplace` write. The first part ends with a whole rule, so it is valid.
#[test]
fn a_file_takes_effect_when_it_is_closed_not_while_it_is_written() {
    let server = new_server().rules(THREE_RULES).args(&["--rules-poll", "100ms"]).listen(&["admin"]).start();
    let is_whole = || rule_names(&server) == ["a", "b", "c"];
    assert!(is_whole());
    let changed = THREE_RULES.replace("name: c", "name: d");
    let (part, rest) = changed.split_at(changed.find("  - {name: b").unwrap());
    let mut file = fs::File::create(server.home().join("rules/rules.yaml")).unwrap();
    file.write_all(part.as_bytes()).unwrap();
    // Longer than the wait for files whose writes are not reported.
    for _ in 0..13 {
        sleep(Duration::from_millis(100));
        assert!(is_whole(), "{}", server.log());
    }
    file.write_all(rest.as_bytes()).unwrap();
    assert!(is_whole());
    drop(file);
    until("the new rules", || rule_names(&server) == ["a", "b", "d"]);
    server.wait_for_log("no longer have these rules, which end now: d/c");
    assert!(!server.log().contains("ERROR"), "{}", server.log());
    let stored = || fs::read_to_string(server.home().join("data/rules.last-good.json")).unwrap();
    until("the new rules are stored", || stored().contains("name: d"));
}

#[test]
fn rules_that_are_missing_after_a_restart_are_named() {
    let mut server = new_server().rules(THREE_RULES).listen(&["admin"]).start();
    assert!(server.stop().success());
    server.write_rules(&THREE_RULES.replace("name: c", "name: d"));
    let server = server.restart().listen(&["admin"]).start();
    server.wait_for_log("no longer have these rules, which were in force before: d/c");
    assert_eq!(rule_names(&server), ["a", "b", "d"]);
}

#[test]
fn sighup_reloads_the_rules() {
    let server = new_server().rules(RULES).listen(&["admin"]).args(&["--rules-poll", "1h"]).start();
    server.signal("HUP");
    let generation =
        || get(&server.url("admin", "/metrics")).body.contains("tollgate_rules_generation 2").then_some(());
    assert!(eventually(generation).is_some(), "{}", server.log());
}

#[tokio::test]
async fn slow_reloads_under_load_fail_no_request() {
    let server = new_server().rules(&with_amount(1_000_000)).listen(&["grpc", "http", "admin"]).start();
    let client = grpc::client(&server).await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let passed = Arc::new(AtomicU32::new(0));
    let check = |number: u32| {
        let (mut client, stopped, passed) = (client.clone(), stopped.clone(), passed.clone());
        tokio::spawn(async move {
            while !*stopped.borrow() {
                let (allowed, _) = grpc::check(&mut client, &format!("u{number}")).await;
                assert!(allowed);
                passed.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let tasks: Vec<_> = (0..8).map(check).collect();
    let server = tokio::task::spawn_blocking(move || {
        for amount in 1_000_001..=1_000_030 {
            server.write_rules(&with_amount(amount));
            wait_for_amount(&server, u64::from(amount));
            // Requests go on after each reload, however busy the machine is.
            let before = passed.load(Ordering::Relaxed);
            until("checks after a reload", || passed.load(Ordering::Relaxed) >= before + 20);
        }
        server
    })
    .await
    .unwrap();
    stop.send_replace(true);
    for task in tasks {
        task.await.unwrap();
    }
    assert!(get(&server.url("admin", "/metrics")).body.contains("tollgate_rules_reloads_total{result=\"bad\"} 0"));
}
