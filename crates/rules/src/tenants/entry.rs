//! The entry of a tenant. Compact, because there may be millions.

use std::num::NonZeroU64;
use std::sync::Arc;

use tollgate_core::Timestamp;

use super::{Block, OverrideTerms, Selector, TimeRange};

/// The entry of one tenant.
#[derive(Clone, Debug, Default)]
pub(crate) enum TenantEntry {
    /// No settings.
    #[default]
    Nothing,
    /// The most common entry: a tier, a limit, or both, for the same time.
    Plain {
        /// When it is active.
        during: TimeRange,
        /// The digest of the tier's name.
        tier: Option<NonZeroU64>,
        /// The limit.
        limit: Option<PlainLimit>,
    },
    /// Any other entry.
    Extended(Box<ExtendedEntry>),
}

/// A limit that is active for as long as its stage.
#[derive(Clone, Debug)]
pub(crate) struct PlainLimit {
    selector: Selector,
    number: u64,
    terms: Arc<OverrideTerms>,
}

/// An entry with several stages or limits, or a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExtendedEntry {
    stages: Vec<StoredStage>,
    block: Option<Block>,
}

/// A tier and limits for a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredStage {
    pub(super) during: TimeRange,
    pub(super) tier: Option<NonZeroU64>,
    pub(super) home: Option<NonZeroU64>,
    pub(super) overrides: Box<[StoredOverride]>,
}

/// A limit, and when it is active.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredOverride {
    pub(super) selector: Selector,
    pub(super) number: u64,
    pub(super) terms: Arc<OverrideTerms>,
    pub(super) during: TimeRange,
}

/// The limit of an override that applies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverrideRef<'t> {
    pub(crate) number: u64,
    pub(crate) terms: &'t OverrideTerms,
}

/// The settings that are active at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ActiveSettings<'t> {
    Plain(&'t TenantEntry),
    Stage(&'t StoredStage),
}

impl TenantEntry {
    pub(super) fn set_stages(self, stages: Vec<StoredStage>) -> TenantEntry {
        let block = self.block();
        TenantEntry::new(stages, block)
    }

    pub(super) fn set_block(self, block: Option<Block>) -> TenantEntry {
        TenantEntry::new(self.into_stages(), block)
    }

    /// The stages of its quota.
    pub(super) fn into_stages(self) -> Vec<StoredStage> {
        match self {
            TenantEntry::Nothing => Vec::new(),
            TenantEntry::Plain { during, tier, limit } => {
                let limited = |limit: PlainLimit| {
                    let PlainLimit { selector, number, terms } = limit;
                    StoredOverride { selector, number, terms, during }
                };
                let overrides = limit.into_iter().map(limited).collect();
                vec![StoredStage { during, tier, home: None, overrides }]
            }
            TenantEntry::Extended(more) => more.stages,
        }
    }

    fn new(stages: Vec<StoredStage>, block: Option<Block>) -> TenantEntry {
        match (&stages[..], block) {
            ([], None) => TenantEntry::Nothing,
            ([StoredStage { during, tier, home: None, overrides }], None)
                if overrides.len() <= 1
                    && overrides.iter().all(|one| one.during == *during || one.during.is_always()) =>
            {
                let limit = overrides.first().map(|StoredOverride { selector, number, terms, .. }| PlainLimit {
                    selector: *selector,
                    number: *number,
                    terms: terms.clone(),
                });
                TenantEntry::Plain { during: *during, tier: *tier, limit }
            }
            _ => TenantEntry::Extended(Box::new(ExtendedEntry { stages, block })),
        }
    }

    pub(super) fn block(&self) -> Option<Block> {
        match self {
            TenantEntry::Extended(more) => more.block,
            _ => None,
        }
    }

    /// The settings that are active now.
    #[inline]
    pub(super) fn active(&self, now: &dyn Fn() -> Timestamp) -> Option<ActiveSettings<'_>> {
        match self {
            TenantEntry::Nothing => None,
            TenantEntry::Plain { during, .. } => during.holds_at(now).then_some(ActiveSettings::Plain(self)),
            TenantEntry::Extended(more) => stage(&more.stages, now).map(ActiveSettings::Stage),
        }
    }

    /// An entry with only a tier.
    #[cfg(test)]
    pub(super) fn with_tier(tier: NonZeroU64) -> TenantEntry {
        TenantEntry::Plain { during: TimeRange::ALWAYS, tier: Some(tier), limit: None }
    }

    #[cfg(test)]
    pub(super) fn tier(&self) -> Option<NonZeroU64> {
        self.active(&Timestamp::default).and_then(ActiveSettings::tier)
    }
}

/// The last stage that is active.
pub(super) fn stage<'s>(stages: &'s [StoredStage], now: &dyn Fn() -> Timestamp) -> Option<&'s StoredStage> {
    stages.iter().rev().find(|stage| stage.during.holds_at(now))
}

impl<'t> ActiveSettings<'t> {
    /// The digest of the tier's name.
    pub(super) fn tier(self) -> Option<NonZeroU64> {
        match self {
            ActiveSettings::Plain(TenantEntry::Plain { tier, .. }) => *tier,
            ActiveSettings::Plain(_) => None,
            ActiveSettings::Stage(stage) => stage.tier,
        }
    }

    /// The digest of the name of the caller's region.
    pub(super) fn home(self) -> Option<NonZeroU64> {
        match self {
            ActiveSettings::Plain(_) => None,
            ActiveSettings::Stage(stage) => stage.home,
        }
    }

    /// The limit for a rule with these selectors.
    #[inline]
    pub(super) fn limit(self, names: &[Selector], now: &dyn Fn() -> Timestamp) -> Option<OverrideRef<'t>> {
        match self {
            ActiveSettings::Plain(TenantEntry::Plain { limit: Some(limit), .. }) if selects(limit.selector, names) => {
                Some(OverrideRef { number: limit.number, terms: &limit.terms })
            }
            ActiveSettings::Plain(_) => None,
            ActiveSettings::Stage(stage) => {
                // Later overrides take precedence.
                let holding = stage.overrides.iter().rev().filter(|one| selects(one.selector, names));
                let mut holding = holding.filter(|one| one.during.holds_at(now));
                holding.next().map(StoredOverride::to_ref)
            }
        }
    }
}

impl StoredOverride {
    pub(super) fn to_ref(&self) -> OverrideRef<'_> {
        OverrideRef { number: self.number, terms: &self.terms }
    }
}

/// Whether a selector matches a rule with these selectors.
#[inline]
pub(super) fn selects(selector: Selector, names: &[Selector]) -> bool {
    selector == Selector::EVERY || names.contains(&selector)
}
