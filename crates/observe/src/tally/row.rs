//! Counts of one rule and tier.

use std::ops::Index;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{Ask, Charge, Mode, Reading, Source, Span, Timestamp};
use tollgate_core::Settlement;

use crate::outcome::DecisionOutcome;
use crate::stripe::{LocalStripe, StripedCounters};

/// Counts of one rule and tier.
#[derive(Debug)]
pub struct TallyRow {
    name: RowName,
    numbers: StripedCounters<NUMBERS>,
    /// Whether all decisions in this row have the same limit.
    is_uniform: bool,
    /// The highest utilisation of any counter, per mille, prefixed by the window number: of this window and the last one.
    used: [AtomicU64; 2],
    /// The same for the fewest remaining units, as the difference to [`MAX_LEFT`].
    left: [AtomicU64; 2],
}

/// The name of the row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowName {
    domain: Box<str>,
    rule: Box<str>,
    tier: Box<str>,
}

/// A kind of count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountKind {
    /// Decisions that this limit count_decision, by outcome.
    Outcome(DecisionOutcome),
    /// Decisions in which this limit was evaluated.
    Evaluated,
    /// Decisions that it refused.
    Refused,
    /// Decisions that it would have refused in enforce mode.
    WouldRefuse,
    /// Requested units.
    Hits,
    /// Units over the limit.
    Over,
    /// Units over the limit that the deny cache refused.
    OverFromCache,
    /// Units within the last fifth of the limit.
    Near,
    /// Units over the limit that passed because it is in shadow mode.
    OverInShadow,
}

/// All counts of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCounts([u64; NUMBERS]);

/// Highest utilisation of any counter, and the fewest remaining units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Per mille of the limit.
    pub used_permille: u64,
    /// Remaining units.
    pub left: u64,
}

const NUMBERS: usize = 16;

/// A peak covers the last one to two windows.
const WINDOW: Span = Span::from_secs(30);
/// Bits of a peak's value; the others are the window number.
const USED_BITS: u32 = 24;
const LEFT_BITS: u32 = 36;
const MAX_USED: u64 = (1 << USED_BITS) - 1;
const MAX_LEFT: u64 = (1 << LEFT_BITS) - 1;

/// A counter is near its limit above this many fifths.
const NEAR_FIFTHS: u64 = 4;

impl TallyRow {
    pub(super) fn new(name: RowName) -> TallyRow {
        let is_uniform =
            ![RowName::OVERRIDE, RowName::EMERGENCY, RowName::REQUEST, RowName::OTHER].contains(&name.tier());
        TallyRow {
            name,
            numbers: StripedCounters::new(),
            is_uniform,
            used: Default::default(),
            left: Default::default(),
        }
    }

    /// The name of the row.
    pub fn name(&self) -> &RowName {
        &self.name
    }

    /// All counts.
    pub fn counts(&self) -> RowCounts {
        RowCounts(self.numbers.sums())
    }

    /// The peak of the last 30 to 60 seconds; `None` without requests.
    pub fn peak(&self, now: Timestamp) -> Option<Peak> {
        let window = window(now);
        let of = |peaks: &[AtomicU64; 2], bits| {
            let last_two = [window, window.saturating_sub(1)].into_iter();
            let peaks = last_two.map(|window| (window, peaks[window as usize & 1].load(Ordering::Relaxed)));
            peaks.filter(|(window, peak)| peak >> bits == *window).map(|(window, peak)| peak - (window << bits)).max()
        };
        Some(Peak { used_permille: of(&self.used, USED_BITS)?, left: MAX_LEFT - of(&self.left, LEFT_BITS)? })
    }

    /// The counters of the thread with this number.
    #[inline]
    pub(super) fn numbers(&self, stripe: usize) -> LocalStripe<'_, NUMBERS> {
        self.numbers.of_thread(stripe)
    }

    /// Counts throttles, of which only the outcome is known.
    pub(super) fn count_throttles(&self, passed: (DecisionOutcome, u64), refused: (DecisionOutcome, u64)) {
        let numbers = self.numbers.local();
        for (outcome, count) in [passed, refused] {
            numbers.add(CountKind::Outcome(outcome).number(), count);
            numbers.add(CountKind::Evaluated.number(), count);
        }
        numbers.add(CountKind::Refused.number(), refused.1);
    }

    /// Counts the result of a limit.
    #[inline]
    pub(super) fn count_limit(
        &self,
        numbers: LocalStripe<'_, NUMBERS>,
        charge: &Charge<'_>,
        reading: &Reading,
        settlement: &Settlement,
    ) {
        if charge.ask != Ask::Exactly {
            return;
        }
        let units = charge.units;
        numbers.add(CountKind::Evaluated.number(), 1);
        numbers.add(CountKind::Hits.number(), units);
        let quota = settlement.counted_quota(charge);
        if reading.admits {
            let near = near(quota, reading.remaining, units);
            if near > 0 {
                numbers.add(CountKind::Near.number(), near);
            }
        } else {
            numbers.add(CountKind::Over.number(), units);
            if matches!(reading.source, Source::Cache | Source::Lease) {
                numbers.add(CountKind::OverFromCache.number(), units);
            }
            match charge.mode {
                Mode::Enforce | Mode::AnyOf => numbers.add(CountKind::Refused.number(), 1),
                Mode::Shadow => {
                    numbers.add(CountKind::WouldRefuse.number(), 1);
                    numbers.add(CountKind::OverInShadow.number(), units);
                }
                Mode::Soft => {}
            }
        }
        if !matches!(reading.source, Source::Assumed | Source::Shed) {
            let window = window(settlement.at);
            let is_less = raise_peak(&self.left, window, LEFT_BITS, MAX_LEFT - reading.remaining.min(MAX_LEFT));
            // With one limit for all, utilisation only rises when fewer units remain: this saves the division.
            if is_less || !self.is_uniform {
                raise_peak(&self.used, window, USED_BITS, used(quota, reading.remaining).min(MAX_USED));
            }
        }
    }
}

/// Used share of a quota, per mille.
pub(crate) fn used(quota: u64, remaining: u64) -> u64 {
    match quota {
        0 => 1_000,
        _ => match quota.saturating_sub(remaining).checked_mul(1_000) {
            Some(used) => used / quota,
            None => (u128::from(quota.saturating_sub(remaining)) * 1_000 / u128::from(quota)) as u64,
        },
    }
}

/// The number of the last `units` that are within the last fifth of a quota.
pub(crate) fn near(quota: u64, remaining: u64, units: u64) -> u64 {
    // Whole quotas are below 2^53.
    let from = quota.saturating_mul(NEAR_FIFTHS) / 5;
    quota.saturating_sub(remaining).saturating_sub(from).min(units)
}

fn window(at: Timestamp) -> u64 {
    at.as_micros() / WINDOW.as_micros()
}

/// Returns whether it is the highest. A later window's peak is always larger, since the window number comes first.
#[inline]
fn raise_peak(peaks: &[AtomicU64; 2], window: u64, bits: u32, value: u64) -> bool {
    let (peak, slot) = (window << bits | value, &peaks[window as usize & 1]);
    // Nearly always it is not: then nothing is written.
    let is_highest = slot.load(Ordering::Relaxed) < peak;
    if is_highest {
        slot.fetch_max(peak, Ordering::Relaxed);
    }
    is_highest
}

/// Counts the outcome of a decision.
#[inline]
pub(super) fn count_decision(numbers: LocalStripe<'_, NUMBERS>, outcome: DecisionOutcome) {
    numbers.add(CountKind::Outcome(outcome).number(), 1);
}

impl RowName {
    /// The tier of limits without tiers.
    pub const DEFAULT: &str = "default";
    /// The tier of overrides.
    pub const OVERRIDE: &str = "override";
    /// The tier of emergency limits.
    pub const EMERGENCY: &str = "emergency";
    /// The tier of limits that come with requests.
    pub const REQUEST: &str = "request";
    /// The rule of decisions without a limit.
    pub const NONE: &str = "none";
    /// The rule of decisions about blocked callers.
    pub const BLOCK: &str = "block";
    /// The domain of throttles, which belong to no configured domain.
    pub const RESP: &str = "resp";
    /// The rule of throttles.
    pub const THROTTLE: &str = "throttle";
    /// Domain, rule and tier of the overflow row.
    pub const OTHER: &str = "other";

    pub(super) fn new(domain: &str, rule: &str, tier: &str) -> RowName {
        RowName { domain: domain.into(), rule: rule.into(), tier: tier.into() }
    }

    pub(super) fn other() -> RowName {
        RowName::new(RowName::OTHER, RowName::OTHER, RowName::OTHER)
    }

    /// The domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The rule.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// The tier, or its placeholder.
    pub fn tier(&self) -> &str {
        &self.tier
    }

    /// Whether the row belongs to a rule or is the overflow row, and not one of decisions without a rule.
    pub fn is_rule(&self) -> bool {
        let is = |rule, tier| &*self.rule == rule && &*self.tier == tier;
        !(is(RowName::NONE, RowName::DEFAULT)
            || is(RowName::BLOCK, RowName::DEFAULT)
            || (&*self.domain == RowName::RESP && is(RowName::THROTTLE, RowName::REQUEST)))
    }
}

impl CountKind {
    fn number(self) -> usize {
        match self {
            CountKind::Outcome(outcome) => outcome as usize,
            CountKind::Evaluated => 7,
            CountKind::Refused => 8,
            CountKind::WouldRefuse => 9,
            CountKind::Hits => 10,
            CountKind::Over => 11,
            CountKind::OverFromCache => 12,
            CountKind::Near => 13,
            CountKind::OverInShadow => 14,
        }
    }
}

impl Index<CountKind> for RowCounts {
    type Output = u64;

    fn index(&self, count: CountKind) -> &u64 {
        &self.0[count.number()]
    }
}
