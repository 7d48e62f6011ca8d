//! Sliding window: counts of the last aligned parts, of which only the oldest is weighted.
//!
//! With `n` parts the state has n + 1 counts: the current part, n − 1 whole parts, and the oldest part, of which
//! `floor(oldest × left ÷ part)` still counts while `left` is the time left in the current part. With one part this
//! is the common weighted mean of the current and the previous window.

use super::{AlgorithmState, EffectiveTime, TickCharge, WaitUntil, effective_time};
use crate::EXACT;
use crate::limit::Limit;

/// The counts, oldest first. The last one is the current part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindow<C> {
    /// The first tick of the current part.
    pub start: u64,
    /// One count more than there are parts.
    pub counts: C,
}

impl SlidingWindow<Vec<u64>> {
    pub(super) fn in_parts(parts: usize) -> Self {
        SlidingWindow { start: 0, counts: vec![0; parts + 1] }
    }
}

impl<C: AsRef<[u64]> + AsMut<[u64]>> SlidingWindow<C> {
    pub(super) fn parts(&self) -> u64 {
        self.counts.as_ref().len() as u64 - 1
    }

    /// The first tick after the current part.
    fn end(&self, limit: &Limit) -> u64 {
        match limit.period().as_calendar() {
            None => self.start + self.part_ticks(limit),
            Some(_) => self.part(limit, self.start).1,
        }
    }

    /// The length of a part of a period that follows no calendar.
    fn part_ticks(&self, limit: &Limit) -> u64 {
        match self.parts() {
            // The common case, without a division.
            1 => limit.period().ticks(),
            parts => limit.period().ticks() / parts,
        }
    }

    /// The first tick of the part that contains a tick, and the first tick of the next part.
    fn part(&self, limit: &Limit, tick: u64) -> (u64, u64) {
        match self.parts() {
            1 => limit.period().around(tick),
            parts => {
                let length = limit.period().ticks() / parts;
                let start = tick - tick % length;
                (start, start + length)
            }
        }
    }

    /// Rotates the counts until the part that begins at `start` is the current one.
    fn roll(&mut self, limit: &Limit, start: u64) {
        let parts = self.counts.as_ref().len();
        let mut rolled = 0;
        while self.start < start && rolled < parts {
            self.counts.as_mut().rotate_left(1);
            *self.current() = 0;
            (_, self.start) = self.part(limit, self.start);
            rolled += 1;
        }
    }

    fn current(&mut self) -> &mut u64 {
        let last = self.counts.as_ref().len() - 1;
        &mut self.counts.as_mut()[last]
    }
}

impl<C: AsRef<[u64]> + AsMut<[u64]>> AlgorithmState for SlidingWindow<C> {
    fn is_sound(&self) -> bool {
        let counts = self.counts.as_ref();
        let max = usize::from(Limit::MAX_SUB_WINDOWS) + 1;
        self.start < EXACT && (2..=max).contains(&counts.len()) && counts.iter().all(|count| *count < EXACT)
    }

    fn advance(&mut self, limit: &Limit, now: u64) -> EffectiveTime {
        let effective = effective_time(self.start, now, limit.period().ticks());
        let (start, _) = self.part(limit, effective.now);
        if !effective.moved {
            self.roll(limit, start);
        }
        self.start = start;
        effective
    }

    fn used(&self, limit: &Limit, now: u64) -> u64 {
        let (start, end) = (self.start, self.end(limit));
        let counts = self.counts.as_ref();
        // Exact for every count that this limit can produce. A count read from storage may come from another limit
        // and be larger.
        let left = end.saturating_sub(now).min(end - start);
        let carried = counts[0].saturating_mul(left) / (end - start);
        carried + counts[1..].iter().sum::<u64>()
    }

    fn spend(&mut self, charge: &TickCharge<'_>) -> u64 {
        let max = charge.limit.period().max_count();
        let units = charge.units.min(max);
        let current = self.current();
        *current = (*current + units).min(max);
        units
    }

    fn give_back(&mut self, charge: &TickCharge<'_>, taken_at: u64) -> u64 {
        let (from, _) = self.part(charge.limit, taken_at);
        let mut start = self.start;
        for at in (0..self.counts.as_ref().len()).rev() {
            if start == from {
                let count = &mut self.counts.as_mut()[at];
                let back = charge.units.min(*count);
                *count -= back;
                return back;
            }
            if start <= from {
                return 0;
            }
            (start, _) = self.part(charge.limit, start - 1);
        }
        0
    }

    /// Reduces the newest parts first. The oldest part is reduced by no more than the carried-over units require.
    fn credit(&mut self, charge: &TickCharge<'_>) -> u64 {
        let mut left = charge.units;
        for count in self.counts.as_mut()[1..].iter_mut().rev() {
            let back = left.min(*count);
            (*count, left) = (*count - back, left - back);
        }
        let (start, end) = self.part(charge.limit, charge.now);
        let (length, remains) = (end - start, end - charge.now);
        let oldest = &mut self.counts.as_mut()[0];
        let carried = oldest.saturating_mul(remains) / length;
        let back = left.min(carried);
        if back > 0 {
            // floor(oldest × remains ÷ length) ≤ carried − back, solved for the largest `oldest`.
            let max = (carried - back + 1).saturating_mul(length).div_ceil(remains) - 1;
            *oldest = max.min(*oldest);
        }
        charge.units - (left - back)
    }

    /// Walks the future parts. The used units only decrease with time, so the first tick that fits is the answer. It
    /// is found at the latest in the part in which every current count has become the oldest.
    fn wait(&self, charge: &TickCharge<'_>) -> WaitUntil {
        let counts = self.counts.as_ref();
        let room = charge.limit.amount() - charge.units;
        let (mut start, mut end) = self.part(charge.limit, self.start);
        for rolled in 0..counts.len() {
            let oldest = counts[rolled];
            let whole: u64 = counts[rolled + 1..].iter().sum();
            if let Some(room) = room.checked_sub(whole) {
                // floor(oldest × left ÷ part) ≤ room, solved for the largest `left`.
                let left = match oldest {
                    _ if oldest <= room => end - start,
                    _ => ((room + 1) * (end - start)).div_ceil(oldest) - 1,
                };
                return WaitUntil::Tick(end - left);
            }
            (start, end) = self.part(charge.limit, end);
        }
        WaitUntil::Tick(end)
    }

    fn reset_at(&self, limit: &Limit, now: u64) -> u64 {
        match self.parts() {
            1 => self.end(limit),
            _ => limit.period().around(now).1,
        }
    }

    fn stale_at(&self, limit: &Limit) -> u64 {
        match limit.period().as_calendar() {
            None => self.start + (self.parts() + 1) * self.part_ticks(limit),
            Some(_) => self.part(limit, self.end(limit)).1,
        }
    }
}
