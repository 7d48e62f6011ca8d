//! The counting algorithms. Each one consists of a state and a few pure functions, which compute in ticks.
//!
//! An algorithm depends only on its limit and the time, not on claims, keys, modes, leases or the other algorithms.
//! The set is a closed enum, because stores serialise the state.
//!
//! Every function except [`advance`](CounterState::advance) expects a state that was just advanced to the `now` that
//! `advance` returned.

mod bucket;
mod fixed_window;
mod holds;
mod sliding_log;
mod sliding_window;

pub use bucket::Bucket;
pub use fixed_window::FixedWindow;
pub use holds::{Hold, Holds};
pub use sliding_log::{LogEntry, SlidingLog};
pub use sliding_window::SlidingWindow;

use crate::claim::ClaimId;
use crate::limit::{Algorithm, Limit};

/// The stored state of one counter. Large states are boxed to keep the common ones small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CounterState {
    /// Nothing counted yet. An absent or stale counter has this state.
    #[default]
    Fresh,
    /// Token bucket, GCRA, leaky bucket.
    Bucket(Bucket),
    /// Fixed window.
    FixedWindow(FixedWindow),
    /// Sliding window in one part.
    SlidingWindow(SlidingWindow<[u64; 2]>),
    /// Sliding window in several parts.
    SubWindows(Box<SlidingWindow<Vec<u64>>>),
    /// Sliding log.
    SlidingLog(Box<SlidingLog>),
    /// Concurrency.
    Holds(Box<Holds>),
}

/// The earliest tick at which there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitUntil {
    /// Now.
    Now,
    /// From this tick on.
    Tick(u64),
    /// Never.
    Never,
}

/// The result of `advance`.
#[derive(Clone, Copy, Debug)]
pub struct EffectiveTime {
    /// The tick by which the state counts. It is ahead of the clock while the state is ahead of the clock.
    pub now: u64,
    /// The state was too far ahead of the clock and was moved back to `now`. The store must write it even if the
    /// claim is refused; otherwise a caller that retries would never be admitted.
    pub moved: bool,
}

/// What became of a charge.
#[derive(Clone, Copy, Debug)]
pub struct ChargeResult {
    /// The units that were taken.
    pub taken: u64,
    /// How many ticks the request should be delayed so that requests leave evenly spaced.
    pub delay: u64,
    /// The values of the state after the charge.
    pub report: StateReport,
}

/// The derived values of a state.
#[derive(Clone, Copy, Debug)]
pub struct StateReport {
    /// The units available now. `None` while the counter is past its limit.
    pub available: Option<u64>,
    /// The tick at which the quota is full again or the period ends.
    pub reset_at: u64,
    /// The tick from which the state equals a fresh one.
    pub stale_at: u64,
}

/// A charge in ticks, as an algorithm sees it.
#[derive(Clone, Copy, Debug)]
pub struct TickCharge<'a> {
    /// The limit of the counter.
    pub limit: &'a Limit,
    /// The tick that `advance` returned.
    pub now: u64,
    /// The id of the claim.
    pub by: ClaimId,
    /// The number of units.
    pub units: u64,
}

/// The state of one algorithm, and its pure functions. All but [`advance`](AlgorithmState::advance) expect a state that was
/// just advanced to the `now` that it returned.
pub trait AlgorithmState {
    /// Whether the algorithm can produce this state for some limit.
    fn is_sound(&self) -> bool;

    /// Advances the state to `now`.
    fn advance(&mut self, limit: &Limit, now: u64) -> EffectiveTime;

    /// The number of units that count against the limit now.
    fn used(&self, limit: &Limit, now: u64) -> u64;

    /// Takes the units, past the limit if necessary, and returns how many were counted.
    fn spend(&mut self, charge: &TickCharge<'_>) -> u64;

    /// Gives back units that were taken in the tick `taken_at`, and returns how many of them still counted.
    fn give_back(&mut self, charge: &TickCharge<'_>, taken_at: u64) -> u64;

    /// Gives back units regardless of when they were taken, newest first. Returns by how many the used units decrease.
    fn credit(&mut self, charge: &TickCharge<'_>) -> u64;

    /// When there is room for a charge that has none now and fits into the quota.
    fn wait(&self, charge: &TickCharge<'_>) -> WaitUntil;

    /// The tick at which the quota is full again or the period ends.
    fn reset_at(&self, limit: &Limit, now: u64) -> u64;

    /// The tick from which the state equals a fresh one.
    fn stale_at(&self, limit: &Limit) -> u64;

    /// Whether there is room for the charge.
    #[inline]
    fn has_room(&self, charge: &TickCharge<'_>) -> bool {
        let available = charge.limit.quota().checked_sub(self.used(charge.limit, charge.now));
        available.is_some_and(|left| charge.units <= left)
    }

    /// How many ticks an admitted request should be delayed so that requests leave evenly spaced.
    #[inline]
    fn delay(&self, _limit: &Limit, _now: u64) -> u64 {
        0
    }

    /// When there is room for the charge, if nobody else takes units.
    #[inline]
    fn earliest(&self, charge: &TickCharge<'_>) -> WaitUntil {
        if self.has_room(charge) {
            WaitUntil::Now
        } else if charge.units > charge.limit.quota() {
            WaitUntil::Never
        } else {
            self.wait(charge)
        }
    }

    /// Takes the units of a charge that pays, and reports the state after it.
    #[inline]
    fn conclude(&mut self, charge: &TickCharge<'_>, pays: bool) -> ChargeResult {
        let TickCharge { limit, now, .. } = *charge;
        let delay = if pays { self.delay(limit, now) } else { 0 };
        let taken = if pays { self.spend(charge) } else { 0 };
        let available = limit.quota().checked_sub(self.used(limit, now));
        let report = StateReport { available, reset_at: self.reset_at(limit, now), stale_at: self.stale_at(limit) };
        ChargeResult { taken, delay, report }
    }
}

/// The time by which a state counts that was last changed at `at`. A state that is ahead of the clock by up to one
/// period stands still until the clock catches up. If it is further ahead, the clock was set back and the state
/// follows it.
#[inline]
fn effective_time(at: u64, now: u64, period: u64) -> EffectiveTime {
    if at <= now {
        EffectiveTime { now, moved: false }
    } else if at - now <= period {
        EffectiveTime { now: at, moved: false }
    } else {
        EffectiveTime { now, moved: true }
    }
}

macro_rules! each {
    ($state:expr, $it:ident => $body:expr, fresh => $fresh:expr) => {
        match $state {
            CounterState::Fresh => $fresh,
            CounterState::Bucket($it) => $body,
            CounterState::FixedWindow($it) => $body,
            CounterState::SlidingWindow($it) => $body,
            CounterState::SubWindows($it) => $body,
            CounterState::SlidingLog($it) => $body,
            CounterState::Holds($it) => $body,
        }
    };
}

impl CounterState {
    /// Replaces the state by a fresh one if it does not match the limit's algorithm, and advances it to `now`.
    pub fn advance(&mut self, limit: &Limit, now: u64) -> EffectiveTime {
        if !self.matches(limit) {
            *self = CounterState::initial(limit);
        }
        each!(self, it => it.advance(limit, now), fresh => EffectiveTime { now, moved: false })
    }

    /// The number of units that count against the limit now.
    pub fn used(&self, limit: &Limit, now: u64) -> u64 {
        each!(self, it => it.used(limit, now), fresh => 0)
    }

    /// The units available now. `None` while the counter is past its limit.
    pub fn available(&self, limit: &Limit, now: u64) -> Option<u64> {
        limit.quota().checked_sub(self.used(limit, now))
    }

    /// Whether there is room for the charge. A charge of 0 units (a peek) has room unless the counter is past its
    /// limit.
    pub fn admits(&self, charge: &TickCharge<'_>) -> bool {
        if let CounterState::Holds(holds) = self
            && holds.holds(charge.by)
        {
            return true;
        }
        self.has_room(charge)
    }

    fn has_room(&self, charge: &TickCharge<'_>) -> bool {
        each!(self, it => it.has_room(charge), fresh => charge.units <= charge.limit.quota())
    }

    /// Takes the units, past the limit if necessary, and returns how many were counted.
    pub fn spend(&mut self, charge: &TickCharge<'_>) -> u64 {
        each!(self, it => it.spend(charge), fresh => 0)
    }

    /// Gives back units that were taken in the tick `taken_at`, and returns how many of them still counted.
    pub fn give_back(&mut self, charge: &TickCharge<'_>, taken_at: u64) -> u64 {
        each!(self, it => it.give_back(charge, taken_at), fresh => 0)
    }

    /// Gives back units regardless of when they were taken, newest first. Returns by how many the used units
    /// decrease.
    pub fn credit(&mut self, charge: &TickCharge<'_>) -> u64 {
        each!(self, it => it.credit(charge), fresh => 0)
    }

    /// The earliest tick with room for the charge if nobody else takes units. A hold that the claim already has
    /// counts as used.
    pub fn wait(&self, charge: &TickCharge<'_>) -> WaitUntil {
        let fits = charge.units <= charge.limit.quota();
        each!(self, it => it.earliest(charge), fresh => if fits { WaitUntil::Now } else { WaitUntil::Never })
    }

    /// Takes the units of a charge that pays, and reports the state after it: what a claim does with most counters, with
    /// one look at the algorithm.
    pub fn conclude(&mut self, charge: &TickCharge<'_>, pays: bool) -> ChargeResult {
        let TickCharge { limit, now, .. } = *charge;
        each!(
            self,
            it => it.conclude(charge, pays),
            fresh => ChargeResult { taken: 0, delay: 0, report: self.report(limit, now) }
        )
    }

    /// The derived values of the state.
    pub fn report(&self, limit: &Limit, now: u64) -> StateReport {
        each!(
            self,
            it => StateReport { available: self.available(limit, now), reset_at: it.reset_at(limit, now), stale_at: it.stale_at(limit) },
            fresh => StateReport { available: Some(limit.quota()), reset_at: now, stale_at: 0 }
        )
    }

    /// How many ticks an admitted request should be delayed so that requests leave evenly spaced. Called before the
    /// units are taken.
    pub fn delay(&self, limit: &Limit, now: u64) -> u64 {
        each!(self, it => it.delay(limit, now), fresh => 0)
    }

    /// Whether the state is one that its algorithm can produce for some limit. A state read from outside must pass
    /// this check; every function here is then defined for it, whatever the limit.
    pub fn is_sound(&self) -> bool {
        each!(self, it => it.is_sound(), fresh => true)
    }

    fn matches(&self, limit: &Limit) -> bool {
        match (self, limit.algorithm()) {
            (CounterState::Bucket(_), Algorithm::Bucket { .. })
            | (CounterState::FixedWindow(_), Algorithm::FixedWindow)
            | (CounterState::SlidingWindow(_), Algorithm::SlidingWindow { sub_windows: 1 })
            | (CounterState::SlidingLog(_), Algorithm::SlidingLog)
            | (CounterState::Holds(_), Algorithm::Concurrency) => true,
            (CounterState::SubWindows(it), Algorithm::SlidingWindow { sub_windows }) => {
                it.parts() == u64::from(sub_windows)
            }
            _ => false,
        }
    }

    fn initial(limit: &Limit) -> CounterState {
        match limit.algorithm() {
            Algorithm::Bucket { .. } => CounterState::Bucket(Bucket::default()),
            Algorithm::FixedWindow => CounterState::FixedWindow(FixedWindow::default()),
            Algorithm::SlidingWindow { sub_windows: 1 } => CounterState::SlidingWindow(SlidingWindow::default()),
            Algorithm::SlidingWindow { sub_windows } => {
                CounterState::SubWindows(Box::new(SlidingWindow::in_parts(usize::from(sub_windows))))
            }
            Algorithm::SlidingLog => CounterState::SlidingLog(Box::default()),
            Algorithm::Concurrency => CounterState::Holds(Box::default()),
        }
    }
}
