//! The rows of a rule's terms by their names, for display and for metrics.

use crate::rule::Rule;
use crate::ruleset::Domain;

/// The name of the only row, and of the row for all other values.
const DEFAULT: &str = "default";

impl Rule {
    /// What a row of its terms is for: a tier, a value of the attribute that it limits by, or `default`.
    pub fn row_name<'s>(&'s self, domain: &'s Domain, row: u16) -> &'s str {
        let row = usize::from(row);
        match &self.limited_by {
            Some(by) => {
                let value = (row / by.tiers(self.tiers.len()).max(1)).checked_sub(1);
                value.and_then(|value| by.values.get(value)).map_or(DEFAULT, |value| value)
            }
            None if self.is_by_tier => domain.tiers().get(row).map_or(DEFAULT, |tier| &tier.name),
            None => DEFAULT,
        }
    }

    /// The first row of each name, in order: one for each tier, one for each value, or one for all.
    pub fn rows<'s>(&'s self, domain: &'s Domain) -> impl Iterator<Item = (&'s str, u16)> {
        let (step, count) = match &self.limited_by {
            Some(by) => (by.tiers(self.tiers.len()), by.values.len() + 1),
            None if self.is_by_tier => (1, self.tiers.len()),
            None => (1, 1),
        };
        (0..count).filter_map(move |at| u16::try_from(at * step).ok()).map(|row| (self.row_name(domain, row), row))
    }
}
