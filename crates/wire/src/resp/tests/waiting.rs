//! A store that waits.

use std::io::Write;
use std::net::TcpStream;

use super::server::{PATIENCE, Server, Settings, fives, sent, take};
use crate::gate::MAX_PENDING_THROTTLES;
use tollgate_store::Counters;
use tollgate_store::conformance::gated::GatedStore;

fn throttle(key: &[u8]) -> Vec<u8> {
    sent(&[b"CL.THROTTLE", key, b"999", b"1", b"3600"])
}

/// Waits on the test's thread: the server has its own.
fn settled(store: &GatedStore, count: usize) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let claims = async { tokio::time::timeout(PATIENCE, store.timeouts(count)).await };
    runtime.block_on(claims).expect("they reach the store").len()
}

/// All replies before the last, which is to a PING.
fn until_pong(client: &mut TcpStream) -> Vec<u8> {
    const PONG: &[u8] = b"+PONG\r\n";
    let mut answer = Vec::new();
    while !answer.ends_with(PONG) {
        answer.extend(take(client, 1));
    }
    answer.truncate(answer.len() - PONG.len());
    answer
}

#[test]
fn a_pipeline_is_settled_together_and_answered_in_order() {
    let store = GatedStore::new();
    let server = Server::on(Counters::Shared(store.clone()), Settings::default());
    let mut client = server.connect();
    let throttles = throttle(b"k").repeat(10);
    let uncountable = sent(&[b"THROTTLE", b"k", b"1", b"9223372036854775807", b"3600"]);
    let echo = sent(&[b"ECHO", b"between"]);
    let bytes = [&throttles[..], &echo, &throttles, &uncountable, &throttles, &sent(&[b"PING"])].concat();
    client.write_all(&bytes).unwrap();
    assert_eq!(
        settled(&store, 10),
        10,
        "what was sent first is settled together, and nothing more before it is answered"
    );
    store.open();
    let text = String::from_utf8(until_pong(&mut client)).unwrap();
    let (first, rest) = text.split_once("$7\r\nbetween\r\n").unwrap();
    let (second, third) = rest.split_once("-ERR").unwrap();
    let (_, third) = third.split_once("\r\n").unwrap();
    let left = |text: &str| fives(text.as_bytes()).iter().map(|five| five[2]).collect::<Vec<_>>();
    assert_eq!(left(first), (990..1000).rev().collect::<Vec<_>>());
    assert_eq!(left(second), (980..990).rev().collect::<Vec<_>>());
    assert_eq!(left(third), (970..980).rev().collect::<Vec<_>>());
}

#[test]
fn a_bounded_number_is_settled_together() {
    let store = GatedStore::new();
    let server = Server::on(Counters::Shared(store.clone()), Settings::default());
    let mut client = server.connect();
    let count = 2 * MAX_PENDING_THROTTLES + 1;
    client.write_all(&throttle(b"k").repeat(count)).unwrap();
    assert_eq!(settled(&store, MAX_PENDING_THROTTLES), MAX_PENDING_THROTTLES);
    store.open();
    assert_eq!(settled(&store, count), count);
}

#[test]
fn past_the_bound_on_checks_they_pass_without_a_look() {
    let store = GatedStore::new();
    let server = Server::on(Counters::Shared(store.clone()), Settings { max_in_flight: 2, ..Settings::default() });
    let (mut first, mut second) = (server.connect(), server.connect());
    first.write_all(&throttle(b"k").repeat(2)).unwrap();
    assert_eq!(settled(&store, 2), 2);
    second.write_all(&[throttle(b"k"), sent(&[b"PING"])].concat()).unwrap();
    let answer = until_pong(&mut second);
    assert!(answer.starts_with(b"*5\r\n:0\r\n:1000\r\n"), "{}", answer.escape_ascii());
    assert_eq!(settled(&store, 0), 2);
    store.open();
}
