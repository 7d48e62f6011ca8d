//! A Redis Cluster of three primaries and three replicas.

use std::ops::{Range, RangeInclusive};

use crate::resp::{Connection, Reply};
use crate::{Redis, Relay, free_port, until};

/// The cluster. Dropping it kills its nodes.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<ClusterNode>,
}

/// A node of a cluster.
#[derive(Debug)]
pub struct ClusterNode {
    /// The server.
    pub redis: Redis,
    /// The relay between its clients and the node, if there is one. The test itself and the bus between the nodes don't use it: a node
    /// that is cut off from its clients and its replica is not failed over.
    pub relay: Option<Relay>,
    /// Its id in the cluster.
    id: String,
}

/// How many primaries there are at first; as many replicas follow them, in the same order.
pub const PRIMARIES: usize = 3;

/// How many slots a cluster has.
pub const SLOTS: u16 = 16384;

/// Keys that one command moves.
const KEYS_PER_MOVE: &str = "100";

const ARGUMENTS: [&str; 8] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "2000",
    // Only the slots of a failed primary become unavailable.
    "--cluster-require-full-coverage",
    "no",
    "--repl-diskless-sync-delay",
    "0",
];

impl Cluster {
    /// Starts a cluster and waits until it is complete.
    pub fn start() -> Cluster {
        Cluster::start_nodes(ClusterNode::start)
    }

    /// The same with a relay in front of every node.
    pub fn behind_relays() -> Cluster {
        Cluster::start_nodes(ClusterNode::behind_relay)
    }

    /// The URLs of all nodes, for the setting `redis`.
    pub fn url(&self) -> String {
        let url = |node: &ClusterNode| format!("redis://127.0.0.1:{}", node.port());
        self.nodes.iter().map(url).collect::<Vec<_>>().join(",")
    }

    /// The nodes: first those that are primaries at the start, then their replicas.
    pub fn nodes(&mut self) -> &mut [ClusterNode] {
        &mut self.nodes
    }

    /// A node by its number.
    pub fn node(&mut self, number: usize) -> &mut ClusterNode {
        match self.nodes.get_mut(number) {
            Some(node) => node,
            None => panic!("there is no node {number}"),
        }
    }

    /// The slot of a key.
    pub fn slot_of(&mut self, key: &str) -> u16 {
        let node = self.awake().next();
        match node.map(|node| node.redis.command(&["CLUSTER", "KEYSLOT", key])) {
            Some(Reply::Number(slot)) => u16::try_from(slot).unwrap_or(SLOTS),
            other => panic!("CLUSTER KEYSLOT {key}: {other:?}"),
        }
    }

    /// Which node serves a slot, in the newest view of all nodes. None while its primary has failed and no replica took over.
    pub fn primary_of(&mut self, slot: u16) -> Option<usize> {
        let views: Vec<String> = self.awake().map(|node| node.redis.inline("CLUSTER NODES")).collect();
        let lines = views.iter().flat_map(|view| view.lines().filter_map(NodeLine::parse));
        let claims = lines.filter(|line| line.is_primary() && line.slots().any(|slots| slots.contains(&slot)));
        let best = claims.max_by_key(|line| line.epoch)?;
        if best.flags.contains("fail") {
            return None;
        }
        self.nodes.iter().position(|node| node.id == best.id)
    }

    /// The slots that a node says it serves.
    pub fn slots_of(&mut self, node: usize) -> Vec<RangeInclusive<u16>> {
        let view = self.node(node).redis.inline("CLUSTER NODES");
        let own = view.lines().filter_map(NodeLine::parse).find(|line| line.flags.contains("myself"));
        own.map_or(Vec::new(), |own| own.slots().collect())
    }

    /// Waits until all slots are served, all nodes know that, and every primary has a replica that is in sync.
    pub fn until_whole(&mut self) {
        until("a whole cluster", || self.is_whole());
    }

    /// Moves slots and their keys from one node to another. Clients may continue meanwhile.
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

    /// Begins to move a slot from one node to another, and leaves it at that: keys move by [`Self::move_keys`], and
    /// [`Self::reshard`] moves the rest.
    pub fn open_slot(&mut self, slot: u16, from: usize, to: usize) {
        let [from_id, to_id] = [from, to].map(|number| self.node(number).id.clone());
        self.node(to).expect_ok(&["CLUSTER", "SETSLOT", &slot.to_string(), "IMPORTING", &from_id]);
        self.node(from).expect_ok(&["CLUSTER", "SETSLOT", &slot.to_string(), "MIGRATING", &to_id]);
    }

    /// The keys of a slot that a node has.
    pub fn keys(&mut self, slot: u16, node: usize) -> Vec<Vec<u8>> {
        match self.node(node).redis.command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"]) {
            Reply::List(keys) => keys.into_iter().filter_map(Reply::bytes).collect(),
            other => panic!("the keys of slot {slot}: {other:?}"),
        }
    }

    /// Moves keys of an open slot.
    pub fn move_keys(&mut self, keys: &[Vec<u8>], from: usize, to: usize) {
        let (mut source, to_port) = (open(self.node(from).redis.port()), self.node(to).redis.port().to_string());
        for key in keys {
            let command = [b"MIGRATE", "127.0.0.1".as_bytes(), to_port.as_bytes(), key, b"0", b"5000"];
            expect_ok(&mut source, &command);
        }
    }

    fn start_nodes(start: fn() -> ClusterNode) -> Cluster {
        let mut cluster = Cluster { nodes: (0..2 * PRIMARIES).map(|_| start()).collect() };
        cluster.join();
        cluster.until_whole();
        cluster
    }

    /// Makes a cluster of nodes that do not know each other.
    fn join(&mut self) {
        let addresses: Vec<(String, String)> = self.nodes.iter().map(ClusterNode::bus_address).collect();
        for (number, node) in self.nodes.iter().enumerate() {
            // Before they meet: only a node that knows no other accepts an epoch.
            node.expect_ok(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        for (number, node) in self.nodes.iter().enumerate() {
            if number < PRIMARIES {
                let [first, end] = [number, number + 1].map(|number| number * usize::from(SLOTS) / PRIMARIES);
                node.expect_ok(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(end - 1).to_string()]);
            }
        }
        // Every pair meets: learning of nodes from others takes longer.
        for (number, node) in self.nodes.iter().enumerate() {
            for (port, bus) in addresses.iter().skip(number + 1) {
                node.expect_ok(&["CLUSTER", "MEET", "127.0.0.1", port, bus]);
            }
        }
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        until("nodes that know each other", || {
            self.nodes.iter().all(|node| node.redis.inline("CLUSTER INFO").contains(&known))
        });
        for (primary, replica) in self.nodes.iter().zip(self.nodes.iter().skip(PRIMARIES)) {
            // It fails until the replica has exchanged messages with the primary.
            until("a replica", || replica.redis.command(&["CLUSTER", "REPLICATE", &primary.id]).text() == "OK");
        }
    }

    fn is_whole(&mut self) -> bool {
        let nodes = self.nodes.len();
        let whole = |node: &ClusterNode| {
            let info = node.redis.inline("CLUSTER INFO");
            let view = node.redis.inline("CLUSTER NODES");
            let lines: Vec<NodeLine<'_>> = view.lines().filter_map(NodeLine::parse).collect();
            let replicas = lines.iter().filter(|line| line.flags.contains("slave")).count();
            let healthy = lines.iter().all(|line| !line.flags.contains("fail") && !line.flags.contains("handshake"));
            let replication = node.redis.inline("INFO replication");
            let in_sync = match replication.contains("role:master") {
                true => replication.contains("state=online"),
                false => replication.contains("master_link_status:up"),
            };
            let slots = format!("cluster_slots_ok:{SLOTS}\r\n");
            info.contains("cluster_state:ok")
                && info.contains(&slots)
                && lines.len() == nodes
                && replicas == nodes - PRIMARIES
                && healthy
                && in_sync
        };
        self.awake().count() == nodes && self.nodes.iter().all(whole)
    }

    fn awake(&mut self) -> impl Iterator<Item = &ClusterNode> {
        self.nodes.iter_mut().filter_map(|node| node.redis.process().is_awake().then_some(&*node))
    }
}

impl ClusterNode {
    /// The port for clients: its relay's, if it has one.
    pub fn port(&self) -> u16 {
        self.relay.as_ref().map_or(self.redis.port(), Relay::port)
    }

    /// Its relay. Panics if it has none.
    pub fn relay(&mut self) -> &mut Relay {
        match &mut self.relay {
            Some(relay) => relay,
            None => panic!("this node has no relay"),
        }
    }

    fn start() -> ClusterNode {
        ClusterNode::new(Redis::start_by_port(|_| ClusterNode::arguments()), None)
    }

    fn behind_relay() -> ClusterNode {
        let mut relay = None;
        let redis = Redis::start_by_port(|port| {
            let announced = relay.insert(Relay::to(port)).port().to_string();
            let mut arguments = ClusterNode::arguments();
            arguments.extend(["--cluster-announce-port".to_owned(), announced]);
            arguments
        });
        ClusterNode::new(redis, relay)
    }

    fn new(redis: Redis, relay: Option<Relay>) -> ClusterNode {
        let id = redis.command(&["CLUSTER", "MYID"]).text();
        ClusterNode { redis, relay, id }
    }

    fn arguments() -> Vec<String> {
        let mut arguments: Vec<String> = ARGUMENTS.iter().map(|argument| (*argument).to_owned()).collect();
        // The default is 10000 above the other port, which may be taken.
        arguments.extend(["--cluster-port".to_owned(), free_port().to_string()]);
        arguments
    }

    /// Its own port and the port of its bus.
    fn bus_address(&self) -> (String, String) {
        let bus = self.redis.command(&["CONFIG", "GET", "cluster-port"]).text();
        (self.redis.port().to_string(), bus.lines().last().unwrap_or_default().to_owned())
    }

    fn expect_ok(&self, command: &[&str]) {
        let reply = self.redis.command(command).text();
        if reply != "OK" {
            panic!("{}: {reply}", command.join(" "));
        }
    }
}

/// A line of `CLUSTER NODES`.
struct NodeLine<'a> {
    id: &'a str,
    flags: &'a str,
    epoch: u64,
    slots: Vec<&'a str>,
}

impl<'a> NodeLine<'a> {
    fn parse(line: &'a str) -> Option<NodeLine<'a>> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, _address, flags, _primary, _ping, _pong, epoch, _link, slots @ ..] = words.as_slice() else {
            return None;
        };
        Some(NodeLine { id, flags, epoch: epoch.parse().ok()?, slots: slots.to_vec() })
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
    let reply = node.command(&["CLUSTER", "GETKEYSINSLOT", slot, KEYS_PER_MOVE]);
    let Ok(Reply::List(keys)) = reply else { panic!("the keys of slot {slot}: {reply:?}") };
    let keys: Vec<Vec<u8>> = keys.into_iter().filter_map(Reply::bytes).collect();
    (!keys.is_empty()).then_some(keys)
}

fn expect_ok<A: AsRef<[u8]>>(node: &mut Connection, command: &[A]) {
    let reply = node.command(command);
    // A key that has expired meanwhile is not moved.
    if !reply.as_ref().is_ok_and(|reply| ["OK", "NOKEY"].contains(&reply.text().as_str())) {
        let words: Vec<_> = command.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect();
        panic!("{}: {reply:?}", words.join(" "));
    }
}
