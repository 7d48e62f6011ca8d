//! What is kept for a caller, small: there may be millions.

use std::sync::Arc;

use tollgate_core::Timestamp;

use super::{Block, During, Selector, Terms};

/// What is kept for one caller.
#[derive(Clone, Debug, Default)]
pub(crate) enum Held {
    /// Nothing.
    #[default]
    Nothing,
    /// What most have: a tier, a limit, or both, for the same time.
    Plain {
        /// When.
        during: During,
        /// The digest of the tier's name; 0 for none.
        tier: u64,
        /// The limit.
        limit: Option<PlainLimit>,
    },
    /// Anything else.
    More(Box<More>),
}

/// A limit that holds as long as its stage.
#[derive(Clone, Debug)]
pub(crate) struct PlainLimit {
    selector: Selector,
    number: u64,
    terms: Arc<Terms>,
}

/// What some have.
#[derive(Clone, Debug, Default)]
pub(crate) struct More {
    stages: Vec<Stage>,
    block: Option<Block>,
}

/// What a caller has for a time.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(super) during: During,
    pub(super) tier: u64,
    pub(super) overrides: Box<[Limited]>,
}

/// A limit, and when it holds.
#[derive(Clone, Debug)]
pub(crate) struct Limited {
    pub(super) selector: Selector,
    pub(super) number: u64,
    pub(super) terms: Arc<Terms>,
    pub(super) during: During,
}

/// A limit that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverrideRef<'t> {
    pub(super) number: u64,
    pub(super) terms: &'t Terms,
}

/// What holds of a caller at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InForce<'t> {
    Plain(&'t Held),
    Stage(&'t Stage),
}

impl Held {
    pub(super) fn set_stages(self, stages: Vec<Stage>) -> Held {
        let block = self.block();
        Held::of(stages, block)
    }

    pub(super) fn set_block(self, block: Option<Block>) -> Held {
        let stages = match self {
            Held::Nothing => Vec::new(),
            Held::Plain { during, tier, limit } => {
                let limited = |limit: PlainLimit| {
                    let PlainLimit { selector, number, terms } = limit;
                    Limited { selector, number, terms, during }
                };
                vec![Stage { during, tier, overrides: limit.into_iter().map(limited).collect() }]
            }
            Held::More(more) => more.stages,
        };
        Held::of(stages, block)
    }

    fn of(stages: Vec<Stage>, block: Option<Block>) -> Held {
        match (&stages[..], block) {
            ([], None) => Held::Nothing,
            ([Stage { during, tier, overrides }], None)
                if overrides.len() <= 1
                    && overrides.iter().all(|one| one.during == *during || one.during.is_always()) =>
            {
                let limit = overrides.first().map(|Limited { selector, number, terms, .. }| PlainLimit {
                    selector: *selector,
                    number: *number,
                    terms: terms.clone(),
                });
                Held::Plain { during: *during, tier: *tier, limit }
            }
            _ => Held::More(Box::new(More { stages, block })),
        }
    }

    pub(super) fn block(&self) -> Option<Block> {
        match self {
            Held::More(more) => more.block,
            _ => None,
        }
    }

    /// What holds now.
    #[inline]
    pub(super) fn in_force(&self, now: &dyn Fn() -> Timestamp) -> Option<InForce<'_>> {
        match self {
            Held::Nothing => None,
            Held::Plain { during, .. } => during.holds_at(now).then_some(InForce::Plain(self)),
            Held::More(more) => stage(&more.stages, now).map(InForce::Stage),
        }
    }

    /// One with a tier alone.
    #[cfg(test)]
    pub(super) fn tier(tier: u64) -> Held {
        Held::Plain { during: During::ALWAYS, tier, limit: None }
    }

    #[cfg(test)]
    pub(super) fn tier_of(&self) -> u64 {
        self.in_force(&Timestamp::default).map_or(0, InForce::tier)
    }
}

/// The last that holds.
pub(super) fn stage<'s>(stages: &'s [Stage], now: &dyn Fn() -> Timestamp) -> Option<&'s Stage> {
    stages.iter().rev().find(|stage| stage.during.holds_at(now))
}

impl<'t> InForce<'t> {
    /// The digest of the tier's name, or 0.
    pub(super) fn tier(self) -> u64 {
        match self {
            InForce::Plain(Held::Plain { tier, .. }) => *tier,
            InForce::Plain(_) => 0,
            InForce::Stage(stage) => stage.tier,
        }
    }

    /// The limit for a rule that goes by these names.
    #[inline]
    pub(super) fn limit(self, names: &[Selector], now: &dyn Fn() -> Timestamp) -> Option<OverrideRef<'t>> {
        match self {
            InForce::Plain(Held::Plain { limit: Some(limit), .. }) if selects(limit.selector, names) => {
                Some(OverrideRef { number: limit.number, terms: &limit.terms })
            }
            InForce::Plain(_) => None,
            InForce::Stage(stage) => {
                // Later ones were said later.
                let holding = stage.overrides.iter().rev().filter(|one| selects(one.selector, names));
                let mut holding = holding.filter(|one| one.during.holds_at(now));
                holding.next().map(Limited::found)
            }
        }
    }
}

impl Limited {
    pub(super) fn found(&self) -> OverrideRef<'_> {
        OverrideRef { number: self.number, terms: &self.terms }
    }
}

/// Whether a selector means a rule that goes by these names.
#[inline]
pub(super) fn selects(selector: Selector, names: &[Selector]) -> bool {
    selector == Selector::EVERY || names.contains(&selector)
}
