//! Rules under the overrides of tenants: the limit of a caller, and its counters.

use tollgate_core::calendar::CalendarUnit;
use tollgate_core::{Algorithm, Limit, Period, RegionShare, Scope, Span};

use crate::rule::{CompiledCap, Rule, same_states};
use crate::ruleset::Ruleset;
use crate::shares::counting_time;
use crate::tenants::{LimitArena, OverrideKind, OverrideRef, OverrideTerms, ResolvedBy, Tenant, Tenants};

/// The cap of a caller under a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CapRef<'a> {
    Unlimited,
    Limit {
        limit: &'a Limit,
        scope: &'a Scope,
        /// The limit of all regions together, where it is another one.
        whole: Option<&'a Limit>,
    },
}

const BPS: u64 = 10_000;

impl<'a> CapRef<'a> {
    pub(crate) fn from_cap(cap: &'a CompiledCap) -> CapRef<'a> {
        match cap {
            CompiledCap::Unlimited => CapRef::Unlimited,
            CompiledCap::Limit { limit, scope, whole } => CapRef::Limit { limit, scope, whole: whole.as_deref() },
        }
    }

    pub(crate) fn is_concurrency(self) -> bool {
        matches!(self, CapRef::Limit { limit, .. } if limit.algorithm() == Algorithm::Concurrency)
    }
}

impl Rule {
    /// The cap of a caller of a tier: the override's, otherwise the rule's; and how it was chosen.
    #[inline(always)]
    pub(crate) fn cap_under<'a>(
        &'a self,
        tier: usize,
        tenant: Option<&Tenant<'_>>,
        arena: &'a LimitArena,
    ) -> Option<(CapRef<'a>, ResolvedBy)> {
        let overridden = tenant.and_then(|tenant| self.cap_of_tenant(tier, tenant, arena));
        overridden.or_else(|| self.own_cap(tier))
    }

    /// The cap of an override, if there is one that fits the rule.
    #[inline(never)]
    fn cap_of_tenant<'a>(
        &'a self,
        tier: usize,
        tenant: &Tenant<'_>,
        arena: &'a LimitArena,
    ) -> Option<(CapRef<'a>, ResolvedBy)> {
        let (limit, by) = tenant.limit(&self.selectors)?;
        Some((self.overridden(tier, limit, arena)?, by))
    }

    /// The cap of the rule itself.
    #[inline]
    pub(crate) fn own_cap(&self, tier: usize) -> Option<(CapRef<'_>, ResolvedBy)> {
        let by = if self.is_by_tier { ResolvedBy::Tier } else { ResolvedBy::Default };
        Some((CapRef::from_cap(self.cap(tier)?), by))
    }

    /// The cap of an override for a tier. `None` if it does not fit the rule: holds for a rate, or a rule without a
    /// limit.
    fn overridden<'a>(&'a self, tier: usize, found: OverrideRef<'_>, arena: &'a LimitArena) -> Option<CapRef<'a>> {
        let OverrideRef { number, terms } = found;
        if matches!(terms.cap, OverrideKind::Unlimited) {
            return Some(CapRef::Unlimited);
        }
        let (base, scope) = self.base(tier)?;
        let (limit, scope) = match &terms.cap {
            OverrideKind::Unlimited => return Some(CapRef::Unlimited),
            OverrideKind::Amount => (base.with_amount(number), scope),
            OverrideKind::Scaled => {
                let scaled = u128::from(base.amount()) * u128::from(number) / u128::from(BPS);
                (base.with_amount(u64::try_from(scaled).unwrap_or(u64::MAX)), scope)
            }
            // The common case, for which the limit is known to be valid.
            OverrideKind::Rate(period)
                if terms.burst.is_none() && period == base.period() && base.algorithm() != Algorithm::Concurrency =>
            {
                (base.with_amount(number), scope)
            }
            OverrideKind::Rate(period) => {
                let limit = rate(base, number, period, terms)?;
                let is_same = limit.period() == base.period() && same_states(limit.algorithm(), base.algorithm());
                let scope = if is_same { scope } else { self.others.get_or_create(scope, &limit) };
                (limit, scope)
            }
        };
        let Some(share) = self.share_of(&limit) else {
            return Some(CapRef::Limit { limit: arena.alloc(limit), scope, whole: None });
        };
        Some(CapRef::Limit { limit: arena.alloc(share.of(&limit)), scope, whole: Some(arena.alloc(limit)) })
    }

    /// The share of this region of an override. Shares that follow demand move at the pace of the rule's own limits.
    fn share_of(&self, limit: &Limit) -> Option<RegionShare> {
        let is_longer = self.region.moving().is_some() && counting_time(limit) > self.counting_time();
        if is_longer { self.region.share_of_longer() } else { self.region.share() }
    }

    /// The limit that an override changes: the tier's, or if it has none, another tier's. In several regions, the limit of
    /// all together.
    fn base(&self, tier: usize) -> Option<(&Limit, &Scope)> {
        let limit = |cap: &'_ CompiledCap| matches!(cap, CompiledCap::Limit { .. });
        let cap = self.cap(tier).filter(|cap| limit(cap)).or_else(|| self.caps.iter().find(|cap| limit(cap)))?;
        match cap {
            CompiledCap::Limit { limit, scope, whole } => Some((whole.as_deref().unwrap_or(limit), scope)),
            CompiledCap::Unlimited => None,
        }
    }

    /// The limit of an override of these units over a period, if it is valid for this rule. Used to validate
    /// overrides before they are stored.
    pub fn override_limit(&self, amount: u64, period: &Period, burst: Option<u64>) -> Option<Limit> {
        let terms = OverrideTerms { cap: OverrideKind::Rate(period.clone()), burst };
        rate(self.base(usize::MAX)?.0, amount, period, &terms)
    }

    /// Creates the scopes for a period that overrides may use.
    fn prepare(&self, period: &Period) {
        for cap in &self.caps {
            if let CompiledCap::Limit { limit, scope, .. } = cap
                && let Some(other) =
                    rate(limit, limit.amount(), period, &OverrideTerms { cap: OverrideKind::Amount, burst: None })
                && other.period() != limit.period()
            {
                self.others.get_or_create(scope, &other);
            }
        }
    }
}

impl Tenants {
    /// Creates the scopes that overrides need in rules that are about to be in force, for periods that no file has.
    pub fn prepare(&self, rules: &Ruleset) {
        self.for_each_period(|period| {
            rules.domains().iter().flat_map(|domain| &domain.rules).for_each(|rule| rule.prepare(period));
        });
    }
}

/// A limit of these units over a period, with the algorithm of `base`.
fn rate(base: &Limit, amount: u64, period: &Period, terms: &OverrideTerms) -> Option<Limit> {
    if base.algorithm() == Algorithm::Concurrency {
        return None;
    }
    let period = if is_about(base.period(), period) { base.period() } else { period };
    let with = |algorithm| Limit::new(amount, period.clone(), algorithm).ok();
    match base.algorithm() {
        Algorithm::Bucket { paced, .. } if period.as_calendar().is_none() => {
            let burst = terms.burst.unwrap_or_else(|| base.with_amount(amount).quota());
            with(Algorithm::Bucket { burst, paced })
        }
        // Calendar periods are counted in windows.
        Algorithm::Bucket { .. } => with(Algorithm::FixedWindow),
        Algorithm::SlidingWindow { sub_windows } => {
            with(Algorithm::SlidingWindow { sub_windows }).or_else(|| with(Algorithm::SlidingWindow { sub_windows: 1 }))
        }
        other => with(other).or_else(|| with(Algorithm::FixedWindow)),
    }
}

/// Whether a fixed period is the usual length of a calendar period.
fn is_about(calendar: &Period, plain: &Period) -> bool {
    const DAY: u64 = 86_400;
    let Some(calendar) = calendar.as_calendar().filter(|_| plain.as_calendar().is_none()) else { return false };
    let days = match calendar.unit() {
        CalendarUnit::Day => 1,
        CalendarUnit::Week => 7,
        CalendarUnit::Month { .. } => 30,
        CalendarUnit::Year => 365,
    };
    plain.span() == Span::from_secs(days * DAY)
}
