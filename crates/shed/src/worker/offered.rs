//! Which classes the offered requests belong to, lately.

use crate::class::ByClass;

/// Counts fall to a half in this time, in seconds.
const HALF_LIFE_SECONDS: f64 = 10.0;

/// Decaying counts of offered requests.
#[derive(Debug, Default)]
pub(super) struct Offered(ByClass<f64>);

impl Offered {
    /// Adds what was offered in some seconds.
    pub(super) fn add(&mut self, counts: &ByClass<u64>, seconds: f64) {
        let remaining = (-seconds / HALF_LIFE_SECONDS).exp2();
        for (class, count) in counts.iter() {
            self.0[class] = self.0[class] * remaining + *count as f64;
        }
    }

    /// The chance of each class to be dropped, so that the least important requests are, and `amount` of all. A class
    /// that was not offered lately drops only what it would take if there were some of it.
    pub(super) fn chances(&self, amount: f64) -> ByClass<f64> {
        let total: f64 = self.0.iter().map(|(_, count)| *count).sum();
        let mut below = 0.0;
        ByClass::from_fn(|class| {
            let share = if total > 0.0 { self.0[class] / total } else { 0.0 };
            let left = amount - below;
            below += share;
            if left <= 0.0 {
                0.0
            } else if share > left {
                left / share
            } else {
                1.0
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_important_part_is_dropped() {
        let mut offered = Offered::default();
        offered.add(&ByClass::new([100, 600, 250, 50]), 1.0);
        let rows = [
            (0.0, [0.0, 0.0, 0.0, 0.0]),
            (0.05, [0.5, 0.0, 0.0, 0.0]),
            (0.1, [1.0, 0.0, 0.0, 0.0]),
            (0.4, [1.0, 0.5, 0.0, 0.0]),
            (0.95, [1.0, 1.0, 1.0, 0.0]),
            (0.975, [1.0, 1.0, 1.0, 0.5]),
            (1.0, [1.0, 1.0, 1.0, 1.0]),
        ];
        for (amount, expected) in rows {
            for (class, chance) in offered.chances(amount).iter() {
                let expected = ByClass::new(expected)[class];
                assert!((chance - expected).abs() < 1e-9, "{class} at {amount}: {chance}");
            }
        }
    }

    #[test]
    fn a_mix_of_long_ago_no_longer_counts() {
        let mut offered = Offered::default();
        offered.add(&ByClass::new([0, 1_000_000, 0, 0]), 1.0);
        for _ in 0..40 {
            offered.add(&ByClass::new([0, 0, 10, 0]), 8.0);
        }
        let chances = offered.chances(0.5);
        assert!((chances[crate::Class::Post] - 0.5).abs() < 0.01, "{chances:?}");
    }

    #[test]
    fn a_class_that_is_not_offered_is_dropped_with_less_important_ones() {
        let mut offered = Offered::default();
        offered.add(&ByClass::new([0, 100, 0, 100]), 1.0);
        assert_eq!(offered.chances(0.25), ByClass::new([1.0, 0.5, 0.0, 0.0]));
        assert_eq!(Offered::default().chances(0.0), ByClass::new([0.0; 4]));
    }
}
