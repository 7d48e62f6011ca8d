//! A breaker for each shard: what failed several times is left alone until a probe says that it is well.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Span, Timestamp};

use super::status::Circuit;
use crate::sharded::{Failure, ShardId};

/// The most shards with a breaker of their own. Past it they share.
pub(super) const MOST_SHARDS: usize = 1_024;
/// So many failures open a breaker …
const FAILURES: usize = 5;
/// … if they come within this time.
const WINDOW: Span = Span::from_secs(10);
/// The longest error that is kept, in characters.
const LONGEST_ERROR: usize = 300;
/// The reasons that are counted, as `Failure::reason` has them. A claim that is pending is no failure.
const REASONS: [&str; 3] = ["timeout", "unreachable", "refused"];

/// The breakers of all shards.
#[derive(Debug)]
pub(super) struct Breakers(Box<[Breaker]>);

/// Whether claims go to a shard. While all is well a claim only reads `circuit`.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    circuit: AtomicU8,
    errors: [AtomicU64; REASONS.len()],
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct History {
    /// The shard that failed last: the one to probe.
    shard: Option<ShardId>,
    /// When the failures were that count.
    failures: SmallVec<[Timestamp; FAILURES]>,
    /// Since when it is left alone, and for how long.
    resting: (Timestamp, Span),
    last_error: Option<String>,
}

const CLOSED: u8 = 0;
const OPEN: u8 = 1;
const HALF_OPEN: u8 = 2;

impl Breakers {
    pub(super) fn new() -> Breakers {
        Breakers((0..MOST_SHARDS).map(|_| Breaker::default()).collect())
    }

    pub(super) fn of(&self, shard: ShardId) -> &Breaker {
        &self.0[shard.0 as usize % MOST_SHARDS]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Breaker> {
        self.0.iter()
    }
}

impl Breaker {
    pub(super) fn is_closed(&self) -> bool {
        self.circuit.load(Ordering::Acquire) == CLOSED
    }

    pub(super) fn circuit(&self) -> Circuit {
        match self.circuit.load(Ordering::Acquire) {
            CLOSED => Circuit::Closed,
            OPEN => Circuit::Open,
            _ => Circuit::HalfOpen,
        }
    }

    /// Counts a failure and says whether it was the one that opened the breaker, which then rests for so long.
    ///
    /// All claims that wait when a shard stalls fail together. That is one hiccup, so what comes within a deadline of the last
    /// failure that counted does not count again.
    pub(super) fn failed(&self, shard: ShardId, failure: &Failure, now: Timestamp, hiccup: Span, rest: Span) -> bool {
        let Some(reason) = REASONS.iter().position(|reason| *reason == failure.reason()) else {
            return false;
        };
        self.errors[reason].fetch_add(1, Ordering::Relaxed);
        let mut history = self.history();
        history.note(shard, failure);
        // A clock that was set back makes the times of earlier failures meaningless.
        history.failures.retain(|at| *at <= now && now.since(*at) < WINDOW);
        if !self.is_closed() || history.failures.last().is_some_and(|last| now.since(*last) < hiccup) {
            return false;
        }
        history.failures.push(now);
        let opens = history.failures.len() >= FAILURES;
        if opens {
            history.resting = (now, rest);
            self.circuit.store(OPEN, Ordering::Release);
        }
        opens
    }

    /// The shard to probe now, if its rest is over. It rests for as long again while it is probed, so that a probe of which nothing
    /// more is heard is not the last.
    pub(super) fn due(&self, now: Timestamp) -> Option<ShardId> {
        if self.is_closed() {
            return None;
        }
        let mut history = self.history();
        let (since, rest) = history.resting;
        let rests = since <= now && now < since.after(rest);
        let shard = history.shard.filter(|_| !rests)?;
        history.resting = (now, rest);
        self.circuit.store(HALF_OPEN, Ordering::Release);
        Some(shard)
    }

    /// What a probe found: the breaker closes, or rests again for so long.
    pub(super) fn probed(&self, shard: ShardId, found: &Result<(), Failure>, now: Timestamp, rest: Span) {
        let mut history = self.history();
        match found {
            Ok(()) => {
                history.failures.clear();
                self.circuit.store(CLOSED, Ordering::Release);
            }
            Err(failure) => {
                history.note(shard, failure);
                history.resting = (now, rest);
                self.circuit.store(OPEN, Ordering::Release);
            }
        }
    }

    /// How long until the next probe.
    pub(super) fn rests_for(&self, now: Timestamp) -> Span {
        let (since, rest) = self.history().resting;
        since.after(rest).since(now).min(rest)
    }

    /// How often it failed, by reason, and how it failed last.
    pub(super) fn errors(&self) -> (Vec<(&'static str, u64)>, Option<String>) {
        let counts = self.errors.iter().map(|count| count.load(Ordering::Relaxed));
        (REASONS.into_iter().zip(counts).collect(), self.history().last_error.clone())
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl History {
    fn note(&mut self, shard: ShardId, failure: &Failure) {
        self.shard = Some(shard);
        self.last_error = Some(failure.to_string().chars().take(LONGEST_ERROR).collect());
    }
}

/// A cool-down, give or take a fifth: servers that lost a shard together should not come back to it together.
pub(super) fn jittered(cool_down: Duration) -> Span {
    let micros = u64::try_from(cool_down.as_micros()).unwrap_or(u64::MAX);
    Span::from_micros((micros / 1_000).saturating_mul(fastrand::u64(800..=1_200)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_000_000);
    const HICCUP: Span = Span::from_micros(8_000);
    const REST: Span = Span::from_secs(5);
    const SHARD: ShardId = ShardId(7);

    fn fail(breaker: &Breaker, now: Timestamp) -> bool {
        breaker.failed(SHARD, &Failure::Timeout, now, HICCUP, REST)
    }

    fn opened(now: Timestamp) -> Breaker {
        let breaker = Breaker::default();
        for failed in 0..5 {
            assert_eq!(fail(&breaker, now.before(Span::from_micros((4 - failed) * 8_000))), failed == 4);
        }
        breaker
    }

    #[test]
    fn a_rest_is_the_cool_down_give_or_take_a_fifth() {
        let rests: Vec<u64> = (0..2_000).map(|_| jittered(Duration::from_secs(5)).as_micros()).collect();
        assert!(rests.iter().all(|rest| (4_000_000..=6_000_000).contains(rest)));
        assert!(rests.iter().any(|rest| *rest < 4_200_000) && rests.iter().any(|rest| *rest > 5_800_000));
    }

    #[test]
    fn it_is_probed_once_when_its_rest_is_over() {
        let breaker = opened(START);
        assert_eq!(breaker.due(START.after(Span::from_micros(4_999_999))), None);
        assert_eq!(breaker.rests_for(START.after(Span::from_secs(1))), Span::from_secs(4));
        let due = START.after(REST);
        assert_eq!((breaker.due(due), breaker.due(due)), (Some(SHARD), None));
        assert_eq!(breaker.circuit(), Circuit::HalfOpen);
        // Nothing was heard of that probe.
        let due = due.after(REST);
        assert_eq!((breaker.due(due), breaker.due(due)), (Some(SHARD), None));
        breaker.probed(SHARD, &Err(Failure::Timeout), due, REST);
        assert_eq!((breaker.circuit(), breaker.due(due)), (Circuit::Open, None));
        assert_eq!(breaker.due(due.after(REST)), Some(SHARD));
        breaker.probed(SHARD, &Ok(()), due.after(REST), REST);
        assert!(breaker.is_closed());
        assert!(!fail(&breaker, due.after(REST)), "what was before it closed no longer counts");
    }

    #[test]
    fn a_clock_that_is_set_back_holds_nothing_up() {
        let long_ago = START.before(Span::from_secs(3_600));
        assert_eq!(opened(START).due(long_ago), Some(SHARD));
        let breaker = Breaker::default();
        (0..4).for_each(|failed| assert!(!fail(&breaker, START.after(Span::from_secs(failed)))));
        for failed in 0..5u64 {
            assert_eq!(fail(&breaker, long_ago.after(Span::from_micros(failed * 8_000))), failed == 4);
        }
    }

    #[test]
    fn a_claim_that_is_pending_is_no_failure() {
        let breaker = Breaker::default();
        for second in 0..20 {
            assert!(!breaker.failed(SHARD, &Failure::Pending, START.after(Span::from_secs(second)), HICCUP, REST));
        }
        assert_eq!(breaker.errors().1, None);
    }

    #[test]
    fn shards_past_the_bound_share_breakers() {
        let breakers = Breakers::new();
        assert!(std::ptr::eq(breakers.of(ShardId(3)), breakers.of(ShardId(3 + MOST_SHARDS as u32))));
        assert_eq!(breakers.all().count(), MOST_SHARDS);
        breakers.of(ShardId(u32::MAX));
    }

    #[test]
    fn errors_are_cut() {
        let breaker = Breaker::default();
        breaker.failed(SHARD, &Failure::Refused("é".repeat(10_000)), START, HICCUP, REST);
        assert_eq!(breaker.errors().1.unwrap().chars().count(), LONGEST_ERROR);
    }
}
