//! The in-memory store: counters on one machine, exact with concurrent threads, bounded.
//!
//! A caller's counters share a shard, so a claim on them takes one lock. A claim on several partitions takes its
//! locks in order. The store never waits for anything else, so its future is ready at the first poll.
//!
//! A full store removes stale counters, then evicts those of least worth (`worth`, `eviction`), within the share of each
//! rule (`shares`). If only counters that refuse are left, new keys get none of their own (`overflow`).

mod eviction;
mod hash;
mod once;
mod overflow;
mod shard;
mod shares;
mod snapshot;
mod table;
mod worth;

use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate_core::{Ask, Charge, Claim, Once, Settlement, Span, StateSlot, Timestamp, settle_charge, settle_into};

use crate::Store;
use crate::clock::{Clock, SystemClock};
use hash::{KeyHash, KeyHasher};
use once::{OnceBounds, StoredAnswers};
use overflow::Overflow;
use shard::{MemoryShard, ShardBounds};

pub use snapshot::{RestoreReport, SnapshotError, SnapshotStats};

/// Counters in memory.
#[derive(Debug)]
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    hasher: KeyHasher,
    shards: Box<[PaddedShard]>,
    /// Of a claim's locks, this one is taken after the shards.
    answers: Box<[Mutex<StoredAnswers>]>,
    overflow: Overflow,
}

/// The bounds of an in-memory store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// The maximum number of counters. Beyond it stale counters are removed, then those with the most room left.
    /// Counters that refuse stay: if only these are left, the new keys of a rule share one counter, or are refused if
    /// that is the rule's answer to failures.
    pub max_keys: usize,
    /// The part of `max_keys`, in basis points (10,000 is all of it), that the counters of one rule can have at the
    /// expense of other rules. Half of `max_keys` is guaranteed to the rules with counters, in equal parts.
    pub rule_share_bps: u16,
    /// The maximum number of idempotency records. Beyond it expired ones are removed, then those that expire soonest.
    pub max_once: usize,
    /// The maximum number of idempotency records of a caller.
    pub max_once_per_caller: usize,
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
    /// Charges of keys without a counter that were counted together, because the store was full of counters that refuse.
    pub coarse: u64,
    /// Charges of keys without a counter that were refused for this reason.
    pub uncounted: u64,
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
/// The maximum number of tables of idempotency records, a power of two. They are fewer than the shards, so that a caller
/// can have many records.
const MAX_ANSWER_TABLES: usize = 16;

impl Default for MemoryConfig {
    fn default() -> MemoryConfig {
        MemoryConfig {
            max_keys: 10_000_000,
            rule_share_bps: 5_000,
            max_once: 1_000_000,
            max_once_per_caller: 10_000,
            grace: Span::from_secs(10),
        }
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
        self.build_empty(clock, KeyHasher::random(), shards)
    }

    /// An empty store with a number of shards, which is a power of two.
    fn build_empty<C>(self, clock: C, hasher: KeyHasher, shards: usize) -> MemoryStore<C> {
        let max_keys = self.max_keys.div_ceil(shards).max(1);
        let share = (max_keys as u128 * u128::from(self.rule_share_bps.min(10_000)) / 10_000) as usize;
        let bounds = ShardBounds { max_keys, share, grace: self.grace };
        let tables = shards.min(MAX_ANSWER_TABLES);
        let max = self.max_once.div_ceil(tables).max(1);
        // Callers share a table, and none of them can have all of it.
        let once = OnceBounds { max, max_per_caller: self.max_once_per_caller.min(max / 2).max(1) };
        MemoryStore {
            clock,
            hasher,
            shards: (0..shards).map(|_| PaddedShard(Mutex::new(MemoryShard::new(bounds)))).collect(),
            answers: (0..tables).map(|_| Mutex::new(StoredAnswers::new(once))).collect(),
            overflow: Overflow::default(),
        }
    }
}

impl<C: Clock> MemoryStore<C> {
    /// What it holds now.
    pub fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats::default();
        for at in 0..self.shards.len() {
            self.lock(at).add_to(&mut stats);
        }
        for at in 0..self.answers.len() {
            let answers = self.lock_answers(at);
            stats.once += answers.len();
            stats.once_evicted += answers.evicted();
        }
        (stats.coarse, stats.uncounted) = self.overflow.counts();
        stats
    }

    /// How often counters and records were written since the store was made: for those who keep copies of it.
    pub fn changes(&self) -> u64 {
        let counters: u64 = (0..self.shards.len()).map(|at| self.lock(at).changes()).sum();
        let answers: u64 = (0..self.answers.len()).map(|at| self.lock_answers(at).stored()).sum();
        counters + answers
    }

    /// The clock by which it decides.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    pub(crate) fn settle_now(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let now = self.clock.now();
        if let ([charge], None) = (&claim.charges[..], &claim.once)
            && self.settle_charge(claim, charge, now, settlement)
        {
            return;
        }
        let mut hashes = SmallVec::new();
        self.hasher.hash_all(claim, &mut hashes);
        let hashes = &hashes[..];
        let mut numbers = hashes.iter().map(|hash| self.number(*hash));
        match numbers.next() {
            Some(first) if numbers.all(|number| number == first) => {
                self.settle_in(claim, hashes, now, &mut *self.lock(first), settlement);
            }
            _ => {
                let numbers = hashes.iter().map(|hash| self.number(*hash)).collect();
                self.settle_in(claim, hashes, now, &mut self.lock_all(numbers), settlement);
            }
        }
    }

    /// Settles a claim of one charge, as many are. `false` if there is no room for its counter.
    #[inline]
    fn settle_charge(
        &self,
        claim: &Claim<'_>,
        charge: &Charge<'_>,
        now: Timestamp,
        settlement: &mut Settlement,
    ) -> bool {
        let hash = self.hasher.hash(&charge.key);
        let shard = &mut *self.lock(self.number(hash));
        if charge.ask == Ask::Exactly
            && let Some(reading) = shard.settle(hash.key, claim.id, charge, now)
        {
            settlement.begin(now);
            settlement.readings.push(reading);
            return true;
        }
        let mut slot = StateSlot::default();
        if !shard.lend(hash.key, charge.limit, &mut slot) && shard.room() == 0 {
            return false;
        }
        settle_charge(claim.id, charge, &mut slot, now, settlement);
        if let Some(reading) = settlement.readings.first() {
            shard.take_back(hash.key, charge, reading, &mut slot, now);
        }
        true
    }

    /// Settles a claim in locked shards, unless it was settled before.
    #[inline]
    fn settle_in(
        &self,
        claim: &Claim<'_>,
        hashes: &[KeyHash],
        now: Timestamp,
        shards: &mut impl LockedShards,
        settlement: &mut Settlement,
    ) {
        match &claim.once {
            None => self.settle_locked(claim, hashes, now, shards, settlement),
            Some(once) => self.settle_once(claim, once, hashes, now, shards, settlement),
        }
    }

    #[inline(never)]
    fn settle_once(
        &self,
        claim: &Claim<'_>,
        once: &Once<'_>,
        hashes: &[KeyHash],
        now: Timestamp,
        shards: &mut impl LockedShards,
        settlement: &mut Settlement,
    ) {
        let hash = self.hasher.hash(&once.key);
        let mut answers = self.lock_answers(hash.shard(self.answers.len().trailing_zeros()));
        match answers.replay(hash.key, once, claim, now) {
            Some(before) => *settlement = before,
            None => {
                self.settle_locked(claim, hashes, now, shards, settlement);
                answers.record(hash, once, claim, settlement);
            }
        }
    }

    fn settle_locked(
        &self,
        claim: &Claim<'_>,
        hashes: &[KeyHash],
        now: Timestamp,
        shards: &mut impl LockedShards,
        settlement: &mut Settlement,
    ) {
        if hashes.len() > 1 {
            for (hash, charge) in hashes.iter().zip(&claim.charges) {
                shards.shard(*hash).prefetch(hash.key, charge.limit);
            }
        }
        let mut slots = SmallVec::<[StateSlot; 4]>::new();
        let mut has_room = true;
        for (at, (hash, charge)) in hashes.iter().zip(&claim.charges).enumerate() {
            match hashes[..at].iter().position(|other| other.key == hash.key) {
                None => {
                    let (shard, mut slot) = (shards.shard(*hash), StateSlot::default());
                    let is_there = shard.lend(hash.key, charge.limit, &mut slot);
                    slots.push(slot);
                    has_room &= is_there || shard.room() >= hashes.len();
                }
                Some(earlier) => slots.push(StateSlot::same_as(earlier)),
            }
        }
        let overflow = (!has_room).then(|| self.overflow.prepare(claim, hashes, &mut slots, shards, now));
        settle_into(claim, &mut slots, now, settlement);
        if let Some(overflow) = overflow {
            overflow.finish(claim, &mut slots, settlement);
            hashes.iter().for_each(|hash| shards.shard(*hash).end_reservations());
        }
        let charges = claim.charges.iter().zip(&settlement.readings);
        for ((hash, slot), (charge, reading)) in hashes.iter().zip(&mut slots).zip(charges) {
            shards.shard(*hash).take_back(hash.key, charge, reading, slot, now);
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

    fn lock_answers(&self, number: usize) -> MutexGuard<'_, StoredAnswers> {
        self.answers[number].lock().unwrap_or_else(PoisonError::into_inner)
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
