//! Shares of regions that follow demand: `region: {split: moving}`.
//!
//! Servers learn of new shares one by one. What a region gives up is therefore held for it until all of its servers have its new
//! share, and only what is not held is given out. All that is held together is never more than the whole, so nor are the shares
//! that any servers use at the same moment. No I/O, no clock.

use std::collections::BTreeMap;

/// The shares of regions that follow demand, by the names of the regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovingShares(pub BTreeMap<String, MovingShare>);

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
    /// The most by which a share changes in one step.
    pub const MAX_STEP: u16 = 2_500;
    /// Shares do not change by less.
    pub const MIN_STEP: u16 = 200;
    /// Basis points in a whole.
    const WHOLE: u16 = 10_000;

    /// Equal shares, which all servers use while there are no others.
    pub fn equal(regions: &[&str]) -> MovingShares {
        let share = equal_share(regions.len());
        MovingShares(regions.iter().map(|name| ((*name).to_owned(), MovingShare { share, held: share })).collect())
    }

    /// The next shares, if they are others: nearer to the demand. `regions` are all that exist.
    pub fn next(&self, regions: &BTreeMap<&str, RegionDemand>) -> Option<MovingShares> {
        let targets = targets(regions)?;
        let mut next: BTreeMap<&str, MovingShare> = BTreeMap::new();
        for (name, known) in regions {
            let MovingShare { share, held } = self.0.get(*name).copied().unwrap_or_default();
            let held = if known.is_confirmed { share } else { held.max(share) };
            next.insert(*name, MovingShare { share, held });
        }
        let requested = |name: &str, now: u16| {
            let target = targets.get(name).copied().unwrap_or(now);
            let is_near = target.abs_diff(now) < Self::MIN_STEP;
            if is_near { now } else { target.clamp(now.saturating_sub(Self::MAX_STEP), now + Self::MAX_STEP) }
        };
        // What is given up stays held.
        let mut missing: BTreeMap<&str, u16> = BTreeMap::new();
        for (name, at) in &mut next {
            let requested = requested(name, at.share);
            at.share = requested.min(at.held);
            missing.insert(name, requested - at.share);
        }
        let is_held: u32 = next.values().map(|at| u32::from(at.held)).sum();
        let free = u32::from(Self::WHOLE).saturating_sub(is_held);
        let all: u32 = missing.values().map(|one| u32::from(*one)).sum();
        for (name, at) in &mut next {
            let missing = u32::from(missing.get(name).copied().unwrap_or(0));
            // Rounded down, so that no more than what is free is given out.
            let granted = if all <= free { missing } else { missing * free / all };
            at.share += u16::try_from(granted).unwrap_or(0);
            at.held = at.held.max(at.share);
        }
        let next = MovingShares(next.into_iter().map(|(name, share)| (name.to_owned(), share)).collect());
        let shares = |of: &MovingShares| of.0.iter().map(|(name, at)| (name.clone(), at.share)).collect::<Vec<_>>();
        (shares(&next) != shares(self)).then_some(next)
    }
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
    use super::*;

    fn shares(of: &[(&str, u16, u16)]) -> MovingShares {
        MovingShares(
            of.iter()
                .map(|(name, share, held)| ((*name).to_owned(), MovingShare { share: *share, held: *held }))
                .collect(),
        )
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
        now = now.next(&sure).unwrap();
        assert_eq!(now, shares(&[("a", 5_000, 5_000), ("b", 2_500, 5_000)]), "no more than one step");
        now = now.next(&unsure).unwrap();
        assert_eq!(now, shares(&[("a", 5_000, 5_000), ("b", 1_000, 5_000)]));
        assert_eq!(now.next(&unsure), None, "a server of b may use half of it");
        now = now.next(&sure).unwrap();
        assert_eq!(now, shares(&[("a", 7_500, 7_500), ("b", 1_000, 1_000)]));
        now = now.next(&sure).unwrap();
        assert_eq!(now, shares(&[("a", 9_000, 9_000), ("b", 1_000, 1_000)]));
        assert_eq!(now.next(&sure), None);
        // A little more or less changes nothing, nor does the end of all demand.
        assert_eq!(now.next(&regions(&[("a", 890, true), ("b", 110, true)])), None);
        assert_eq!(now.next(&regions(&[("a", 0, true), ("b", 0, true)])), None);
    }

    #[test]
    fn what_is_held_anyway_can_be_used_again() {
        let now = shares(&[("a", 5_000, 5_000), ("b", 1_000, 5_000)]);
        let next = now.next(&regions(&[("a", 1, false), ("b", 1, false)])).unwrap();
        assert_eq!(next, shares(&[("a", 5_000, 5_000), ("b", 3_500, 5_000)]));
    }

    #[test]
    fn a_new_region_gets_what_others_give_up_and_one_that_is_removed_gives_up_all() {
        let now = shares(&[("a", 5_000, 5_000), ("b", 5_000, 5_000)]);
        let three = regions(&[("a", 1, true), ("b", 1, true), ("c", 0, true)]);
        let next = now.next(&three).unwrap();
        assert_eq!(next, shares(&[("a", 4_750, 5_000), ("b", 4_750, 5_000), ("c", 0, 0)]));
        let next = next.next(&three).unwrap();
        assert_eq!(next.0["c"], MovingShare { share: 500, held: 500 });
        let next = now.next(&regions(&[("a", 1, true)])).unwrap();
        assert_eq!(next, shares(&[("a", 7_500, 7_500)]));
    }
}
