//! Several servers on one store.

use tollgate_core::Source;
use tollgate_testing::cluster::PRIMARIES;
use tollgate_testing::{Cluster, Server, eventually};

use crate::fleet::load::{Answer, Ask, once};
use crate::new_server;

/// The servers. They end with this.
pub(crate) struct Fleet {
    servers: Vec<Server>,
}

/// Each server's own memory.
pub(crate) const MEMORY: &str = "memory";

/// What may be asked for, its limit, and the period in microseconds that this is for, unless it is longer than any test.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) limit: usize,
    pub(crate) period: Option<u64>,
}

/// One that is used up before a fault, one that is not, and one whose every window is looked at.
pub(crate) const KINDS: [Kind; 3] = [
    Kind { name: "small", limit: 30, period: None },
    Kind { name: "large", limit: 250, period: None },
    Kind { name: "brief", limit: 10, period: Some(2_000_000) },
];

/// A year of 365 days does not end during a test, but for one second in a year.
const RULES: &str = "
domain: fleet
entity: user
rules:
  - {name: small, key: [user], match: {kind: small}, limit: 30/year, algorithm: fixed_window}
  - {name: large, key: [user], match: {kind: large}, limit: 250/year, algorithm: fixed_window}
  - {name: brief, key: [user], match: {kind: brief}, limit: 10/2s, algorithm: sliding_log}
";

/// Somebody who asks, and where his counter lives.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) ask: Ask,
    /// The slot of a cluster and the node that serves it; none without a cluster.
    pub(crate) home: Option<(u16, usize)>,
}

impl Fleet {
    /// So many servers, ready.
    pub(crate) fn start(store: &str, count: usize) -> Fleet {
        let warm_up = Ask { user: "warm-up".to_owned(), kind: "brief" };
        Fleet::of((0..count).map(|_| server_on(store)).collect(), &warm_up)
    }

    /// These servers, when all of them answer this from their store: they are ready before they have found it.
    pub(crate) fn of(servers: Vec<Server>, warm_up: &Ask) -> Fleet {
        let fleet = Fleet { servers };
        for address in fleet.addresses() {
            let found = || matches!(once(&address, warm_up), Answer::Decided { source: Source::Store, .. });
            assert!(eventually(|| found().then_some(())).is_some(), "a server does not find its store");
        }
        fleet
    }

    pub(crate) fn len(&self) -> usize {
        self.servers.len()
    }

    /// Where they take checks.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address("http").to_owned()).collect()
    }
}

/// One server on this store.
pub(crate) fn server_on(store: &str) -> Server {
    let builder = match store {
        MEMORY => new_server(),
        // A failed shard is tried again sooner than by default, so that the tests end sooner.
        store => new_server().args(&["--store", store, "--store-cool-down", "1s"]),
    };
    builder.rules(RULES).listen(&["http"]).start()
}

impl Kind {
    pub(crate) fn of(ask: &Ask) -> &'static Kind {
        KINDS.iter().find(|kind| kind.name == ask.kind).unwrap()
    }
}

/// A caller of each kind with this name, where there is no cluster.
pub(crate) fn callers(name: &str) -> Vec<Caller> {
    KINDS
        .iter()
        .map(|kind| Caller { ask: Ask { user: user(&format!("{name} {}", kind.name)), kind: kind.name }, home: None })
        .collect()
}

/// A name that is in Redis as it is here.
fn user(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// A caller of each kind in each shard of a cluster.
pub(crate) fn callers_in(cluster: &mut Cluster, name: &str) -> Vec<Caller> {
    let mut callers: Vec<Caller> = Vec::new();
    for kind in &KINDS {
        let mut homes = Vec::new();
        let mut number = 0;
        while homes.len() < PRIMARIES {
            let user = user(&format!("{name} {} {number}", kind.name));
            number += 1;
            // What is in the braces of its counters' names decides where they are.
            let slot = cluster.slot_of(&format!("{{fleet/{user}}}"));
            let node = eventually(|| cluster.primary_of(slot)).expect("a node has the slot");
            if !homes.contains(&node) {
                homes.push(node);
                callers.push(Caller { ask: Ask { user, kind: kind.name }, home: Some((slot, node)) });
            }
        }
    }
    callers
}
