//! Requests at a time: `deploy/envoy/streams.yaml`.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tollgate_testing::{Server, eventually, sleep};

use super::tokens::World;
use super::{Config, Envoy};
use crate::clients::http::{Connection, Headers};

/// How many the rules let in.
const SLOTS: usize = 20;

/// All of them say that they are the same request.
const CALLER: Headers<'static> = &[("x-api-key", "a"), ("x-request-id", "mine")];

/// A request that is on its way.
fn begun(envoy: &Envoy, path: &str) -> Connection {
    let mut connection = Connection::open(&envoy.address).unwrap();
    connection.send("GET", path, CALLER, "").unwrap();
    connection
}

/// So many requests that the model is working on, begun one after the other.
#[track_caller]
fn inside(world: &World, path: &str, count: usize) -> Vec<Connection> {
    let mut connections = Vec::new();
    for _ in 0..count {
        let before = world.model.work().came;
        connections.push(begun(&world.envoy, path));
        let has_come = eventually(|| (world.model.work().came > before).then_some(()));
        assert!(has_come.is_some(), "{} got in, then: {}", connections.len() - 1, status(connections.pop().unwrap()));
    }
    connections
}

fn status(mut connection: Connection) -> String {
    connection.head().unwrap().first
}

/// Lets all go, and waits until each had its answer.
fn let_go(world: &World, connections: Vec<Connection>) {
    world.model.open(Duration::ZERO);
    for connection in connections {
        assert_eq!(status(connection), "HTTP/1.1 200 OK");
    }
}

#[test]
fn as_many_as_there_are_slots_and_not_one_more() {
    World::each().for_each(|world| fill(&world));
}

fn fill(world: &World) {
    for path in ["/export", "/chat"] {
        world.model.shut();
        let first = inside(world, path, SLOTS);
        for _ in 0..5 {
            assert_eq!(world.envoy.get(path, CALLER).status, 429);
        }
        // Others have slots of their own.
        let_go(world, first);
        assert_eq!(world.envoy.get(path, &[("x-api-key", "b")]).status, 200);
        world.comes_to("a", "in-flight", SLOTS as u64);
        // All are free again, and no more than all.
        world.model.shut();
        let again = inside(world, path, SLOTS);
        assert_eq!(world.envoy.get(path, CALLER).status, 429);
        let_go(world, again);
        world.comes_to("a", "in-flight", SLOTS as u64);
    }
    assert_eq!(world.model.work().most, SLOTS);
}

/// Asks until the model has answered so many requests, all in all.
fn insist(world: &World, answers: &AtomicUsize, refusals: &AtomicUsize) {
    const ANSWERS: usize = 600;
    // Far more than it takes: where no slot comes free there is no end.
    const MOST_REFUSALS: usize = 100_000;
    let mut connection = Connection::open(&world.envoy.address).unwrap();
    while answers.load(Ordering::Relaxed) < ANSWERS {
        match connection.ask("GET", "/export", CALLER, "").unwrap().status {
            200 => answers.fetch_add(1, Ordering::Relaxed),
            429 => {
                sleep(Duration::from_millis(1));
                let before = refusals.fetch_add(1, Ordering::Relaxed);
                assert!(before < MOST_REFUSALS, "no slot comes free");
                before
            }
            status => panic!("{status}"),
        };
    }
}

#[test]
fn never_one_more_in_a_crowd() {
    const CLIENTS: usize = 40;
    let world = World::new();
    world.model.open(Duration::from_millis(50));
    let (answers, refusals) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| insist(&world, &answers, &refusals));
        }
    });
    assert_eq!(world.model.work().most, SLOTS, "{}", world.server.log());
    assert!(refusals.into_inner() > 0, "there was no crowd");
    world.comes_to("a", "in-flight", SLOTS as u64);
}

#[test]
fn who_hangs_up_has_left() {
    let world = World::new();
    world.model.shut();
    // Before the answer has begun, and in the middle of it.
    for (path, hung_up) in [("/export", 7), ("/export/stream", 11), ("/chat", 3), ("/chat/stream", 9)] {
        let mut connections = inside(&world, path, SLOTS);
        if path.contains("stream") {
            connections.iter_mut().for_each(|one| assert_eq!(one.head().unwrap().first, "HTTP/1.1 200 OK"));
        }
        assert_eq!(world.envoy.get(path, CALLER).status, 429);
        connections.truncate(SLOTS - hung_up);
        world.comes_to("a", "in-flight", hung_up as u64);
        let others = inside(&world, path, hung_up);
        assert_eq!(world.envoy.get(path, CALLER).status, 429);
        // All of the others too, without an answer.
        drop((connections, others));
        world.comes_to("a", "in-flight", SLOTS as u64);
    }
}

#[test]
fn an_application_that_is_not_there_holds_no_slot() {
    let world = World::with(|config| {
        let (before, _) = config.text.split_once("cluster_name: application\n").unwrap();
        let clusters = before.len();
        let text =
            format!("{}{}", &config.text[..clusters], config.text[clusters..].replacen("127.0.0.1", "127.0.0.9", 1));
        Config { text, ..config }
    });
    for path in ["/export", "/chat"] {
        for _ in 0..SLOTS + 5 {
            let status = world.envoy.get(path, CALLER).status;
            assert!([503, 429].contains(&status), "{status}");
        }
        world.comes_to("a", "in-flight", SLOTS as u64);
    }
    assert_eq!(world.model.work().came, 0);
}

#[test]
fn without_a_name_there_is_no_limit() {
    let world = World::with(|config| config.with("descriptor_key: tollgate.claim}", "descriptor_key: request_id}"));
    world.model.shut();
    let connections = inside(&world, "/export", SLOTS + 10);
    assert_eq!(world.model.work().most, SLOTS + 10);
    let_go(&world, connections);
}

/// Why `streams.yaml` takes the clients' ids away.
#[test]
fn one_id_for_all_would_be_one_slot() {
    let world =
        World::with(|config| config.with("mutations: [{remove: x-request-id}]", "mutations: [{remove: x-other}]"));
    world.model.shut();
    let connections = inside(&world, "/export", SLOTS + 10);
    assert_eq!(world.left("a", "in-flight"), SLOTS as u64 - 1);
    let_go(&world, connections);
}

/// Stops a server where it is, and waits until each of its threads stands: the signal is sent sooner than that.
fn pause(server: &Server) {
    server.signal("STOP");
    let tasks = format!("/proc/{}/task", server.id());
    // The state is what follows the name, which is in brackets.
    let stands = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
    let all_stand = || {
        let mut stats = fs::read_dir(&tasks).unwrap().map(|task| fs::read_to_string(task.unwrap().path().join("stat")));
        stats.all(|stat| stat.is_ok_and(stands)).then_some(())
    };
    eventually(all_stand).expect("it stands still");
}

/// The one end that Envoy does not tell: nobody knows yet whether there is a slot. If there was, it is free again when its hold expires.
#[test]
fn who_hangs_up_before_tollgate_has_answered_is_not_told() {
    let world = World::new();
    assert_eq!(world.envoy.get("/export", &[("x-api-key", "b")]).status, 200);
    let asked = |count: u64| eventually(|| (world.envoy.stat("upstream_rq_total") == count).then_some(()));
    asked(2).expect("the start and the end of the first");
    pause(&world.server);
    let connection = begun(&world.envoy, "/export");
    asked(3).expect("the start of the second");
    drop(connection);
    // Whatever it had to say of the end would wait for an answer too.
    let is_silent = || (world.envoy.stat("upstream_rq_active") == 0).then_some(());
    eventually(is_silent).expect("Envoy takes its question back");
    assert_eq!(world.envoy.stat("upstream_rq_total"), 3);
    world.server.signal("CONT");
    assert_eq!(world.envoy.get("/export", &[("x-api-key", "b")]).status, 200);
    assert_eq!(world.model.work().came, 2);
}
