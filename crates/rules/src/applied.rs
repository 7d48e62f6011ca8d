//! The rules that apply to a request, by their numbers, and the origin of each limit.

use smallvec::SmallVec;
use tollgate_core::{Limit, Mode};

use crate::rule::Rule;
use crate::ruleset::Domain;
use crate::tenants::{Block, ResolvedBy};

/// The rules that apply to a request, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct MatchedRules {
    /// The index of the domain in the ruleset.
    pub domain: usize,
    /// The index of the caller's tier in its domain. Of a blocked caller it is not looked up.
    pub tier: u16,
    /// The rule of each charge, in order.
    pub applied: SmallVec<[AppliedRule; 4]>,
    /// Rules that apply without a limit.
    pub unlimited: SmallVec<[AppliedRule; 1]>,
    /// Limits that no rule has: those that came with the request, and those of overrides. A share of a limit is followed by
    /// the limit of all regions together.
    pub limits: SmallVec<[Limit; 1]>,
    /// Whether something must be settled when the request has ended.
    pub needs_receipt: bool,
    /// The number of concurrency limits that did not apply because the caller could not release a hold.
    pub not_held: u32,
    /// The number of rules whose cost was malformed, and counted as 1.
    pub bad_costs: u32,
    /// The number of limits that were dropped because too many applied. Their failure policies let the request pass.
    pub dropped: u32,
    /// The block of the caller or of its address. Unless the request is only marked, nothing is claimed.
    pub block: Option<Block>,
}

impl MatchedRules {
    /// Whether no rule applied.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.applied.is_empty() && self.unlimited.is_empty() && self.not_held == 0
    }
}

/// A rule that applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedRule {
    /// The index of the rule in its domain. `None` for a limit that came with the request.
    pub rule: Option<u32>,
    /// The origin of its limit.
    pub terms: AppliedTerms,
    /// How this limit was chosen.
    pub by: ResolvedBy,
    /// The effect if there is no room. Depends on the caller if the rule is enforced for a share of callers.
    pub mode: Mode,
    /// The descriptors that match the rule, as a bit set.
    pub touches: u64,
}

/// The origin of the limit of an applied rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppliedTerms {
    /// The rule, for this tier, or this other row of its terms.
    Tier(u16),
    /// The request: an index in [`MatchedRules::limits`].
    Requested(u16),
    /// An override: an index in [`MatchedRules::limits`].
    Override(u16),
}

impl Domain {
    /// The rule of a limit that applies. For a limit that came with the request, the rule that represents it.
    #[inline]
    pub fn rule(&self, applied: &AppliedRule) -> Option<&Rule> {
        match applied.terms {
            AppliedTerms::Tier(_) | AppliedTerms::Override(_) => self.rules.get(applied.rule? as usize),
            AppliedTerms::Requested(_) => Some(&self.requested.rule),
        }
    }
}
