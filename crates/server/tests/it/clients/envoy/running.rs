//! Rules that change, and a server that goes and comes back, while clients go on asking.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use tollgate_testing::{eventually, free_port};

use super::{Config, Envoy, builder};
use crate::clients::http::Connection;
use crate::new_server;

/// Clients that ask without a pause, each on one connection and with one key.
struct Traffic {
    stop: Arc<AtomicBool>,
    statuses: Arc<Mutex<Statuses>>,
    clients: Vec<JoinHandle<()>>,
}

/// How often each status was answered.
type Statuses = BTreeMap<u16, usize>;

const CLIENTS: usize = 4;

impl Traffic {
    fn start(envoy: &Envoy) -> Traffic {
        let (stop, statuses) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Statuses::new())));
        let clients = (0..CLIENTS).map(|number| {
            let (stop, statuses, address) = (stop.clone(), statuses.clone(), envoy.address.clone());
            thread::spawn(move || {
                let key = format!("client-{number}");
                let mut connection = Connection::open(&address).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let answer = connection.ask("GET", "/api", &[("x-api-key", &key)], "").unwrap();
                    *statuses.lock().unwrap().entry(answer.status).or_default() += 1;
                }
            })
        });
        let clients = clients.collect();
        Traffic { stop, statuses, clients }
    }

    fn count(&self, status: u16) -> usize {
        self.statuses.lock().unwrap().get(&status).copied().unwrap_or(0)
    }

    /// Waits until a status was answered so many times more.
    #[track_caller]
    fn until_more(&self, count: usize, status: u16) {
        let before = self.count(status);
        let more = eventually(|| (self.count(status) >= before + count).then_some(()));
        assert!(more.is_some(), "no {count} times {status} more: {:?}", self.statuses);
    }

    /// What there was besides 200 and 429.
    fn others(self) -> Statuses {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        let mut statuses = self.statuses.lock().unwrap().clone();
        statuses.retain(|status, _| ![200, 429].contains(status));
        statuses
    }
}

fn rules(limit: usize) -> String {
    format!("domain: edge\nrules: [{{name: by-key, key: [api_key], limit: {limit}/hour}}]\n")
}

/// How many of its limit a caller has left, as Envoy tells it, once that limit is in force.
fn left_of(envoy: &Envoy, limit: usize) -> Option<u64> {
    let limit = format!("{limit}, {limit};w=3600;name=\"by-key\"");
    let look = || envoy.get("/api", &[("x-api-key", "observer")]);
    let found = eventually(|| Some(look()).filter(|answer| answer.header("x-ratelimit-limit") == Some(&limit)));
    found.map(|answer| answer.number("x-ratelimit-remaining"))
}

#[test]
fn slow_rules_change_under_load_and_nothing_fails() {
    const RELOADS: usize = 12;
    // Few enough for the clients to meet it, and more than the observer's questions.
    const LIMIT: usize = 200;
    let server = new_server().rules(&rules(LIMIT)).listen(&["grpc"]).start();
    // A failed question is a 503, which Envoy would hide if it failed open.
    let envoy = Config::new(server.address("grpc")).fail_closed().start();
    let traffic = Traffic::start(&envoy);
    traffic.until_more(1, 429);
    let mut left = left_of(&envoy, LIMIT).unwrap();
    for reload in 1..=RELOADS {
        let limit = LIMIT + reload;
        server.write_rules(&rules(limit));
        let now = left_of(&envoy, limit).unwrap_or_else(|| panic!("{limit} is not in force:\n{}", server.log()));
        // The counter is the one of before: what was used stays used.
        assert!(now <= left, "{now} left of {limit}, {left} before");
        left = now;
        traffic.until_more(20, 429);
        // One that can't be read changes nothing.
        server.write_rules("domain: edge\nrules: [{name: by-key, limit: plenty}]\n");
    }
    assert_eq!(traffic.others(), Statuses::new());
}

#[test]
fn a_server_that_is_restarted_is_missed_by_nobody() {
    // Where it will be again.
    let address = format!("127.0.0.1:{}", free_port());
    let mut server = builder().args(&["--grpc", &address]).start();
    let envoy = Config::new(&address).start();
    assert_eq!(envoy.statuses(4, "/public", &[]), [200, 200, 200, 429]);
    let traffic = Traffic::start(&envoy);
    traffic.until_more(CLIENTS, 429);

    assert!(server.stop().success());
    // Envoy was told not to come back, before the connection ended.
    assert_eq!(envoy.stat("upstream_cx_close_notify"), 1);
    assert_eq!(envoy.get("/public", &[]).status, 200);
    traffic.until_more(50, 200);

    let _server = server.restart().args(&["--grpc", &address]).start();
    // It knows what was used before.
    eventually(|| (envoy.get("/public", &[]).status == 429).then_some(())).expect("limits hold again");
    traffic.until_more(50, 429);
    assert_eq!(traffic.others(), Statuses::new());
}
