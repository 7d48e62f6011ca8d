//! Changes of rules and a restart of the server, under load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use tollgate_testing::{eventually, free_port};

use super::{Envoy, EnvoyConfig, builder};
use crate::clients::http::Connection;
use crate::new_server;

/// Clients that send requests continuously, each on one connection and with one key.
struct ClientTraffic {
    stop: Arc<AtomicBool>,
    statuses: Arc<Mutex<Statuses>>,
    clients: Vec<JoinHandle<()>>,
}

/// The number of responses with each status.
type Statuses = BTreeMap<u16, usize>;

const CLIENTS: usize = 4;

impl ClientTraffic {
    fn start(envoy: &Envoy) -> ClientTraffic {
        let (stop, statuses) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Statuses::new())));
        let clients = (0..CLIENTS).map(|number| {
            let (stop, statuses, address) = (stop.clone(), statuses.clone(), envoy.address.clone());
            thread::spawn(move || {
                let key = format!("client-{number}");
                let mut connection = Connection::open(&address).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let response = connection.send("GET", "/api", &[("x-api-key", &key)], "").unwrap();
                    *statuses.lock().unwrap().entry(response.status).or_default() += 1;
                }
            })
        });
        let clients = clients.collect();
        ClientTraffic { stop, statuses, clients }
    }

    fn count(&self, status: u16) -> usize {
        self.statuses.lock().unwrap().get(&status).copied().unwrap_or(0)
    }

    /// Waits for this many more responses with a status.
    #[track_caller]
    fn wait_for_more(&self, count: usize, status: u16) {
        let before = self.count(status);
        let reached = eventually(|| (self.count(status) >= before + count).then_some(()));
        assert!(reached.is_some(), "not {count} more responses with {status}: {:?}", self.statuses);
    }

    /// Ends the traffic, and returns the statuses other than 200 and 429.
    fn stop(self) -> Statuses {
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
    format!("domain: edge\nrules: [{{name: by-key, key: [api_key], limit: {limit}/hour, algorithm: sliding_log}}]\n")
}

/// The remaining units of a limit by the headers, once that limit is in force.
fn wait_for_limit(envoy: &Envoy, limit: usize) -> Option<u64> {
    let limit = limit.to_string();
    let check = || envoy.get("/api", &[("x-api-key", "observer")]);
    let found = eventually(|| Some(check()).filter(|response| response.header("x-ratelimit-limit") == Some(&limit)));
    found.map(|response| response.number("x-ratelimit-remaining"))
}

#[test]
fn slow_changes_of_rules_under_load_fail_no_request() {
    const RELOADS: usize = 12;
    // Few enough that the clients exceed it, and more than the observer's requests.
    const LIMIT: usize = 200;
    let server = new_server().rules(&rules(LIMIT)).listen(&["grpc"]).start();
    // A failed check is a 503, which Envoy would hide if it failed open.
    let envoy = EnvoyConfig::new(server.address("grpc")).fail_closed().start();
    let traffic = ClientTraffic::start(&envoy);
    traffic.wait_for_more(1, 429);
    let mut left = wait_for_limit(&envoy, LIMIT).unwrap();
    for reload in 1..=RELOADS {
        let limit = LIMIT + reload;
        server.write_rules(&rules(limit));
        let now = wait_for_limit(&envoy, limit).unwrap_or_else(|| panic!("{limit} is not in force:\n{}", server.log()));
        // The counter is the same: used units stay used.
        assert!(now <= left, "{now} left of {limit}, {left} before");
        left = now;
        traffic.wait_for_more(20, 429);
        // Invalid rules change nothing.
        server.write_rules("domain: edge\nrules: [{name: by-key, limit: plenty}]\n");
    }
    assert_eq!(traffic.stop(), Statuses::new());
}

#[test]
fn a_restart_of_the_server_fails_no_request() {
    // The same address after the restart.
    let address = format!("127.0.0.1:{}", free_port());
    let mut server = builder().args(&["--grpc", &address]).start();
    let envoy = EnvoyConfig::new(&address).start();
    assert_eq!(envoy.statuses(4, "/public", &[]), [200, 200, 200, 429]);
    let traffic = ClientTraffic::start(&envoy);
    traffic.wait_for_more(CLIENTS, 429);

    assert!(server.stop().success());
    // Envoy received a GOAWAY before the connection was closed.
    assert_eq!(envoy.stat("upstream_cx_close_notify"), 1);
    assert_eq!(envoy.get("/public", &[]).status, 200);
    traffic.wait_for_more(50, 200);

    let _server = server.restart().args(&["--grpc", &address]).start();
    // The used units survive the restart.
    eventually(|| (envoy.get("/public", &[]).status == 429).then_some(())).expect("limits hold again");
    traffic.wait_for_more(50, 429);
    assert_eq!(traffic.stop(), Statuses::new());
}
