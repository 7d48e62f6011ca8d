//! Limits by the value of an attribute, on one counter. The terms of such a rule are a table with a row for each value and
//! tier, so that everything that finds terms by a number works for both.

use crate::attributes::{Attribute, Attributes};
use crate::model;
use crate::rule::Rule;

/// The attribute by whose values a rule has different limits.
#[derive(Debug)]
pub(crate) struct LimitedBy {
    pub(crate) attribute: Attribute,
    pub(crate) name: Box<str>,
    /// The values with a limit of their own. Their rows follow those of all other values.
    pub(crate) values: Box<[Box<str>]>,
}

impl LimitedBy {
    pub(crate) fn new(caps: &model::CapsByValue, attribute: Attribute) -> LimitedBy {
        let values = caps.cases.iter().map(|(value, _)| value.as_str().into()).collect();
        LimitedBy { attribute, name: caps.attribute.as_str().into(), values }
    }

    /// The number of tiers, of a table with this many rows.
    pub(crate) fn tiers(&self, rows: usize) -> usize {
        rows / (self.values.len() + 1)
    }
}

impl Rule {
    /// The row of a request's terms. Without `limit_by`, it is the tier's.
    #[inline(always)]
    pub(crate) fn row(&self, tier: usize, attributes: &Attributes<'_, '_>) -> usize {
        match &self.limited_by {
            None => tier,
            Some(by) => self.row_by_value(by, tier, attributes),
        }
    }

    #[inline(never)]
    fn row_by_value(&self, by: &LimitedBy, tier: usize, attributes: &Attributes<'_, '_>) -> usize {
        let value = attributes.get(by.attribute);
        let value = value.and_then(|value| by.values.iter().position(|known| **known == *value));
        tier + value.map_or(0, |value| value + 1) * by.tiers(self.tiers.len())
    }

    /// The attribute by whose values it has different limits.
    pub fn limit_by(&self) -> Option<&str> {
        self.limited_by.as_ref().map(|by| &*by.name)
    }

    /// The number of rows of its terms.
    pub fn row_count(&self) -> u16 {
        u16::try_from(self.tiers.len()).unwrap_or(u16::MAX)
    }
}
