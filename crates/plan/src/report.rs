//! What a change would do.

use tollgate_core::{Span, Timestamp};

/// The difference between two worlds, over the same requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanReport {
    /// The time of the first request.
    pub from: Timestamp,
    /// The time of the last request.
    pub to: Timestamp,
    /// Recorded requests.
    pub records: u64,
    /// All requests.
    pub all: Impact,
    /// Callers for whom something changes.
    pub changed_callers: u64,
    /// Callers that were recorded.
    pub callers: u64,
    /// By rule, those with the most changes first.
    pub rules: Vec<RuleImpact>,
    /// By tier, in the order of the first request.
    pub tiers: Vec<TierImpact>,
    /// The callers with the most newly refused requests, then those with the most newly admitted ones.
    pub worst: Vec<CallerImpact>,
    /// The paid caller with the largest share of newly refused requests.
    pub worst_paid: Option<CallerImpact>,
    /// Rules whose counters could not be known.
    pub uncertain: Vec<Uncertainty>,
    /// Requests that the new rules can't decide, because their domain is gone.
    pub undecided: u64,
}

/// Numbers of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impact {
    /// Requests.
    pub requests: u64,
    /// Those that were refused before the change.
    pub refused_before: u64,
    /// Those that would be refused after it.
    pub refused_after: u64,
    /// Those that were admitted before it, and would be refused after it.
    pub newly_refused: u64,
    /// Those that were refused before it, and would be admitted after it.
    pub newly_admitted: u64,
}

/// What changes by a rule: newly refused requests are those that it refuses after the change, newly admitted ones those that it
/// refused before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleImpact {
    /// The domain.
    pub domain: String,
    /// The rule.
    pub rule: String,
    /// The requests. `requests` are those that one of the two worlds refuses by this rule.
    pub impact: Impact,
    /// The callers for whom something changes by it.
    pub callers: u64,
    /// Some of the requests for which something changes.
    pub examples: Vec<PlanExample>,
}

/// A request for which something changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanExample {
    /// When it was decided.
    pub at: Timestamp,
    /// Its attributes, as they were recorded.
    pub attributes: Vec<(String, String)>,
    /// Whether it is admitted after the change.
    pub is_admitted: bool,
    /// How long it would have to wait, if it is refused.
    pub wait: Option<Span>,
}

/// What changes for a tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierImpact {
    /// The domain.
    pub domain: String,
    /// The tier.
    pub tier: String,
    /// Its requests.
    pub impact: Impact,
}

/// What changes for a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerImpact {
    /// The domain.
    pub domain: String,
    /// The caller, as it was recorded.
    pub caller: String,
    /// Its tier before the change.
    pub tier: String,
    /// Whether it pays.
    pub is_paid: bool,
    /// Its requests.
    pub impact: Impact,
}

/// A rule whose counters could not be known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uncertainty {
    /// The domain.
    pub domain: String,
    /// The rule.
    pub rule: String,
    /// Why.
    pub why: &'static str,
}

impl Impact {
    /// Adds requests with the same decisions.
    pub(crate) fn add(&mut self, requests: u64, before: bool, after: bool) {
        self.requests += requests;
        self.refused_before += if before { 0 } else { requests };
        self.refused_after += if after { 0 } else { requests };
        self.newly_refused += if before && !after { requests } else { 0 };
        self.newly_admitted += if !before && after { requests } else { 0 };
    }

    /// Adds the numbers of one of several callers.
    pub(crate) fn add_scaled(&mut self, one: Impact, callers: u64) {
        self.requests += one.requests * callers;
        self.refused_before += one.refused_before * callers;
        self.refused_after += one.refused_after * callers;
        self.newly_refused += one.newly_refused * callers;
        self.newly_admitted += one.newly_admitted * callers;
    }

    /// Newly refused requests in basis points of all.
    pub fn newly_refused_bps(&self) -> u64 {
        bps(self.newly_refused, self.requests)
    }

    /// Whether something changes.
    pub fn is_changed(&self) -> bool {
        self.newly_refused > 0 || self.newly_admitted > 0
    }
}

/// A part in basis points of the whole, rounded down.
fn bps(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 10_000 / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}
