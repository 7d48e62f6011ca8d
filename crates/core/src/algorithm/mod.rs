//! The algorithms: each a state and a handful of pure functions over it, in ticks.
//!
//! An algorithm knows its limit and the time. It knows nothing of claims, keys, modes, leases or its siblings. The set is a
//! closed enum: stores serialise the state, and `match` shows what is missing.
//!
//! Every function but [`advance`](State::advance) expects a state that was just advanced to the `now` that `advance` gave.

mod bucket;
mod fixed_window;
mod holds;
mod sliding_log;
mod sliding_window;

pub use bucket::Bucket;
pub use fixed_window::FixedWindow;
pub use holds::{Hold, Holds};
pub use sliding_log::{Entry, SlidingLog};
pub use sliding_window::SlidingWindow;

use crate::claim::ClaimId;
use crate::limit::{Algorithm, Limit};

/// What a store keeps for one key. Large states are boxed, so that the small ones, which are most, stay small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing counted yet: what an absent key and every stale one are.
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

/// The moment at which something happens, in ticks of its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitUntil {
    /// Now.
    Now,
    /// From this tick on.
    Tick(u64),
    /// Never.
    Never,
}

/// What `advance` found.
#[derive(Clone, Copy, Debug)]
pub struct Advanced {
    /// The time by which the state counts: later than the clock's while the state stands still ahead of it.
    pub now: u64,
    /// The state lay too far ahead and was brought back to now. That must be kept even if the claim is refused: else a
    /// caller who keeps asking would never get past it.
    pub moved: bool,
}

/// What a state says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// How many units could be taken now; `None` while the counter stands past its limit.
    pub available: Option<u64>,
    /// The tick at which the quota is whole again, or its period ends.
    pub reset_at: u64,
    /// The tick from which the state equals a fresh one.
    pub stale_at: u64,
}

/// What one charge asks of a state: who, how much, of which limit, when.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The limit that it is held to.
    pub limit: &'a Limit,
    /// The tick that `advance` gave.
    pub now: u64,
    /// The claim that asks.
    pub by: ClaimId,
    /// How many units.
    pub units: u64,
}

/// Where a state that was last touched at `at` stands at `now`: still, for up to one period; past that the clock was set
/// back and the state follows it.
fn stand(at: u64, now: u64, period: u64) -> Advanced {
    if at <= now {
        Advanced { now, moved: false }
    } else if at - now <= period {
        Advanced { now: at, moved: false }
    } else {
        Advanced { now, moved: true }
    }
}

macro_rules! each {
    ($state:expr, $it:ident => $body:expr, fresh => $fresh:expr) => {
        match $state {
            State::Fresh => $fresh,
            State::Bucket($it) => $body,
            State::FixedWindow($it) => $body,
            State::SlidingWindow($it) => $body,
            State::SubWindows($it) => $body,
            State::SlidingLog($it) => $body,
            State::Holds($it) => $body,
        }
    };
}

impl State {
    /// Makes the state one of this limit's algorithm (a fresh one, where it is not), and brings it up to `now`.
    pub fn advance(&mut self, limit: &Limit, now: u64) -> Advanced {
        if !self.is_of(limit) {
            *self = State::begin(limit);
        }
        each!(self, it => it.advance(limit, now), fresh => Advanced { now, moved: false })
    }

    /// How many units count against the limit now.
    pub fn used(&self, limit: &Limit, now: u64) -> u64 {
        each!(self, it => it.used(limit, now), fresh => 0)
    }

    /// How many units could be taken now; `None` while the counter stands past its limit.
    pub fn available(&self, limit: &Limit, now: u64) -> Option<u64> {
        limit.quota().checked_sub(self.used(limit, now))
    }

    /// Whether there is room for what is asked. Nothing (a look) has room unless the counter stands past its limit.
    pub fn admits(&self, asked: &Asked<'_>) -> bool {
        if let State::Holds(holds) = self
            && holds.holds(asked.by)
        {
            return true;
        }
        self.available(asked.limit, asked.now).is_some_and(|left| asked.units <= left)
    }

    /// Takes the units, past the limit if need be, and says how many were counted.
    pub fn spend(&mut self, asked: &Asked<'_>) -> u64 {
        each!(self, it => it.spend(asked), fresh => 0)
    }

    /// Gives back units that were taken in the tick `taken_at`, and says how many still mattered.
    pub fn give_back(&mut self, asked: &Asked<'_>, taken_at: u64) -> u64 {
        each!(self, it => it.give_back(asked, taken_at), fresh => 0)
    }

    /// Gives units back whenever they were taken, the newest first, and says how many: by so many less are used.
    pub fn credit(&mut self, asked: &Asked<'_>) -> u64 {
        each!(self, it => it.credit(asked), fresh => 0)
    }

    /// When there would be room for what is asked if nobody else spent. A hold that the claim has already is no room.
    pub fn wait(&self, asked: &Asked<'_>) -> WaitUntil {
        if self.available(asked.limit, asked.now).is_some_and(|left| asked.units <= left) {
            WaitUntil::Now
        } else if asked.units > asked.limit.quota() {
            WaitUntil::Never
        } else {
            each!(self, it => it.wait(asked), fresh => WaitUntil::Now)
        }
    }

    /// All that can be told of it now.
    pub fn report(&self, limit: &Limit, now: u64) -> Report {
        each!(
            self,
            it => Report { available: self.available(limit, now), reset_at: it.reset_at(limit, now), stale_at: it.stale_at(limit) },
            fresh => Report { available: Some(limit.quota()), reset_at: now, stale_at: 0 }
        )
    }

    /// How many ticks an admitted request should wait, so that it leaves evenly spaced. Asked before it is spent.
    pub fn delay(&self, limit: &Limit, now: u64) -> u64 {
        match self {
            State::Bucket(bucket) => bucket.delay(limit, now),
            _ => 0,
        }
    }

    /// Whether it is one that its algorithm could have left, for some limit. What a store reads back from outside must be: then
    /// every function here is defined for it, whatever limit it meets.
    pub fn is_sound(&self) -> bool {
        each!(self, it => it.is_sound(), fresh => true)
    }

    fn is_of(&self, limit: &Limit) -> bool {
        match (self, limit.algorithm()) {
            (State::Bucket(_), Algorithm::Bucket { .. })
            | (State::FixedWindow(_), Algorithm::FixedWindow)
            | (State::SlidingWindow(_), Algorithm::SlidingWindow { sub_windows: 1 })
            | (State::SlidingLog(_), Algorithm::SlidingLog)
            | (State::Holds(_), Algorithm::Concurrency) => true,
            (State::SubWindows(it), Algorithm::SlidingWindow { sub_windows }) => it.parts() == u64::from(sub_windows),
            _ => false,
        }
    }

    fn begin(limit: &Limit) -> State {
        match limit.algorithm() {
            Algorithm::Bucket { .. } => State::Bucket(Bucket::default()),
            Algorithm::FixedWindow => State::FixedWindow(FixedWindow::default()),
            Algorithm::SlidingWindow { sub_windows: 1 } => State::SlidingWindow(SlidingWindow::default()),
            Algorithm::SlidingWindow { sub_windows } => {
                State::SubWindows(Box::new(SlidingWindow::in_parts(usize::from(sub_windows))))
            }
            Algorithm::SlidingLog => State::SlidingLog(Box::default()),
            Algorithm::Concurrency => State::Holds(Box::default()),
        }
    }
}
