//! What decides requests.

use tollgate_rules::{Ruleset, Tenants};

/// Rules and tenants by which requests are decided.
#[derive(Clone, Copy, Debug)]
pub struct World<'w> {
    /// The rules.
    pub rules: &'w Ruleset,
    /// The tiers and limits of callers, by their recorded names.
    pub tenants: &'w Tenants,
}
