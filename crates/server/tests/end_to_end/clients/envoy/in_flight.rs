//! Concurrency limits: `deploy/envoy/streams.yaml`.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tollgate_testing::{Server, eventually, sleep};

use super::tokens::StreamsFixture;
use super::{Envoy, EnvoyConfig};
use crate::clients::http::{Connection, Headers};

/// The concurrency limit of the rules.
const SLOTS: usize = 20;

/// All requests have the same id.
const CALLER: Headers<'static> = &[("x-api-key", "a"), ("x-request-id", "mine")];

/// Starts a request.
fn start_request(envoy: &Envoy, path: &str) -> Connection {
    let mut connection = Connection::open(&envoy.address).unwrap();
    connection.start("GET", path, CALLER, "").unwrap();
    connection
}

/// Starts this many requests, one after the other, and waits until each has reached the model.
#[track_caller]
fn start_requests(fixture: &StreamsFixture, path: &str, count: usize) -> Vec<Connection> {
    let mut connections = Vec::new();
    for _ in 0..count {
        let before = fixture.model.state().arrived;
        connections.push(start_request(&fixture.envoy, path));
        let has_arrived = eventually(|| (fixture.model.state().arrived > before).then_some(()));
        assert!(
            has_arrived.is_some(),
            "{} arrived, then: {}",
            connections.len() - 1,
            status(connections.pop().unwrap())
        );
    }
    connections
}

fn status(mut connection: Connection) -> String {
    connection.head().unwrap().first
}

/// Releases all requests, and waits for their responses.
fn finish_requests(fixture: &StreamsFixture, connections: Vec<Connection>) {
    fixture.model.release(Duration::ZERO);
    for connection in connections {
        assert_eq!(status(connection), "HTTP/1.1 200 OK");
    }
}

#[test]
fn exactly_as_many_requests_as_slots_are_admitted() {
    StreamsFixture::each().for_each(|fixture| fill_slots(&fixture));
}

fn fill_slots(fixture: &StreamsFixture) {
    for path in ["/export", "/chat"] {
        fixture.model.hold();
        let first = start_requests(fixture, path, SLOTS);
        for _ in 0..5 {
            assert_eq!(fixture.envoy.get(path, CALLER).status, 429);
        }
        // Another caller has its own slots.
        finish_requests(fixture, first);
        assert_eq!(fixture.envoy.get(path, &[("x-api-key", "b")]).status, 200);
        fixture.wait_for_remaining("a", "in-flight", SLOTS as u64);
        // All slots are free again, and not more.
        fixture.model.hold();
        let again = start_requests(fixture, path, SLOTS);
        assert_eq!(fixture.envoy.get(path, CALLER).status, 429);
        finish_requests(fixture, again);
        fixture.wait_for_remaining("a", "in-flight", SLOTS as u64);
    }
    assert_eq!(fixture.model.state().max_running, SLOTS);
}

/// Sends requests until the clients together have this many responses.
fn send_until_done(fixture: &StreamsFixture, responses: &AtomicUsize, refusals: &AtomicUsize) {
    const RESPONSES: usize = 600;
    // Far more than necessary. Without a bound the test would not end if no slot became free.
    const MAX_REFUSALS: usize = 100_000;
    let mut connection = Connection::open(&fixture.envoy.address).unwrap();
    while responses.load(Ordering::Relaxed) < RESPONSES {
        match connection.send("GET", "/export", CALLER, "").unwrap().status {
            200 => responses.fetch_add(1, Ordering::Relaxed),
            429 => {
                sleep(Duration::from_millis(1));
                let before = refusals.fetch_add(1, Ordering::Relaxed);
                assert!(before < MAX_REFUSALS, "no slot becomes free");
                before
            }
            status => panic!("{status}"),
        };
    }
}

#[test]
fn concurrent_clients_never_exceed_the_slots() {
    const CLIENTS: usize = 40;
    let fixture = StreamsFixture::new();
    fixture.model.release(Duration::from_millis(50));
    let (responses, refusals) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| send_until_done(&fixture, &responses, &refusals));
        }
    });
    assert_eq!(fixture.model.state().max_running, SLOTS, "{}", fixture.server.log());
    assert!(refusals.into_inner() > 0, "no request was refused");
    fixture.wait_for_remaining("a", "in-flight", SLOTS as u64);
}

#[test]
fn a_cancelled_request_releases_its_slot() {
    let fixture = StreamsFixture::new();
    fixture.model.hold();
    // Before the response has begun, and during the response.
    for (path, cancelled) in [("/export", 7), ("/export/stream", 11), ("/chat", 3), ("/chat/stream", 9)] {
        let mut connections = start_requests(&fixture, path, SLOTS);
        if path.contains("stream") {
            connections.iter_mut().for_each(|one| assert_eq!(one.head().unwrap().first, "HTTP/1.1 200 OK"));
        }
        assert_eq!(fixture.envoy.get(path, CALLER).status, 429);
        connections.truncate(SLOTS - cancelled);
        fixture.wait_for_remaining("a", "in-flight", cancelled as u64);
        let others = start_requests(&fixture, path, cancelled);
        assert_eq!(fixture.envoy.get(path, CALLER).status, 429);
        // All other requests are cancelled too.
        drop((connections, others));
        fixture.wait_for_remaining("a", "in-flight", SLOTS as u64);
    }
}

#[test]
fn an_unavailable_application_holds_no_slot() {
    let fixture = StreamsFixture::with_config(|config| {
        let (before, _) = config.text.split_once("cluster_name: application\n").unwrap();
        let clusters = before.len();
        let text =
            format!("{}{}", &config.text[..clusters], config.text[clusters..].replacen("127.0.0.1", "127.0.0.9", 1));
        EnvoyConfig { text, ..config }
    });
    for path in ["/export", "/chat"] {
        for _ in 0..SLOTS + 5 {
            let status = fixture.envoy.get(path, CALLER).status;
            assert!([503, 429].contains(&status), "{status}");
        }
        fixture.wait_for_remaining("a", "in-flight", SLOTS as u64);
    }
    assert_eq!(fixture.model.state().arrived, 0);
}

#[test]
fn without_a_claim_id_there_is_no_limit() {
    let fixture = StreamsFixture::with_config(|config| {
        config.with("descriptor_key: tollgate.claim}", "descriptor_key: request_id}")
    });
    fixture.model.hold();
    let connections = start_requests(&fixture, "/export", SLOTS + 10);
    assert_eq!(fixture.model.state().max_running, SLOTS + 10);
    finish_requests(&fixture, connections);
}

/// The reason why `streams.yaml` removes the clients' ids.
#[test]
fn requests_with_the_same_id_share_one_slot() {
    let fixture = StreamsFixture::with_config(|config| {
        config.with("mutations: [{remove: x-request-id}]", "mutations: [{remove: x-other}]")
    });
    fixture.model.hold();
    let connections = start_requests(&fixture, "/export", SLOTS + 10);
    assert_eq!(fixture.remaining("a", "in-flight"), SLOTS as u64 - 1);
    finish_requests(&fixture, connections);
}

/// Stops a server by a signal, and waits until all of its threads have stopped.
fn pause(server: &Server) {
    server.signal("STOP");
    let tasks = format!("/proc/{}/task", server.id());
    // The state follows the name, which is in brackets.
    let is_stopped = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
    let all_stopped = || {
        let mut stats = fs::read_dir(&tasks).unwrap().map(|task| fs::read_to_string(task.unwrap().path().join("stat")));
        stats.all(|stat| stat.is_ok_and(is_stopped)).then_some(())
    };
    eventually(all_stopped).expect("the server stops");
}

/// The one cancellation that Envoy does not report, since the check has no result yet. A slot becomes free when its hold expires.
#[test]
fn a_request_cancelled_during_its_check_is_not_reported() {
    let fixture = StreamsFixture::new();
    assert_eq!(fixture.envoy.get("/export", &[("x-api-key", "b")]).status, 200);
    let wait_for_checks = |count: u64| eventually(|| (fixture.envoy.stat("upstream_rq_total") == count).then_some(()));
    wait_for_checks(2).expect("the start and the end of the first request");
    pause(&fixture.server);
    let connection = start_request(&fixture.envoy, "/export");
    wait_for_checks(3).expect("the start of the second request");
    drop(connection);
    // A report of the end would be pending too.
    let is_idle = || (fixture.envoy.stat("upstream_rq_active") == 0).then_some(());
    eventually(is_idle).expect("Envoy cancels its check");
    assert_eq!(fixture.envoy.stat("upstream_rq_total"), 3);
    fixture.server.signal("CONT");
    assert_eq!(fixture.envoy.get("/export", &[("x-api-key", "b")]).status, 200);
    assert_eq!(fixture.model.state().arrived, 2);
}
