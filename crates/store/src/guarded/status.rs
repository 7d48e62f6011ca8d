//! The status of a guarded store.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::RegionId;

use crate::histogram::Durations;
use crate::sharded::Failure;

/// The state of the shards, and the number of claims that passed without them.
#[derive(Clone, Debug, Default)]
pub struct GuardStatus {
    /// The overall level.
    pub level: Level,
    /// The state of each shard, in all regions.
    pub shards: Vec<ShardStatus>,
    /// The number of running servers, including this one, at the last heartbeats.
    pub replicas: u64,
    /// The error of the last heartbeat, if it failed. Detects an unavailable store even without traffic.
    pub heartbeat_error: Option<String>,
    /// The number of claims since the start that passed although the store did not answer all of their charges, by
    /// reason.
    pub fail_open: Vec<(&'static str, u64)>,
    /// The number of counters in local memory.
    pub local: usize,
    /// Those of them with units that were not sent to the store yet.
    pub owed: usize,
    /// The number of charges since the start that were counted together with other keys of their rule, because local
    /// memory was full.
    pub coarse: u64,
    /// The number of claims in the outbox: units to give back because a claim did not pass, and settlements.
    pub waiting: usize,
    /// The number of claims since the start that could not be sent and were dropped. Each makes the store count a
    /// little too much or too little.
    pub dropped: u64,
    /// How long calls to each other region took, in the order of their numbers: those that a caller waited for.
    pub calls_elsewhere: Vec<Durations>,
}

/// How much of the store is available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// All shards answer.
    #[default]
    Normal,
    /// Some shards are unavailable: their charges follow their policies.
    Degraded,
    /// No shard is available: local memory counts.
    LocalOnly,
    /// No shard is available, and requests pass uncounted.
    Open,
}

/// The state of a shard.
#[derive(Clone, Debug)]
pub struct ShardStatus {
    /// The name in metrics: its address, with its region before it if that is another one.
    pub name: String,
    /// Its region.
    pub region: RegionId,
    /// The state of its breaker.
    pub circuit: Circuit,
    /// The number of failures since the start, by reason.
    pub errors: Vec<(&'static str, u64)>,
    /// The last error.
    pub last_error: Option<String>,
    /// A problem although it answers.
    pub warning: Option<String>,
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Circuit {
    /// Claims are sent to the shard.
    #[default]
    Closed,
    /// No claims are sent: the shard failed repeatedly.
    Open,
    /// No claims are sent, and the shard is being probed.
    HalfOpen,
}

/// Why the store did not settle a claim or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnavailableReason {
    Open,
    Timeout,
    Unreachable,
    Refused,
    Shed,
    Panic,
}

/// The number of claims that passed although the store did not settle all of them, by reason.
#[derive(Debug, Default)]
pub(super) struct FailOpen([AtomicU64; UnavailableReason::ALL.len()]);

impl UnavailableReason {
    const ALL: [UnavailableReason; 6] = [
        UnavailableReason::Open,
        UnavailableReason::Timeout,
        UnavailableReason::Unreachable,
        UnavailableReason::Refused,
        UnavailableReason::Shed,
        UnavailableReason::Panic,
    ];

    fn name(self) -> &'static str {
        match self {
            UnavailableReason::Open => "open",
            UnavailableReason::Timeout => "timeout",
            UnavailableReason::Unreachable => "unreachable",
            UnavailableReason::Refused => "refused",
            UnavailableReason::Shed => "shed",
            UnavailableReason::Panic => "panic",
        }
    }
}

impl From<&Failure> for UnavailableReason {
    fn from(failure: &Failure) -> UnavailableReason {
        match failure {
            Failure::Timeout | Failure::Late | Failure::Pending => UnavailableReason::Timeout,
            Failure::Unreachable(_) | Failure::Interrupted(_) => UnavailableReason::Unreachable,
            Failure::Refused(_) | Failure::Moving => UnavailableReason::Refused,
        }
    }
}

impl FailOpen {
    pub(super) fn count(&self, reason: UnavailableReason) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn by_reason(&self) -> Vec<(&'static str, u64)> {
        UnavailableReason::ALL
            .iter()
            .map(|reason| (reason.name(), self.0[*reason as usize].load(Ordering::Relaxed)))
            .collect()
    }
}

impl Level {
    /// The name in responses, metrics and health.
    pub fn name(self) -> &'static str {
        match self {
            Level::Normal => "normal",
            Level::Degraded => "degraded",
            Level::LocalOnly => "local-only",
            Level::Open => "open",
        }
    }
}

impl Circuit {
    /// The name in metrics and health.
    pub fn name(self) -> &'static str {
        match self {
            Circuit::Closed => "closed",
            Circuit::Open => "open",
            Circuit::HalfOpen => "half-open",
        }
    }
}
