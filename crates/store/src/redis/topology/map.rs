//! One state of the map, and the nodes on it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use crate::redis::address::Node;
use crate::redis::lane::Lane;
use crate::sharded::{ShardId, ShardInfo};

/// Which node serves a slot.
#[derive(Clone)]
pub(super) enum Map {
    /// One for all, once it is known.
    Whole(Option<Arc<Peer>>),
    /// For each slot a place in the list.
    Divided { slots: Vec<Option<u16>>, peers: Vec<Arc<Peer>> },
}

/// A node, and the lanes to it.
pub(in crate::redis) struct Peer {
    pub(super) id: ShardId,
    pub(super) node: Node,
    pub(super) lanes: Vec<Arc<Lane>>,
    warning: Mutex<Option<String>>,
    /// Asked for although it serves no slot, since the map was last made.
    pub(super) used: AtomicBool,
}

impl Map {
    pub(super) fn peer(&self, slot: u16) -> Option<&Arc<Peer>> {
        match self {
            Map::Whole(peer) => peer.as_ref(),
            Map::Divided { slots, peers } => peers.get(usize::from((*slots.get(usize::from(slot))?)?)),
        }
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        let (one, many) = match self {
            Map::Whole(peer) => (peer.as_ref(), &[][..]),
            Map::Divided { peers, .. } => (None, &peers[..]),
        };
        one.into_iter().chain(many)
    }

    /// Whether a node of the list has slots: those that moved away may have been its last.
    pub(super) fn serves(&self, peer: &Peer) -> bool {
        match self {
            Map::Whole(_) => true,
            Map::Divided { slots, peers } => {
                let place = peers.iter().position(|known| known.id == peer.id).and_then(|at| u16::try_from(at).ok());
                place.is_some() && slots.contains(&place)
            }
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        match self {
            Map::Whole(peer) => peer.is_some(),
            Map::Divided { slots, .. } => !slots.contains(&None),
        }
    }
}

impl Peer {
    pub(super) fn new(id: ShardId, node: Node, pool: usize) -> Peer {
        let lanes = (0..pool).map(|_| Arc::new(Lane::new(node.clone()))).collect();
        Peer { id, node, lanes, warning: Mutex::default(), used: AtomicBool::new(false) }
    }

    /// The lane for keys of this hash, so that claims on one key meet.
    pub(in crate::redis) fn lane(&self, hash: u64) -> Option<&Arc<Lane>> {
        self.lanes.get((hash % self.lanes.len().max(1) as u64) as usize)
    }

    pub(in crate::redis) fn lanes(&self) -> &[Arc<Lane>] {
        &self.lanes
    }

    /// What is not as it should be, from now on.
    pub(in crate::redis) fn warn(&self, warning: Option<String>) {
        *self.warning.lock().unwrap_or_else(PoisonError::into_inner) = warning;
    }

    pub(super) fn info(&self) -> ShardInfo {
        let warning = self.warning.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ShardInfo { id: self.id, name: self.node.to_string(), warning }
    }
}
