//! What is counted for one rule and tier.

use std::ops::Index;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{Ask, Mode, SeenLimit, Source, Span, Timestamp};

use crate::ruling::Ruling;
use crate::stripe::{Adding, Striped};

/// What is counted for one rule and tier.
#[derive(Debug)]
pub struct Row {
    name: RowName,
    numbers: Striped<NUMBERS>,
    /// Whether all that is counted here is held to the same.
    is_uniform: bool,
    /// The most that was used of any one counter, in thousandths, after the number of the window: of this window and the last one.
    used: [AtomicU64; 2],
    /// The same for the fewest units left, as what is missing to [`MOST_LEFT`].
    left: [AtomicU64; 2],
}

/// Whose counts these are.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowName {
    domain: Box<str>,
    rule: Box<str>,
    tier: Box<str>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Decisions that this limit decided, by how they came out.
    Ruled(Ruling),
    /// Decisions that this limit had a say in.
    Met,
    /// Those for which it had no room, and was enforced.
    Refused,
    /// Those for which it had none, and was only tried.
    WouldRefuse,
    /// Units that were asked for.
    Hits,
    /// Units for which there was no room.
    Over,
    /// Of those, refused from memory, without asking the store.
    OverFromCache,
    /// Units that there was room for, in the last fifth of the limit.
    Near,
    /// Units that passed although there was no room, since the limit was only tried.
    OverInShadow,
}

/// All counts of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts([u64; NUMBERS]);

/// How full the fullest counter was, and how little the emptiest had left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// In thousandths of the limit.
    pub used_of_1_000: u64,
    /// Units.
    pub left: u64,
}

const NUMBERS: usize = 16;

/// A peak is that of the last one to two windows.
const WINDOW: Span = Span::from_secs(30);
/// Bits of a peak that are its value; the others are the number of the window.
const USED_BITS: u32 = 24;
const LEFT_BITS: u32 = 36;
const MOST_USED: u64 = (1 << USED_BITS) - 1;
const MOST_LEFT: u64 = (1 << LEFT_BITS) - 1;

/// Past so many fifths of its limit a counter is near it.
const NEAR: u64 = 4;

impl Row {
    pub(super) fn new(name: RowName) -> Row {
        let is_uniform =
            ![RowName::OVERRIDE, RowName::EMERGENCY, RowName::REQUEST, RowName::OTHER].contains(&name.tier());
        Row { name, numbers: Striped::new(), is_uniform, used: Default::default(), left: Default::default() }
    }

    /// Whose counts these are.
    pub fn name(&self) -> &RowName {
        &self.name
    }

    /// All of them.
    pub fn counts(&self) -> Counts {
        Counts(self.numbers.sums())
    }

    /// The peak of the last half minute to minute; `None` if nothing was asked of it.
    pub fn peak(&self, now: Timestamp) -> Option<Peak> {
        let window = window(now);
        let of = |peaks: &[AtomicU64; 2], bits| {
            let last_two = [window, window.saturating_sub(1)].into_iter();
            let peaks = last_two.map(|window| (window, peaks[window as usize & 1].load(Ordering::Relaxed)));
            peaks.filter(|(window, peak)| peak >> bits == *window).map(|(window, peak)| peak - (window << bits)).max()
        };
        Some(Peak { used_of_1_000: of(&self.used, USED_BITS)?, left: MOST_LEFT - of(&self.left, LEFT_BITS)? })
    }

    /// Where this thread counts.
    #[inline]
    pub(super) fn numbers(&self) -> Adding<'_, NUMBERS> {
        self.numbers.mine()
    }

    /// Of throttles it is only known how they came out.
    pub(super) fn throttled(&self, passed: (Ruling, u64), refused: (Ruling, u64)) {
        let numbers = self.numbers.mine();
        for (ruling, count) in [passed, refused] {
            numbers.add(Count::Ruled(ruling).number(), count);
            numbers.add(Count::Met.number(), count);
        }
        numbers.add(Count::Refused.number(), refused.1);
    }

    /// A limit had a say at this moment.
    #[inline]
    pub(super) fn met(&self, numbers: Adding<'_, NUMBERS>, limit: &SeenLimit<'_, '_>, at: Timestamp) {
        if limit.charge.ask != Ask::Exactly {
            return;
        }
        let (units, reading) = (limit.charge.units, limit.reading);
        numbers.add(Count::Met.number(), 1);
        numbers.add(Count::Hits.number(), units);
        let quota = limit.limit().quota();
        if reading.admits {
            let near = near(quota, reading.remaining, units);
            if near > 0 {
                numbers.add(Count::Near.number(), near);
            }
        } else {
            numbers.add(Count::Over.number(), units);
            if reading.source == Source::Cache {
                numbers.add(Count::OverFromCache.number(), units);
            }
            match limit.charge.mode {
                Mode::Enforce | Mode::AnyOf => numbers.add(Count::Refused.number(), 1),
                Mode::Shadow => {
                    numbers.add(Count::WouldRefuse.number(), 1);
                    numbers.add(Count::OverInShadow.number(), units);
                }
                Mode::Soft => {}
            }
        }
        if !matches!(reading.source, Source::Assumed | Source::Shed) {
            let window = window(at);
            let is_less = raise(&self.left, window, LEFT_BITS, MOST_LEFT - reading.remaining.min(MOST_LEFT));
            // What a division would tell is known where all have the same limit: not more than before, if not less is left.
            if is_less || !self.is_uniform {
                raise(&self.used, window, USED_BITS, used(quota, reading.remaining).min(MOST_USED));
            }
        }
    }
}

/// Thousandths of a quota that are used.
pub(crate) fn used(quota: u64, remaining: u64) -> u64 {
    match quota {
        0 => 1_000,
        _ => match quota.saturating_sub(remaining).checked_mul(1_000) {
            Some(used) => used / quota,
            None => (u128::from(quota.saturating_sub(remaining)) * 1_000 / u128::from(quota)) as u64,
        },
    }
}

/// How many of the units that were taken last are in the last fifth of a quota.
pub(crate) fn near(quota: u64, remaining: u64, units: u64) -> u64 {
    // Whole quotas are below 2^53.
    let from = quota.saturating_mul(NEAR) / 5;
    quota.saturating_sub(remaining).saturating_sub(from).min(units)
}

fn window(at: Timestamp) -> u64 {
    at.as_micros() / WINDOW.as_micros()
}

/// Whether it is the highest. A later window's peak is larger than any of an earlier one, since the number comes first.
#[inline]
fn raise(peaks: &[AtomicU64; 2], window: u64, bits: u32, value: u64) -> bool {
    let (peak, slot) = (window << bits | value, &peaks[window as usize & 1]);
    // Nearly always it is not the highest: then nothing is written.
    let is_highest = slot.load(Ordering::Relaxed) < peak;
    if is_highest {
        slot.fetch_max(peak, Ordering::Relaxed);
    }
    is_highest
}

/// This thread decided one so.
#[inline]
pub(super) fn decided(numbers: Adding<'_, NUMBERS>, ruling: Ruling) {
    numbers.add(Count::Ruled(ruling).number(), 1);
}

impl RowName {
    /// The tier of a limit that is the same for all.
    pub const DEFAULT: &str = "default";
    /// The tier of limits that callers have of their own.
    pub const OVERRIDE: &str = "override";
    /// The tier of limits in an emergency.
    pub const EMERGENCY: &str = "emergency";
    /// The tier of limits that come with requests.
    pub const REQUEST: &str = "request";
    /// The rule of decisions to which no limit applied.
    pub const NONE: &str = "none";
    /// The rule of decisions about callers who are blocked.
    pub const BLOCK: &str = "block";
    /// The domain of throttles: they are not of any that rules are of.
    pub const RESP: &str = "resp";
    /// The rule of throttles.
    pub const THROTTLE: &str = "throttle";
    /// Domain, rule and tier of what is too much to tell apart.
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

    /// The tier, or what stands for it.
    pub fn tier(&self) -> &str {
        &self.tier
    }

    /// Whether these are counts of a rule, or of more than can be told apart, and not of decisions without one.
    pub fn is_of_a_rule(&self) -> bool {
        let is = |rule, tier| &*self.rule == rule && &*self.tier == tier;
        !(is(RowName::NONE, RowName::DEFAULT)
            || is(RowName::BLOCK, RowName::DEFAULT)
            || (&*self.domain == RowName::RESP && is(RowName::THROTTLE, RowName::REQUEST)))
    }
}

impl Count {
    fn number(self) -> usize {
        match self {
            Count::Ruled(ruling) => ruling as usize,
            Count::Met => 7,
            Count::Refused => 8,
            Count::WouldRefuse => 9,
            Count::Hits => 10,
            Count::Over => 11,
            Count::OverFromCache => 12,
            Count::Near => 13,
            Count::OverInShadow => 14,
        }
    }
}

impl Index<Count> for Counts {
    type Output = u64;

    fn index(&self, count: Count) -> &u64 {
        &self.0[count.number()]
    }
}
