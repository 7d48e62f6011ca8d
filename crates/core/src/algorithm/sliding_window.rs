//! Sliding window: the counts of the last aligned parts, of which only the oldest is weighted.
//!
//! With `n` parts it keeps n + 1 counts: the part that is under way, n − 1 whole ones, and the oldest, of which
//! `floor(oldest × left ÷ part)` still matters while `left` is the time left in the part under way. With one part that is the
//! well-known mean of this window and the one before.

use super::{Advanced, Asked, WaitUntil, stand};
use crate::EXACT;
use crate::limit::Limit;

/// The counts, oldest first; the last is the part under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindow<C> {
    /// The first tick of the part under way.
    pub start: u64,
    /// One more count than there are parts.
    pub counts: C,
}

impl SlidingWindow<Vec<u64>> {
    pub(super) fn in_parts(parts: usize) -> Self {
        SlidingWindow { start: 0, counts: vec![0; parts + 1] }
    }
}

impl<C: AsRef<[u64]> + AsMut<[u64]>> SlidingWindow<C> {
    pub(super) fn is_sound(&self) -> bool {
        let counts = self.counts.as_ref();
        let most = usize::from(Limit::MOST_SUB_WINDOWS) + 1;
        self.start < EXACT && (2..=most).contains(&counts.len()) && counts.iter().all(|count| *count < EXACT)
    }

    pub(super) fn parts(&self) -> u64 {
        self.counts.as_ref().len() as u64 - 1
    }

    pub(super) fn advance(&mut self, limit: &Limit, now: u64) -> Advanced {
        let stood = stand(self.start, now, limit.period().ticks());
        let (start, _) = self.part(limit, stood.now);
        if !stood.moved {
            self.roll(limit, start);
        }
        self.start = start;
        stood
    }

    pub(super) fn used(&self, limit: &Limit, now: u64) -> u64 {
        let (start, end) = self.part(limit, now);
        let counts = self.counts.as_ref();
        // Exact for every count that this limit let come about; one of another limit, read back, may be larger.
        let carried = counts[0].saturating_mul(end - now) / (end - start);
        carried + counts[1..].iter().sum::<u64>()
    }

    pub(super) fn spend(&mut self, asked: &Asked<'_>) -> u64 {
        let most = asked.limit.period().most();
        let units = asked.units.min(most);
        let under_way = self.under_way();
        *under_way = (*under_way + units).min(most);
        units
    }

    pub(super) fn give_back(&mut self, asked: &Asked<'_>, taken_at: u64) -> u64 {
        let (from, _) = self.part(asked.limit, taken_at);
        let mut start = self.start;
        for at in (0..self.counts.as_ref().len()).rev() {
            if start == from {
                let count = &mut self.counts.as_mut()[at];
                let back = asked.units.min(*count);
                *count -= back;
                return back;
            }
            if start <= from {
                return 0;
            }
            (start, _) = self.part(asked.limit, start - 1);
        }
        0
    }

    /// The oldest part comes last. Of it goes no more than must for so many fewer to be carried over.
    pub(super) fn credit(&mut self, asked: &Asked<'_>) -> u64 {
        let mut left = asked.units;
        for count in self.counts.as_mut()[1..].iter_mut().rev() {
            let back = left.min(*count);
            (*count, left) = (*count - back, left - back);
        }
        let (start, end) = self.part(asked.limit, asked.now);
        let (length, remains) = (end - start, end - asked.now);
        let oldest = &mut self.counts.as_mut()[0];
        let carried = oldest.saturating_mul(remains) / length;
        let back = left.min(carried);
        if back > 0 {
            // floor(oldest × remains ÷ length) ≤ carried − back, solved for the largest `oldest`.
            let most = (carried - back + 1).saturating_mul(length).div_ceil(remains) - 1;
            *oldest = most.min(*oldest);
        }
        asked.units - (left - back)
    }

    /// Walks the parts to come. What matters only falls with time, so the first tick that fits is the answer; in the part
    /// in which all that was counted is the oldest it is found at the latest.
    pub(super) fn wait(&self, asked: &Asked<'_>) -> WaitUntil {
        let counts = self.counts.as_ref();
        let room = asked.limit.amount() - asked.units;
        let (mut start, mut end) = self.part(asked.limit, self.start);
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
            (start, end) = self.part(asked.limit, end);
        }
        WaitUntil::Tick(end)
    }

    pub(super) fn reset_at(&self, limit: &Limit, now: u64) -> u64 {
        limit.period().around(now).1
    }

    pub(super) fn stale_at(&self, limit: &Limit) -> u64 {
        match limit.period().as_calendar() {
            None => self.start + (self.parts() + 1) * (limit.period().ticks() / self.parts()),
            Some(_) => self.part(limit, self.part(limit, self.start).1).1,
        }
    }

    /// The part that a tick lies in: its first tick and that of the next.
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

    /// Moves the counts along until the part that begins at `start` is the one under way.
    fn roll(&mut self, limit: &Limit, start: u64) {
        let parts = self.counts.as_ref().len();
        let mut rolled = 0;
        while self.start < start && rolled < parts {
            self.counts.as_mut().rotate_left(1);
            *self.under_way() = 0;
            (_, self.start) = self.part(limit, self.start);
            rolled += 1;
        }
    }

    fn under_way(&mut self) -> &mut u64 {
        let last = self.counts.as_ref().len() - 1;
        &mut self.counts.as_mut()[last]
    }
}
