//! Sliding log: every entry, exactly. An entry of tick t counts until t + period.

use std::collections::VecDeque;

use super::{Advanced, Asked, WaitUntil, stand};
use crate::EXACT;
use crate::limit::Limit;

/// The entries, oldest first, no two of one tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingLog {
    /// What still counted when it was last changed.
    pub entries: VecDeque<Entry>,
    /// The sum of their units.
    pub total: u64,
    /// The first of them, which no longer count now. They go when the log changes: a look must leave it as it is.
    over: Over,
}

/// How many entries, and their units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Over {
    entries: usize,
    units: u64,
}

/// Units taken in one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The tick.
    pub at: u64,
    /// How many.
    pub units: u64,
}

impl SlidingLog {
    /// A log with these entries.
    pub fn of(entries: VecDeque<Entry>) -> SlidingLog {
        let total = entries.iter().fold(0, |total: u64, entry| total.saturating_add(entry.units));
        SlidingLog { entries, total, over: Over::default() }
    }

    pub(super) fn is_sound(&self) -> bool {
        let units = self.entries.iter().try_fold(0u64, |sum, entry| sum.checked_add(entry.units));
        self.entries.len() as u64 <= Limit::MOST_ENTRIES
            && units == Some(self.total)
            && self.total < EXACT
            && self.entries.iter().all(|entry| entry.at < EXACT && entry.units > 0)
            && self.entries.iter().is_sorted_by(|one, next| one.at < next.at)
    }

    pub(super) fn advance(&mut self, limit: &Limit, now: u64) -> Advanced {
        let newest = self.entries.back().map_or(0, |entry| entry.at);
        let stood = stand(newest, now, limit.period().ticks());
        if stood.moved {
            self.bring_back(now);
        }
        self.over = Over::default();
        for entry in self.entries.iter().take_while(|entry| entry.at + limit.period().ticks() <= stood.now) {
            self.over.entries += 1;
            self.over.units += entry.units;
        }
        stood
    }

    pub(super) fn used(&self, _limit: &Limit, _now: u64) -> u64 {
        self.total - self.over.units
    }

    pub(super) fn spend(&mut self, asked: &Asked<'_>) -> u64 {
        let most = asked.limit.period().most();
        let units = asked.units.min(most);
        if units > 0 {
            self.drop_over();
        }
        let counted = units.min(most - self.total.min(most));
        if counted > 0 {
            self.total += counted;
            let full = self.entries.len() as u64 >= Limit::MOST_ENTRIES;
            match self.entries.back_mut() {
                // Debits past the limit could add entries without end. The newest takes them then, and lasts as they do.
                Some(newest) if newest.at == asked.now || full => {
                    newest.at = asked.now;
                    newest.units += counted;
                }
                _ => self.entries.push_back(Entry { at: asked.now, units: counted }),
            }
        }
        units
    }

    pub(super) fn give_back(&mut self, asked: &Asked<'_>, taken_at: u64) -> u64 {
        let found = self.entries.binary_search_by_key(&taken_at, |entry| entry.at).ok();
        let Some(index) = found.filter(|index| *index >= self.over.entries) else {
            return 0;
        };
        let entry = &mut self.entries[index];
        let back = asked.units.min(entry.units);
        entry.units -= back;
        if entry.units == 0 {
            self.entries.remove(index);
        }
        self.total -= back;
        if back > 0 {
            self.drop_over();
        }
        back
    }

    pub(super) fn credit(&mut self, asked: &Asked<'_>) -> u64 {
        let back = asked.units.min(self.total - self.over.units);
        if back > 0 {
            self.drop_over();
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

    pub(super) fn wait(&self, asked: &Asked<'_>) -> WaitUntil {
        let room = asked.limit.amount() - asked.units;
        let mut left = self.total - self.over.units;
        for entry in self.entries.iter().skip(self.over.entries) {
            left -= entry.units;
            if left <= room {
                return WaitUntil::Tick(entry.at + asked.limit.period().ticks());
            }
        }
        WaitUntil::Now
    }

    pub(super) fn reset_at(&self, limit: &Limit, now: u64) -> u64 {
        self.stale_at(limit).max(now)
    }

    pub(super) fn stale_at(&self, limit: &Limit) -> u64 {
        self.entries.back().map_or(0, |newest| newest.at + limit.period().ticks())
    }

    fn drop_over(&mut self) {
        self.entries.drain(..self.over.entries);
        self.total -= self.over.units;
        self.over = Over::default();
    }

    /// The clock was set back: what lies ahead happened now, as one entry.
    fn bring_back(&mut self, now: u64) {
        let mut ahead = 0;
        while let Some(newest) = self.entries.back()
            && newest.at >= now
        {
            ahead += newest.units;
            self.entries.pop_back();
        }
        self.entries.push_back(Entry { at: now, units: ahead });
    }
}
