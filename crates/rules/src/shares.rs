//! Shares of regions that follow demand: `region: {split: moving}`.
//!
//! Servers learn of new shares one by one. What a region gives up is therefore held for it until all of its servers have its new
//! share, and only what is not held is given out. All that is held together is never more than the whole, so nor are the shares
//! that any servers use at the same moment.
//!
//! A counter keeps what it has used when its share becomes smaller, and one whose share becomes larger has room at once. So
//! within a period, regions admit what is held at its begin, and what is given out during it. Both together are bounded
//! because little is given out, and only once in a [pace](MovingShares::pace). No I/O, no clock.

use std::collections::BTreeMap;

use tollgate_core::{Limit, Span, Timestamp};

/// The shares of regions that follow demand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovingShares {
    /// By the name of the region.
    pub of: BTreeMap<String, MovingShare>,
    /// When a region was last given what was not held for it, by the clock of the server that planned.
    pub given_at: Option<Timestamp>,
}

/// The share of one region, in basis points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovingShare {
    /// What its servers use when they know of it.
    pub share: u16,
    /// The most that any of its servers uses; no less than `share`.
    pub held: u16,
}

/// What is known of a region when shares are planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionDemand {
    /// What is requested there, in any unit.
    pub demand: u64,
    /// Whether it is certain that all of its servers use the current share.
    pub is_confirmed: bool,
}

impl MovingShares {
    /// The least share of a region, in basis points. Servers that do not know what is in force use it.
    pub const LEAST: u16 = 500;
    /// The most by which a share changes in one step, and the most that is given out in one, to all regions together.
    pub const MAX_STEP: u16 = 2_500;
    /// Shares do not change by less.
    pub const MIN_STEP: u16 = 200;
    /// The longest period of a limit whose shares move: shares are given out once in a period.
    pub const MAX_PERIOD: Span = Span::from_secs(3_600);
    /// Added to the period of a limit, at most: clocks of servers differ, and writes take time.
    const MARGIN: Span = Span::from_secs(10);
    /// Basis points in a whole.
    const WHOLE: u16 = 10_000;

    /// How long nothing is given out after something was, so that a limit's counters see it at most once in any period.
    pub fn pace<'l>(limits: impl Iterator<Item = &'l Limit>) -> Span {
        let longest = limits.map(counting_time).max().unwrap_or_default();
        Span::from_micros(longest.as_micros() + longest.min(Self::MARGIN).as_micros())
    }

    /// Equal shares, which all servers use while there are no others.
    pub fn equal(regions: &[&str]) -> MovingShares {
        let share = equal_share(regions.len());
        let of = regions.iter().map(|name| ((*name).to_owned(), MovingShare { share, held: share })).collect();
        MovingShares { of, given_at: None }
    }

    /// The next shares, if they are others: nearer to the demand. `regions` are all that exist, and `pace` is that of the
    /// rule's limits.
    pub fn next(&self, regions: &BTreeMap<&str, RegionDemand>, pace: Span, now: Timestamp) -> Option<MovingShares> {
        let targets = targets(regions)?;
        let mut next: BTreeMap<&str, MovingShare> = BTreeMap::new();
        for (name, known) in regions {
            let MovingShare { share, held } = self.of.get(*name).copied().unwrap_or_default();
            let held = if known.is_confirmed { share } else { held.max(share) };
            next.insert(*name, MovingShare { share, held });
        }
        let requested = |name: &str, now: u16| {
            let target = targets.get(name).copied().unwrap_or(now);
            let is_near = target.abs_diff(now) < Self::MIN_STEP;
            if is_near { now } else { target.clamp(now.saturating_sub(Self::MAX_STEP), now + Self::MAX_STEP) }
        };
        let is_held: u32 = next.values().map(|at| u32::from(at.held)).sum();
        // No more is given up than can be given out next: until then nobody uses it.
        let spare = u32::from(Self::MAX_STEP).saturating_sub(u32::from(Self::WHOLE).saturating_sub(is_held));
        let spare = if spare < u32::from(Self::MIN_STEP) { 0 } else { spare };
        let given_up = |name: &str, now: u16| u32::from(now.saturating_sub(requested(name, now)));
        let all_given_up: u32 = next.iter().map(|(name, at)| given_up(name, at.share)).sum();
        // What is given up stays held.
        let mut missing: BTreeMap<&str, u16> = BTreeMap::new();
        for (name, at) in &mut next {
            let given_up = given_up(name, at.share);
            let given_up = if all_given_up <= spare { given_up } else { given_up * spare / all_given_up };
            let requested = requested(name, at.share).max(at.share - u16::try_from(given_up).unwrap_or(0));
            at.share = requested.min(at.held);
            missing.insert(name, requested - at.share);
        }
        // A time in the future is that of a clock that is ahead.
        let is_due = self.given_at.is_none_or(|then| now >= then.after(pace) || then > now.after(pace));
        let free = u32::from(Self::WHOLE).saturating_sub(is_held).min(u32::from(Self::MAX_STEP));
        let free = if is_due && free >= u32::from(Self::MIN_STEP) { free } else { 0 };
        let mut is_given = false;
        let all: u32 = missing.values().map(|one| u32::from(*one)).sum();
        for (name, at) in &mut next {
            let missing = u32::from(missing.get(name).copied().unwrap_or(0));
            // Rounded down, so that no more than what is free is given out.
            let granted = if all <= free { missing } else { missing * free / all };
            at.share += u16::try_from(granted).unwrap_or(0);
            is_given |= at.share > at.held;
            at.held = at.held.max(at.share);
        }
        let of = next.into_iter().map(|(name, share)| (name.to_owned(), share)).collect();
        let next = MovingShares { of, given_at: if is_given { Some(now) } else { self.given_at } };
        let shares =
            |shares: &MovingShares| shares.of.iter().map(|(name, at)| (name.clone(), at.share)).collect::<Vec<_>>();
        (shares(&next) != shares(self)).then_some(next)
    }
}

/// The longest time in which a counter of a limit still counts a unit in full, or has not refilled.
pub(crate) fn counting_time(limit: &Limit) -> Span {
    limit.period().span().max(limit.refill_time())
}

/// The share of each of so many regions.
pub(crate) fn equal_share(regions: usize) -> u16 {
    MovingShares::WHOLE / u16::try_from(regions).unwrap_or(u16::MAX).max(1)
}

/// Shares in proportion to demand, but no less than the least: together no more than the whole. `None` without demand.
fn targets<'n>(regions: &BTreeMap<&'n str, RegionDemand>) -> Option<BTreeMap<&'n str, u16>> {
    let mut targets = BTreeMap::new();
    let mut rest: Vec<(&str, u128)> = regions.iter().map(|(name, known)| (*name, u128::from(known.demand))).collect();
    let mut whole = u128::from(MovingShares::WHOLE);
    if rest.iter().all(|(_, demand)| *demand == 0) {
        return None;
    }
    // The regions with the least demand first: what they get at least is not in proportion.
    rest.sort_unstable_by_key(|(_, demand)| *demand);
    let mut total: u128 = rest.iter().map(|(_, demand)| demand).sum();
    for (name, demand) in rest {
        let share = (whole * demand).checked_div(total).unwrap_or(0).max(u128::from(MovingShares::LEAST));
        (whole, total) = (whole.saturating_sub(share), total - demand);
        targets.insert(name, u16::try_from(share).unwrap_or(MovingShares::WHOLE));
    }
    Some(targets)
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Algorithm, Period};

    use super::*;

    fn shares(of: &[(&str, u16, u16)]) -> MovingShares {
        let of = of.iter().map(|(name, share, held)| ((*name).to_owned(), MovingShare { share: *share, held: *held }));
        MovingShares { of: of.collect(), given_at: None }
    }

    /// The next shares, whenever anything was last given out.
    fn next(now: &MovingShares, regions: &BTreeMap<&str, RegionDemand>) -> Option<MovingShares> {
        let next = now.next(regions, Span::ZERO, Timestamp::default())?;
        Some(MovingShares { given_at: None, ..next })
    }

    fn regions<'n>(of: &[(&'n str, u64, bool)]) -> BTreeMap<&'n str, RegionDemand> {
        of.iter()
            .map(|(name, demand, is_confirmed)| (*name, RegionDemand { demand: *demand, is_confirmed: *is_confirmed }))
            .collect()
    }

    #[test]
    fn targets_are_in_proportion_and_no_less_than_the_least() {
        let rows: &[(&[u64], &[u16])] = &[
            (&[1, 1, 2], &[2_500, 2_500, 5_000]),
            (&[0, 0, 7], &[500, 500, 9_000]),
            (&[1, 100, 100], &[500, 4_750, 4_750]),
            (&[5], &[10_000]),
            (&[u64::MAX, u64::MAX, u64::MAX], &[3_333, 3_333, 3_334]),
        ];
        for (demands, expected) in rows {
            let known: Vec<(&str, u64, bool)> =
                ["a", "b", "c"].into_iter().zip(*demands).map(|(name, demand)| (name, *demand, true)).collect();
            let found: Vec<u16> = targets(&regions(&known)).unwrap().into_values().collect();
            assert_eq!(found, *expected, "{demands:?}");
        }
        assert_eq!(targets(&regions(&[("a", 0, true), ("b", 0, true)])), None);
    }

    #[test]
    fn what_is_given_up_is_given_out_when_no_server_uses_it() {
        let mut now = MovingShares::equal(&["a", "b"]);
        assert_eq!(now, shares(&[("a", 5_000, 5_000), ("b", 5_000, 5_000)]));
        let (sure, unsure) = (regions(&[("a", 9, true), ("b", 1, true)]), regions(&[("a", 9, true), ("b", 1, false)]));
        now = next(&now, &sure).unwrap();
        assert_eq!(now, shares(&[("a", 5_000, 5_000), ("b", 2_500, 5_000)]), "no more than one step");
        now = next(&now, &unsure).unwrap();
        assert_eq!(now, shares(&[("a", 5_000, 5_000), ("b", 1_000, 5_000)]));
        assert_eq!(next(&now, &unsure), None, "a server of b may use half of it");
        now = next(&now, &sure).unwrap();
        assert_eq!(now, shares(&[("a", 7_500, 7_500), ("b", 1_000, 1_000)]));
        now = next(&now, &sure).unwrap();
        assert_eq!(now, shares(&[("a", 9_000, 9_000), ("b", 1_000, 1_000)]));
        assert_eq!(next(&now, &sure), None);
        // A little more or less changes nothing, nor does the end of all demand.
        assert_eq!(next(&now, &regions(&[("a", 890, true), ("b", 110, true)])), None);
        assert_eq!(next(&now, &regions(&[("a", 0, true), ("b", 0, true)])), None);
    }

    #[test]
    fn little_is_given_out_and_once_in_a_pace() {
        let (pace, at) = (Span::from_secs(70), |seconds: u64| Timestamp::from_secs(1_000 + seconds));
        let all = regions(&[("a", 1, true), ("b", 1, true), ("c", 98, true), ("d", 98, true)]);
        let mut now = MovingShares::equal(&["a", "b", "c", "d"]);
        let mut given = Vec::new();
        for seconds in (0..).step_by(30).take(12) {
            let Some(next) = now.next(&all, pace, at(seconds)) else { continue };
            if next.given_at == Some(at(seconds)) {
                let more =
                    next.of.iter().map(|(name, share)| share.held.saturating_sub(now.of[name].held)).sum::<u16>();
                given.push((seconds, more));
            }
            // Nothing is given up that nobody can use yet.
            let in_use: u16 = next.of.values().map(|at| at.share).sum();
            assert!((7_500..=10_000).contains(&in_use), "{next:?}");
            now = next;
        }
        assert_eq!(given, [(30, 2_500), (120, 1_500)]);
        // A clock that was far ahead does not stop the shares.
        let from_future =
            MovingShares { given_at: Some(at(5_000)), ..shares(&[("a", 2_500, 2_500), ("b", 2_500, 2_500)]) };
        assert_eq!(
            from_future.next(&regions(&[("a", 1, true), ("b", 1, true)]), pace, at(0)).unwrap().given_at,
            Some(at(0))
        );
    }

    #[test]
    fn the_pace_is_that_of_the_longest_limit() {
        let limit = |amount, seconds, burst| {
            let period = Period::fixed(Span::from_secs(seconds)).unwrap();
            Limit::new(amount, period, Algorithm::Bucket { burst, paced: false }).unwrap()
        };
        let (second, minute, slow) = (limit(100, 1, 100), limit(100, 60, 100), limit(100, 60, 1_000));
        let pace = |limits: &[&Limit]| MovingShares::pace(limits.iter().copied()).as_micros() / 1_000_000;
        assert_eq!((pace(&[]), pace(&[&second]), pace(&[&minute, &second])), (0, 2, 70));
        assert_eq!(pace(&[&slow]), 610, "its burst refills in ten minutes");
    }

    #[test]
    fn what_is_held_anyway_can_be_used_again() {
        let now = shares(&[("a", 5_000, 5_000), ("b", 1_000, 5_000)]);
        let next = next(&now, &regions(&[("a", 1, false), ("b", 1, false)])).unwrap();
        assert_eq!(next, shares(&[("a", 5_000, 5_000), ("b", 3_500, 5_000)]));
    }

    #[test]
    fn a_new_region_gets_what_others_give_up_and_one_that_is_removed_gives_up_all() {
        let now = shares(&[("a", 5_000, 5_000), ("b", 5_000, 5_000)]);
        let three = regions(&[("a", 1, true), ("b", 1, true), ("c", 0, true)]);
        let first = next(&now, &three).unwrap();
        assert_eq!(first, shares(&[("a", 4_750, 5_000), ("b", 4_750, 5_000), ("c", 0, 0)]));
        let second = next(&first, &three).unwrap();
        assert_eq!(second.of["c"], MovingShare { share: 500, held: 500 });
        let alone = next(&now, &regions(&[("a", 1, true)])).unwrap();
        assert_eq!(alone, shares(&[("a", 7_500, 7_500)]));
    }
}
