//! The witness of a server's decisions.

use tollgate::{Seen, Timestamp, Witness};

use crate::hitters::Hitters;
use crate::latency::Latency;
use crate::ruling::Ruled;
use crate::stripe::is_one_in;
use crate::sustained::Sustained;
use crate::tally::{Tally, TallyLimits};

/// Sees every decision, and keeps what they come to.
#[derive(Debug)]
pub struct Observer {
    tally: Tally,
    hitters: Hitters,
    decision: Latency,
    store: Latency,
    config: ObserverConfig,
}

/// How an observer looks.
#[derive(Clone, Copy, Debug)]
pub struct ObserverConfig {
    /// Refusals are only told: nothing is refused.
    pub shadow: bool,
    /// One in so many checks is timed. To read the clock costs as much as to count, so where a check takes less than a microsecond
    /// not every one is.
    pub time_one_in: u32,
    /// How much is told apart.
    pub tally: TallyLimits,
}

impl Default for ObserverConfig {
    fn default() -> ObserverConfig {
        ObserverConfig { shadow: false, time_one_in: 8, tally: TallyLimits::default() }
    }
}

impl Observer {
    /// One that has seen nothing yet.
    pub fn new(config: ObserverConfig) -> Observer {
        Observer {
            tally: Tally::new(config.tally),
            hitters: Hitters::default(),
            decision: Latency::default(),
            store: Latency::default(),
            config,
        }
    }

    /// What is counted by rule and tier.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Which keys are the heaviest.
    pub fn hitters(&self) -> &Hitters {
        &self.hitters
    }

    /// Keys that have come to be near their limit for long since the event of this number, with the number of the last event.
    pub fn sustained_since(&self, event: u64, now: Timestamp) -> (u64, Vec<Sustained>) {
        self.hitters.sustained_since(event, now)
    }

    /// How long decisions take.
    pub fn decision_times(&self) -> &Latency {
        &self.decision
    }

    /// How long the store takes.
    pub fn store_times(&self) -> &Latency {
        &self.store
    }
}

impl Witness for Observer {
    #[inline]
    fn times(&self) -> bool {
        is_one_in(self.config.time_one_in)
    }

    fn saw(&self, seen: &Seen<'_, '_>) {
        let ruled = Ruled::of(seen, self.config.shadow);
        self.tally.count(seen, ruled);
        self.hitters.count(seen, ruled);
        if let Some(took) = seen.took {
            let weight = u64::from(self.config.time_one_in.max(1));
            self.decision.took(took.whole, weight);
            if let Some(store) = took.store {
                self.store.took(store, weight);
            }
        }
    }
}
