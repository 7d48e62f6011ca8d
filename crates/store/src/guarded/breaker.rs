//! A breaker for each shard. A shard that failed repeatedly is not called until a probe succeeds.
//!
//! Failures count in relation to answers: a shard is failing if at least half of its calls fail again and again, or if
//! no call was answered for a second. A pause of the shard, for instance while it forks, costs the calls that it meets their
//! answers and nothing else. A call that had no answer because this process was not scheduled does not count as a failure
//! of the shard.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::{RegionId, Span, Timestamp};

use super::status::Circuit;
use crate::sharded::{Failure, ShardId};

/// The maximum number of shards of this region with a breaker of their own. Further shards share breakers.
pub(super) const MAX_SHARDS: usize = 1_024;
/// The same for each other region.
const MAX_SHARDS_ELSEWHERE: usize = 256;
/// This number of incidents opens a breaker …
const INCIDENTS: u32 = 5;
/// … if they occur within this time, and at least half of the calls since the first of them failed.
const WINDOW: Span = Span::from_secs(1);
/// Calls without an answer open it only after this time: a shorter pause is no fault.
const PAUSE: Span = Span::from_micros(250_000);
/// A breaker also opens if all calls failed for this time …
const OUTAGE: Span = Span::from_secs(1);
/// … or for this time, if they failed because this process was not scheduled …
const LATE_OUTAGE: Span = Span::from_secs(5);
/// … with no more than this time between two failures. Longer ago says nothing about now.
const MAX_GAP: Span = Span::from_secs(10);
/// The maximum length of a stored error, in characters.
const MAX_ERROR_CHARS: usize = 300;
/// The counted reasons, as returned by `Failure::reason`. A pending claim is not a failure, nor is one whose keys are
/// being moved.
const REASONS: [&str; 4] = ["timeout", "unreachable", "refused", "late"];

/// The breakers of all shards.
#[derive(Debug)]
pub(super) struct Breakers {
    here: Box<[Breaker]>,
    /// Those of other regions, one region after the other.
    elsewhere: Box<[Breaker]>,
}

/// Whether claims are sent to a shard. In normal operation a claim only reads `circuit`.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    circuit: AtomicU8,
    /// The number of answers, counted only while the breaker is suspicious.
    answered: AtomicU64,
    errors: [AtomicU64; REASONS.len()],
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct History {
    /// The shard that failed last, which is the one to probe.
    shard: Option<ShardId>,
    recent: RecentFailures,
    outage: Outage,
    /// Since when it is open, and for how long.
    open_since: (Timestamp, Span),
    last_error: Option<String>,
}

/// The failures within a window that begins with one.
///
/// When a shard stalls, all waiting claims fail together. That is one incident: a failure within one deadline of the
/// last incident belongs to it.
#[derive(Debug, Default)]
struct RecentFailures {
    began: Timestamp,
    failed: u64,
    incidents: u32,
    last_incident: Timestamp,
    /// The number of answers when the window began.
    answered_before: u64,
}

/// A time without any answer.
#[derive(Debug, Default)]
struct Outage {
    /// The first and the last failure.
    since: Timestamp,
    last: Timestamp,
    /// The number of answers at the last failure.
    answered: u64,
}

const CLOSED: u8 = 0;
/// Closed after a failure. Answers are counted, because failures only matter in relation to them.
const SUSPICIOUS: u8 = 1;
const OPEN: u8 = 2;
const HALF_OPEN: u8 = 3;

impl Breakers {
    /// The breakers of a store in this number of regions.
    pub(super) fn new(regions: usize) -> Breakers {
        let breakers = |count: usize| (0..count).map(|_| Breaker::default()).collect();
        Breakers { here: breakers(MAX_SHARDS), elsewhere: breakers(regions.saturating_sub(1) * MAX_SHARDS_ELSEWHERE) }
    }

    /// Breakers of the other regions of a store in this number of regions. This one's shards have none.
    pub(super) fn of_other_regions(regions: usize) -> Breakers {
        Breakers { here: Box::default(), ..Breakers::new(regions) }
    }

    /// The breaker of a shard, if it has one.
    pub(super) fn of(&self, shard: ShardId) -> Option<&Breaker> {
        let is_here = shard.region().is_here() || self.elsewhere.is_empty();
        (!is_here || !self.here.is_empty()).then(|| self.for_shard(shard))
    }

    #[inline]
    pub(super) fn for_shard(&self, shard: ShardId) -> &Breaker {
        let number = shard.in_region().0 as usize;
        match usize::from(shard.region().number()).checked_sub(1) {
            Some(region) if !self.elsewhere.is_empty() => {
                let index = region * MAX_SHARDS_ELSEWHERE + number % MAX_SHARDS_ELSEWHERE;
                &self.elsewhere[index % self.elsewhere.len()]
            }
            _ => &self.here[number % MAX_SHARDS],
        }
    }

    /// Those of this region.
    pub(super) fn here(&self) -> impl Iterator<Item = &Breaker> + Clone {
        self.here.iter()
    }

    /// Those of other regions.
    pub(super) fn elsewhere(&self) -> impl Iterator<Item = &Breaker> + Clone {
        self.elsewhere.iter()
    }

    /// Those of a region.
    pub(super) fn of_region(&self, region: RegionId) -> impl Iterator<Item = &Breaker> {
        let breakers = match usize::from(region.number()).checked_sub(1) {
            None => &self.here,
            Some(region) => self.elsewhere.chunks(MAX_SHARDS_ELSEWHERE).nth(region).unwrap_or_default(),
        };
        breakers.iter()
    }
}

impl Breaker {
    pub(super) fn is_closed(&self) -> bool {
        self.circuit.load(Ordering::Acquire) <= SUSPICIOUS
    }

    pub(super) fn circuit(&self) -> Circuit {
        match self.circuit.load(Ordering::Acquire) {
            CLOSED | SUSPICIOUS => Circuit::Closed,
            OPEN => Circuit::Open,
            _ => Circuit::HalfOpen,
        }
    }

    /// Counts an answer.
    pub(super) fn record_answer(&self) {
        if self.circuit.load(Ordering::Relaxed) == SUSPICIOUS {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a failure and returns whether it opened the breaker, which then stays open for the cool-down. Failures
    /// less than `incident` apart are one incident.
    pub(super) fn record_failure(
        &self,
        shard: ShardId,
        failure: &Failure,
        now: Timestamp,
        incident: Span,
        cool_down: Span,
    ) -> bool {
        let Some(reason) = REASONS.iter().position(|reason| *reason == failure.reason()) else {
            return false;
        };
        self.errors[reason].fetch_add(1, Ordering::Relaxed);
        let mut history = self.history();
        history.note(shard, failure);
        if !self.is_closed() {
            return false;
        }
        self.circuit.store(SUSPICIOUS, Ordering::Release);
        let answered = self.answered.load(Ordering::Relaxed);
        let is_outage = history.outage.add(now, answered, failure);
        // A late failure says nothing about the shard, except that there was no answer.
        let is_failing = *failure != Failure::Late && history.recent.add(now, answered, incident, failure);
        let opens = is_outage || is_failing;
        if opens {
            history.open_since = (now, cool_down);
            self.circuit.store(OPEN, Ordering::Release);
        }
        opens
    }

    /// The shard to probe now, if its cool-down is over. The cool-down starts again with the probe, so that there is
    /// another probe if this one never completes.
    pub(super) fn due(&self, now: Timestamp) -> Option<ShardId> {
        match self.circuit.load(Ordering::Acquire) {
            CLOSED => return None,
            SUSPICIOUS => {
                self.calm_down(now);
                return None;
            }
            _ => {}
        }
        let mut history = self.history();
        let (since, cool_down) = history.open_since;
        let is_cooling = since <= now && now < since.after(cool_down);
        let shard = history.shard.filter(|_| !is_cooling)?;
        history.open_since = (now, cool_down);
        self.circuit.store(HALF_OPEN, Ordering::Release);
        Some(shard)
    }

    /// Ends the suspicion when the last failure is long ago.
    fn calm_down(&self, now: Timestamp) {
        let history = self.history();
        if history.outage.is_over(now) {
            // Unless it has opened meanwhile.
            let _ = self.circuit.compare_exchange(SUSPICIOUS, CLOSED, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Records the result of a probe: the breaker closes, or stays open for another cool-down.
    pub(super) fn record_probe(&self, shard: ShardId, result: &Result<(), Failure>, now: Timestamp, cool_down: Span) {
        let mut history = self.history();
        match result {
            Ok(()) => {
                (history.recent, history.outage) = Default::default();
                self.circuit.store(CLOSED, Ordering::Release);
            }
            Err(failure) => {
                history.note(shard, failure);
                history.open_since = (now, cool_down);
                self.circuit.store(OPEN, Ordering::Release);
            }
        }
    }

    /// The time until the next probe.
    pub(super) fn cool_down_left(&self, now: Timestamp) -> Span {
        let (since, cool_down) = self.history().open_since;
        since.after(cool_down).since(now).min(cool_down)
    }

    /// The number of failures by reason, and the last error.
    pub(super) fn errors(&self) -> (Vec<(&'static str, u64)>, Option<String>) {
        let counts = self.errors.iter().map(|count| count.load(Ordering::Relaxed));
        (REASONS.into_iter().zip(counts).collect(), self.history().last_error.clone())
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentFailures {
    /// Adds a failure and returns whether the shard fails too often.
    fn add(&mut self, now: Timestamp, answered: u64, incident: Span, failure: &Failure) -> bool {
        // After the clock was set back, the times of earlier failures are meaningless.
        if self.incidents == 0 || now < self.began || now.since(self.began) >= WINDOW {
            *self = RecentFailures { began: now, answered_before: answered, ..RecentFailures::default() };
        }
        self.failed += 1;
        if self.incidents == 0 || now.since(self.last_incident) >= incident {
            self.incidents += 1;
            self.last_incident = now;
        }
        let is_pause = *failure == Failure::Timeout && now.since(self.began) < PAUSE;
        self.incidents >= INCIDENTS && !is_pause && self.failed >= answered.saturating_sub(self.answered_before)
    }
}

impl Outage {
    /// Adds a failure and returns whether there has been no answer for too long.
    fn add(&mut self, now: Timestamp, answered: u64, failure: &Failure) -> bool {
        if self.answered != answered || self.is_over(now) {
            *self = Outage { since: now, last: now, answered };
        }
        self.last = now;
        now.since(self.since) >= if *failure == Failure::Late { LATE_OUTAGE } else { OUTAGE }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        now < self.last || now.since(self.last) >= MAX_GAP
    }
}

impl History {
    fn note(&mut self, shard: ShardId, failure: &Failure) {
        self.shard = Some(shard);
        self.last_error = Some(failure.to_string().chars().take(MAX_ERROR_CHARS).collect());
    }
}

/// The cool-down plus or minus a fifth, so that servers that lost a shard together do not return to it together.
pub(super) fn jittered(cool_down: Duration) -> Span {
    let micros = u64::try_from(cool_down.as_micros()).unwrap_or(u64::MAX);
    Span::from_micros((micros / 1_000).saturating_mul(fastrand::u64(800..=1_200)))
}

#[cfg(test)]
mod tests {
    use tollgate_core::RegionId;

    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_000_000);
    const INCIDENT: Span = Span::from_micros(8_000);
    const COOL_DOWN: Span = Span::from_secs(5);
    const SHARD: ShardId = ShardId(7);

    fn fail(breaker: &Breaker, now: Timestamp) -> bool {
        breaker.record_failure(SHARD, &Failure::Timeout, now, INCIDENT, COOL_DOWN)
    }

    fn refuse(breaker: &Breaker, now: Timestamp) -> bool {
        breaker.record_failure(SHARD, &Failure::Refused("no".to_owned()), now, INCIDENT, COOL_DOWN)
    }

    fn opened(now: Timestamp) -> Breaker {
        let breaker = Breaker::default();
        for failed in 0..5 {
            assert_eq!(refuse(&breaker, now.before(Span::from_micros((4 - failed) * 8_000))), failed == 4);
        }
        breaker
    }

    #[test]
    fn calls_without_an_answer_open_it_after_a_quarter_of_a_second() {
        let breaker = Breaker::default();
        let opened = (0..100).find(|at| fail(&breaker, START.after(Span::from_micros(at * 8_000))));
        assert_eq!(opened, Some(32), "256 ms after the first");
        // Pauses of 200 ms, and four times as many answers after each.
        let breaker = Breaker::default();
        for pause in 0..50 {
            for at in 0..25 {
                assert!(!fail(&breaker, START.after(Span::from_micros(pause * 400_000 + at * 8_000))), "{pause} {at}");
            }
            (0..100).for_each(|_| breaker.record_answer());
        }
    }

    #[test]
    fn the_cool_down_is_jittered_by_a_fifth() {
        let cool_downs: Vec<u64> = (0..2_000).map(|_| jittered(Duration::from_secs(5)).as_micros()).collect();
        assert!(cool_downs.iter().all(|cool_down| (4_000_000..=6_000_000).contains(cool_down)));
        assert!(
            cool_downs.iter().any(|cool_down| *cool_down < 4_200_000)
                && cool_downs.iter().any(|cool_down| *cool_down > 5_800_000)
        );
    }

    #[test]
    fn it_is_probed_once_after_its_cool_down() {
        let breaker = opened(START);
        assert_eq!(breaker.due(START.after(Span::from_micros(4_999_999))), None);
        assert_eq!(breaker.cool_down_left(START.after(Span::from_secs(1))), Span::from_secs(4));
        let due = START.after(COOL_DOWN);
        assert_eq!((breaker.due(due), breaker.due(due)), (Some(SHARD), None));
        assert_eq!(breaker.circuit(), Circuit::HalfOpen);
        // That probe never completed.
        let due = due.after(COOL_DOWN);
        assert_eq!((breaker.due(due), breaker.due(due)), (Some(SHARD), None));
        breaker.record_probe(SHARD, &Err(Failure::Timeout), due, COOL_DOWN);
        assert_eq!((breaker.circuit(), breaker.due(due)), (Circuit::Open, None));
        assert_eq!(breaker.due(due.after(COOL_DOWN)), Some(SHARD));
        breaker.record_probe(SHARD, &Ok(()), due.after(COOL_DOWN), COOL_DOWN);
        assert!(breaker.is_closed());
        assert!(!fail(&breaker, due.after(COOL_DOWN)), "what was before it closed no longer counts");
    }

    #[test]
    fn a_clock_that_is_set_back_holds_nothing_up() {
        let long_ago = START.before(Span::from_secs(3_600));
        assert_eq!(opened(START).due(long_ago), Some(SHARD));
        let breaker = Breaker::default();
        (0..4).for_each(|failed| assert!(!refuse(&breaker, START.after(Span::from_micros(failed * 8_000)))));
        for failed in 0..5u64 {
            assert_eq!(refuse(&breaker, long_ago.after(Span::from_micros(failed * 8_000))), failed == 4);
        }
    }

    #[test]
    fn failures_count_in_relation_to_answers() {
        for (answers, opens) in [(0, true), (1, true), (2, false), (100, false)] {
            let breaker = Breaker::default();
            let mut opened = false;
            for at in 0..100 {
                opened |= fail(&breaker, START.after(Span::from_micros(at * 8_000)));
                (0..answers).for_each(|_| breaker.record_answer());
            }
            assert_eq!((opened, !breaker.is_closed()), (opens, opens), "{answers} answers for each failure");
        }
    }

    #[test]
    fn a_second_without_any_answer_opens_it_however_few_calls_there_are() {
        let seconds = |seconds| START.after(Span::from_secs(seconds));
        let breaker = Breaker::default();
        assert!(!fail(&breaker, START) && fail(&breaker, seconds(3)));
        let breaker = Breaker::default();
        assert!(!fail(&breaker, START) && !fail(&breaker, seconds(10)), "too long ago");
        breaker.record_answer();
        assert!(!fail(&breaker, seconds(13)), "there was an answer");
        assert!(fail(&breaker, seconds(14)));
    }

    #[test]
    fn failures_of_this_process_do_not_open_it_unless_nothing_else_happens() {
        let late = |breaker: &Breaker, at| {
            let now = START.after(Span::from_micros(at));
            breaker.record_failure(SHARD, &Failure::Late, now, INCIDENT, COOL_DOWN)
        };
        let breaker = Breaker::default();
        for at in 0..1_000 {
            assert!(!late(&breaker, at * 20_000));
            breaker.record_answer();
        }
        let breaker = Breaker::default();
        let opened = (0..1_000).find(|at| late(&breaker, at * 20_000));
        assert_eq!(opened, Some(250), "after five seconds without any answer");
        let breaker = Breaker::default();
        assert!((0..200).all(|at| !late(&breaker, at * 20_000)));
        assert!(fail(&breaker, START.after(Span::from_secs(4))), "the shard has not answered in four seconds either");
    }

    #[test]
    fn answers_are_counted_only_after_a_failure() {
        let breaker = Breaker::default();
        let counted = || {
            breaker.record_answer();
            breaker.answered.load(Ordering::Relaxed)
        };
        assert_eq!(counted(), 0);
        assert!(!fail(&breaker, START));
        assert_eq!((breaker.due(START.after(Span::from_secs(9))), counted()), (None, 1));
        assert_eq!((breaker.due(START.after(Span::from_secs(10))), counted()), (None, 1), "the failure is long ago");
    }

    #[test]
    fn a_claim_that_is_pending_is_no_failure() {
        let breaker = Breaker::default();
        for second in 0..20 {
            assert!(!breaker.record_failure(
                SHARD,
                &Failure::Pending,
                START.after(Span::from_secs(second)),
                INCIDENT,
                COOL_DOWN
            ));
        }
        assert_eq!(breaker.errors().1, None);
    }

    #[test]
    fn shards_past_the_bound_share_breakers() {
        let breakers = Breakers::new(3);
        assert!(std::ptr::eq(breakers.for_shard(ShardId(3)), breakers.for_shard(ShardId(3 + MAX_SHARDS as u32))));
        assert_eq!(breakers.here().count(), MAX_SHARDS);
        assert_eq!(breakers.elsewhere().count(), 2 * MAX_SHARDS_ELSEWHERE);
        let elsewhere = |region| breakers.for_shard(ShardId(3).at(RegionId::new(region)));
        assert!(!std::ptr::eq(elsewhere(0), elsewhere(1)) && !std::ptr::eq(elsewhere(1), elsewhere(2)));
        breakers.for_shard(ShardId(u32::MAX));
    }

    #[test]
    fn errors_are_cut() {
        let breaker = Breaker::default();
        breaker.record_failure(SHARD, &Failure::Refused("é".repeat(10_000)), START, INCIDENT, COOL_DOWN);
        assert_eq!(breaker.errors().1.unwrap().chars().count(), MAX_ERROR_CHARS);
    }
}
