//! From a request to a claim: which limits it meets, with which keys, for how much. Pure, on one snapshot.

use std::fmt;

use smallvec::SmallVec;
use tollgate_core::key::Secret;
use tollgate_core::{Ask, Charge, Claim, ClaimId, Key, Mode, Request, Value};

use crate::address::counted;
use crate::compiled::{Attribute, CompiledCap, CompiledCost, Domain, KeyPart, Rule, Ruleset};
use crate::index::Id;
use crate::model::{RuleMode, Test};

/// A claim, and where each of its charges comes from.
#[derive(Debug)]
pub struct Resolved<'a> {
    /// The domain.
    pub domain: &'a Domain,
    /// What is asked of the store.
    pub claim: Claim<'a>,
    /// The rule behind each charge, in their order.
    pub applied: SmallVec<[Applied; 4]>,
    /// Rules that apply and do not limit.
    pub unlimited: SmallVec<[Applied; 1]>,
}

/// The rules that a request meets, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Matched {
    /// The domain's place in the ruleset.
    pub domain: usize,
    /// The rule behind each charge, in their order.
    pub applied: SmallVec<[Applied; 4]>,
    /// Rules that apply and do not limit.
    pub unlimited: SmallVec<[Applied; 1]>,
}

/// A rule that applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The rule's place in its domain.
    pub rule: u32,
    /// The tier by which its limit was chosen.
    pub tier: u16,
    /// What follows if there is no room; chosen by caller where the rule is enforced for a share of them.
    pub mode: Mode,
    /// The descriptors of the request that have to do with it, a bit for each.
    pub touches: u64,
}

/// Why a request can't be decided as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// There is no such domain.
    UnknownDomain,
    /// There are several domains and it names none.
    NoDomain,
    /// More descriptors, or entries in one, than are looked at.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are looked at.
        most: usize,
    },
    /// A name or a value is longer than is looked at.
    TooLong,
    /// The cost is in an attribute that is not a whole number.
    BadCost(Box<BadCost>),
}

/// A cost that is not a whole number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCost {
    /// The rule that needs it.
    pub rule: String,
    /// The attribute that it is in.
    pub attribute: String,
}

/// What a request says, by the numbers of the domain's attributes; the first value of each.
pub(crate) struct Attributes<'a> {
    seen: SmallVec<[Seen<'a>; 8]>,
    /// The largest cost among its descriptors.
    pub(crate) cost: u64,
}

#[derive(Clone, Copy)]
struct Seen<'a> {
    attribute: Attribute,
    value: &'a str,
    descriptor: u8,
}

/// Not a secret: every server must draw the same callers.
const SHARE: Secret = Secret(0x746f_6c6c_6761_7465, 0x7368_6172_652f_7631);

impl Ruleset {
    /// What a request asks of the store.
    pub fn resolve<'a>(&'a self, request: &Request<'a>, id: ClaimId) -> Result<Resolved<'a>, RequestError> {
        let mut claim = Claim { id, charges: SmallVec::new(), once: None };
        let mut matched = Matched::default();
        self.resolve_into(request, &mut claim, &mut matched)?;
        let Matched { domain, applied, unlimited } = matched;
        Ok(Resolved { domain: &self.domains()[domain], claim, applied, unlimited })
    }

    /// The same, added to an empty claim where it stands: a claim is large to move, and this is the path of every request.
    #[inline]
    pub fn resolve_into<'a>(
        &'a self,
        request: &Request<'a>,
        claim: &mut Claim<'a>,
        matched: &mut Matched,
    ) -> Result<(), RequestError> {
        matched.domain = self.domain_of(request)?;
        Resolving { domain: &self.domains()[matched.domain], claim, matched }.fill(request)
    }

    /// The place of a request's domain.
    fn domain_of(&self, request: &Request<'_>) -> Result<usize, RequestError> {
        self.domain_number(request.domain).ok_or(match request.domain {
            Some(_) => RequestError::UnknownDomain,
            None => RequestError::NoDomain,
        })
    }
}

impl<'a> Resolved<'a> {
    /// The rule behind the charge at this place.
    pub fn rule(&self, charge: usize) -> &'a Rule {
        &self.domain.rules[self.applied[charge].rule as usize]
    }
}

/// A claim on its way.
struct Resolving<'r, 'a> {
    domain: &'a Domain,
    claim: &'r mut Claim<'a>,
    matched: &'r mut Matched,
}

impl<'a> Resolving<'_, 'a> {
    fn fill(&mut self, request: &Request<'a>) -> Result<(), RequestError> {
        let domain = self.domain;
        let mut attributes = Attributes { seen: SmallVec::new(), cost: 0 };
        attributes.read(request, domain)?;
        let tier = domain.tier(&attributes);
        let mut candidates = SmallVec::new();
        domain.find_candidates(&attributes, &mut candidates);
        for &number in &candidates {
            let rule = &domain.rules[number as usize];
            if rule.misses(&attributes, rule.pivot).is_none() {
                self.listed(number, rule, &attributes, tier)?;
            }
        }
        if !domain.tree.is_empty() {
            self.tree(request, tier);
        }
        match self.claim.charges.len() {
            ..=Claim::MOST_CHARGES => Ok(()),
            _ => Err(RequestError::TooMany { what: "limits that apply", most: Claim::MOST_CHARGES }),
        }
    }

    fn listed(
        &mut self,
        number: Id,
        rule: &'a Rule,
        attributes: &Attributes<'a>,
        tier: usize,
    ) -> Result<(), RequestError> {
        let Some(cap) = rule.cap(tier) else { return Ok(()) };
        let Some(mut units) = rule.units(attributes, self.domain)? else { return Ok(()) };
        if cap.is_concurrency() {
            // Whatever the request costs: it is one request in flight, or a look.
            units = attributes.cost.min(1);
        }
        let mut values = SmallVec::new();
        for part in &rule.key {
            values.push(rule.key_value(part, attributes));
        }
        self.add(number, tier, attributes.touched_by(rule), cap, values, units);
        Ok(())
    }

    fn tree(&mut self, request: &Request<'a>, tier: usize) {
        let domain = self.domain;
        let walks: SmallVec<[_; 4]> =
            request.descriptors.iter().map(|descriptor| domain.tree.walk(descriptor.entries)).collect();
        let mut replaced: SmallVec<[&str; 4]> = SmallVec::new();
        for (walk, descriptor) in walks.iter().zip(request.descriptors) {
            for met in domain.tree.met(walk, descriptor.entries) {
                if domain.rules[met.limit.rule as usize].mode != RuleMode::Off {
                    replaced.extend(met.limit.replaces.iter().map(|name| &**name));
                }
            }
        }
        for (number, (walk, descriptor)) in walks.iter().zip(request.descriptors).enumerate() {
            let units = descriptor.hits.unwrap_or(request.cost);
            for met in domain.tree.met(walk, descriptor.entries) {
                let rule = &domain.rules[met.limit.rule as usize];
                let is_replaced = met.limit.name.as_deref().is_some_and(|name| replaced.contains(&name));
                if is_replaced || rule.mode == RuleMode::Off {
                    continue;
                }
                if let Some(cap) = rule.cap(tier) {
                    self.add(met.limit.rule, tier, 1 << number, cap, met.values, units);
                }
            }
        }
    }

    #[inline]
    fn add(
        &mut self,
        number: Id,
        tier: usize,
        touches: u64,
        cap: &'a CompiledCap,
        values: SmallVec<[Value<'a>; 2]>,
        units: u64,
    ) {
        let rule = &self.domain.rules[number as usize];
        let applied = |mode| Applied { rule: number, tier: tier as u16, mode, touches };
        let CompiledCap::Limit { limit, scope } = cap else {
            self.matched.unlimited.push(applied(Mode::Enforce));
            return;
        };
        let key = Key::new(scope, values);
        let mode = rule.mode_for(&key);
        let on_failure = rule.tiers[tier].on_failure;
        self.claim.charges.push(Charge { key, limit, ask: Ask::Exactly, units, mode, on_failure });
        self.matched.applied.push(applied(mode));
    }
}

impl Domain {
    pub(crate) fn tier(&self, attributes: &Attributes<'_>) -> usize {
        self.tier_from
            .and_then(|attribute| attributes.get(attribute))
            .and_then(|name| self.tiers.iter().position(|tier| tier.name == name))
            .unwrap_or(self.default_tier)
    }

    /// The rules of the list that may apply, in their order.
    pub(crate) fn find_candidates(&self, attributes: &Attributes<'_>, candidates: &mut SmallVec<[Id; 8]>) {
        self.index.find(attributes, candidates);
        if candidates.len() > 1 {
            candidates.sort_unstable();
            candidates.dedup();
        }
    }
}

/// What keeps a rule from applying.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Miss<'a> {
    /// A part of the key is not there.
    Key(Attribute),
    /// A clause does not hold.
    Clause(Attribute, &'a Test),
}

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

    fn key_value<'a>(&self, part: &KeyPart, attributes: &Attributes<'a>) -> Value<'a> {
        match attributes.get(part.attribute) {
            None => Value::Absent,
            Some(text) if part.address => counted(text, self.ipv6_prefix),
            Some(text) => Value::Text(text),
        }
    }

    fn mode_for(&self, key: &Key<'_>) -> Mode {
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

impl<'a> Attributes<'a> {
    /// What a request says, all of it.
    pub(crate) fn of(request: &Request<'a>, domain: &Domain) -> Result<Attributes<'a>, RequestError> {
        let mut attributes = Attributes { seen: SmallVec::new(), cost: 0 };
        attributes.read(request, domain)?;
        Ok(attributes)
    }

    fn read(&mut self, request: &Request<'a>, domain: &Domain) -> Result<(), RequestError> {
        if request.descriptors.len() > Request::MOST_DESCRIPTORS {
            return Err(RequestError::TooMany { what: "descriptors", most: Request::MOST_DESCRIPTORS });
        }
        let mut cost = None;
        for (descriptor, number) in request.descriptors.iter().zip(0..) {
            cost = cost.max(Some(descriptor.hits.unwrap_or(request.cost)));
            if descriptor.entries.len() > Request::MOST_ENTRIES {
                return Err(RequestError::TooMany { what: "entries in a descriptor", most: Request::MOST_ENTRIES });
            }
            for (name, value) in descriptor.entries {
                if name.len().max(value.len()) > Request::LONGEST_TEXT {
                    return Err(RequestError::TooLong);
                }
                // The value will be hashed once the rules are found. If it is not in the cache, it comes meanwhile.
                std::hint::black_box(value.as_bytes().first().copied());
                if let Some(attribute) = domain.attributes.get(*name)
                    && self.get(*attribute).is_none()
                {
                    self.seen.push(Seen { attribute: *attribute, value, descriptor: number });
                }
            }
        }
        self.cost = cost.unwrap_or(request.cost);
        Ok(())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Attribute, &'a str)> {
        self.seen.iter().map(|seen| (seen.attribute, seen.value))
    }

    pub(crate) fn get(&self, attribute: Attribute) -> Option<&'a str> {
        self.seen.iter().find(|seen| seen.attribute == attribute).map(|seen| seen.value)
    }

    /// The descriptors that a rule's key and clauses look at; all of them where it looks at none.
    fn touched_by(&self, rule: &Rule) -> u64 {
        let looks_at = |attribute| {
            rule.key.iter().any(|part| part.attribute == attribute)
                || rule.clauses.iter().any(|(clause, _)| *clause == attribute)
        };
        let touched = self.seen.iter().filter(|seen| looks_at(seen.attribute));
        match touched.fold(0, |touched, seen| touched | 1 << seen.descriptor) {
            0 => u64::MAX,
            touched => touched,
        }
    }
}

impl Domain {
    /// The name of an attribute. Slow: for errors and explanations.
    pub(crate) fn attribute_name(&self, attribute: Attribute) -> &str {
        self.attributes.iter().find(|(_, number)| **number == attribute).map_or("", |(name, _)| name)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::UnknownDomain => write!(f, "there are no rules for this domain"),
            RequestError::NoDomain => write!(f, "the rules have several domains; name one"),
            RequestError::TooMany { what, most } => write!(f, "too many {what}; at most {most}"),
            RequestError::TooLong => {
                write!(f, "a name or value is too long; at most {} bytes", Request::LONGEST_TEXT)
            }
            RequestError::BadCost(bad) => {
                let BadCost { rule, attribute } = &**bad;
                write!(f, "rule {rule} takes the cost from attribute {attribute}, which is not a whole number")
            }
        }
    }
}

impl std::error::Error for RequestError {}
