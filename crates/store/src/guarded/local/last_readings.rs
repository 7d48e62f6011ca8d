//! The store's last readings of counters. If their shard fails, this server continues from them instead of from zero.
//!
//! A table of fixed size, because every answer of the store is written here: a key has a place in one of a few entries
//! that lie together, and nothing is allocated. If they are all taken, the counter with the most room left is dropped,
//! so that a flood of new callers does not displace those that have used up their limits.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Algorithm, Ask, Charge, Limit, Mode, Reading, Source, Span, Timestamp, Wait};

/// The maximum number of readings.
pub(in crate::guarded) const MAX_READINGS: usize = 131_072;
/// The number of stripes, each with its own lock. A power of two.
const STRIPES: usize = 64;
/// The number of entries in which a key has its place.
const WAYS: usize = 8;
/// The number of such groups of entries in a stripe.
const SETS: usize = MAX_READINGS / STRIPES / WAYS;

/// The table.
#[derive(Debug)]
pub(super) struct LastReadings {
    /// A stripe is allocated when its first reading is recorded.
    stripes: Box<[Mutex<Box<[ReadingSet]>>]>,
}

/// The entries of the keys with the same place.
#[derive(Clone, Debug, Default)]
struct ReadingSet {
    /// A part of each key's hash, next to each other so that a look at one cache line finds a key. 0 if the entry is
    /// unused.
    tags: [u64; WAYS],
    readings: [LastReading; WAYS],
}

/// What the store last said about a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LastReading {
    /// The amount and the quota of its limit.
    limit: (u64, u64),
    /// The units that were left.
    pub(super) remaining: u64,
    /// When the answer arrived, by this server's clock.
    pub(super) at: Timestamp,
    /// When it has no effect any more: the quota is full again, or the period is over.
    until: Timestamp,
    /// A number of units for which there is no room …
    refused_units: u64,
    /// … before this time.
    pub(super) refused_until: Timestamp,
}

/// How much room a charge will probably find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::guarded) enum Room {
    /// Not enough.
    Refuses,
    /// Enough, but other claims may miss what this one takes.
    Tight,
    Enough,
}

/// Less than this share of a limit is little room …
const TIGHT_SHARE: u64 = 8;
/// … as is room for fewer than this many claims of the same size.
const TIGHT_CLAIMS: u64 = 8;

/// A reading and its place in the table, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::guarded) struct SavedReading(pub(in crate::guarded) [u64; SavedReading::NUMBERS]);

impl SavedReading {
    pub(in crate::guarded) const NUMBERS: usize = 9;
}

impl LastReadings {
    pub(super) fn new() -> LastReadings {
        LastReadings { stripes: (0..STRIPES).map(|_| Mutex::default()).collect() }
    }

    /// Records the answer of the store to a charge.
    pub(super) fn record(&self, key: u128, charge: &Charge<'_>, reading: &Reading, now: Timestamp) {
        let mut sets = self.stripe(key);
        if sets.is_empty() {
            if reading.remaining >= charge.limit.quota() {
                return;
            }
            *sets = vec![ReadingSet::default(); SETS].into();
        }
        sets[set_of(key)].record(tag_of(key), LastReading::new(charge, reading, now), now);
    }

    /// The last reading of a counter, if it still has an effect.
    pub(super) fn get(&self, key: u128, limit: &Limit, now: Timestamp) -> Option<LastReading> {
        let sets = self.stripe(key);
        let set = sets.get(set_of(key))?;
        let reading = set.readings[set.find(tag_of(key))?];
        reading.is_effective(now).then(|| reading.under(limit))
    }

    /// Records how much a counter in local memory has left, so that it is saved with the others.
    pub(super) fn record_local(&self, key: u128, limit: &Limit, remaining: u64, until: Timestamp, now: Timestamp) {
        let mut sets = self.stripe(key);
        if sets.is_empty() {
            *sets = vec![ReadingSet::default(); SETS].into();
        }
        let limit = (limit.amount(), limit.quota());
        let reading = LastReading { limit, remaining, at: now, until, ..LastReading::default() };
        sets[set_of(key)].record(tag_of(key), reading, now);
    }

    /// The readings that still have an effect, with their places.
    pub(super) fn effective(&self, now: Timestamp) -> Vec<SavedReading> {
        let mut all = Vec::new();
        for (number, stripe) in self.stripes.iter().enumerate() {
            let sets = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            for (at, set) in sets.iter().enumerate() {
                let used =
                    set.tags.iter().zip(&set.readings).filter(|(tag, reading)| **tag != 0 && reading.is_effective(now));
                let place = (number * SETS + at) as u64;
                all.extend(used.map(|(tag, reading)| {
                    SavedReading([
                        place,
                        *tag,
                        reading.limit.0,
                        reading.limit.1,
                        reading.remaining,
                        reading.at.as_micros(),
                        reading.until.as_micros(),
                        reading.refused_units,
                        reading.refused_until.as_micros(),
                    ])
                }));
            }
        }
        all
    }

    /// Restores saved readings. Places that do not exist are ignored.
    pub(super) fn restore(&self, saved: &[SavedReading], now: Timestamp) {
        for SavedReading([place, tag, amount, quota, remaining, at, until, refused_units, refused_until]) in saved {
            let (stripe, set) = (*place as usize / SETS, *place as usize % SETS);
            let Some(stripe) = self.stripes.get(stripe).filter(|_| *tag != 0) else { continue };
            let mut sets = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            if sets.is_empty() {
                *sets = vec![ReadingSet::default(); SETS].into();
            }
            let reading = LastReading {
                limit: (*amount, *quota),
                remaining: *remaining,
                at: Timestamp::from_micros(*at),
                until: Timestamp::from_micros(*until),
                refused_units: *refused_units,
                refused_until: Timestamp::from_micros(*refused_until),
            };
            if reading.is_effective(now) {
                sets[set].record(*tag, reading, now);
            }
        }
    }

    fn stripe(&self, key: u128) -> MutexGuard<'_, Box<[ReadingSet]>> {
        self.stripes[key as usize % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn set_of(key: u128) -> usize {
    key as usize / STRIPES % SETS
}

fn tag_of(key: u128) -> u64 {
    (key >> 64) as u64 | 1
}

impl ReadingSet {
    fn find(&self, tag: u64) -> Option<usize> {
        self.tags.iter().position(|other| *other == tag)
    }

    fn record(&mut self, tag: u64, mut reading: LastReading, now: Timestamp) {
        let found = self.find(tag);
        if let Some(at) = found {
            reading.keep_refusal(&self.readings[at], now);
        }
        let is_full = reading.remaining >= reading.limit.1;
        match (found, is_full) {
            // What a fresh counter has need not be recorded.
            (Some(at), true) => self.tags[at] = 0,
            (None, true) => {}
            (Some(at), false) => self.readings[at] = reading,
            (None, false) => {
                let room = |at: &usize| if self.tags[*at] == 0 { u64::MAX } else { self.readings[*at].room(now) };
                if let Some(at) = (0..WAYS).max_by_key(room).filter(|at| room(at) >= reading.room(now)) {
                    (self.tags[at], self.readings[at]) = (tag, reading);
                }
            }
        }
    }
}

impl LastReading {
    fn new(charge: &Charge<'_>, reading: &Reading, now: Timestamp) -> LastReading {
        let refused = match reading.wait {
            Wait::For(wait) if !reading.admits && charge.ask == Ask::Exactly => Some((charge.units, now.after(wait))),
            _ => None,
        };
        let (refused_units, refused_until) = refused.unwrap_or_default();
        // A sliding window also counts the units of the previous period.
        let carried = match charge.limit.algorithm() {
            Algorithm::SlidingWindow { .. } => charge.limit.period().span(),
            _ => Span::ZERO,
        };
        LastReading {
            limit: (charge.limit.amount(), charge.limit.quota()),
            remaining: reading.remaining,
            at: now,
            until: now.after(reading.reset_after).after(carried).max(refused_until),
            refused_units,
            refused_until,
        }
    }

    /// Keeps an earlier refusal that this reading does not contradict: a peek has no wait of its own.
    fn keep_refusal(&mut self, earlier: &LastReading, now: Timestamp) {
        let is_valid = self.refused_until <= now
            && now < earlier.refused_until
            && earlier.limit == self.limit
            && self.remaining < earlier.refused_units;
        if is_valid {
            (self.refused_units, self.refused_until) = (earlier.refused_units, earlier.refused_until);
            self.until = self.until.max(earlier.refused_until);
        }
    }

    /// A reading that is ahead of the clock is meaningless: the clock was set back. Threads that read the clock at the
    /// same time may differ a little.
    fn is_effective(&self, now: Timestamp) -> bool {
        const SLACK: Span = Span::from_secs(1);
        self.at <= now.after(SLACK) && now < self.until
    }

    /// How much room the counter has left, for the choice of the one to drop.
    fn room(&self, now: Timestamp) -> u64 {
        const FULL: u128 = 1 << 32;
        match self {
            _ if !self.is_effective(now) => u64::MAX,
            _ if now < self.refused_until => 0,
            _ => (u128::from(self.remaining) * FULL / u128::from(self.limit.1.max(1))) as u64,
        }
    }

    /// The reading under the limit that applies now. Used units stay used.
    fn under(mut self, limit: &Limit) -> LastReading {
        if self.limit != (limit.amount(), limit.quota()) {
            let used = self.limit.1.saturating_sub(self.remaining);
            self.limit = (limit.amount(), limit.quota());
            self.remaining = limit.quota().saturating_sub(used);
            (self.refused_units, self.refused_until) = (0, Timestamp::default());
        }
        self
    }

    /// The reading of a counter that nobody has used.
    pub(super) fn full(limit: &Limit) -> LastReading {
        let (amount, quota) = (limit.amount(), limit.quota());
        LastReading { limit: (amount, quota), remaining: quota, ..LastReading::default() }
    }

    /// The room that a charge will probably find.
    pub(super) fn room_for(&self, charge: &Charge<'_>, now: Timestamp) -> Room {
        let is_little = self.remaining / TIGHT_CLAIMS < charge.units || self.remaining < self.limit.1 / TIGHT_SHARE;
        match charge.units {
            units if units > self.remaining || self.refusal(charge, now).is_some() => Room::Refuses,
            _ if is_little => Room::Tight,
            _ => Room::Enough,
        }
    }

    /// The refusal of a charge, if the store has refused as many units or fewer and the wait is not over.
    pub(super) fn refusal(&self, charge: &Charge<'_>, now: Timestamp) -> Option<Reading> {
        let is_enforced = charge.ask == Ask::Exactly && matches!(charge.mode, Mode::Enforce | Mode::AnyOf);
        let is_refused = is_enforced && charge.units >= self.refused_units.max(1) && now < self.refused_until;
        is_refused.then(|| {
            let wait = self.refused_until.since(now);
            Reading {
                remaining: self.remaining,
                reset_after: self.until.since(now),
                source: Source::Local,
                ..Reading::refusal(Wait::For(wait))
            }
        })
    }
}

#[cfg(test)]
mod tests;
