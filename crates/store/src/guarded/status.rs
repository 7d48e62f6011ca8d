//! What a guarded store says of itself.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sharded::Failure;

/// How the shards are, and what passed without them.
#[derive(Clone, Debug, Default)]
pub struct GuardStatus {
    /// In one word.
    pub level: Level,
    /// Each shard.
    pub shards: Vec<ShardStatus>,
    /// Servers that live, this one included, as last heard.
    pub replicas: u64,
    /// Why the last heartbeat failed, if it did: so a store that nobody asks anything is missed too.
    pub unheard: Option<String>,
    /// Claims that passed although the store did not answer all of them, by the reason why it did not, since the start.
    pub fail_open: Vec<(&'static str, u64)>,
    /// Counters in local memory.
    pub local: usize,
    /// Those of them with something that the store was not told yet.
    pub owed: usize,
    /// What waits to be told: what has to be given back because a claim did not pass, and facts that were settled meanwhile.
    pub waiting: usize,
    /// What could not be told or given back, and was dropped, since the start: the store counts a little more or less than passed.
    pub dropped: u64,
}

/// How much of the store answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// All of it.
    #[default]
    Normal,
    /// Some shards do not: their charges follow their policies.
    Degraded,
    /// None does: local memory counts.
    LocalOnly,
    /// None does, and requests pass that nobody counts.
    Open,
}

/// How a shard is.
#[derive(Clone, Debug)]
pub struct ShardStatus {
    /// What metrics call it: its address.
    pub name: String,
    /// Whether claims are sent to it.
    pub circuit: Circuit,
    /// How often it failed, by reason, since the start.
    pub errors: Vec<(&'static str, u64)>,
    /// How it failed last.
    pub last_error: Option<String>,
    /// What is not as it should be although it answers.
    pub warning: Option<String>,
}

/// Whether claims are sent to a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Circuit {
    /// They are.
    #[default]
    Closed,
    /// They are not: it failed too often.
    Open,
    /// They are not, and it is being tried.
    HalfOpen,
}

/// Why a claim, or a part of it, was not settled by the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Open,
    Timeout,
    Unreachable,
    Refused,
    Shed,
    Panic,
}

/// How many claims passed although the store did not settle all of them.
#[derive(Debug, Default)]
pub(super) struct FailOpen([AtomicU64; Why::ALL.len()]);

impl Why {
    const ALL: [Why; 6] = [Why::Open, Why::Timeout, Why::Unreachable, Why::Refused, Why::Shed, Why::Panic];

    pub(super) fn of(failure: &Failure) -> Why {
        match failure {
            Failure::Timeout | Failure::Pending => Why::Timeout,
            Failure::Unreachable(_) => Why::Unreachable,
            Failure::Refused(_) => Why::Refused,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Why::Open => "open",
            Why::Timeout => "timeout",
            Why::Unreachable => "unreachable",
            Why::Refused => "refused",
            Why::Shed => "shed",
            Why::Panic => "panic",
        }
    }
}

impl FailOpen {
    pub(super) fn count(&self, why: Why) {
        self.0[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn by_reason(&self) -> Vec<(&'static str, u64)> {
        Why::ALL.iter().map(|why| (why.name(), self.0[*why as usize].load(Ordering::Relaxed))).collect()
    }
}

impl Level {
    /// In one word, for answers, metrics and health.
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
    /// In one word, for metrics and health.
    pub fn name(self) -> &'static str {
        match self {
            Circuit::Closed => "closed",
            Circuit::Open => "open",
            Circuit::HalfOpen => "half-open",
        }
    }
}
