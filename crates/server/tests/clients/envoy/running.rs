//! Rules that change, and a server that goes and comes back, while clients go on asking.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::{Config, Envoy, start};
use crate::http::Connection;
use crate::process::free_port;
use crate::server::eventually;

/// Clients that ask without a pause, each on one connection.
struct Traffic {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<BTreeMap<u16, usize>>>,
}

impl Traffic {
    fn start(envoy: &Envoy, path: &'static str) -> Traffic {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..4).map(|number| {
            let (stop, address) = (Arc::clone(&stop), envoy.address.clone());
            thread::spawn(move || {
                let mut statuses = BTreeMap::new();
                let mut connection = Connection::open(&address).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let key = format!("client-{number}");
                    let answer = connection.ask("GET", path, &[("x-api-key", &key)], "").unwrap();
                    *statuses.entry(answer.status).or_default() += 1;
                }
                statuses
            })
        });
        let clients = clients.collect();
        Traffic { stop, clients }
    }

    /// How often each status was answered.
    fn end(self) -> BTreeMap<u16, usize> {
        self.stop.store(true, Ordering::Relaxed);
        let mut statuses = BTreeMap::new();
        for client in self.clients {
            for (status, count) in client.join().unwrap() {
                *statuses.entry(status).or_default() += count;
            }
        }
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
    let server = start().rules(&rules(1_000)).ready();
    // A failed question would be a 503, which Envoy would hide if it failed open. The machine may be busy: that is no failure.
    let patient = Config::new(server.address("grpc")).fail_closed().with("timeout: 0.05s", "timeout: 10s");
    let envoy = patient.start();
    let traffic = Traffic::start(&envoy, "/api");
    let mut left = left_of(&envoy, 1_000).unwrap();
    for reload in 1..=RELOADS {
        let limit = 1_000 + reload;
        server.write_rules(&rules(limit));
        let now = left_of(&envoy, limit).unwrap_or_else(|| panic!("{limit} is not in force:\n{}", server.log()));
        // The counter is the one of before: what was used stays used.
        assert!(now <= left, "{now} left of {limit}, {left} before");
        left = now;
        // One that can't be read changes nothing.
        server.write_rules("domain: edge\nrules: [{name: by-key, limit: plenty}]\n");
    }
    let statuses = traffic.end();
    assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [200, 429], "{statuses:?}");
}

#[test]
fn a_server_that_is_restarted_is_missed_by_nobody() {
    // Where it will be again.
    let address = format!("127.0.0.1:{}", free_port());
    let mut server = start().args(&["--grpc", &address]).ready();
    let envoy = Config::new(&address).start();
    assert_eq!(envoy.statuses(4, "/public", &[]), [200, 200, 200, 429]);
    let traffic = Traffic::start(&envoy, "/api");

    assert!(server.stop().success());
    // Envoy was told not to come back, before the connection ended.
    assert_eq!(envoy.stat("upstream_cx_close_notify"), 1);
    assert_eq!(envoy.get("/public", &[]).status, 200);

    let _server = server.again().args(&["--grpc", &address]).ready();
    // It knows what was used before.
    eventually(|| (envoy.get("/public", &[]).status == 429).then_some(())).expect("limits hold again");
    let statuses = traffic.end();
    assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [200, 429], "{statuses:?}");
}
