//! The in-memory store: counters on one machine, exact under threads, bounded.
//!
//! A caller's counters share a shard, so a claim on them is one lock; a claim over several partitions takes its locks in
//! order. The store never waits for anything else, so its future is ready at the first poll.

mod hash;
mod once;
mod shard;
mod snapshot;
mod table;

use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate_core::{Claim, Once, Reading, Replay, Settlement, Slot, Source, Span, Timestamp, Wait, settle_into};

use crate::clock::{Clock, SystemClock};
use crate::{Immediate, Store};
use hash::{Hasher, Print};
use shard::Shard;

pub use snapshot::{Restored, SnapshotError, SnapshotStats};

/// Counters in memory.
#[derive(Debug)]
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    hasher: Hasher,
    shards: Box<[Lane]>,
}

/// How large an in-memory store may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// The most counters. Past it the stale ones go, and then those that would be stale soonest.
    pub max_keys: usize,
    /// The most records of claims that are settled once. Past it the oldest go.
    pub max_once: usize,
    /// How long a stale counter is kept while there is room: it matters again to a claim whose clock was read before, or was set
    /// back, by no more than this.
    pub grace: Span,
}

/// What an in-memory store holds and what it had to give up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Counters, stale ones that nobody has swept yet included.
    pub keys: usize,
    /// Stale counters that were removed.
    pub swept: u64,
    /// Live counters that were removed because the store was full: their callers start afresh.
    pub evicted: u64,
    /// Records of claims that are settled once.
    pub once: usize,
    /// Such records that were removed before their time because there were too many.
    pub once_evicted: u64,
}

/// A shard on cache lines of its own, so that threads on different shards do not slow each other down.
#[derive(Debug)]
#[repr(align(128))]
struct Lane(Mutex<Shard>);

/// A power of two.
const MOST_SHARDS: usize = 256;

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
        let shards = (self.max_keys / KEYS_WORTH_A_SHARD).clamp(1, MOST_SHARDS).next_power_of_two();
        MemoryStore { clock, hasher: Hasher::random(), shards: self.lanes(shards) }
    }

    /// Empty shards that share the bounds.
    fn lanes(self, shards: usize) -> Box<[Lane]> {
        let lane = |_| {
            let (max_keys, max_once) = (self.max_keys.div_ceil(shards).max(1), self.max_once.div_ceil(shards).max(1));
            let shard = Shard::new(max_keys, max_once, self.grace);
            Lane(Mutex::new(shard))
        };
        (0..shards).map(lane).collect()
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

    fn settle_now(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        let now = self.clock.now();
        let mut prints = SmallVec::new();
        self.hasher.print_all(claim, &mut prints);
        let prints = &prints[..];
        let once = claim.once.as_ref().map(|once| (once, self.hasher.print(&once.key)));
        let numbers = || prints.iter().chain(once.as_ref().map(|(_, print)| print)).map(|print| self.number(*print));
        let Some(first) = numbers().next() else {
            return settle_into(claim, &mut [], now, settlement);
        };
        if numbers().all(|number| number == first) {
            settle_held(claim, prints, once, now, &mut *self.lock(first), settlement);
        } else {
            settle_held(claim, prints, once, now, &mut self.lock_all(numbers().collect()), settlement);
        }
    }

    /// Locks several shards, each once, in the order of their numbers.
    fn lock_all(&self, mut numbers: Vec<usize>) -> Several<'_> {
        numbers.sort_unstable();
        numbers.dedup();
        let guards = numbers.into_iter().map(|number| (number, self.lock(number))).collect();
        Several { bits: self.bits(), guards }
    }

    fn lock(&self, number: usize) -> MutexGuard<'_, Shard> {
        // A panic in `settle` would leave the states it borrowed fresh, which is a state like any other.
        self.shards[number].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self, print: Print) -> usize {
        print.shard(self.bits())
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

impl<C: Clock> Immediate for MemoryStore<C> {}

/// The shards that a claim needs, held.
trait Held {
    fn shard(&mut self, print: Print) -> &mut Shard;
}

/// Most claims are in one partition.
impl Held for Shard {
    fn shard(&mut self, _print: Print) -> &mut Shard {
        self
    }
}

struct Several<'a> {
    bits: u32,
    guards: Vec<(usize, MutexGuard<'a, Shard>)>,
}

impl Held for Several<'_> {
    fn shard(&mut self, print: Print) -> &mut Shard {
        let number = print.shard(self.bits);
        let at = self.guards.partition_point(|(held, _)| *held < number);
        &mut self.guards[at].1
    }
}

fn settle_held(
    claim: &Claim<'_>,
    prints: &[Print],
    once: Option<(&Once<'_>, Print)>,
    now: Timestamp,
    held: &mut impl Held,
    settlement: &mut Settlement,
) {
    if let Some((once, print)) = once
        && let Some(before) = held.shard(print).replay(print, once, claim, now)
    {
        *settlement = before;
        return;
    }
    if prints.len() > 1 {
        for (print, charge) in prints.iter().zip(&claim.charges) {
            held.shard(*print).touch(print.key, charge.limit);
        }
    }
    let mut slots = SmallVec::<[Slot; 4]>::new();
    for (at, (print, charge)) in prints.iter().zip(&claim.charges).enumerate() {
        match prints[..at].iter().position(|other| other.key == print.key) {
            None => held.shard(*print).lend(print.key, charge.limit, &mut slots),
            Some(earlier) => slots.push(Slot::same_as(earlier)),
        }
    }
    settle_into(claim, &mut slots, now, settlement);
    for (print, slot) in prints.iter().zip(&mut slots) {
        held.shard(*print).take_back(print.key, slot, now);
    }
    if let Some((once, print)) = once.filter(|(once, _)| once.keep > Span::ZERO) {
        held.shard(print).remember(print, once, claim, settlement);
    }
}

/// A settlement that says that another claim has this name.
fn conflict(claim: &Claim<'_>, now: Timestamp) -> Settlement {
    let refused = claim.charges.iter().map(|_| Reading {
        admits: false,
        taken: 0,
        remaining: 0,
        wait: Wait::Forever,
        reset_after: Span::ZERO,
        delay: Span::ZERO,
        source: Source::Store,
    });
    Settlement { readings: refused.collect(), at: now, replay: Replay::Conflict }
}
