//! Which node serves which slot, and the lanes to each node.
//!
//! There is one map, which every claim reads and which is replaced as a whole. It is changed by discovery
//! ([`discover`](super::discover)) and by the redirections of nodes that do not own a slot.

mod map;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use super::connect::Link;
use super::lane::Lane;
use map::SlotMap;
use tollgate_redis_address::{Address, Layout, Node};
use tollgate_store::sharded::{Failure, Location, ShardId, ShardInfo};

pub(super) use map::PeerNode;

/// The known nodes and slots.
pub(super) struct Topology {
    address: Address,
    pool: usize,
    map: ArcSwap<SlotMap>,
    roster: Mutex<NodeRoster>,
    discovery: watch::Sender<DiscoveryState>,
    /// Signals that the map may be outdated.
    refresh_requested: Notify,
    /// The number of discoveries that follow in quick succession, because a node failed.
    hurried: AtomicU32,
    /// Signals lanes that nobody drives yet.
    new_lanes: Notify,
}

/// All nodes with lanes, whether they serve slots or not.
#[derive(Default)]
struct NodeRoster {
    peers: HashMap<Node, Arc<PeerNode>>,
    /// The ids of nodes, including some that are gone and may come back.
    ids: HashMap<Node, ShardId>,
    last: u32,
}

/// The result of the last discovery.
#[derive(Clone)]
enum DiscoveryState {
    Pending,
    Done,
    /// The last attempt failed.
    Failed(Failure),
}

/// The result of a discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Discovery {
    Primary(Node),
    /// The first slot, the last slot, and the node that serves them.
    Slots(Vec<(u16, u16, Node)>),
}

/// The number of slots in a cluster.
pub(super) const SLOTS: u16 = 16_384;
/// The number of discoveries in quick succession after a failure: enough until the next probe of the node.
const HURRIED: u32 = 60;
/// The maximum number of nodes with lanes, and of remembered ids.
const MAX_NODES: usize = 1_024;
/// The shard of slots that no node serves. In a cluster, nodes have ids from 1.
const UNSERVED: ShardId = ShardId(0);

impl Topology {
    pub(super) fn new(address: Address, pool: usize) -> Topology {
        let topology = Topology {
            pool: pool.max(1),
            map: ArcSwap::from_pointee(SlotMap::Whole(None)),
            roster: Mutex::default(),
            discovery: watch::Sender::new(DiscoveryState::Pending),
            refresh_requested: Notify::new(),
            hurried: AtomicU32::new(0),
            new_lanes: Notify::new(),
            address,
        };
        match &topology.address.layout {
            Layout::One(node) => topology.apply(&Discovery::Primary(node.clone())),
            Layout::Cluster(_) => {
                let slots = vec![None; usize::from(SLOTS)];
                topology.map.store(Arc::new(SlotMap::Divided { slots, peers: Vec::new() }));
            }
            Layout::Sentinel { .. } => {}
        }
        topology
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.address.layout
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.address.layout, Layout::Cluster(_))
    }

    /// The location of a slot. A store that is not divided has one slot.
    pub(super) fn locate(&self, slot: u16) -> Location {
        match &**self.map.load() {
            SlotMap::Whole(_) => Location { shard: ShardId(0), slot: 0 },
            map => Location { shard: map.peer(slot).map_or(UNSERVED, |peer| peer.id), slot },
        }
    }

    /// The node of a slot. Waits for the first discovery.
    pub(super) async fn route(&self, slot: u16) -> Result<Arc<PeerNode>, Failure> {
        let mut updates = None;
        loop {
            if let Some(peer) = self.map.load().peer(slot) {
                return Ok(Arc::clone(peer));
            }
            let updates = updates.get_or_insert_with(|| self.discovery.subscribe());
            let discovery = updates.borrow_and_update().clone();
            match discovery {
                DiscoveryState::Failed(failure) => return Err(failure),
                // It may have been discovered since we read the map.
                DiscoveryState::Done if self.map.load().peer(slot).is_some() => {}
                DiscoveryState::Done => return Err(Failure::Unreachable(format!("no node serves slot {slot}"))),
                DiscoveryState::Pending => {
                    let _ = updates.changed().await;
                }
            }
        }
    }

    /// The lanes to a node, which need not serve any slot.
    pub(super) fn peer_at(&self, node: &Node) -> Result<Arc<PeerNode>, Failure> {
        let peer = self.add_node(&mut self.roster(), node);
        let peer = peer.ok_or_else(|| Failure::Refused(format!("more than {MAX_NODES} nodes")))?;
        peer.used.store(true, Ordering::Relaxed);
        Ok(peer)
    }

    /// Applies the redirection of a slot.
    pub(super) fn learn(&self, slot: u16, node: &Node) {
        let mut roster = self.roster();
        let map = self.map.load_full();
        if map.peer(slot).is_some_and(|peer| peer.node == *node) {
            return;
        }
        if let (SlotMap::Divided { mut slots, mut peers }, Some(peer)) =
            (SlotMap::clone(&map), self.add_node(&mut roster, node))
        {
            let index = peers.iter().position(|other| other.id == peer.id).unwrap_or_else(|| {
                peers.push(peer);
                peers.len() - 1
            });
            if let Some(owner) = slots.get_mut(usize::from(slot)) {
                *owner = u16::try_from(index).ok();
            }
            self.map.store(Arc::new(SlotMap::Divided { slots, peers }));
        }
    }

    /// Applies a discovery. Closes the lanes to nodes that serve nothing and were not used since the last time.
    pub(super) fn apply(&self, discovered: &Discovery) {
        let mut roster = self.roster();
        let map = match discovered {
            Discovery::Primary(node) => SlotMap::Whole(self.add_node(&mut roster, node)),
            Discovery::Slots(ranges) => self.divided(&mut roster, ranges),
        };
        let serving: HashSet<Node> = map.peers().map(|peer| peer.node.clone()).collect();
        self.map.store(Arc::new(map));
        roster.peers.retain(|node, peer| {
            let stays = serving.contains(node) || peer.used.swap(false, Ordering::Relaxed);
            if !stays {
                peer.lanes.iter().for_each(|lane| lane.close());
            }
            stays
        });
        drop(roster);
        self.discovery.send_replace(DiscoveryState::Done);
    }

    /// Records a failed discovery. The map stays.
    pub(super) fn fail(&self, failure: Failure) {
        self.discovery.send_replace(DiscoveryState::Failed(failure));
    }

    /// Requests a discovery.
    pub(super) fn refresh(&self) {
        self.refresh_requested.notify_one();
    }

    /// Requests several discoveries: a node failed, and another one may take over its slots at any time. If its breaker
    /// opens, no claim is redirected, and nothing else asks.
    pub(super) fn hurry(&self) {
        self.hurried.store(HURRIED, Ordering::Relaxed);
        self.refresh();
    }

    /// Whether the next discovery is one of these.
    pub(super) fn is_hurried(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.hurried.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Waits until a discovery is requested.
    pub(super) async fn wait_for_refresh(&self) {
        self.refresh_requested.notified().await;
    }

    /// The current owner of a shard id.
    pub(super) fn shard(&self, id: ShardId) -> ShardOwner {
        match &**self.map.load() {
            SlotMap::Whole(Some(peer)) => ShardOwner::Node(Arc::clone(peer)),
            SlotMap::Whole(None) => ShardOwner::Unserved,
            map @ SlotMap::Divided { .. } => match map.peers().find(|peer| peer.id == id) {
                Some(peer) if map.serves(peer) => ShardOwner::Node(Arc::clone(peer)),
                None if id == UNSERVED && !map.is_whole() => ShardOwner::Unserved,
                _ => ShardOwner::Gone,
            },
        }
    }

    /// Whether this node serves this slot.
    pub(super) fn serves(&self, peer: &PeerNode, slot: u16) -> bool {
        self.map.load().peer(slot).is_some_and(|serving| serving.node == peer.node)
    }

    /// Why some slots have no node.
    pub(super) fn unserved(&self) -> Failure {
        match &*self.discovery.borrow() {
            DiscoveryState::Failed(failure) => failure.clone(),
            DiscoveryState::Done | DiscoveryState::Pending => {
                Failure::Unreachable("no node serves some slots".to_owned())
            }
        }
    }

    /// The nodes that serve slots, and an entry for unserved slots if there are any.
    pub(super) fn shards(&self) -> Vec<ShardInfo> {
        let map = self.map.load();
        let mut shards: Vec<_> = map.peers().filter(|peer| map.serves(peer)).map(|peer| peer.info()).collect();
        if shards.is_empty() {
            shards.push(ShardInfo { id: UNSERVED, name: self.address.servers(), warning: None });
        } else if !map.is_whole() {
            shards.push(ShardInfo {
                id: UNSERVED,
                name: "unserved".to_owned(),
                warning: Some("no node serves some slots".to_owned()),
            });
        }
        shards.sort_by_key(|shard| shard.id);
        shards
    }

    /// The lanes to all nodes.
    pub(super) fn lanes(&self) -> Vec<(Arc<PeerNode>, Arc<Lane>)> {
        let roster = self.roster();
        let all =
            roster.peers.values().flat_map(|peer| peer.lanes.iter().map(|lane| (Arc::clone(peer), Arc::clone(lane))));
        all.collect()
    }

    /// A connection to each node that has one now.
    pub(super) fn links(&self) -> Vec<Link> {
        self.roster().peers.values().filter_map(|peer| peer.lanes.iter().find_map(|lane| lane.link())).collect()
    }

    /// Waits until there are new lanes.
    pub(super) async fn new_lanes(&self) {
        self.new_lanes.notified().await;
    }

    fn divided(&self, roster: &mut NodeRoster, ranges: &[(u16, u16, Node)]) -> SlotMap {
        let mut slots = vec![None; usize::from(SLOTS)];
        let mut peers: Vec<Arc<PeerNode>> = Vec::new();
        for (first, last, node) in ranges {
            let Some(peer) = self.add_node(roster, node) else { continue };
            let index = peers.iter().position(|other| other.id == peer.id).unwrap_or_else(|| {
                peers.push(peer);
                peers.len() - 1
            });
            if let Some(range) = slots.get_mut(usize::from(*first)..=usize::from(*last)) {
                range.fill(u16::try_from(index).ok());
            }
        }
        SlotMap::Divided { slots, peers }
    }

    fn add_node(&self, roster: &mut NodeRoster, node: &Node) -> Option<Arc<PeerNode>> {
        if let Some(peer) = roster.peers.get(node) {
            return Some(Arc::clone(peer));
        }
        if roster.peers.len() >= MAX_NODES {
            return None;
        }
        let id = if self.is_cluster() { roster.number(node) } else { ShardId(0) };
        let peer = Arc::new(PeerNode::new(id, node.clone(), self.pool));
        roster.peers.insert(node.clone(), Arc::clone(&peer));
        self.new_lanes.notify_one();
        Some(peer)
    }

    fn roster(&self) -> MutexGuard<'_, NodeRoster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The current meaning of a shard id.
pub(super) enum ShardOwner {
    Node(Arc<PeerNode>),
    /// Slots that no node serves.
    Unserved,
    /// A node that no longer serves slots.
    Gone,
}

impl NodeRoster {
    /// The id of a node: the same for as long as it is remembered.
    fn number(&mut self, node: &Node) -> ShardId {
        if let Some(id) = self.ids.get(node) {
            return *id;
        }
        if self.ids.len() >= MAX_NODES {
            self.ids.retain(|node, _| self.peers.contains_key(node));
        }
        self.last = self.last.wrapping_add(1).max(1);
        self.ids.insert(node.clone(), ShardId(self.last));
        ShardId(self.last)
    }
}
