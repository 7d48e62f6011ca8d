//! Snapshots of counters in memory, over restarts.

use std::fs;

use tollgate_testing::{Server, eventually};

use crate::http::post;
use crate::new_server;

const RULES: &str = "
domain: d
rules:
  - {name: sliding, key: [a], limit: 10/day}
  - {name: fixed, key: [b], limit: 10/day, algorithm: fixed_window}
  - {name: bucket, key: [c], limit: 10/day, algorithm: token_bucket}
  - {name: log, key: [e], limit: 10/day, algorithm: sliding_log}
  - {name: parts, key: [f], limit: 10/day, sub_windows: 24}
";
const ATTRIBUTES: [&str; 5] = ["a", "b", "c", "e", "f"];

fn start() -> Server {
    new_server().rules(RULES).listen(&["http"]).args(&["--snapshot-interval", "1s"]).start()
}

/// Spends from a counter of every algorithm. Returns the remaining units.
fn spend(server: &Server, cost: u32) -> Vec<u64> {
    let left = |attribute: &&str| {
        let body = format!(r#"{{"attributes":{{"{attribute}":"x"}},"cost":{cost}}}"#);
        post(&server.url("http", "/v1/ratelimit/check"), &body).json()["remaining"].as_u64().unwrap()
    };
    ATTRIBUTES.iter().map(left).collect()
}

fn spend_elsewhere(server: &Server) {
    post(&server.url("http", "/v1/ratelimit/check"), r#"{"attributes":{"a":"y"}}"#);
}

#[test]
fn counters_survive_a_restart() {
    let mut server = start();
    assert_eq!(spend(&server, 4), [6; 5]);
    assert!(server.stop().success());
    let server = server.restart().listen(&["http"]).start();
    assert_eq!(spend(&server, 0), [6; 5]);
    assert_eq!(spend(&server, 1), [5; 5]);
}

#[test]
fn a_killed_server_loses_at_most_the_last_interval() {
    let mut server = start();
    let snapshot = server.home().join("data/counters.snapshot");
    let modified = || fs::metadata(&snapshot).and_then(|file| file.modified()).ok();
    // The first snapshot after the spending may have begun before it; the second has not.
    for cost in [3, 1] {
        let before = modified();
        spend(&server, cost);
        assert!(eventually(|| (modified() != before).then_some(())).is_some(), "{}", server.log());
    }
    let before = modified();
    spend_elsewhere(&server);
    assert!(eventually(|| (modified() != before).then_some(())).is_some(), "{}", server.log());
    server.kill();
    let server = server.restart().listen(&["http"]).start();
    assert_eq!(spend(&server, 0), [6; 5]);
}

#[test]
fn a_damaged_snapshot_is_set_aside() {
    let mut server = start();
    spend(&server, 4);
    assert!(server.stop().success());
    let data = server.home().join("data");
    let snapshot = data.join("counters.snapshot");
    let mut bytes = fs::read(&snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&snapshot, bytes).unwrap();
    let server = server.restart().listen(&["http"]).start();
    server.wait_for_log("damaged");
    assert_eq!(spend(&server, 0), [10; 5]);
    let names = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().any(|name| name.contains("damaged")));
}

#[test]
fn without_a_data_directory_nothing_is_stored() {
    let server = new_server().rules(RULES).listen(&["http"]).args(&["--data", "off"]).start();
    assert_eq!(spend(&server, 4), [6; 5]);
    assert!(!server.home().join("data").exists());
    assert!(!server.home().join("tollgate-data").exists());
}
