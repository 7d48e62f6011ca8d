//! Which checks are decided by the store while many are in flight: comfort gives way first, security last.

use tollgate_rules::model::Policy;

/// The numbers of checks in flight from which those of a policy are decided without the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolicyBounds([(Policy, usize); SHARES.len()]);

/// What there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckRoom {
    /// Every check.
    All,
    /// Checks that meet a rule of this policy, or of a more important one.
    From(Policy),
    /// None.
    Full,
}

/// The share of the bound that each policy may use, in percent, the least important first.
const SHARES: [(Policy, usize); 4] =
    [(Policy::Comfort, 70), (Policy::Cost, 80), (Policy::Quota, 90), (Policy::Security, 100)];

impl PolicyBounds {
    pub(super) fn new(max_in_flight: usize) -> PolicyBounds {
        // Rounded up, so that a small bound is a bound for all.
        PolicyBounds(SHARES.map(|(policy, share)| (policy, max_in_flight.saturating_mul(share).div_ceil(100))))
    }

    /// From how many checks in flight on there is no room. `None` if there is never any.
    pub(super) fn most(&self) -> Option<usize> {
        let [.., (_, most)] = self.0;
        (most > 0).then_some(most)
    }

    /// The room with this many checks in flight.
    #[inline]
    pub(super) fn room(&self, in_flight: usize) -> CheckRoom {
        let [(_, least), ..] = self.0;
        if in_flight < least { CheckRoom::All } else { self.room_under_pressure(in_flight) }
    }

    #[cold]
    fn room_under_pressure(&self, in_flight: usize) -> CheckRoom {
        let allowed = self.0.iter().find(|(_, bound)| in_flight < *bound);
        allowed.map_or(CheckRoom::Full, |(policy, _)| CheckRoom::From(*policy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comfort_gives_way_first_and_security_last() {
        let rows: [(usize, &[(usize, CheckRoom)]); 4] = [
            (
                100,
                &[
                    (0, CheckRoom::All),
                    (69, CheckRoom::All),
                    (70, CheckRoom::From(Policy::Cost)),
                    (79, CheckRoom::From(Policy::Cost)),
                    (80, CheckRoom::From(Policy::Quota)),
                    (90, CheckRoom::From(Policy::Security)),
                    (99, CheckRoom::From(Policy::Security)),
                    (100, CheckRoom::Full),
                    (usize::MAX, CheckRoom::Full),
                ],
            ),
            (3, &[(2, CheckRoom::All), (3, CheckRoom::Full)]),
            (0, &[(0, CheckRoom::Full)]),
            (usize::MAX, &[(0, CheckRoom::All), (1 << 40, CheckRoom::All)]),
        ];
        for (bound, rows) in rows {
            for (in_flight, room) in rows {
                assert_eq!(PolicyBounds::new(bound).room(*in_flight), *room, "{in_flight} of {bound}");
            }
        }
    }

    #[test]
    fn the_shares_are_in_the_order_of_importance() {
        assert!(SHARES.windows(2).all(|pair| pair[0].0.importance() < pair[1].0.importance() && pair[0].1 < pair[1].1));
        assert_eq!(SHARES[3], (Policy::Security, 100));
    }
}
