//! The servers and the relay do what tests need of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test says what it expects by failing.

use std::io;

use tollgate_testing::resp::{Connection, Reply};
use tollgate_testing::{Cluster, Postgres, Redis, Relay, Sentinel, eventually};

/// Whether something becomes true.
fn becomes(mut holds: impl FnMut() -> bool) -> bool {
    eventually(|| holds().then_some(())).is_some()
}

fn set(connection: &mut Connection, key: &str, value: &str) -> io::Result<String> {
    connection.ask(&["SET", key, value]).map(|reply| reply.text())
}

#[test]
fn redis_counts_what_it_does_and_starts_again_where_it_was() {
    let mut redis = Redis::start();
    assert_eq!(redis.commandstats("get"), 0);
    for _ in 0..3 {
        assert_eq!(redis.ask(&["GET", "no such key"]), Reply::Nothing);
    }
    assert_eq!(redis.commandstats("GET"), 3);
    assert!(redis.cpu_seconds() > 0.0);

    let (port, id) = (redis.port(), redis.process().id());
    assert_eq!(redis.ask(&["SET", "a key", "v"]).text(), "OK");
    redis.restart();
    assert_eq!(redis.port(), port);
    assert_ne!(redis.process().id(), id);
    assert_eq!(redis.ask(&["GET", "a key"]), Reply::Nothing);
}

#[test]
fn a_paused_redis_answers_when_it_is_resumed_and_ends_when_it_is_not() {
    let mut redis = Redis::start();
    redis.pause();
    assert!(redis.process().runs() && !redis.process().is_awake());
    let port = redis.port();
    let asked = std::thread::spawn(move || Connection::open(port).unwrap().ask(&["PING"]).unwrap());
    redis.resume();
    assert_eq!(asked.join().unwrap().text(), "PONG");
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
    let asked = std::thread::spawn(move || set(&mut Connection::open(port).unwrap(), "k", "1").unwrap());
    assert!(becomes(|| relay.accepted() == 1));
    assert_eq!(redis.ask(&["GET", "k"]), Reply::Nothing);
    relay.pass();
    assert_eq!(asked.join().unwrap(), "OK");
    // One that is dropped while it stalls leaves nobody waiting.
    relay.stall();
    drop(relay);
    assert!(Connection::open(port).is_err());
}

#[test]
fn a_relay_loses_the_reply_to_a_request_that_was_run() {
    let redis = Redis::start();
    let relay = Relay::to(redis.port());
    relay.lose_reply_to(b"INCR");
    let mut connection = Connection::open(relay.port()).unwrap();
    assert_eq!(connection.ask(&["PING"]).unwrap().text(), "PONG");
    assert!(connection.ask(&["INCR", "n"]).is_err());
    assert_eq!(relay.replies_lost(), 1);
    assert_eq!(redis.ask(&["GET", "n"]).text(), "1");
    assert_eq!(Connection::open(relay.port()).unwrap().ask(&["INCR", "n"]).unwrap(), Reply::Number(2));
}

#[test]
fn slow_a_cluster_fails_over_takes_nodes_back_and_moves_slots() {
    let mut cluster = Cluster::start();
    let slot = cluster.slot_of("{k}");
    let first = cluster.primary_of(slot).unwrap();
    assert_eq!(cluster.node(first).redis.ask(&["SET", "{k}", "v"]).text(), "OK");
    let other = (first + 1) % tollgate_testing::cluster::PRIMARIES;
    assert_eq!(cluster.node(other).redis.ask(&["GET", "{k}"]).text().split(' ').next(), Some("MOVED"));

    cluster.reshard(slot..slot + 1, first, other);
    assert_eq!(cluster.primary_of(slot), Some(other));
    assert!(cluster.slots_of(other).contains(&(slot..=slot)));
    assert!(!cluster.slots_of(first).iter().any(|slots| slots.contains(&slot)));
    assert_eq!(cluster.node(other).redis.ask(&["GET", "{k}"]).text(), "v");

    cluster.until_whole();
    cluster.node(other).redis.kill();
    assert!(becomes(|| cluster.primary_of(slot).is_some_and(|primary| primary != other)));
    cluster.node(other).redis.restart();
    cluster.until_whole();
    let heir = cluster.primary_of(slot).unwrap();
    assert_eq!(cluster.node(heir).redis.ask(&["GET", "{k}"]).text(), "v");
}

#[test]
fn slow_clients_of_a_cluster_go_through_relays_if_there_are_some() {
    let mut cluster = Cluster::behind_relays();
    let port = cluster.node(0).port();
    assert_ne!(port, cluster.node(0).redis.port());
    let announced = cluster.node(1).redis.say("CLUSTER SLOTS");
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
    assert!(becomes(|| sentinel.servers[1].ask(&["SET", "k", "v"]).text() == "OK"));
}

#[test]
fn postgres_keeps_what_it_has_when_it_is_killed_and_answers_no_one_while_it_is_frozen() {
    let mut postgres = Postgres::start();
    postgres.ask("CREATE TABLE t (n INT)");
    postgres.ask("INSERT INTO t VALUES (7)");
    let (port, id) = (postgres.port(), postgres.process().id());
    postgres.kill();
    assert!(!postgres.process().runs());
    postgres.restart();
    assert_eq!(postgres.port(), port);
    assert_ne!(postgres.process().id(), id);
    assert_eq!(postgres.ask("SELECT n, n + 1 FROM t"), "7|8");

    postgres.freeze();
    assert!(postgres.process().runs() && !postgres.process().is_awake());
    let url = postgres.url();
    let asked = std::thread::spawn(move || {
        std::process::Command::new("psql").args(["-XAtc", "SELECT 1", &url]).output().unwrap().stdout
    });
    assert!(!asked.is_finished());
    postgres.thaw();
    assert_eq!(asked.join().unwrap(), b"1\n");
    postgres.freeze();
    let id = postgres.process().id();
    drop(postgres);
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

#[test]
fn databases_of_one_server_are_apart() {
    let (a, b) = (Postgres::database(), Postgres::database());
    assert_eq!(a.port(), b.port());
    assert_ne!(a.url(), b.url());
    a.ask("CREATE TABLE t (n INT)");
    assert!(b.try_ask("SELECT n FROM t").unwrap_err().contains("does not exist"));
}
