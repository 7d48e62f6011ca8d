//! What is simulated: a fleet, its limits, its traffic, and what goes wrong.

mod read;
mod regions;

use tollgate_core::{Limit, Span};
use tollgate_store::leased::LeasePolicy;

pub use read::ScenarioProblem;
pub use regions::{PlannedMode, PlannedRegion, PlannedRegions};

/// A fleet and what happens to it. Runs of equal scenarios have equal results.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// For the report.
    pub name: String,
    /// The seed of all randomness.
    pub seed: u64,
    /// The servers that share the limits, in all regions.
    pub servers: u32,
    /// The regions, if there are several. The servers are those of the first region, then those of the second, and so on.
    pub regions: Option<PlannedRegions>,
    /// The instances of the store, each with a part of the keys.
    pub shards: u32,
    /// How long traffic lasts.
    pub duration: Span,
    /// The time at the beginning that is not in the figures. The limits are checked from the start.
    pub warm_up: Span,
    /// The limits that every request meets.
    pub limits: Vec<PlannedLimit>,
    /// The requests.
    pub traffic: Traffic,
    /// The way between servers and store.
    pub network: Network,
    /// The clock of each server runs faster or slower than the store's by up to this many millionths.
    pub clock_drift: u32,
    /// What goes wrong, and when.
    pub faults: Vec<PlannedFault>,
    /// Whether keys are leased.
    pub leases: bool,
    /// The constants of leases. Others than the default show what each of them is good for.
    pub lease_policy: LeasePolicy,
    /// Whether keys that are too rare for a lease and far from their limit are counted without a counter.
    pub counts_cold_keys: bool,
    /// Whether what is admitted is compared with what the store counts at every admission. It must not be more, even where no
    /// limit is near. This takes time.
    pub compares_counters: bool,
}

/// A limit of every request.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedLimit {
    /// The limit.
    pub limit: Limit,
    /// Whether all keys share one counter.
    pub is_global: bool,
    /// Whether servers may lease its units.
    pub is_leased: bool,
    /// The part of the quota that servers may admit before the store counts it, in basis points.
    pub ahead: Option<u16>,
    /// What it means in several regions.
    pub mode: PlannedMode,
}

/// The requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Requests a second, of all keys and servers.
    pub rate: f64,
    /// The number of keys.
    pub keys: u64,
    /// The exponent of Zipf's law by which keys are drawn. 0: all alike.
    pub exponent: f64,
    /// The server that receives a request.
    pub routing: Routing,
    /// Traffic that comes and goes.
    pub bursts: Option<Bursts>,
    /// The interval at which the traffic of a key moves to other servers.
    pub moves: Option<Span>,
    /// The least and the most units of a request.
    pub units: (u64, u64),
}

/// The server that receives a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Any.
    Random,
    /// One of so many servers, which depend on the key.
    Sticky(u32),
}

/// Traffic that comes and goes: `on`, then `off`, and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// How long requests come.
    pub on: Span,
    /// How long none come then.
    pub off: Span,
}

/// The way between servers and store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// The shortest and the longest round trip.
    pub round_trip: (Span, Span),
    /// The share of messages that are lost, each way.
    pub drops: f64,
    /// How long a server waits for the store.
    pub deadline: Span,
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFault {
    /// When.
    pub at: Span,
    /// What.
    pub fault: Fault,
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Servers are killed, and start again after a while or never.
    Crash {
        /// How many.
        servers: u32,
        /// The time until they start again.
        restart_after: Option<Span>,
    },
    /// Servers stand still, with all that they hold.
    Pause {
        /// How many.
        servers: u32,
        /// For how long.
        lasts: Span,
    },
    /// Messages between some servers and the store are lost.
    Partition {
        /// How many servers.
        servers: u32,
        /// For how long.
        lasts: Span,
        /// Which messages.
        lost: Lost,
    },
    /// Messages from servers of one region to the store of another, or their answers, are lost.
    Separate {
        /// The region of the servers.
        from: usize,
        /// The region of the store.
        to: usize,
        /// For how long.
        lasts: Span,
        /// Which messages.
        lost: Lost,
    },
    /// The store answers nothing for a while, and everything then.
    Stall {
        /// For how long.
        lasts: Span,
    },
    /// The store forgets everything.
    DataLoss,
    /// Another instance of the store takes over, which lacks the last writes.
    Failover {
        /// The time before the failover whose writes are lost.
        loses: Span,
    },
    /// Somebody sets the store's clock.
    ClockStep {
        /// By so many microseconds, ahead or back.
        by: i64,
    },
}

/// The messages that a partition loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// To the store and back.
    Both,
    /// To the store.
    Requests,
    /// Back from the store.
    Answers,
}

impl PlannedLimit {
    /// A limit with leases.
    pub fn new(limit: Limit) -> PlannedLimit {
        PlannedLimit { limit, is_global: false, is_leased: true, ahead: None, mode: PlannedMode::Each }
    }
}

impl Fault {
    /// Whether the store counts less afterwards than it gave: then what servers hold may be admitted in addition.
    pub fn loses_counts(self) -> bool {
        matches!(self, Fault::DataLoss | Fault::Failover { .. } | Fault::ClockStep { .. })
    }
}

impl Scenario {
    /// The most servers.
    pub const MAX_SERVERS: u32 = 5_000;
    /// The most instances of the store.
    pub const MAX_SHARDS: u32 = 1_024;
    /// The most regions.
    pub const MAX_REGIONS: usize = 16;
    /// The most limits of a request.
    pub const MAX_LIMITS: usize = 16;
    /// The most faults.
    pub const MAX_FAULTS: usize = 1_000;
    /// The most requests a second.
    pub const MAX_RATE: f64 = 1e8;
    /// The most keys.
    pub const MAX_KEYS: u64 = 1_000_000_000;
    /// The most counters: keys that are not cold, for each limit.
    pub const MAX_COUNTERS: u64 = 4_000_000;

    /// A scenario with one limit and no faults.
    pub fn new(name: &str, limit: Limit) -> Scenario {
        let limits = vec![PlannedLimit::new(limit)];
        Scenario { limits, ..Scenario::without_limits(name) }
    }

    fn without_limits(name: &str) -> Scenario {
        Scenario {
            name: name.to_owned(),
            seed: 1,
            servers: 1,
            regions: None,
            shards: 1,
            duration: Span::from_secs(60),
            warm_up: Span::ZERO,
            limits: Vec::new(),
            traffic: Traffic {
                rate: 100.0,
                keys: 1,
                exponent: 0.0,
                routing: Routing::Random,
                bursts: None,
                moves: None,
                units: (1, 1),
            },
            network: Network {
                round_trip: (Span::from_micros(500), Span::from_micros(2_000)),
                drops: 0.0,
                deadline: Span::from_micros(8_000),
            },
            clock_drift: 0,
            faults: Vec::new(),
            leases: true,
            lease_policy: LeasePolicy::default(),
            counts_cold_keys: false,
            compares_counters: false,
        }
    }

    /// By how much a limit may be exceeded, in units.
    pub fn allowed_excess(&self, limit: usize) -> u64 {
        let Some(planned) = self.limits.get(limit) else { return 0 };
        let ahead = match planned.ahead {
            Some(basis_points) if self.leases => planned.limit.quota() * u64::from(basis_points) / 10_000,
            _ => 0,
        };
        let debited = match planned.mode {
            PlannedMode::Global(terms) => self.debited_excess(planned, terms),
            _ => 0,
        };
        ahead + debited
    }

    /// Whether the limits hold in spite of all faults.
    pub fn promises_no_excess(&self) -> bool {
        !self.faults.iter().any(|fault| fault.fault.loses_counts())
    }
}
