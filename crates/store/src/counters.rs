//! The store of a server, chosen at run time: its own memory, or a store that it shares with other servers.

use std::fmt::Debug;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tollgate_core::{Claim, Key, Settlement, Source};

use crate::Store;
use crate::debits::DebitStatus;
use crate::guarded::{GuardStatus, Level, SavedGuard};
use crate::leased::{LeaseStatus, PurgedLeases};
use crate::memory::MemoryStore;
use crate::sharded::TransportStats;
use crate::summed::SummedStatus;

/// Counters in memory or in a shared store.
#[derive(Debug)]
pub enum Counters {
    /// Never waits. A check is polled once, and its future is not a part of the caller's future, which is moved for
    /// every request and should be small.
    Memory(MemoryStore),
    /// Waits for the network. Its futures are boxed, so that the futures of checks are as small as with memory alone.
    Shared(Arc<dyn SharedStore>),
}

/// A store that several servers share.
pub trait SharedStore: Debug + Send + Sync {
    /// As [`Store::settle_into`]. `None` if the claim is settled already: few claims on leased keys have to wait, and the
    /// others need no future.
    fn settle<'a>(&'a self, claim: &'a Claim<'_>, settlement: &'a mut Settlement) -> Option<SettleFuture<'a>>;

    /// As [`Store::assume`].
    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement);

    /// The availability as of the last [`refresh`](SharedStore::refresh). Read for every request, so it must be
    /// cheap.
    fn level(&self) -> Level;

    /// The state and statistics.
    fn status(&self) -> SharedStatus;

    /// Like [`status`](SharedStore::status), and updates the level that [`level`](SharedStore::level) returns.
    fn refresh(&self) -> SharedStatus;

    /// Waits until the store answers, but no longer than the timeout.
    fn wait_until_ready(&self, timeout: Duration) -> ReadyFuture<'_>;

    /// The state to pass to the store after a restart, for the case that the shards are unavailable then.
    fn save(&self) -> SavedGuard;

    /// The leased keys, of which the busiest are listed.
    fn leases(&self, _hot_keys: usize) -> LeaseStatus {
        LeaseStatus::default()
    }

    /// Stops leasing, or begins again. What is held is given back within a moment.
    fn set_leases(&self, _is_enabled: bool) {}

    /// Gives back what is held of keys, and forgets what is known of them.
    fn purge_leases(&self, _is_purged: &dyn Fn(&Key<'_>) -> bool) -> PurgedLeases {
        PurgedLeases::default()
    }

    /// Drops cached refusals of keys. Returns their number.
    fn purge_refusals(&self, _is_purged: &dyn Fn(&Key<'_>) -> bool) -> usize {
        0
    }

    /// The value that all servers of this store have under a name: the proposal, unless another server proposed a
    /// value before. The error says why there is none.
    fn agree_on<'a>(&'a self, name: &'a str, proposal: &'a [u8], timeout: Duration) -> AgreeFuture<'a>;

    /// Adds an entry to a bulletin: a few short texts that all servers of all regions read. It is retained for a day after its last
    /// change. Each region has the bulletin by itself and is waited for no longer than the timeout.
    fn publish<'a>(&'a self, _: &'a str, _: BulletinEntry<'a>, _: Duration) -> BulletinFuture<'a, ()> {
        Box::pin(async { vec![InRegion::here(Err("this store has no bulletins".to_owned()))] })
    }

    /// The entries of a bulletin in each region: their ids and texts.
    fn published<'a>(&'a self, _: &'a str, _: Duration) -> BulletinFuture<'a, Vec<(String, Vec<u8>)>> {
        Box::pin(async { vec![InRegion::here(Err("this store has no bulletins".to_owned()))] })
    }
}

/// An entry of a bulletin.
#[derive(Clone, Copy, Debug)]
pub struct BulletinEntry<'a> {
    /// Unique within the bulletin.
    pub id: &'a str,
    /// What it says. An existing entry that an empty text replaces is removed.
    pub text: &'a [u8],
    /// Whether an existing entry with this id is replaced; otherwise it stays.
    pub is_replaced: bool,
}

/// What a region answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InRegion<T> {
    /// The region's name; `None` for this one.
    pub region: Option<String>,
    /// The answer, or why there is none.
    pub answer: Result<T, String>,
}

impl<T> InRegion<T> {
    /// The answer of this region.
    pub fn here(answer: Result<T, String>) -> InRegion<T> {
        InRegion { region: None, answer }
    }
}

/// The future of [`SharedStore::settle`].
pub type SettleFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
/// The future of [`SharedStore::wait_until_ready`]: whether the store answers.
pub type ReadyFuture<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;
/// The future of [`SharedStore::publish`] and [`SharedStore::published`]: the answers of all regions, this one's first.
pub type BulletinFuture<'a, T> = Pin<Box<dyn Future<Output = Vec<InRegion<T>>> + Send + 'a>>;
/// The future of [`SharedStore::agree_on`].
pub type AgreeFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + 'a>>;

/// The state of a shared store.
#[derive(Clone, Debug, Default)]
pub struct SharedStatus {
    /// The shards, and the decisions that were made without them.
    pub guard: GuardStatus,
    /// The traffic to the shards.
    pub transport: TransportStats,
    /// The units that are taken ahead of requests. The list of busy keys is empty.
    pub leases: LeaseStatus,
    /// The counters that each server counts by itself.
    pub sums: SummedStatus,
    /// The debits for each other region.
    pub debits: Vec<DebitStatus>,
}

impl Counters {
    /// The store, if it is in memory.
    pub fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Counters::Memory(store) => Some(store),
            Counters::Shared(_) => None,
        }
    }

    /// The store, if it is shared.
    pub fn shared(&self) -> Option<&dyn SharedStore> {
        match self {
            Counters::Memory(_) => None,
            Counters::Shared(store) => Some(&**store),
        }
    }
}

impl From<MemoryStore> for Counters {
    fn from(store: MemoryStore) -> Counters {
        Counters::Memory(store)
    }
}

impl Store for Counters {
    fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) -> impl Future<Output = ()> + Send {
        let left = match self {
            Counters::Memory(store) => {
                // It never waits, so nothing is left for the future, which stays small.
                let _ = pin!(store.settle_into(claim, settlement)).poll(&mut Context::from_waker(Waker::noop()));
                None
            }
            Counters::Shared(store) => Some((store, claim, settlement)),
        };
        async move {
            if let Some((store, claim, settlement)) = left
                && let Some(settling) = store.settle(claim, settlement)
            {
                settling.await;
            }
        }
    }

    fn never_waits(&self) -> bool {
        matches!(self, Counters::Memory(_))
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        match self {
            Counters::Memory(store) => store.assume(claim, source, settlement),
            Counters::Shared(store) => store.assume(claim, source, settlement),
        }
    }
}
