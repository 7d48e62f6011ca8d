//! Which limits servers may lease: take units of a counter ahead of requests, and decide from what they hold.

use std::fmt;

use tollgate_core::{Algorithm, Limit, Shortcuts, Span};

use crate::model::{Lease, Policy};
use crate::rule::Rule;

/// The smallest quota that is leased by default: of a smaller one, what servers hold would be a large share.
pub(crate) const MIN_QUOTA: u64 = 100;
/// The longest period that is leased by default: what a server holds when it crashes is missing until the period ends.
pub(crate) const MAX_PERIOD: Span = Span::from_secs(3_600);

/// Why a limit is not leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLeased {
    /// The rule, the domain or an operator says so.
    Off,
    /// The rule has this policy, and does not say `lease: on`.
    Policy(Policy),
    /// Its units may be given back when a request ends.
    Receipts,
    /// It counts by calendar periods.
    Calendar,
    /// Its algorithm does not allow it.
    Algorithm(&'static str),
    /// The quota is below [`MIN_QUOTA`], and the rule does not say `lease: on`.
    SmallQuota,
    /// The period is longer than [`MAX_PERIOD`], and the rule does not say `lease: on`.
    LongPeriod,
}

impl Rule {
    /// Who may answer for a limit of this rule instead of the store. If units may be given back when a request ends, a
    /// refusal may end before its wait is over.
    pub fn shortcuts(&self, limit: &Limit) -> Shortcuts {
        if self.is_summed() && limit.algorithm() == Algorithm::Concurrency {
            Shortcuts::Summed
        } else if self.policy == Policy::Quota || self.ending.settle || self.ending.refund {
            Shortcuts::None
        } else if self.why_not_leased(limit).is_some() {
            Shortcuts::Refusals
        } else {
            self.ahead.map_or(Shortcuts::Leases, Shortcuts::Ahead)
        }
    }

    /// The part of a quota that servers may admit before the store counts it, in basis points.
    pub fn ahead(&self) -> Option<u16> {
        self.ahead
    }

    /// Why servers may not lease a limit of this rule, or `None` if they may.
    pub fn why_not_leased(&self, limit: &Limit) -> Option<NotLeased> {
        let ends = self.ending.settle || self.ending.refund;
        match self.lease {
            Lease::Off => Some(NotLeased::Off),
            Lease::On => impossible(self.policy, ends, limit),
            Lease::Auto if self.policy != Policy::Comfort => Some(NotLeased::Policy(self.policy)),
            Lease::Auto => not_by_default(limit).or_else(|| impossible(self.policy, ends, limit)),
        }
    }
}

/// Why a limit is leased only if the rule says so.
pub(crate) fn not_by_default(limit: &Limit) -> Option<NotLeased> {
    if limit.quota() < MIN_QUOTA {
        Some(NotLeased::SmallQuota)
    } else if limit.period().span() > MAX_PERIOD {
        Some(NotLeased::LongPeriod)
    } else {
        None
    }
}

/// Why a limit can't be leased, whatever the rule says.
pub(crate) fn impossible(policy: Policy, ends: bool, limit: &Limit) -> Option<NotLeased> {
    if policy == Policy::Quota {
        return Some(NotLeased::Policy(policy));
    }
    if ends {
        return Some(NotLeased::Receipts);
    }
    match limit.algorithm() {
        _ if limit.is_leasable() => None,
        Algorithm::FixedWindow | Algorithm::SlidingWindow { .. } => Some(NotLeased::Calendar),
        algorithm => Some(NotLeased::Algorithm(algorithm.name())),
    }
}

impl NotLeased {
    /// What to write instead of `lease: on`.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            NotLeased::Policy(_) => "remove it; every request of a budget is counted where all servers see it",
            NotLeased::Receipts => {
                "remove it, or remove `settle` and `refund`: units that come back are counted exactly"
            }
            NotLeased::Calendar => "remove it, or write a period without a calendar, for instance `1000/day`",
            NotLeased::Algorithm("concurrency") => "remove it; concurrent requests are counted one by one",
            NotLeased::Algorithm(_) => "remove it, or write `algorithm: sliding_window` or `algorithm: token_bucket`",
            NotLeased::Off | NotLeased::SmallQuota | NotLeased::LongPeriod => "write `lease: on`",
        }
    }
}

impl fmt::Display for NotLeased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotLeased::Off => write!(f, "`lease: off`"),
            NotLeased::Policy(policy) => write!(f, "policy {}", policy.name()),
            NotLeased::Receipts => write!(f, "its units may be given back when a request ends"),
            NotLeased::Calendar => write!(f, "it counts by the calendar"),
            NotLeased::Algorithm(name) => write!(f, "{name} needs every request"),
            NotLeased::SmallQuota => write!(f, "its quota is below {MIN_QUOTA}"),
            NotLeased::LongPeriod => write!(f, "its period is longer than an hour"),
        }
    }
}
