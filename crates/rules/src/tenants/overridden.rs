//! A rule under an override: which limit that is, and which counters it counts on.

use std::sync::OnceLock;

use tollgate_core::calendar::CalendarUnit;
use tollgate_core::{Algorithm, Limit, Period, Scope, Span};

use super::held::OverrideRef;
use super::room::Room;
use super::{Found, ResolvedBy, Terms, TermsCap};
use crate::compiled::{CompiledCap, Rule};

/// What a caller is held to under a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CapRef<'a> {
    Unlimited,
    Limit { limit: &'a Limit, scope: &'a Scope },
}

/// Scopes of a rule's counters over periods that no file gave it. Each is made once, and there as long as the rule.
#[derive(Debug, Default)]
pub(crate) struct OtherScopes {
    first: OnceLock<Box<Other>>,
}

#[derive(Debug)]
struct Other {
    algorithm: Algorithm,
    period: Period,
    scope: Scope,
    next: OnceLock<Box<Other>>,
}

const WHOLE: u64 = 10_000;

impl<'a> CapRef<'a> {
    pub(crate) fn of(cap: &'a CompiledCap) -> CapRef<'a> {
        match cap {
            CompiledCap::Unlimited => CapRef::Unlimited,
            CompiledCap::Limit { limit, scope } => CapRef::Limit { limit, scope },
        }
    }

    pub(crate) fn is_concurrency(self) -> bool {
        matches!(self, CapRef::Limit { limit, .. } if limit.algorithm() == Algorithm::Concurrency)
    }
}

impl Rule {
    /// What a caller of a tier is held to, by what is known of it, else by the rule; and how that came to be.
    #[inline]
    pub(crate) fn cap_under<'a>(
        &'a self,
        tier: usize,
        found: Option<&Found<'_>>,
        room: &'a Room,
    ) -> Option<(CapRef<'a>, ResolvedBy)> {
        if let Some((limit, by)) = found.and_then(|found| found.limit(&self.names))
            && let Some(cap) = self.overridden(tier, limit, room)
        {
            return Some((cap, by));
        }
        self.own_cap(tier)
    }

    /// What the rule itself says.
    #[inline]
    pub(crate) fn own_cap(&self, tier: usize) -> Option<(CapRef<'_>, ResolvedBy)> {
        let by = if self.is_by_tier { ResolvedBy::Tier } else { ResolvedBy::Default };
        Some((CapRef::of(self.cap(tier)?), by))
    }

    /// What an override makes of the rule for a tier; `None` if it makes no sense there: holds where the rule counts a rate, or a
    /// rule that counts nothing.
    fn overridden<'a>(&'a self, tier: usize, found: OverrideRef<'_>, room: &'a Room) -> Option<CapRef<'a>> {
        let OverrideRef { number, terms } = found;
        if matches!(terms.cap, TermsCap::Unlimited) {
            return Some(CapRef::Unlimited);
        }
        let (base, scope) = self.base(tier)?;
        let (limit, scope) = match &terms.cap {
            TermsCap::Unlimited => return Some(CapRef::Unlimited),
            TermsCap::Amount => (base.with_amount(number), scope),
            TermsCap::Scaled => {
                let scaled = u128::from(base.amount()) * u128::from(number) / u128::from(WHOLE);
                (base.with_amount(u64::try_from(scaled).unwrap_or(u64::MAX)), scope)
            }
            // The way of most: it need not be found out again that it can be counted.
            TermsCap::Rate(period)
                if terms.burst.is_none() && period == base.period() && base.algorithm() != Algorithm::Concurrency =>
            {
                (base.with_amount(number), scope)
            }
            TermsCap::Rate(period) => {
                let limit = rate(base, number, period, terms)?;
                let is_same = limit.period() == base.period() && same_machine(limit.algorithm(), base.algorithm());
                let scope = if is_same { scope } else { self.others.of(scope, &limit) };
                (limit, scope)
            }
        };
        Some(CapRef::Limit { limit: room.hold(limit), scope })
    }

    /// The limit that an override changes: the tier's, or where it has none that of another.
    fn base(&self, tier: usize) -> Option<(&Limit, &Scope)> {
        let limit = |cap: &'_ CompiledCap| matches!(cap, CompiledCap::Limit { .. });
        let cap = self.cap(tier).filter(|cap| limit(cap)).or_else(|| self.caps.iter().find(|cap| limit(cap)))?;
        match cap {
            CompiledCap::Limit { limit, scope } => Some((limit, scope)),
            CompiledCap::Unlimited => None,
        }
    }

    /// What an override of so many units over a period would be under this rule, if it can be: what is asked before one is stored.
    pub fn would_be(&self, amount: u64, period: &Period, burst: Option<u64>) -> Option<Limit> {
        let terms = Terms { cap: TermsCap::Rate(period.clone()), burst };
        rate(self.base(usize::MAX)?.0, amount, period, &terms)
    }

    /// Makes the scopes for a period that overrides may ask for.
    pub(crate) fn prepare(&self, period: &Period) {
        for cap in &self.caps {
            if let CompiledCap::Limit { limit, scope } = cap
                && let Some(other) = rate(limit, limit.amount(), period, &Terms { cap: TermsCap::Amount, burst: None })
                && other.period() != limit.period()
            {
                self.others.of(scope, &other);
            }
        }
    }
}

/// A limit of so many units over a period, that counts as `base` does.
fn rate(base: &Limit, amount: u64, period: &Period, terms: &Terms) -> Option<Limit> {
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
        // What counts by calendar, counts in windows.
        Algorithm::Bucket { .. } => with(Algorithm::FixedWindow),
        Algorithm::SlidingWindow { sub_windows } => {
            with(Algorithm::SlidingWindow { sub_windows }).or_else(|| with(Algorithm::SlidingWindow { sub_windows: 1 }))
        }
        other => with(other).or_else(|| with(Algorithm::FixedWindow)),
    }
}

/// Whether a calendar period is what a plain word for its unit means.
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

/// Whether two algorithms count on the same states: a burst is no part of a counter.
fn same_machine(one: Algorithm, other: Algorithm) -> bool {
    match (one, other) {
        (Algorithm::Bucket { .. }, Algorithm::Bucket { .. }) => true,
        (one, other) => one == other,
    }
}

impl OtherScopes {
    /// The scope of counters that are held to such a limit.
    fn of(&self, own: &Scope, limit: &Limit) -> &Scope {
        let mut place = &self.first;
        loop {
            let other = place.get_or_init(|| {
                let (algorithm, period) = (limit.algorithm(), limit.period().clone());
                let scope = Scope::new(own.domain(), own.rule(), algorithm, &period, own.home());
                Box::new(Other { algorithm, period, scope, next: OnceLock::new() })
            });
            if same_machine(other.algorithm, limit.algorithm()) && other.period == *limit.period() {
                return &other.scope;
            }
            place = &other.next;
        }
    }

    /// The one with this digest, with a limit of this amount.
    pub(crate) fn find(&self, digest: u64, amount: u64) -> Option<(Limit, &Scope)> {
        let mut place = &self.first;
        while let Some(other) = place.get() {
            if other.scope.short() == digest {
                let algorithm = match other.algorithm {
                    Algorithm::Bucket { paced, .. } => Algorithm::Bucket { burst: amount, paced },
                    algorithm => algorithm,
                };
                return Some((Limit::new(amount, other.period.clone(), algorithm).ok()?, &other.scope));
            }
            place = &other.next;
        }
        None
    }
}
