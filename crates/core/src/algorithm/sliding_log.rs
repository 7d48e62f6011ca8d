//! Sliding log: an exact entry for each tick with requests. An entry of tick t counts until t + period.

use std::collections::VecDeque;

use super::{AlgorithmState, EffectiveTime, TickCharge, WaitUntil, effective_time};
use crate::EXACT;
use crate::limit::Limit;

/// The entries, oldest first, at most one for each tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingLog {
    /// The entries that counted at the last change.
    pub entries: VecDeque<LogEntry>,
    /// The sum of the entries' units.
    pub total: u64,
    /// The entries at the front that have expired. They are removed at the next change; a peek must not change the
    /// state.
    expired: ExpiredEntries,
}

/// A number of entries and the sum of their units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ExpiredEntries {
    entries: usize,
    units: u64,
}

/// Units taken in one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The tick.
    pub at: u64,
    /// The number of units.
    pub units: u64,
}

/// The maximum number of entries that a wait is computed from exactly. Beyond it, it may be longer than necessary: a
/// caller that asks for too much must not cost a store more than other callers do.
const MAX_WALKED: usize = 128;

impl LogEntry {
    /// Removes up to this number of units and returns the rest of it.
    fn take(&mut self, units: u64) -> u64 {
        let taken = units.min(self.units);
        self.units -= taken;
        units - taken
    }
}

impl SlidingLog {
    /// A log with these entries.
    pub fn from_entries(entries: VecDeque<LogEntry>) -> SlidingLog {
        let total = entries.iter().fold(0, |total: u64, entry| total.saturating_add(entry.units));
        SlidingLog { entries, total, expired: ExpiredEntries::default() }
    }

    fn drop_expired(&mut self) {
        self.entries.drain(..self.expired.entries);
        self.total -= self.expired.units;
        self.expired = ExpiredEntries::default();
    }

    /// After the clock was set back: merges the entries that are ahead of it into one entry at `now`.
    fn bring_back(&mut self, now: u64) {
        let mut ahead = 0;
        while let Some(newest) = self.entries.back()
            && newest.at >= now
        {
            ahead += newest.units;
            self.entries.pop_back();
        }
        self.entries.push_back(LogEntry { at: now, units: ahead });
    }
}

impl AlgorithmState for SlidingLog {
    fn is_sound(&self) -> bool {
        let units = self.entries.iter().try_fold(0u64, |sum, entry| sum.checked_add(entry.units));
        self.entries.len() as u64 <= Limit::MAX_ENTRIES
            && units == Some(self.total)
            && self.total < EXACT
            && self.entries.iter().all(|entry| entry.at < EXACT && entry.units > 0)
            && self.entries.iter().is_sorted_by(|one, next| one.at < next.at)
    }

    fn advance(&mut self, limit: &Limit, now: u64) -> EffectiveTime {
        let newest = self.entries.back().map_or(0, |entry| entry.at);
        let effective = effective_time(newest, now, limit.period().ticks());
        if effective.moved {
            self.bring_back(now);
        }
        self.expired = ExpiredEntries::default();
        for entry in self.entries.iter().take_while(|entry| entry.at + limit.period().ticks() <= effective.now) {
            self.expired.entries += 1;
            self.expired.units += entry.units;
        }
        effective
    }

    fn used(&self, _limit: &Limit, _now: u64) -> u64 {
        self.total - self.expired.units
    }

    fn spend(&mut self, charge: &TickCharge<'_>) -> u64 {
        let max = charge.limit.period().max_count();
        let units = charge.units.min(max);
        if units > 0 {
            self.drop_expired();
        }
        let counted = units.min(max - self.total.min(max));
        if counted > 0 {
            self.total += counted;
            let full = self.entries.len() as u64 >= Limit::MAX_ENTRIES;
            match self.entries.back_mut() {
                // Debits past the limit could add entries without bound. Once the log is full, the newest entry
                // absorbs them and takes over their tick.
                Some(newest) if newest.at == charge.now || full => {
                    newest.at = charge.now;
                    newest.units += counted;
                }
                _ => self.entries.push_back(LogEntry { at: charge.now, units: counted }),
            }
        }
        units
    }

    /// The units are not always in the entry of `taken_at`: a claim on several shards is dated by the clock of one of
    /// them, a debit that is sent late has a later entry, and of two claims at the same time the second may have the
    /// earlier time. So they are taken from the entries nearest to that tick: first from the newest that is not
    /// younger, then from older ones, then from younger ones.
    fn give_back(&mut self, charge: &TickCharge<'_>, taken_at: u64) -> u64 {
        if taken_at.saturating_add(charge.limit.period().ticks()) <= charge.now {
            return 0;
        }
        let split = self.entries.partition_point(|entry| entry.at <= taken_at).max(self.expired.entries);
        // The entries from `first` to `end` are used up.
        let (mut first, mut end, mut left) = (split, split, charge.units);
        while left > 0 && first > self.expired.entries {
            left = self.entries[first - 1].take(left);
            if self.entries[first - 1].units > 0 {
                break;
            }
            first -= 1;
        }
        while left > 0 && end < self.entries.len() {
            left = self.entries[end].take(left);
            if self.entries[end].units > 0 {
                break;
            }
            end += 1;
        }
        self.entries.drain(first..end);
        let back = charge.units - left;
        self.total -= back;
        if back > 0 {
            self.drop_expired();
        }
        back
    }

    fn credit(&mut self, charge: &TickCharge<'_>) -> u64 {
        let back = charge.units.min(self.total - self.expired.units);
        if back > 0 {
            self.drop_expired();
        }
        let mut left = back;
        while let Some(newest) = self.entries.back_mut().filter(|_| left > 0) {
            let taken = left.min(newest.units);
            newest.units -= taken;
            left -= taken;
            if newest.units == 0 {
                self.entries.pop_back();
            }
        }
        self.total -= back;
        back
    }

    fn wait(&self, charge: &TickCharge<'_>) -> WaitUntil {
        let room = charge.limit.amount() - charge.units;
        let mut left = self.total - self.expired.units;
        for (index, entry) in self.entries.iter().enumerate().skip(self.expired.entries) {
            if index - self.expired.entries == MAX_WALKED {
                // Every entry has at least a unit, so there is room when this many more have expired, if not before.
                let more = usize::try_from(left - room).unwrap_or(usize::MAX);
                let last = self.entries.get(index.saturating_add(more - 1)).or(self.entries.back());
                return last.map_or(WaitUntil::Now, |last| WaitUntil::Tick(last.at + charge.limit.period().ticks()));
            }
            left -= entry.units;
            if left <= room {
                return WaitUntil::Tick(entry.at + charge.limit.period().ticks());
            }
        }
        WaitUntil::Now
    }

    fn reset_at(&self, limit: &Limit, now: u64) -> u64 {
        self.stale_at(limit).max(now)
    }

    fn stale_at(&self, limit: &Limit) -> u64 {
        self.entries.back().map_or(0, |newest| newest.at + limit.period().ticks())
    }
}
