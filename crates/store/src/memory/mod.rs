//! The in-memory store: counters on one machine, exact with concurrent threads, bounded.
//!
//! A caller's counters share a shard, so a claim on them takes one lock. A claim on several partitions takes its
//! locks in order. The store never waits for anything else, so its future is ready at the first poll.

mod hash;
mod once;
mod shard;
mod snapshot;
mod table;

use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate_core::{Claim, Once, Settlement, Span, StateSlot, Timestamp, settle_into};

use crate::Store;
use crate::clock::{Clock, SystemClock};
use hash::{KeyHash, KeyHasher};
use shard::MemoryShard;

pub use snapshot::{RestoreReport, SnapshotError, SnapshotStats};

/// Counters in memory.
#[derive(Debug)]
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    hasher: KeyHasher,
    shards: Box<[PaddedShard]>,
}

/// The bounds of an in-memory store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// The maximum number of counters. Beyond it stale counters are removed, then those that would be stale soonest.
    pub max_keys: usize,
    /// The maximum number of idempotency records. Beyond it the oldest are removed.
    pub max_once: usize,
    /// How long a stale counter is retained while there is room. It is still needed by a claim whose clock was read
    /// earlier, or after the clock was set back, by up to this time.
    pub grace: Span,
}

/// The size of an in-memory store, and the number of removed entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Counters, including stale ones that were not swept yet.
    pub keys: usize,
    /// Stale counters that were removed.
    pub swept: u64,
    /// Live counters that were removed because the store was full. Their callers start with a fresh counter.
    pub evicted: u64,
    /// Idempotency records.
    pub once: usize,
    /// Idempotency records that were removed before their expiry because there were too many.
    pub once_evicted: u64,
}

/// A shard on its own cache lines, so that threads on different shards do not slow each other down.
#[derive(Debug)]
#[repr(align(128))]
struct PaddedShard(Mutex<MemoryShard>);

/// The maximum number of shards, a power of two.
const MAX_SHARDS: usize = 256;

impl Default for MemoryConfig {
    fn default() -> MemoryConfig {
        MemoryConfig { max_keys: 10_000_000, max_once: 1_000_000, grace: Span::from_secs(10) }
    }
}

impl MemoryConfig {
    /// A store of this size, on the machine's clock.
    pub fn build(self) -> MemoryStore {
        self.build_with(SystemClock::default())
    }

    /// A store of this size, on a clock of the caller's.
    pub fn build_with<C: Clock>(self, clock: C) -> MemoryStore<C> {
        const KEYS_WORTH_A_SHARD: usize = 1024;
        let shards = (self.max_keys / KEYS_WORTH_A_SHARD).clamp(1, MAX_SHARDS).next_power_of_two();
        MemoryStore { clock, hasher: KeyHasher::random(), shards: self.padded_shards(shards) }
    }

    /// Empty shards that share the bounds.
    fn padded_shards(self, shards: usize) -> Box<[PaddedShard]> {
        let padded_shard = |_| {
            let (max_keys, max_once) = (self.max_keys.div_ceil(shards).max(1), self.max_once.div_ceil(shards).max(1));
            let shard = MemoryShard::new(max_keys, max_once, self.grace);
            PaddedShard(Mutex::new(shard))
        };
        (0..shards).map(padded_shard).collect()
    }
}

impl<C: Clock> MemoryStore<C> {
    /// What it holds now.
    pub fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats::default();
        for at in 0..self.shards.len() {
            self.lock(at).add_to(&mut stats);
        }
        stats
    }

    /// How often counters and records were written since the store was made: for those who keep copies of it.
    pub fn changes(&self) -> u64 {
        (0..self.shards.len()).map(|at| self.lock(at).changes()).sum()
    }

    /// The clock by which it decides.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    pub(crate) fn settle_now(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let now = self.clock.now();
        let mut hashes = SmallVec::new();
        self.hasher.hash_all(claim, &mut hashes);
        let hashes = &hashes[..];
        let once = claim.once.as_ref().map(|once| (once, self.hasher.hash(&once.key)));
        let numbers = || hashes.iter().chain(once.as_ref().map(|(_, hash)| hash)).map(|hash| self.number(*hash));
        let Some(first) = numbers().next() else {
            return settle_into(claim, &mut [], now, settlement);
        };
        if numbers().all(|number| number == first) {
            settle_locked(claim, hashes, once, now, &mut *self.lock(first), settlement);
        } else {
            settle_locked(claim, hashes, once, now, &mut self.lock_all(numbers().collect()), settlement);
        }
    }

    /// Locks several shards, each once, in the order of their numbers.
    fn lock_all(&self, mut numbers: Vec<usize>) -> SeveralShards<'_> {
        numbers.sort_unstable();
        numbers.dedup();
        let guards = numbers.into_iter().map(|number| (number, self.lock(number))).collect();
        SeveralShards { bits: self.bits(), guards }
    }

    fn lock(&self, number: usize) -> MutexGuard<'_, MemoryShard> {
        // A panic in `settle` would leave the states it borrowed fresh, which is a state like any other.
        self.shards[number].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self, hash: KeyHash) -> usize {
        hash.shard(self.bits())
    }

    fn bits(&self) -> u32 {
        self.shards.len().trailing_zeros()
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        self.settle_now(claim, settlement);
    }

    fn never_waits(&self) -> bool {
        true
    }
}

/// The shards that a claim needs, held.
trait LockedShards {
    fn shard(&mut self, hash: KeyHash) -> &mut MemoryShard;
}

/// Most claims are in one partition.
impl LockedShards for MemoryShard {
    fn shard(&mut self, _print: KeyHash) -> &mut MemoryShard {
        self
    }
}

struct SeveralShards<'a> {
    bits: u32,
    guards: Vec<(usize, MutexGuard<'a, MemoryShard>)>,
}

impl LockedShards for SeveralShards<'_> {
    fn shard(&mut self, hash: KeyHash) -> &mut MemoryShard {
        let number = hash.shard(self.bits);
        let at = self.guards.partition_point(|(locked, _)| *locked < number);
        &mut self.guards[at].1
    }
}

fn settle_locked(
    claim: &Claim<'_>,
    hashes: &[KeyHash],
    once: Option<(&Once<'_>, KeyHash)>,
    now: Timestamp,
    shards: &mut impl LockedShards,
    settlement: &mut Settlement,
) {
    if let Some((once, hash)) = once
        && let Some(before) = shards.shard(hash).replay(hash, once, claim, now)
    {
        *settlement = before;
        return;
    }
    if hashes.len() > 1 {
        for (hash, charge) in hashes.iter().zip(&claim.charges) {
            shards.shard(*hash).prefetch(hash.key, charge.limit);
        }
    }
    let mut slots = SmallVec::<[StateSlot; 4]>::new();
    for (at, (hash, charge)) in hashes.iter().zip(&claim.charges).enumerate() {
        match hashes[..at].iter().position(|other| other.key == hash.key) {
            None => shards.shard(*hash).lend(hash.key, charge.limit, &mut slots),
            Some(earlier) => slots.push(StateSlot::same_as(earlier)),
        }
    }
    settle_into(claim, &mut slots, now, settlement);
    for (hash, slot) in hashes.iter().zip(&mut slots) {
        shards.shard(*hash).take_back(hash.key, slot, now);
    }
    if let Some((once, hash)) = once.filter(|(once, _)| once.keep > Span::ZERO) {
        shards.shard(hash).record_answer(hash, once, claim, settlement);
    }
}
