//! A Redis Cluster of three primaries and three replicas.

use std::ops::{Range, RangeInclusive};

use crate::resp::{Connection, Reply};
use crate::{Redis, Relay, free_port, until};

/// The cluster. Its nodes end with it.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
}

/// A node of it.
#[derive(Debug)]
pub struct Node {
    /// The server.
    pub redis: Redis,
    /// What everybody but the test goes through to reach it, if there is one. The bus between the nodes does not: a node that is
    /// cut off from its clients and its replica is not failed over.
    pub relay: Option<Relay>,
    /// Its name in the cluster.
    id: String,
}

/// How many primaries there are at first; as many replicas follow them, in the same order.
pub const PRIMARIES: usize = 3;

/// How many slots a cluster has.
pub const SLOTS: u16 = 16384;

/// Keys that are moved at once.
const MOVED_AT_ONCE: &str = "100";

const ARGUMENTS: [&str; 8] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "2000",
    // Only the slots of a primary that is gone fail.
    "--cluster-require-full-coverage",
    "no",
    "--repl-diskless-sync-delay",
    "0",
];

impl Cluster {
    /// Starts one and waits until it is whole.
    pub fn start() -> Cluster {
        Cluster::of(Node::start)
    }

    /// The same with a relay in front of every node.
    pub fn behind_relays() -> Cluster {
        Cluster::of(Node::behind_relay)
    }

    /// All nodes, as a setting names them.
    pub fn url(&self) -> String {
        let url = |node: &Node| format!("redis://127.0.0.1:{}", node.port());
        self.nodes.iter().map(url).collect::<Vec<_>>().join(",")
    }

    /// The nodes: first those that were primaries at the start, then their replicas.
    pub fn nodes(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// One of them.
    pub fn node(&mut self, number: usize) -> &mut Node {
        match self.nodes.get_mut(number) {
            Some(node) => node,
            None => panic!("there is no node {number}"),
        }
    }

    /// The slot of a key.
    pub fn slot_of(&mut self, key: &str) -> u16 {
        let awake = self.awake().next();
        match awake.map(|node| node.redis.ask(&["CLUSTER", "KEYSLOT", key])) {
            Some(Reply::Number(slot)) => u16::try_from(slot).unwrap_or(SLOTS),
            other => panic!("CLUSTER KEYSLOT {key}: {other:?}"),
        }
    }

    /// Which node serves a slot, as the node sees it that knows best. None while its primary has failed and no other took over.
    pub fn primary_of(&mut self, slot: u16) -> Option<usize> {
        let views: Vec<String> = self.awake().map(|node| node.redis.say("CLUSTER NODES")).collect();
        let lines = views.iter().flat_map(|view| view.lines().filter_map(Line::read));
        let claims = lines.filter(|line| line.is_primary() && line.slots().any(|slots| slots.contains(&slot)));
        let best = claims.max_by_key(|line| line.epoch)?;
        if best.flags.contains("fail") {
            return None;
        }
        self.nodes.iter().position(|node| node.id == best.id)
    }

    /// The slots that a node says it serves.
    pub fn slots_of(&mut self, node: usize) -> Vec<RangeInclusive<u16>> {
        let view = self.node(node).redis.say("CLUSTER NODES");
        let own = view.lines().filter_map(Line::read).find(|line| line.flags.contains("myself"));
        own.map_or(Vec::new(), |own| own.slots().collect())
    }

    /// Waits until all slots are served, all nodes know that, and every primary has a replica that follows.
    pub fn until_whole(&mut self) {
        until("a whole cluster", || self.is_whole());
    }

    /// Moves slots from one node to another, with the keys in them, while clients may go on asking.
    pub fn reshard(&mut self, slots: Range<u16>, from: usize, to: usize) {
        let ids = [from, to].map(|number| self.node(number).id.clone());
        let [mut source, mut target] = [from, to].map(|number| self.node(number).redis.port()).map(open);
        let to_port = self.node(to).redis.port().to_string();
        let [from_id, to_id] = &ids;
        for slot in slots {
            let slot = slot.to_string();
            expect_ok(&mut target, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", from_id]);
            expect_ok(&mut source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", to_id]);
            while let Some(keys) = keys_in(&mut source, &slot) {
                let to = ["MIGRATE", "127.0.0.1", &to_port, "", "0", "5000", "KEYS"];
                let command: Vec<&[u8]> =
                    to.iter().map(|word| word.as_bytes()).chain(keys.iter().map(Vec::as_slice)).collect();
                expect_ok(&mut source, &command);
            }
            for connection in [&mut target, &mut source] {
                expect_ok(connection, &["CLUSTER", "SETSLOT", &slot, "NODE", to_id]);
            }
        }
    }

    fn of(start: fn() -> Node) -> Cluster {
        let mut cluster = Cluster { nodes: (0..2 * PRIMARIES).map(|_| start()).collect() };
        cluster.join();
        cluster.until_whole();
        cluster
    }

    /// Makes a cluster of nodes that do not know each other.
    fn join(&mut self) {
        let addresses: Vec<(String, String)> = self.nodes.iter().map(Node::bus_address).collect();
        // Before any of them is met.
        for (number, node) in self.nodes.iter().enumerate() {
            // Only a node that knows nobody yet lets itself be told its epoch.
            node.ok(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        for (number, node) in self.nodes.iter().enumerate() {
            if number < PRIMARIES {
                let [first, end] = [number, number + 1].map(|number| number * usize::from(SLOTS) / PRIMARIES);
                node.ok(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(end - 1).to_string()]);
            }
        }
        // Everybody meets everybody: to hear of the others takes longer.
        for (number, node) in self.nodes.iter().enumerate() {
            for (port, bus) in addresses.iter().skip(number + 1) {
                node.ok(&["CLUSTER", "MEET", "127.0.0.1", port, bus]);
            }
        }
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        until("nodes that know each other", || {
            self.nodes.iter().all(|node| node.redis.say("CLUSTER INFO").contains(&known))
        });
        for (primary, replica) in self.nodes.iter().zip(self.nodes.iter().skip(PRIMARIES)) {
            // It may have heard of the primary without having spoken to it.
            until("a replica", || replica.redis.ask(&["CLUSTER", "REPLICATE", &primary.id]).text() == "OK");
        }
    }

    fn is_whole(&mut self) -> bool {
        let nodes = self.nodes.len();
        let whole = |node: &Node| {
            let info = node.redis.say("CLUSTER INFO");
            let view = node.redis.say("CLUSTER NODES");
            let lines: Vec<Line<'_>> = view.lines().filter_map(Line::read).collect();
            let replicas = lines.iter().filter(|line| line.flags.contains("slave")).count();
            let well = lines.iter().all(|line| !line.flags.contains("fail") && !line.flags.contains("handshake"));
            let replication = node.redis.say("INFO replication");
            let followed = match replication.contains("role:master") {
                true => replication.contains("state=online"),
                false => replication.contains("master_link_status:up"),
            };
            let slots = format!("cluster_slots_ok:{SLOTS}\r\n");
            info.contains("cluster_state:ok")
                && info.contains(&slots)
                && lines.len() == nodes
                && replicas == nodes - PRIMARIES
                && well
                && followed
        };
        self.awake().count() == nodes && self.nodes.iter().all(whole)
    }

    fn awake(&mut self) -> impl Iterator<Item = &Node> {
        self.nodes.iter_mut().filter_map(|node| node.redis.process().is_awake().then_some(&*node))
    }
}

impl Node {
    /// Where clients reach it: its relay's port, if it has one.
    pub fn port(&self) -> u16 {
        self.relay.as_ref().map_or(self.redis.port(), Relay::port)
    }

    /// Its relay, which it must have.
    pub fn relay(&mut self) -> &mut Relay {
        match &mut self.relay {
            Some(relay) => relay,
            None => panic!("this node has no relay"),
        }
    }

    fn start() -> Node {
        Node::of(Redis::start_by(|_| Node::arguments()), None)
    }

    fn behind_relay() -> Node {
        let mut relay = None;
        let redis = Redis::start_by(|port| {
            let announced = relay.insert(Relay::to(port)).port().to_string();
            let mut arguments = Node::arguments();
            arguments.extend(["--cluster-announce-port".to_owned(), announced]);
            arguments
        });
        Node::of(redis, relay)
    }

    fn of(redis: Redis, relay: Option<Relay>) -> Node {
        let id = redis.ask(&["CLUSTER", "MYID"]).text();
        Node { redis, relay, id }
    }

    fn arguments() -> Vec<String> {
        let mut arguments: Vec<String> = ARGUMENTS.iter().map(|argument| (*argument).to_owned()).collect();
        // Else it is 10000 above the other, which may be somebody's.
        arguments.extend(["--cluster-port".to_owned(), free_port().to_string()]);
        arguments
    }

    /// Its own port and that of its bus.
    fn bus_address(&self) -> (String, String) {
        let bus = self.redis.ask(&["CONFIG", "GET", "cluster-port"]).text();
        (self.redis.port().to_string(), bus.lines().last().unwrap_or_default().to_owned())
    }

    fn ok(&self, command: &[&str]) {
        let reply = self.redis.ask(command).text();
        if reply != "OK" {
            panic!("{}: {reply}", command.join(" "));
        }
    }
}

/// A line of `CLUSTER NODES`.
struct Line<'a> {
    id: &'a str,
    flags: &'a str,
    epoch: u64,
    slots: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Option<Line<'a>> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, _address, flags, _primary, _ping, _pong, epoch, _link, slots @ ..] = words.as_slice() else {
            return None;
        };
        Some(Line { id, flags, epoch: epoch.parse().ok()?, slots: slots.to_vec() })
    }

    fn is_primary(&self) -> bool {
        self.flags.contains("master")
    }

    fn slots(&self) -> impl Iterator<Item = RangeInclusive<u16>> {
        self.slots.iter().filter_map(|slots| {
            let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
    }
}

fn open(port: u16) -> Connection {
    Connection::open(port).unwrap_or_else(|error| panic!("a node at {port}: {error}"))
}

/// Some of the keys in a slot, if there are any.
fn keys_in(node: &mut Connection, slot: &str) -> Option<Vec<Vec<u8>>> {
    let reply = node.ask(&["CLUSTER", "GETKEYSINSLOT", slot, MOVED_AT_ONCE]);
    let Ok(Reply::List(keys)) = reply else { panic!("the keys of slot {slot}: {reply:?}") };
    let keys: Vec<Vec<u8>> = keys
        .into_iter()
        .filter_map(|key| match key {
            Reply::Text(key) => Some(key),
            _ => None,
        })
        .collect();
    (!keys.is_empty()).then_some(keys)
}

fn expect_ok<A: AsRef<[u8]>>(node: &mut Connection, command: &[A]) {
    let reply = node.ask(command);
    // A key that has expired meanwhile need not be moved.
    if !reply.as_ref().is_ok_and(|reply| ["OK", "NOKEY"].contains(&reply.text().as_str())) {
        let words: Vec<_> = command.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect();
        panic!("{}: {reply:?}", words.join(" "));
    }
}
