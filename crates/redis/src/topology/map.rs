//! The slot map, and the nodes in it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use crate::lane::Lane;
use tollgate_redis_address::Node;
use tollgate_store::sharded::{ShardId, ShardInfo};

/// Which node serves a slot.
#[derive(Clone)]
pub(super) enum SlotMap {
    /// One node for everything, once it is discovered.
    Whole(Option<Arc<PeerNode>>),
    /// For each slot an index into the nodes.
    Divided { slots: Vec<Option<u16>>, peers: Vec<Arc<PeerNode>> },
}

/// A node, and the lanes to it.
pub(crate) struct PeerNode {
    pub(super) id: ShardId,
    pub(super) node: Node,
    pub(super) lanes: Vec<Arc<Lane>>,
    warning: Mutex<Option<String>>,
    /// Used although it serves no slot, since the map was last replaced.
    pub(super) used: AtomicBool,
}

impl SlotMap {
    pub(super) fn peer(&self, slot: u16) -> Option<&Arc<PeerNode>> {
        match self {
            SlotMap::Whole(peer) => peer.as_ref(),
            SlotMap::Divided { slots, peers } => peers.get(usize::from((*slots.get(usize::from(slot))?)?)),
        }
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = &Arc<PeerNode>> {
        let (one, many) = match self {
            SlotMap::Whole(peer) => (peer.as_ref(), &[][..]),
            SlotMap::Divided { peers, .. } => (None, &peers[..]),
        };
        one.into_iter().chain(many)
    }

    /// Whether a node of the map has slots: it may have lost its last one.
    pub(super) fn serves(&self, peer: &PeerNode) -> bool {
        match self {
            SlotMap::Whole(_) => true,
            SlotMap::Divided { slots, peers } => {
                let index = peers.iter().position(|other| other.id == peer.id).and_then(|at| u16::try_from(at).ok());
                index.is_some() && slots.contains(&index)
            }
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        match self {
            SlotMap::Whole(peer) => peer.is_some(),
            SlotMap::Divided { slots, .. } => !slots.contains(&None),
        }
    }
}

impl PeerNode {
    pub(super) fn new(id: ShardId, node: Node, pool: usize) -> PeerNode {
        let lanes = (0..pool).map(|_| Arc::new(Lane::new(node.clone()))).collect();
        PeerNode { id, node, lanes, warning: Mutex::default(), used: AtomicBool::new(false) }
    }

    /// The lane for keys of this hash. Claims on one key share a lane.
    pub(crate) fn lane(&self, hash: u64) -> Option<&Arc<Lane>> {
        self.lanes.get((hash % self.lanes.len().max(1) as u64) as usize)
    }

    pub(crate) fn lanes(&self) -> &[Arc<Lane>] {
        &self.lanes
    }

    /// Sets or clears the node's warning.
    pub(crate) fn warn(&self, warning: Option<String>) {
        *self.warning.lock().unwrap_or_else(PoisonError::into_inner) = warning;
    }

    pub(super) fn info(&self) -> ShardInfo {
        let warning = self.warning.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ShardInfo { id: self.id, name: self.node.to_string(), warning }
    }
}
