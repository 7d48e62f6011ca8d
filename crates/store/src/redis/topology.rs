//! Which node serves which slot, and the lanes to each.
//!
//! One map, swapped whole, that every claim reads. What changes it: discovery ([`discover`](super::discover)) and what nodes say when
//! they are asked for a slot that is not theirs.

mod map;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use super::address::{Address, Layout, Node};
use super::connect::Link;
use super::lane::Lane;
use crate::sharded::{Failure, Place, ShardId, ShardInfo};
use map::Map;

pub(super) use map::Peer;

/// Where everything is, as far as is known.
pub(super) struct Topology {
    address: Address,
    pool: usize,
    map: ArcSwap<Map>,
    roster: Mutex<Roster>,
    known: watch::Sender<Known>,
    /// Somebody has reason to believe that the map is old.
    wanted: Notify,
    /// There are lanes that nobody drives.
    newcomers: Notify,
}

/// All nodes that there are lanes to, whether they serve slots or not.
#[derive(Default)]
struct Roster {
    peers: HashMap<Node, Arc<Peer>>,
    /// Numbers of nodes, also of some that are gone and may come back.
    ids: HashMap<Node, ShardId>,
    last: u32,
}

/// Whether anybody has told us yet.
#[derive(Clone)]
enum Known {
    NotYet,
    Yes,
    /// The last try failed.
    No(Failure),
}

/// What discovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Primary(Node),
    /// The first slot, the last, and who serves them.
    Slots(Vec<(u16, u16, Node)>),
}

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;
/// The most nodes that there are lanes to, and whose numbers are remembered.
const MOST_PEERS: usize = 1_024;
/// The shard of slots that no node serves. In a cluster, nodes are numbered from 1.
const UNSERVED: ShardId = ShardId(0);

impl Topology {
    pub(super) fn new(address: Address, pool: usize) -> Topology {
        let topology = Topology {
            pool: pool.max(1),
            map: ArcSwap::from_pointee(Map::Whole(None)),
            roster: Mutex::default(),
            known: watch::Sender::new(Known::NotYet),
            wanted: Notify::new(),
            newcomers: Notify::new(),
            address,
        };
        match &topology.address.layout {
            Layout::One(node) => topology.apply(&Found::Primary(node.clone())),
            Layout::Cluster(_) => {
                let slots = vec![None; usize::from(SLOTS)];
                topology.map.store(Arc::new(Map::Divided { slots, peers: Vec::new() }));
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

    /// Where a slot lives. A store that is not divided has one slot.
    pub(super) fn place(&self, slot: u16) -> Place {
        match &**self.map.load() {
            Map::Whole(_) => Place { shard: ShardId(0), slot: 0 },
            map => Place { shard: map.peer(slot).map_or(UNSERVED, |peer| peer.id), slot },
        }
    }

    /// The node of a slot. Waits while nothing is known yet.
    pub(super) async fn route(&self, slot: u16) -> Result<Arc<Peer>, Failure> {
        let mut news = None;
        loop {
            if let Some(peer) = self.map.load().peer(slot) {
                return Ok(Arc::clone(peer));
            }
            let news = news.get_or_insert_with(|| self.known.subscribe());
            let known = news.borrow_and_update().clone();
            match known {
                Known::No(failure) => return Err(failure),
                // It may have become known since we looked.
                Known::Yes if self.map.load().peer(slot).is_some() => {}
                Known::Yes => return Err(Failure::Unreachable(format!("no node serves slot {slot}"))),
                Known::NotYet => {
                    let _ = news.changed().await;
                }
            }
        }
    }

    /// The lanes to a node, which need not serve any slot.
    pub(super) fn peer_at(&self, node: &Node) -> Result<Arc<Peer>, Failure> {
        let peer = self.enlist(&mut self.roster(), node);
        let peer = peer.ok_or_else(|| Failure::Refused(format!("more than {MOST_PEERS} nodes")))?;
        peer.used.store(true, Ordering::Relaxed);
        Ok(peer)
    }

    /// A node said that a slot moved.
    pub(super) fn learn(&self, slot: u16, node: &Node) {
        let mut roster = self.roster();
        let map = self.map.load_full();
        if map.peer(slot).is_some_and(|peer| peer.node == *node) {
            return;
        }
        if let (Map::Divided { mut slots, mut peers }, Some(peer)) = (Map::clone(&map), self.enlist(&mut roster, node))
        {
            let place = peers.iter().position(|known| known.id == peer.id).unwrap_or_else(|| {
                peers.push(peer);
                peers.len() - 1
            });
            if let Some(entry) = slots.get_mut(usize::from(slot)) {
                *entry = u16::try_from(place).ok();
            }
            self.map.store(Arc::new(Map::Divided { slots, peers }));
        }
    }

    /// Takes what discovery found as the truth. Lanes to nodes that serve nothing, and that nobody asked for since the last time, close.
    pub(super) fn apply(&self, found: &Found) {
        let mut roster = self.roster();
        let map = match found {
            Found::Primary(node) => Map::Whole(self.enlist(&mut roster, node)),
            Found::Slots(ranges) => self.divided(&mut roster, ranges),
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
        self.known.send_replace(Known::Yes);
    }

    /// Discovery failed: what is known stays.
    pub(super) fn fail(&self, failure: Failure) {
        self.known.send_replace(Known::No(failure));
    }

    /// Asks for discovery, soon.
    pub(super) fn refresh(&self) {
        self.wanted.notify_one();
    }

    /// Resolves when somebody asked for discovery.
    pub(super) async fn refresh_wanted(&self) {
        self.wanted.notified().await;
    }

    /// The shard with this number: a node, nobody, or what no longer serves anything.
    pub(super) fn shard(&self, id: ShardId) -> Shard {
        match &**self.map.load() {
            Map::Whole(Some(peer)) => Shard::Peer(Arc::clone(peer)),
            Map::Whole(None) => Shard::Unserved,
            map @ Map::Divided { .. } => match map.peers().find(|peer| peer.id == id) {
                Some(peer) if map.serves(peer) => Shard::Peer(Arc::clone(peer)),
                None if id == UNSERVED && !map.is_whole() => Shard::Unserved,
                _ => Shard::Gone,
            },
        }
    }

    /// Whether this node serves this slot.
    pub(super) fn serves(&self, peer: &Peer, slot: u16) -> bool {
        self.map.load().peer(slot).is_some_and(|serving| serving.node == peer.node)
    }

    /// Why nobody serves some slots.
    pub(super) fn unserved(&self) -> Failure {
        match &*self.known.borrow() {
            Known::No(failure) => failure.clone(),
            Known::Yes | Known::NotYet => Failure::Unreachable("no node serves some slots".to_owned()),
        }
    }

    /// The nodes that serve something; and, if not all slots are served, nobody.
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

    /// All lanes to nodes that serve something or may.
    pub(super) fn lanes(&self) -> Vec<(Arc<Peer>, Arc<Lane>)> {
        let roster = self.roster();
        let all =
            roster.peers.values().flat_map(|peer| peer.lanes.iter().map(|lane| (Arc::clone(peer), Arc::clone(lane))));
        all.collect()
    }

    /// A connection to each node that has one now.
    pub(super) fn links(&self) -> Vec<Link> {
        self.roster().peers.values().filter_map(|peer| peer.lanes.iter().find_map(|lane| lane.link())).collect()
    }

    /// Resolves when there are new lanes.
    pub(super) async fn newcomers(&self) {
        self.newcomers.notified().await;
    }

    fn divided(&self, roster: &mut Roster, ranges: &[(u16, u16, Node)]) -> Map {
        let mut slots = vec![None; usize::from(SLOTS)];
        let mut peers: Vec<Arc<Peer>> = Vec::new();
        for (first, last, node) in ranges {
            let Some(peer) = self.enlist(roster, node) else { continue };
            let place = peers.iter().position(|known| known.id == peer.id).unwrap_or_else(|| {
                peers.push(peer);
                peers.len() - 1
            });
            if let Some(range) = slots.get_mut(usize::from(*first)..=usize::from(*last)) {
                range.fill(u16::try_from(place).ok());
            }
        }
        Map::Divided { slots, peers }
    }

    fn enlist(&self, roster: &mut Roster, node: &Node) -> Option<Arc<Peer>> {
        if let Some(peer) = roster.peers.get(node) {
            return Some(Arc::clone(peer));
        }
        if roster.peers.len() >= MOST_PEERS {
            return None;
        }
        let id = if self.is_cluster() { roster.number(node) } else { ShardId(0) };
        let peer = Arc::new(Peer::new(id, node.clone(), self.pool));
        roster.peers.insert(node.clone(), Arc::clone(&peer));
        self.newcomers.notify_one();
        Some(peer)
    }

    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a number stands for now.
pub(super) enum Shard {
    Peer(Arc<Peer>),
    /// Slots that no node serves.
    Unserved,
    /// A node that serves nothing any more.
    Gone,
}

impl Roster {
    /// The number of a node: the same for as long as it is remembered.
    fn number(&mut self, node: &Node) -> ShardId {
        if let Some(id) = self.ids.get(node) {
            return *id;
        }
        if self.ids.len() >= MOST_PEERS {
            self.ids.retain(|node, _| self.peers.contains_key(node));
        }
        self.last = self.last.wrapping_add(1).max(1);
        self.ids.insert(node.clone(), ShardId(self.last));
        ShardId(self.last)
    }
}
