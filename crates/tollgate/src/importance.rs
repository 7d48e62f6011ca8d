//! Which checks are important: when there are too many, those are still decided by the store.

use tollgate_core::{Ask, Request};
use tollgate_rules::model::Policy;
use tollgate_rules::{MatchedRules, Rule, Ruleset};

/// Whether a request meets a rule of this policy, or of a more important one. What gives units back is as important as
/// anything: it must not be lost.
#[cold]
pub(crate) fn is_important(rules: &Ruleset, request: &Request<'_>, matched: &MatchedRules, least: Policy) -> bool {
    let domain = &rules.domains()[matched.domain];
    let policies = || matched.applied.iter().filter_map(|applied| domain.rule(applied)).map(Rule::policy);
    !matches!(request.ask, Ask::Exactly | Ask::UpTo)
        || policies().any(|policy| policy.importance() >= least.importance())
}
