//! The test servers and the relay.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test says what it expects by failing.

use std::io;

use tollgate_testing::resp::{Connection, Reply};
use tollgate_testing::{Cluster, Postgres, Redis, Relay, Sentinel, eventually};

/// Whether something becomes true.
fn becomes(mut holds: impl FnMut() -> bool) -> bool {
    eventually(|| holds().then_some(())).is_some()
}

fn set(connection: &mut Connection, key: &str, value: &str) -> io::Result<String> {
    connection.command(&["SET", key, value]).map(|reply| reply.text())
}

#[test]
fn redis_counts_commands_and_restarts_on_the_same_port() {
    let mut redis = Redis::start();
    assert_eq!(redis.commandstats("get"), 0);
    for _ in 0..3 {
        assert_eq!(redis.command(&["GET", "no such key"]), Reply::Nil);
    }
    assert_eq!(redis.commandstats("GET"), 3);
    assert!(redis.cpu_seconds() > 0.0);

    let (port, id) = (redis.port(), redis.process().id());
    assert_eq!(redis.command(&["SET", "a key", "v"]).text(), "OK");
    redis.restart();
    assert_eq!(redis.port(), port);
    assert_ne!(redis.process().id(), id);
    assert_eq!(redis.command(&["GET", "a key"]), Reply::Nil);
}

#[test]
fn a_paused_redis_answers_after_a_resume_and_is_killed_on_drop() {
    let mut redis = Redis::start();
    redis.pause();
    assert!(redis.process().is_running() && !redis.process().is_awake());
    let port = redis.port();
    let reply = std::thread::spawn(move || Connection::open(port).unwrap().command(&["PING"]).unwrap());
    redis.resume();
    assert_eq!(reply.join().unwrap().text(), "PONG");
    redis.pause();
    let id = redis.process().id();
    drop(redis);
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

#[test]
fn a_relay_passes_cuts_and_refuses() {
    let redis = Redis::start();
    let mut relay = Relay::to(redis.port());
    let mut connection = Connection::open(relay.port()).unwrap();
    assert_eq!(set(&mut connection, "k", "1").unwrap(), "OK");
    relay.cut();
    assert!(set(&mut connection, "k", "2").is_err());
    let mut another = Connection::open(relay.port()).unwrap();
    assert_eq!(set(&mut another, "k", "3").unwrap(), "OK");

    relay.refuse();
    assert_eq!(Connection::open(relay.port()).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(set(&mut another, "k", "4").unwrap(), "OK");
    relay.pass();
    assert_eq!(set(&mut Connection::open(relay.port()).unwrap(), "k", "5").unwrap(), "OK");
    assert_eq!(relay.accepted(), 3);
}

#[test]
fn a_relay_that_stalls_passes_on_later() {
    let redis = Redis::start();
    let mut relay = Relay::to(redis.port());
    relay.stall();
    let port = relay.port();
    let reply = std::thread::spawn(move || set(&mut Connection::open(port).unwrap(), "k", "1").unwrap());
    assert!(becomes(|| relay.accepted() == 1));
    assert_eq!(redis.command(&["GET", "k"]), Reply::Nil);
    relay.pass();
    assert_eq!(reply.join().unwrap(), "OK");
    // Dropping a relay while it stalls closes its connections.
    relay.stall();
    drop(relay);
    assert!(Connection::open(port).is_err());
}

#[test]
fn a_relay_loses_the_reply_of_a_request_that_took_effect() {
    let redis = Redis::start();
    let relay = Relay::to(redis.port());
    relay.lose_reply_to(b"INCR");
    let mut connection = Connection::open(relay.port()).unwrap();
    assert_eq!(connection.command(&["PING"]).unwrap().text(), "PONG");
    assert!(connection.command(&["INCR", "n"]).is_err());
    assert_eq!(relay.replies_lost(), 1);
    assert_eq!(redis.command(&["GET", "n"]).text(), "1");
    assert_eq!(Connection::open(relay.port()).unwrap().command(&["INCR", "n"]).unwrap(), Reply::Number(2));
}

#[test]
fn slow_a_cluster_fails_over_rejoins_nodes_and_moves_slots() {
    let mut cluster = Cluster::start();
    let slot = cluster.slot_of("{k}");
    let first = cluster.primary_of(slot).unwrap();
    assert_eq!(cluster.node(first).redis.command(&["SET", "{k}", "v"]).text(), "OK");
    let other = (first + 1) % tollgate_testing::cluster::PRIMARIES;
    assert_eq!(cluster.node(other).redis.command(&["GET", "{k}"]).text().split(' ').next(), Some("MOVED"));

    cluster.reshard(slot..slot + 1, first, other);
    assert_eq!(cluster.primary_of(slot), Some(other));
    assert!(cluster.slots_of(other).contains(&(slot..=slot)));
    assert!(!cluster.slots_of(first).iter().any(|slots| slots.contains(&slot)));
    assert_eq!(cluster.node(other).redis.command(&["GET", "{k}"]).text(), "v");

    cluster.until_whole();
    cluster.node(other).redis.kill();
    assert!(becomes(|| cluster.primary_of(slot).is_some_and(|primary| primary != other)));
    cluster.node(other).redis.restart();
    cluster.until_whole();
    let heir = cluster.primary_of(slot).unwrap();
    assert_eq!(cluster.node(heir).redis.command(&["GET", "{k}"]).text(), "v");
}

#[test]
fn slow_clients_of_a_cluster_go_through_relays_if_there_are_some() {
    let mut cluster = Cluster::behind_relays();
    let port = cluster.node(0).port();
    assert_ne!(port, cluster.node(0).redis.port());
    let announced = cluster.node(1).redis.inline("CLUSTER SLOTS");
    assert!(announced.contains(&format!(":{port}\r\n")), "{announced}");
    cluster.node(0).relay().refuse();
    cluster.node(0).relay().cut();
    assert!(Connection::open(port).is_err());
    cluster.node(0).relay().pass();
    cluster.until_whole();
}

#[test]
fn slow_sentinels_make_the_replica_the_primary() {
    let mut sentinel = Sentinel::start();
    assert_eq!(sentinel.primary(), Some(0));
    sentinel.servers[0].kill();
    assert!(becomes(|| sentinel.primary() == Some(1)));
    assert!(becomes(|| sentinel.servers[1].command(&["SET", "k", "v"]).text() == "OK"));
}

#[test]
fn postgres_data_survives_a_kill_and_a_frozen_server_does_not_answer() {
    let mut postgres = Postgres::start();
    postgres.query("CREATE TABLE t (n INT)");
    postgres.query("INSERT INTO t VALUES (7)");
    let (port, id) = (postgres.port(), postgres.process().id());
    postgres.kill();
    assert!(!postgres.process().is_running());
    postgres.restart();
    assert_eq!(postgres.port(), port);
    assert_ne!(postgres.process().id(), id);
    assert_eq!(postgres.query("SELECT n, n + 1 FROM t"), "7|8");

    postgres.freeze();
    assert!(postgres.process().is_running() && !postgres.process().is_awake());
    let url = postgres.url();
    let reply = std::thread::spawn(move || {
        std::process::Command::new("psql").args(["-XAtc", "SELECT 1", &url]).output().unwrap().stdout
    });
    assert!(!reply.is_finished());
    postgres.thaw();
    assert_eq!(reply.join().unwrap(), b"1\n");
    postgres.freeze();
    let id = postgres.process().id();
    drop(postgres);
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

#[test]
fn databases_of_one_server_are_separate() {
    let (a, b) = (Postgres::database(), Postgres::database());
    assert_eq!(a.port(), b.port());
    assert_ne!(a.url(), b.url());
    a.query("CREATE TABLE t (n INT)");
    assert!(b.try_query("SELECT n FROM t").unwrap_err().contains("does not exist"));
}
