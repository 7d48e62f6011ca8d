//! The witness of a server's decisions.

use tollgate::{Seen, Source, Timestamp, Witness};

use crate::hitters::Hitters;
use crate::latency::Latency;
use crate::log::{DecisionLog, LogConfig};
use crate::ruling::{Ruled, Ruling};
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
    log: DecisionLog,
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
    /// Whether the heaviest keys are counted too.
    pub keys: bool,
    /// How much is told apart.
    pub tally: TallyLimits,
    /// What is logged.
    pub log: LogConfig,
}

impl Default for ObserverConfig {
    fn default() -> ObserverConfig {
        ObserverConfig {
            shadow: false,
            time_one_in: 16,
            keys: true,
            tally: TallyLimits::default(),
            log: LogConfig::default(),
        }
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
            log: DecisionLog::new(config.log),
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

    /// Throttles, whose limits come with them, were decided alike by this source: so many were let pass, so many were not. They are
    /// told of in numbers, since a pipeline brings more of them than could be told of one by one.
    pub fn throttled(&self, allowed: u64, denied: u64, source: Source) {
        let passed = match source {
            Source::Shed => Ruling::Shed,
            Source::Assumed => Ruling::Assumed,
            Source::Store | Source::Cache | Source::Local => Ruling::Allow,
        };
        let refused = if self.config.shadow { Ruling::Shadow } else { Ruling::Deny };
        self.tally.throttled((passed, allowed), (refused, denied));
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

    /// What is logged of them.
    pub fn log(&self) -> &DecisionLog {
        &self.log
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
        if self.config.keys {
            self.hitters.count(seen, ruled);
        }
        self.log.saw(seen, ruled);
        if let Some(took) = seen.took {
            let weight = u64::from(self.config.time_one_in.max(1));
            self.decision.took(took.whole, weight);
            if let Some(store) = took.store {
                self.store.took(store, weight);
            }
        }
    }
}
