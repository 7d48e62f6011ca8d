//! Whether a rule applies to a request, with which key values, cost and mode.

use tollgate_core::key::HashSecret;
use tollgate_core::{Key, Mode, Value};

use crate::address::{counted, parse_address};
use crate::attributes::{Attribute, Attributes};
use crate::model::{RuleMode, Test};
use crate::rule::{CompiledCost, CompiledKeyPart, Rule};

/// Why a rule does not apply.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Miss<'a> {
    /// An attribute of the key is absent.
    Key(Attribute),
    /// A clause does not hold.
    Clause(Attribute, &'a Test),
}

/// The cost of a request under a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Units {
    Known(u64),
    /// The attribute with the cost is not a whole number. It is often a client's, so it must not be an error: the
    /// request would pass where errors do.
    Malformed,
}

/// Not a secret: every server must choose the same callers.
const SHARE: HashSecret = HashSecret(0x746f_6c6c_6761_7465, 0x7368_6172_652f_7631);

impl Rule {
    /// The first reason why the rule does not apply. One clause may be known to hold.
    pub(crate) fn misses(&self, attributes: &Attributes<'_, '_>, known: Option<usize>) -> Option<Miss<'_>> {
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

    /// Whether the rule applies to every request with these attributes, whatever their values are. `None` if that depends on
    /// the values.
    pub(crate) fn is_decided_by_names(&self, has: impl Fn(Attribute) -> bool) -> Option<bool> {
        if self.key.iter().any(|part| !part.optional && !has(part.attribute)) {
            return Some(false);
        }
        let mut decided = Some(true);
        for (attribute, test) in &self.clauses {
            match test.is_decided_by_presence(has(*attribute)) {
                Some(true) => {}
                Some(false) => return Some(false),
                None => decided = None,
            }
        }
        decided
    }

    /// The cost of the request. `None` if the rule does not apply because of it. A request of cost 0 is a peek under
    /// every rule.
    #[inline]
    pub(crate) fn units(&self, attributes: &Attributes<'_, '_>) -> Option<Units> {
        match self.cost {
            CompiledCost::Request => Some(Units::Known(attributes.cost)),
            _ => self.own_cost(attributes).map(|units| if attributes.cost == 0 { Units::Known(0) } else { units }),
        }
    }

    fn own_cost(&self, attributes: &Attributes<'_, '_>) -> Option<Units> {
        match &self.cost {
            CompiledCost::Request => Some(Units::Known(attributes.cost)),
            CompiledCost::Fixed(cost) => Some(Units::Known(*cost)),
            CompiledCost::Attribute(attribute) => attributes.get(*attribute).map(whole_number),
            CompiledCost::Table { attribute, cases, default } => {
                let case = attributes
                    .get(*attribute)
                    .and_then(|value| cases.iter().find(|(pattern, _)| pattern.matches(value)).map(|(_, cost)| *cost));
                case.or(*default).map(Units::Known)
            }
        }
    }

    /// The descriptors of the request with attributes of its key and clauses, as a bit set; all if there are none.
    #[inline]
    pub(crate) fn touches(&self, attributes: &Attributes<'_, '_>) -> u64 {
        attributes.descriptors_with(|attribute| {
            self.key.iter().any(|part| part.attribute == attribute)
                || self.clauses.iter().any(|(clause, _)| *clause == attribute)
        })
    }

    pub(crate) fn key_value<'a>(&self, part: &CompiledKeyPart, attributes: &Attributes<'_, 'a>) -> Value<'a> {
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
            RuleMode::Share { bps } => {
                if self.draw(key) < u64::from(bps) {
                    Mode::Enforce
                } else {
                    Mode::Shadow
                }
            }
        }
    }

    /// A number below 10,000 that depends only on the rule and the caller: the same on every server and for every
    /// limit. If the key has no caller, it depends on the whole key.
    fn draw(&self, key: &Key<'_>) -> u64 {
        let rule = Value::Text(&self.name).digest(SHARE, Value::Text(key.scope().domain()).digest(SHARE, 0));
        let drawn = match key.caller() {
            Some(caller) => caller.digest(SHARE, rule),
            None => key.values().iter().fold(rule, |before, value| value.digest(SHARE, before)),
        };
        (drawn % 10_000) as u64
    }
}

/// A number in digits only; a sign or a space is malformed. A number that is too large is the largest one, so that it
/// can't be cheaper than a smaller one.
fn whole_number(text: &str) -> Units {
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Units::Known(text.parse().unwrap_or(u64::MAX)),
        false => Units::Malformed,
    }
}

impl Test {
    /// Whether it holds for every value, or for none. `None` if that depends on the value.
    fn is_decided_by_presence(&self, present: bool) -> Option<bool> {
        match self {
            Test::Present => Some(present),
            Test::Absent => Some(!present),
            Test::AnyOf(_) | Test::Within(_) => (!present).then_some(false),
            Test::Not(test) => test.is_decided_by_presence(present).map(|holds| !holds),
        }
    }

    pub(crate) fn holds(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Test::Present, value) => value.is_some(),
            (Test::Absent, value) => value.is_none(),
            (Test::AnyOf(patterns), Some(value)) => patterns.iter().any(|pattern| pattern.matches(value)),
            (Test::Within(networks), Some(value)) => {
                parse_address(value).is_some_and(|address| networks.iter().any(|network| network.contains(address)))
            }
            (Test::AnyOf(_) | Test::Within(_), None) => false,
            (Test::Not(test), value) => !test.holds(value),
        }
    }
}
