//! Units that were taken from a counter at one moment, and how long they may be spent.
//!
//! Units are spent only while the store still counts them, so a limit is never exceeded. Those of a window count until
//! its part is over. Those of a bucket drain while they are held: the level is a queue of which the oldest units drain
//! first, a chunk lies where the level was when it was taken, and what has drained may not be spent any more.

use tollgate_core::{Algorithm, Limit, Reading, Span, Timestamp};

use super::demand::seconds;
use super::policy::{self, LeasePolicy};
use crate::clock::Steady;

/// Units that were taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// The units that are not spent.
    pub(super) units: u64,
    /// When they were taken, by the store's clock.
    taken_at: Timestamp,
    /// How long the store counts the last of them from then on.
    life: Span,
    /// When that is over, by this server's clock and with a margin.
    ends: Steady,
}

impl Chunk {
    /// Units that the store counted at `at`. The claim was sent at `sent`, which is no later. `None` if they are no
    /// longer valid when they arrive.
    pub(super) fn new(
        units: u64,
        limit: &Limit,
        reading: &Reading,
        at: Timestamp,
        sent: Steady,
        policy: &LeasePolicy,
    ) -> Option<Chunk> {
        let life = match limit.algorithm() {
            // Rounded up by up to a tick.
            Algorithm::Bucket { .. } => less(reading.reset_after, limit.period().tick().span(1)),
            _ => limit.part_end(at).since(at),
        };
        let ends = sent.after(less(life, policy::span(policy.margin + seconds(life) * policy.drift)));
        (units > 0 && ends > sent).then_some(Chunk { units, taken_at: at, life, ends })
    }

    /// The units that may be spent at this moment.
    #[inline]
    pub(super) fn valid(&self, limit: &Limit, now: Steady) -> u64 {
        match limit.algorithm() {
            Algorithm::Bucket { .. } => self.units.min(drained(limit, self.ends.since(now))),
            _ if now < self.ends => self.units,
            _ => 0,
        }
    }

    /// Drops the units of a bucket that have drained, and returns their number. To be called before some are spent: the
    /// others lie below them in the queue, and would otherwise take the place of those that have drained.
    #[inline]
    pub(super) fn drop_drained(&mut self, limit: &Limit, now: Steady) -> u64 {
        if !matches!(limit.algorithm(), Algorithm::Bucket { .. }) {
            return 0;
        }
        let valid = self.valid(limit, now);
        std::mem::replace(&mut self.units, valid) - valid
    }

    /// Whether nothing of it may be spent any more.
    pub(super) fn is_over(&self, now: Steady) -> bool {
        now >= self.ends
    }

    /// Takes units out of it.
    pub(super) fn split(&mut self, units: u64) -> Chunk {
        self.units -= units;
        Chunk { units, ..*self }
    }

    /// Whether two chunks end together: those of a window that were taken in the same part, and parts of one chunk.
    pub(super) fn ends_with(&self, other: &Chunk) -> bool {
        self.taken_at.after(self.life) == other.taken_at.after(other.life)
    }

    /// Adds units that end together with these. Of the two moments, both of which are before the end, the later one is
    /// closer to it: the other one has a wider margin, because it was computed earlier.
    pub(super) fn add(&mut self, other: &Chunk) {
        self.units += other.units;
        self.ends = self.ends.max(other.ends);
    }

    /// Its units and those of a bucket's chunk that lies above it, as one chunk. Units of others may lie between the two. It is
    /// as if those above had no place of their own and lay directly on these: so the two never have fewer valid units
    /// apart than together.
    pub(super) fn joined(self, limit: &Limit, above: &Chunk) -> Chunk {
        let height = less(time_of(limit, above.units), Span::from_micros(1));
        let end = self.taken_at.after(self.life).after(height).min(above.taken_at.after(above.life));
        let ends = self.ends.after(height).min(above.ends);
        Chunk { units: self.units + above.units, taken_at: self.taken_at, life: end.since(self.taken_at), ends }
    }

    /// The moment from which the store is to date the return of the units, or `None` if they are better left alone.
    ///
    /// A return to a bucket lowers the chunks of other servers that lie above, which do not know it. So units are given
    /// back only from the upper half of the burst: those above are then far from draining. Below it, few miss them, and
    /// they drain by themselves. The date is the moment at which they would begin to drain.
    pub(super) fn return_date(&self, limit: &Limit, now: Steady) -> Option<Timestamp> {
        let Algorithm::Bucket { burst, .. } = limit.algorithm() else { return Some(self.taken_at) };
        let below = drained(limit, self.ends.since(now)).saturating_sub(self.units);
        (below >= burst / 2).then(|| self.taken_at.after(less(self.life, time_of(limit, self.units))))
    }
}

/// The units that a bucket drains in this time, rounded down.
fn drained(limit: &Limit, time: Span) -> u64 {
    let (amount, period) = (limit.amount(), limit.period().span().as_micros());
    match time.as_micros().checked_mul(amount) {
        Some(product) => product / period,
        None => {
            u64::try_from(u128::from(time.as_micros()) * u128::from(amount) / u128::from(period)).unwrap_or(u64::MAX)
        }
    }
}

/// The time in which a bucket drains these units, rounded up.
fn time_of(limit: &Limit, units: u64) -> Span {
    let micros = u128::from(units) * u128::from(limit.period().span().as_micros());
    Span::from_micros(u64::try_from(micros.div_ceil(u128::from(limit.amount().max(1)))).unwrap_or(u64::MAX))
}

fn less(span: Span, other: Span) -> Span {
    Span::from_micros(span.as_micros().saturating_sub(other.as_micros()))
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Period, Wait};

    use super::*;

    /// Joined chunks have at most the units that they have apart, however time passes and units are spent.
    #[test]
    fn joined_chunks_have_no_more_units_than_apart() {
        let algorithm = Algorithm::Bucket { burst: 1_000, paced: false };
        let limit = Limit::new(1_000, Period::fixed(Span::from_secs(10)).unwrap(), algorithm).unwrap();
        let at = |millis: u64| Steady::from_micros(millis * 1_000);
        let chunk = |units, millis: u64| {
            let reading = Reading { reset_after: Span::from_micros(millis * 1_000), ..Reading::refusal(Wait::None) };
            Chunk::new(units, &limit, &reading, Timestamp::from_secs(1), at(0), &LeasePolicy::default()).unwrap()
        };
        for (units, later_units, gap) in [(10, 30, 300), (30, 10, 100), (40, 40, 400), (1, 50, 500), (40, 20, 700)] {
            let (mut early, mut late) = (chunk(units, 400), chunk(later_units, 400 + gap));
            let mut joined = early.joined(&limit, &late);
            for now in (0..900).step_by(50).map(at) {
                let (first, second) = (early.valid(&limit, now), late.valid(&limit, now));
                let together = joined.valid(&limit, now);
                assert!(together <= first + second, "{units} and {later_units}: {together}");
                // Three are spent at each step.
                let spent = together.min(3);
                for chunk in [&mut early, &mut late, &mut joined] {
                    chunk.drop_drained(&limit, now);
                }
                early.split(spent.min(first));
                late.split(spent - spent.min(first));
                joined.split(spent);
            }
        }
    }

    /// Units that drained while others of the chunk were held are not spent instead of them.
    #[test]
    fn drained_units_are_not_spent_later() {
        let algorithm = Algorithm::Bucket { burst: 1_000, paced: false };
        let limit = Limit::new(1_000, Period::fixed(Span::from_secs(10)).unwrap(), algorithm).unwrap();
        let at = |millis: u64| Steady::from_micros(millis * 1_000);
        // All that is in a bucket that drains 100 a second.
        let reading = Reading { reset_after: Span::from_micros(400_000), ..Reading::refusal(Wait::None) };
        let mut chunk =
            Chunk::new(40, &limit, &reading, Timestamp::from_secs(1), at(0), &LeasePolicy::default()).unwrap();
        assert_eq!(chunk.valid(&limit, at(250)), 14);
        assert_eq!(chunk.drop_drained(&limit, at(250)), 26);
        chunk.split(12);
        assert_eq!(chunk.valid(&limit, at(260)), 2);
        assert_eq!(chunk.valid(&limit, at(390)), 0);
    }
}
