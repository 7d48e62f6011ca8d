//! Which requests are recorded. Read by every decision, and written every few seconds.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use tollgate::Timestamp;

use crate::decision_log::random;

/// The callers that are recorded.
#[derive(Debug)]
pub(super) struct Selection {
    /// Callers with a digest of at most this are recorded.
    below: AtomicU64,
    /// The most that `below` may be.
    max_below: u64,
    busy: Box<[BusyCaller; BUSY_SLOTS]>,
    votes: Box<[Vote; VOTE_SLOTS]>,
    /// Records since the last adjustment, without those of busy callers.
    recorded: AtomicU64,
    /// After so many of them, the bound is lowered at once.
    max_recorded: AtomicU64,
    /// The time of the last adjustment, in microseconds.
    adjusted_at: AtomicU64,
}

/// A caller of whose requests one in `2^shift` is recorded.
#[derive(Debug, Default)]
struct BusyCaller {
    digest: AtomicU64,
    shift: AtomicU8,
}

/// Finds the callers with the most requests: of those that share a slot, the one with the majority stays.
#[derive(Debug, Default)]
struct Vote {
    digest: AtomicU64,
    count: AtomicU32,
}

/// The callers that are recorded because they are busy.
pub const MAX_BUSY_CALLERS: usize = 64;
/// Callers with at least so many requests a second may be among them.
pub const MIN_BUSY_RATE: u64 = 2;

const BUSY_SLOTS: usize = 256;
const VOTE_SLOTS: usize = 1_024;
/// One decision in so many votes. A power of two.
const VOTES_ONE_IN: u64 = 16;
/// Of a busy caller, so many requests are recorded in two seconds, or up to twice as many.
const BUSY_RECORDS_IN_TWO_SECONDS: u64 = 1;
const MAX_SHIFT: u8 = 20;
/// The bound is lowered at once after the records of so many seconds.
const BURST_SECONDS: u64 = 20;
/// Before anything is known, so many records a second fit.
const FIRST_RECORDS_PER_SECOND: u64 = 200;

impl Selection {
    pub(super) fn new(max_callers_bps: u16) -> Selection {
        let max_below = match max_callers_bps {
            10_000.. => u64::MAX,
            bps => (u128::from(u64::MAX) * u128::from(bps) / 10_000) as u64,
        };
        Selection {
            below: AtomicU64::new(max_below),
            max_below,
            busy: Box::new([const { BusyCaller { digest: AtomicU64::new(0), shift: AtomicU8::new(0) } }; BUSY_SLOTS]),
            votes: Box::new([const { Vote { digest: AtomicU64::new(0), count: AtomicU32::new(0) } }; VOTE_SLOTS]),
            recorded: AtomicU64::new(0),
            max_recorded: AtomicU64::new(FIRST_RECORDS_PER_SECOND * BURST_SECONDS),
            adjusted_at: AtomicU64::new(0),
        }
    }

    /// How many requests of its caller the request stands for, if it is recorded.
    #[inline]
    pub(super) fn select(&self, digest: u64, is_caller: bool) -> Option<u32> {
        if is_caller {
            let draw = random();
            if draw.is_multiple_of(VOTES_ONE_IN) {
                self.votes[digest as usize % VOTE_SLOTS].count(digest);
            }
            let busy = &self.busy[digest as usize % BUSY_SLOTS];
            if busy.digest.load(Ordering::Relaxed) == digest && digest != 0 {
                let copies = 1u32 << busy.shift.load(Ordering::Relaxed).min(MAX_SHIFT);
                return (draw >> 32).is_multiple_of(copies.into()).then_some(copies);
            }
        }
        if digest > self.below.load(Ordering::Relaxed) {
            return None;
        }
        self.count_record();
        Some(1)
    }

    /// Whether requests of a caller with this digest are recorded.
    pub(super) fn includes(&self, digest: u64) -> bool {
        let busy = &self.busy[digest as usize % BUSY_SLOTS];
        digest <= self.below() || busy.digest.load(Ordering::Relaxed) == digest
    }

    fn count_record(&self) {
        let (recorded, most) =
            (self.recorded.fetch_add(1, Ordering::Relaxed) + 1, self.max_recorded.load(Ordering::Relaxed));
        if recorded > most {
            let below = self.below.load(Ordering::Relaxed);
            // Of threads that find it at the same time, one lowers it.
            let lowered = self.below.compare_exchange(below, below / 2, Ordering::Relaxed, Ordering::Relaxed);
            if lowered.is_ok() {
                self.recorded.store(most / 2, Ordering::Relaxed);
            }
        }
    }

    /// Follows the traffic since the last call. `per_hour` records fit into the sample. Returns the bound of digests, which is
    /// the lowest since then.
    pub(super) fn adjust(&self, now: Timestamp, per_hour: u64) -> Option<u64> {
        let before = self.adjusted_at.swap(now.as_micros(), Ordering::Relaxed);
        let millis = now.as_micros().saturating_sub(before) / 1_000;
        if before == 0 || millis == 0 {
            return None;
        }
        self.adjust_busy(millis);
        let recorded = self.recorded.swap(0, Ordering::Relaxed);
        self.max_recorded.store((per_hour * BURST_SECONDS / 3_600).max(BURST_SECONDS), Ordering::Relaxed);
        let rate = recorded * 3_600_000 / millis;
        let lowest = self.below.load(Ordering::Relaxed);
        let below = match () {
            () if rate > per_hour => lowest / (rate / per_hour.max(1) + 1).next_power_of_two(),
            () if rate * 4 < per_hour => lowest.saturating_mul(2).max(1).min(self.max_below),
            () => lowest,
        };
        self.below.store(below, Ordering::Relaxed);
        Some(below.min(lowest))
    }

    fn adjust_busy(&self, millis: u64) {
        let mut busy: Vec<(u64, u64)> = Vec::new();
        for vote in self.votes.iter() {
            let count = u64::from(vote.count.swap(0, Ordering::Relaxed)) * VOTES_ONE_IN;
            let digest = vote.digest.load(Ordering::Relaxed);
            if count * 1_000 >= MIN_BUSY_RATE * millis && digest != 0 {
                busy.push((count, digest));
            }
        }
        busy.sort_unstable_by(|one, other| other.cmp(one));
        busy.truncate(MAX_BUSY_CALLERS);
        let mut slots = [(0, 0); BUSY_SLOTS];
        for (count, digest) in busy {
            let slot = &mut slots[digest as usize % BUSY_SLOTS];
            if slot.0 == 0 {
                let one_in = count * 2_000 / (millis * BUSY_RECORDS_IN_TWO_SECONDS).max(1);
                *slot = (digest, (one_in.max(1).ilog2() as u8).min(MAX_SHIFT));
            }
        }
        for (slot, (digest, shift)) in self.busy.iter().zip(slots) {
            slot.shift.store(shift, Ordering::Relaxed);
            slot.digest.store(digest, Ordering::Relaxed);
        }
    }

    /// The time of the last adjustment, for requests that have none of their own.
    pub(super) fn now(&self) -> u64 {
        self.adjusted_at.load(Ordering::Relaxed)
    }

    pub(super) fn below(&self) -> u64 {
        self.below.load(Ordering::Relaxed)
    }

    pub(super) fn callers_bps(&self) -> u16 {
        ((u128::from(self.below()) * 10_000) >> 64).min(10_000) as u16 + u16::from(self.below() == u64::MAX)
    }

    pub(super) fn busy_callers(&self) -> u64 {
        self.busy.iter().filter(|slot| slot.digest.load(Ordering::Relaxed) != 0).count() as u64
    }
}

impl Vote {
    fn count(&self, digest: u64) {
        if self.digest.load(Ordering::Relaxed) == digest {
            self.count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match self.count.load(Ordering::Relaxed) {
            0 => {
                self.digest.store(digest, Ordering::Relaxed);
                self.count.store(1, Ordering::Relaxed);
            }
            // A lost update is one vote less.
            count => self.count.store(count - 1, Ordering::Relaxed),
        }
    }
}
