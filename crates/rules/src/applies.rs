//! Whether a rule applies to a request, with which values, for how much, and what follows.

use tollgate_core::key::Secret;
use tollgate_core::{Key, Mode, Value};

use crate::address::counted;
use crate::attributes::Attributes;
use crate::compiled::{Attribute, CompiledCost, Domain, KeyPart, Rule};
use crate::error::{BadCost, RequestError};
use crate::model::{RuleMode, Test};

/// What keeps a rule from applying.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Miss<'a> {
    /// A part of the key is not there.
    Key(Attribute),
    /// A clause does not hold.
    Clause(Attribute, &'a Test),
}

/// Not a secret: every server must draw the same callers.
const SHARE: Secret = Secret(0x746f_6c6c_6761_7465, 0x7368_6172_652f_7631);

impl Rule {
    /// The first thing that keeps the rule from applying; one clause may be known to hold.
    pub(crate) fn misses(&self, attributes: &Attributes<'_>, known: Option<usize>) -> Option<Miss<'_>> {
        for part in &self.key {
            if !part.optional && attributes.get(part.attribute).is_none() {
                return Some(Miss::Key(part.attribute));
            }
        }
        for (at, (attribute, test)) in self.clauses.iter().enumerate() {
            if known != Some(at) && !test.holds(attributes.get(*attribute)) {
                return Some(Miss::Clause(*attribute, test));
            }
        }
        None
    }

    /// What the request costs here; `None` if that keeps the rule from applying. What costs nothing is a look everywhere.
    #[inline]
    pub(crate) fn units(&self, attributes: &Attributes<'_>, domain: &Domain) -> Result<Option<u64>, RequestError> {
        match self.cost {
            CompiledCost::Request => Ok(Some(attributes.cost)),
            _ => {
                let units = self.own_cost(attributes, domain)?;
                Ok(units.map(|units| if attributes.cost == 0 { 0 } else { units }))
            }
        }
    }

    fn own_cost(&self, attributes: &Attributes<'_>, domain: &Domain) -> Result<Option<u64>, RequestError> {
        Ok(match &self.cost {
            CompiledCost::Request => Some(attributes.cost),
            CompiledCost::Fixed(cost) => Some(*cost),
            CompiledCost::Attribute(attribute) => match attributes.get(*attribute) {
                Some(text) => Some(whole_number(text).ok_or_else(|| {
                    let attribute = domain.attribute_name(*attribute).to_owned();
                    RequestError::BadCost(Box::new(BadCost { rule: self.name.to_string(), attribute }))
                })?),
                None => None,
            },
            CompiledCost::Table { attribute, cases, default } => match attributes.get(*attribute) {
                Some(value) => {
                    cases.iter().find(|(pattern, _)| pattern.matches(value)).map(|(_, cost)| *cost).or(*default)
                }
                None => *default,
            },
        })
    }

    pub(crate) fn key_value<'a>(&self, part: &KeyPart, attributes: &Attributes<'a>) -> Value<'a> {
        match attributes.get(part.attribute) {
            None => Value::Absent,
            Some(text) if part.address => counted(text, self.ipv6_prefix),
            Some(text) => Value::Text(text),
        }
    }

    pub(crate) fn mode_for(&self, key: &Key<'_>) -> Mode {
        match self.mode {
            RuleMode::Enforce | RuleMode::Off => Mode::Enforce,
            RuleMode::AnyOf => Mode::AnyOf,
            RuleMode::Shadow => Mode::Shadow,
            RuleMode::Soft => Mode::Soft,
            RuleMode::Share { of_10_000 } => {
                if self.draw(key) < u64::from(of_10_000) {
                    Mode::Enforce
                } else {
                    Mode::Shadow
                }
            }
        }
    }

    /// The same number below 10,000 for the same rule and caller, on every server and whatever the limit is changed to. Where a key
    /// has no caller, all of it is one.
    fn draw(&self, key: &Key<'_>) -> u64 {
        let rule = Value::Text(&self.name).digest(SHARE, Value::Text(key.scope().domain()).digest(SHARE, 0));
        let drawn = match key.caller() {
            Some(caller) => caller.digest(SHARE, rule),
            None => key.values().iter().fold(rule, |before, value| value.digest(SHARE, before)),
        };
        (drawn % 10_000) as u64
    }
}

/// A number in digits alone: a sign or a space is a mistake of the caller's.
fn whole_number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl Test {
    pub(crate) fn holds(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Test::Present, value) => value.is_some(),
            (Test::Absent, value) => value.is_none(),
            (Test::AnyOf(patterns), Some(value)) => patterns.iter().any(|pattern| pattern.matches(value)),
            (Test::Within(networks), Some(value)) => {
                value.parse().is_ok_and(|address| networks.iter().any(|network| network.contains(address)))
            }
            (Test::AnyOf(_) | Test::Within(_), None) => false,
            (Test::Not(test), value) => !test.holds(value),
        }
    }
}
