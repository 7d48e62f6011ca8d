//! The rules in force and the tenants, replaced together.

use std::sync::Arc;

use tollgate_rules::{Ruleset, Tenants};

/// What a check decides by. One value, so that a check loads one shared pointer.
#[derive(Debug)]
pub(crate) struct RulesInForce {
    pub(crate) rules: Arc<Ruleset>,
    /// The callers' tiers, overrides and blocks.
    pub(crate) tenants: Arc<Tenants>,
}
