//! A second implementation of every algorithm, written from its definition: whole histories instead of states, search
//! instead of algebra. It is slow and shares nothing with the first one.

use std::collections::BTreeMap;

use tollgate_core::{Algorithm, ClaimId, Limit};

/// The history of one counter. Times are in ticks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Naive {
    /// The time of the state: the last change, or the start of its window.
    time: u64,
    level: u64,
    /// Units by the number of a window or of a part of one.
    counts: BTreeMap<u64, u64>,
    log: BTreeMap<u64, u64>,
    holds: Vec<(ClaimId, u64)>,
}

/// A limit at a moment.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) limit: &'a Limit,
    pub(crate) now: u64,
}

fn period(limit: &Limit) -> u64 {
    limit.period().ticks()
}

/// The length of one window or part.
fn part(limit: &Limit) -> u64 {
    match limit.algorithm() {
        Algorithm::SlidingWindow { sub_windows } => period(limit) / u64::from(sub_windows),
        _ => period(limit),
    }
}

impl Naive {
    /// The time by which the counter counts. More than one period ahead of the clock, it follows the clock, which is
    /// a change.
    pub(crate) fn stand(&mut self, limit: &Limit, now: u64) -> (u64, bool) {
        if self.time <= now {
            return (now, false);
        }
        if self.time - now <= period(limit) {
            return (self.time, false);
        }
        let parts_ahead = self.time / part(limit) - now / part(limit);
        self.time = match limit.algorithm() {
            Algorithm::FixedWindow | Algorithm::SlidingWindow { .. } => now - now % part(limit),
            _ => now,
        };
        self.counts = self.counts.iter().map(|(number, units)| (number.saturating_sub(parts_ahead), *units)).collect();
        let ahead: u64 = self.log.range(now..).map(|(_, units)| units).sum();
        self.log.retain(|at, _| *at < now);
        if ahead > 0 {
            self.log.insert(now, ahead);
        }
        for (_, expiry) in &mut self.holds {
            *expiry = (*expiry).min(now + period(limit));
        }
        (now, true)
    }

    /// The amount that counts against the limit: in unit·ticks for a bucket, otherwise in units.
    fn used(&self, At { limit, now }: At<'_>) -> u64 {
        let count = |number: u64| self.counts.get(&number).copied().unwrap_or(0);
        match limit.algorithm() {
            Algorithm::Bucket { .. } => self.level_at(limit, now),
            Algorithm::FixedWindow => count(now / period(limit)),
            Algorithm::SlidingWindow { sub_windows } => {
                let (parts, number) = (u64::from(sub_windows), now / part(limit));
                let left = part(limit) - now % part(limit);
                let whole: u64 = (0..parts).filter_map(|back| number.checked_sub(back)).map(count).sum();
                whole + number.checked_sub(parts).map_or(0, count) * left / part(limit)
            }
            Algorithm::SlidingLog => {
                self.log.iter().filter(|(at, _)| **at + period(limit) > now).map(|(_, units)| units).sum()
            }
            Algorithm::Concurrency => self.holds.iter().filter(|(_, expiry)| *expiry > now).count() as u64,
        }
    }

    fn level_at(&self, limit: &Limit, now: u64) -> u64 {
        let passed = now.saturating_sub(self.time);
        match limit.amount() {
            0 if passed >= period(limit) => 0,
            amount => self.level.saturating_sub(passed * amount),
        }
    }

    pub(crate) fn fits(&self, at: At<'_>, units: u64) -> bool {
        match at.limit.algorithm() {
            Algorithm::Bucket { burst, .. } => self.used(at) + units * period(at.limit) <= burst * period(at.limit),
            _ => self.used(at) + units <= at.limit.amount(),
        }
    }

    /// The number of units that count; a started unit counts as a whole.
    pub(crate) fn counted(&self, at: At<'_>) -> u64 {
        match at.limit.algorithm() {
            Algorithm::Bucket { .. } => self.used(at).div_ceil(period(at.limit)),
            _ => self.used(at),
        }
    }

    pub(crate) fn has_hold(&self, at: At<'_>, by: ClaimId) -> bool {
        self.holds.iter().any(|(id, expiry)| *id == by && *expiry > at.now)
    }

    /// The maximum that fits.
    pub(crate) fn left(&self, at: At<'_>) -> u64 {
        (0..=at.limit.quota()).rev().find(|units| self.fits(at, *units)).unwrap_or(0)
    }

    /// The first tick from now on at which the units fit, found by trying each tick.
    pub(crate) fn fits_at(&self, at: At<'_>, units: u64) -> Option<u64> {
        let ever = units <= at.limit.quota();
        ever.then(|| (at.now..).find(|now| self.fits(At { now: *now, ..at }, units)).unwrap_or(u64::MAX))
    }

    /// The tick at which the quota is full again or the period ends.
    pub(crate) fn reset_at(&self, at: At<'_>) -> u64 {
        let At { limit, now } = at;
        match limit.algorithm() {
            Algorithm::FixedWindow | Algorithm::SlidingWindow { .. } => (now / period(limit) + 1) * period(limit),
            _ => (now..).find(|now| self.used(At { now: *now, limit }) == 0).unwrap_or(u64::MAX),
        }
    }

    /// How long a request that leaves now should be delayed.
    pub(crate) fn delay(&self, at: At<'_>) -> u64 {
        match at.limit.algorithm() {
            Algorithm::Bucket { paced: true, .. } => {
                (0..).find(|ticks| self.used(At { now: at.now + ticks, ..at }) == 0).unwrap_or(u64::MAX)
            }
            _ => 0,
        }
    }

    pub(crate) fn spend(&mut self, At { limit, now }: At<'_>, by: ClaimId, units: u64) -> u64 {
        if units == 0 {
            return 0;
        }
        match limit.algorithm() {
            Algorithm::Bucket { .. } => {
                self.level = self.level_at(limit, now) + units * period(limit);
                self.time = now;
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow { .. } => {
                *self.counts.entry(now / part(limit)).or_default() += units;
                self.time = now - now % part(limit);
            }
            Algorithm::SlidingLog => {
                *self.log.entry(now).or_default() += units;
                self.time = now;
            }
            Algorithm::Concurrency => {
                self.holds.retain(|(id, _)| *id != by);
                self.holds.push((by, now + period(limit)));
                self.time = now;
                return 1;
            }
        }
        units
    }

    pub(crate) fn give_back(&mut self, At { limit, now }: At<'_>, by: ClaimId, units: u64, taken_at: u64) -> u64 {
        match limit.algorithm() {
            Algorithm::Bucket { .. } => {
                let level = self.level_at(limit, now);
                let passed = now.saturating_sub(taken_at);
                let remaining = match limit.amount() {
                    0 if passed >= period(limit) => 0,
                    amount => (units * period(limit)).saturating_sub(passed * amount),
                };
                let back = remaining.min(level);
                if back > 0 {
                    self.level = level - back;
                    if limit.amount() > 0 {
                        self.time = now;
                    }
                }
                back.div_ceil(period(limit))
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow { .. } => {
                let parts = match limit.algorithm() {
                    Algorithm::SlidingWindow { sub_windows } => u64::from(sub_windows),
                    _ => 0,
                };
                let (number, current) = (taken_at / part(limit), now / part(limit));
                if number > current || number + parts < current {
                    return 0;
                }
                let back = self.take_from(|naive| &mut naive.counts, number, units);
                if back > 0 {
                    self.time = now - now % part(limit);
                }
                back
            }
            Algorithm::SlidingLog => {
                if taken_at + period(limit) <= now {
                    return 0;
                }
                // From the entry nearest to that tick, older ones first.
                let mut back = 0;
                while back < units {
                    let live = |at: &u64| *at + period(limit) > now;
                    let older = self.log.range(..=taken_at).map(|(at, _)| *at).next_back().filter(live);
                    let nearest = older.or_else(|| self.log.range(taken_at + 1..).map(|(at, _)| *at).find(live));
                    let Some(at) = nearest else { break };
                    back += self.take_from(|naive| &mut naive.log, at, units - back);
                }
                back
            }
            Algorithm::Concurrency => {
                let had = units > 0 && self.has_hold(At { limit, now }, by);
                if had {
                    self.holds.retain(|(id, _)| *id != by);
                    self.time = now;
                }
                u64::from(had)
            }
        }
    }

    /// Removes one unit after the other, each from the newest part or entry whose removal makes a difference.
    pub(crate) fn credit(&mut self, At { limit, now }: At<'_>, units: u64) -> u64 {
        let at = At { limit, now };
        let before = self.counted(at);
        let goal = before.saturating_sub(units);
        match limit.algorithm() {
            Algorithm::Concurrency => return 0,
            Algorithm::Bucket { .. } => {
                let level = self.level_at(limit, now);
                let back = (units * period(limit)).min(level);
                if back > 0 {
                    self.level = level - back;
                    if limit.amount() > 0 {
                        self.time = now;
                    }
                }
            }
            Algorithm::SlidingLog => {
                while self.counted(at) > goal {
                    let newest = *self.log.keys().next_back().unwrap();
                    self.take_from(|naive| &mut naive.log, newest, 1);
                }
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow { .. } => {
                while self.counted(at) > goal {
                    let newest =
                        self.counts.iter().rev().find(|(number, units)| **number <= now / part(limit) && **units > 0);
                    let newest = *newest.unwrap().0;
                    self.take_from(|naive| &mut naive.counts, newest, 1);
                }
                if before > goal {
                    self.time = now - now % part(limit);
                }
            }
        }
        before - self.counted(at)
    }

    /// Removes what a change no longer carries along, so that a later step back of the clock does not revive it.
    pub(crate) fn forget(&mut self, At { limit, now }: At<'_>) {
        self.log.retain(|at, _| *at + period(limit) > now);
        self.holds.retain(|(_, expiry)| *expiry > now);
        if limit.algorithm() == Algorithm::SlidingLog {
            self.time = self.log.keys().next_back().copied().unwrap_or(0);
        }
    }

    fn take_from(&mut self, of: impl Fn(&mut Naive) -> &mut BTreeMap<u64, u64>, at: u64, units: u64) -> u64 {
        let Some(there) = of(self).get_mut(&at) else {
            return 0;
        };
        let back = units.min(*there);
        *there -= back;
        if *there == 0 {
            of(self).remove(&at);
        }
        back
    }
}
