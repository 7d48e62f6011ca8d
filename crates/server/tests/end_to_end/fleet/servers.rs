//! Several servers on one store.

use tollgate_core::Source;
use tollgate_testing::cluster::PRIMARIES;
use tollgate_testing::{Cluster, Server, eventually};

use crate::fleet::load::{Check, CheckResult, check_once};
use crate::new_server;

/// Running servers, until this is dropped.
pub(crate) struct Fleet {
    servers: Vec<Server>,
}

/// Counters in each server's own memory.
pub(crate) const MEMORY: &str = "memory";

/// A kind of rule: its limit, and its period in microseconds unless that is longer than any test.
pub(crate) struct RuleKind {
    pub(crate) name: &'static str,
    pub(crate) limit: usize,
    pub(crate) period: Option<u64>,
}

/// One that is exhausted before a fault, one that is not, and one with a short window.
pub(crate) const KINDS: [RuleKind; 3] = [
    RuleKind { name: "small", limit: 30, period: None },
    RuleKind { name: "large", limit: 250, period: None },
    RuleKind { name: "brief", limit: 10, period: Some(2_000_000) },
];

/// A year of 365 days hardly ever ends during a test.
const RULES: &str = "
domain: fleet
entity: user
rules:
  - {name: small, key: [user], match: {kind: small}, limit: 30/year, algorithm: fixed_window}
  - {name: large, key: [user], match: {kind: large}, limit: 250/year, algorithm: fixed_window}
  - {name: brief, key: [user], match: {kind: brief}, limit: 10/2s, algorithm: sliding_log}
";

/// A caller, and the location of its counter.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) check: Check,
    /// The slot of a cluster and the node that serves it; `None` without a cluster.
    pub(crate) home: Option<(u16, usize)>,
}

impl Fleet {
    /// Starts this many servers.
    pub(crate) fn start(store: &str, count: usize) -> Fleet {
        let warm_up = Check { user: "warm-up".to_owned(), kind: "brief" };
        Fleet::from_servers((0..count).map(|_| server_on(store)).collect(), &warm_up)
    }

    /// A fleet of these servers, which waits until all decide this check by their store: they start without it.
    pub(crate) fn from_servers(servers: Vec<Server>, warm_up: &Check) -> Fleet {
        let fleet = Fleet { servers };
        for address in fleet.addresses() {
            let is_connected =
                || matches!(check_once(&address, warm_up), CheckResult::Decided { source: Source::Store, .. });
            assert!(eventually(|| is_connected().then_some(())).is_some(), "a server is not connected to its store");
        }
        fleet
    }

    pub(crate) fn len(&self) -> usize {
        self.servers.len()
    }

    /// The addresses of the HTTP listeners.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address("http").to_owned()).collect()
    }
}

/// Starts a server on this store.
pub(crate) fn server_on(store: &str) -> Server {
    let builder = match store {
        MEMORY => new_server(),
        // A failed shard is probed sooner than by default, so that the tests take less time.
        store => new_server().args(&["--store", store, "--store-cool-down", "1s"]),
    };
    builder.rules(RULES).listen(&["http"]).start()
}

impl RuleKind {
    pub(crate) fn find(check: &Check) -> &'static RuleKind {
        KINDS.iter().find(|kind| kind.name == check.kind).unwrap()
    }
}

/// A caller for each kind of rule, without a cluster.
pub(crate) fn callers(name: &str) -> Vec<Caller> {
    KINDS
        .iter()
        .map(|kind| Caller {
            check: Check { user: user(&format!("{name} {}", kind.name)), kind: kind.name },
            home: None,
        })
        .collect()
}

/// A name that needs no escaping in Redis.
fn user(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// A caller for each kind of rule in each shard of a cluster.
pub(crate) fn callers_in(cluster: &mut Cluster, name: &str) -> Vec<Caller> {
    let mut callers: Vec<Caller> = Vec::new();
    for kind in &KINDS {
        let mut homes = Vec::new();
        let mut number = 0;
        while homes.len() < PRIMARIES {
            let user = user(&format!("{name} {} {number}", kind.name));
            number += 1;
            // The hash tag in the names of its counters determines the slot.
            let slot = cluster.slot_of(&format!("{{fleet/{user}}}"));
            let node = eventually(|| cluster.primary_of(slot)).expect("a node serves the slot");
            if !homes.contains(&node) {
                homes.push(node);
                callers.push(Caller { check: Check { user, kind: kind.name }, home: Some((slot, node)) });
            }
        }
    }
    callers
}
