//! How one caller stands: the counters that its name leads to, whatever it asks for.
//!
//! A rule counts here if its key has the caller and nothing that is not known. Conditions on what is not known are passed over: they
//! say when the counter is charged, not which it is.

use smallvec::SmallVec;
use tollgate_core::{Ask, Charge, Claim, ClaimId, Descriptor, Key, Mode, Request, Value};

use crate::attributes::Attributes;
use crate::compiled::{Domain, Rule};
use crate::error::RequestError;
use crate::model::RuleMode;
use crate::pattern::Pattern;
use crate::resolve::Known;
use crate::tenants::{CapRef, Found, ResolvedBy, Room, Sought};

/// Looks at a caller's counters, and the rules that have none for it.
#[derive(Debug)]
pub struct Looks<'a> {
    /// A look at each counter.
    pub claim: Claim<'a>,
    /// The rule behind each look, in their order, and how its limit came to be the one that applies.
    pub rules: Vec<(&'a Rule, ResolvedBy)>,
    /// The rules that are not looked at, and why.
    pub left_out: Vec<(&'a Rule, String)>,
}

/// The entries that lead to each rule of a tree, in the rules' order; none where one of them is not known.
pub type Ways<'a> = Vec<Option<Vec<(&'a str, &'a str)>>>;

impl Domain {
    /// The ways to the tree's limits for a caller of which this is known: names and values.
    pub fn ways<'a>(&'a self, known: &[(&'a str, &'a str)]) -> Ways<'a> {
        let value = |key: &str, pattern: &'a Option<Pattern>| match known.iter().find(|(name, _)| *name == key) {
            Some((_, value)) => Some(*value),
            None => match pattern {
                Some(Pattern::Exact(text)) => Some(&**text),
                _ => None,
            },
        };
        let way = |rule: &'a Rule| rule.path.iter().map(|(key, value_)| Some((&**key, value(key, value_)?))).collect();
        self.rules.iter().map(way).collect()
    }

    /// A look at every counter of a caller. The first entry of what is known is the caller, and `ways` were made of all of them.
    ///
    /// # Errors
    /// If more is known, or in longer texts, than a request may say.
    pub fn looks<'a>(
        &'a self,
        known: &'a [Descriptor<'a>; 1],
        ways: &'a Ways<'a>,
        id: ClaimId,
        who: &Known<'a, '_>,
    ) -> Result<Looks<'a>, RequestError> {
        let request = Request { domain: None, descriptors: known, cost: 0, ..Request::default() };
        let [Descriptor { entries: known, .. }] = known;
        let mut attributes = Attributes::default();
        attributes.read(&request, self)?;
        let caller = known.first().map_or("", |(name, _)| name);
        let claim = Claim { id, charges: SmallVec::new(), once: None, patience: None };
        let mut looks = Looks { claim, rules: Vec::new(), left_out: Vec::new() };
        let sought = Sought::of(who.tenants, self, self.caller(&attributes));
        let caller_known = Found::of(who.tenants, &sought, who.now);
        let tier = self.tier(&attributes, caller_known.as_ref());
        for (rule, way) in self.rules.iter().zip(ways) {
            let found = match rule.names().any(|name| name == caller) {
                _ if rule.mode == RuleMode::Off => Err("it is switched off".to_owned()),
                false => Err(format!("its key does not have `{caller}`")),
                true if rule.path.is_empty() => rule.standing_of(&attributes, self),
                true => rule.standing_at(way.as_deref(), self, known),
            };
            match found.and_then(|values| Ok((values, rule.cap_of(tier, self, caller_known.as_ref(), who.room)?))) {
                Ok(_) if looks.rules.len() >= Claim::MOST_CHARGES => {
                    looks.left_out.push((rule, format!("more than {} limits are not looked at", Claim::MOST_CHARGES)));
                }
                Ok((values, cap)) => looks.add(rule, cap, values, tier),
                Err(why) => looks.left_out.push((rule, why)),
            }
        }
        Ok(looks)
    }
}

/// The part of a cap that counts.
struct Counted<'a> {
    limit: &'a tollgate_core::Limit,
    scope: &'a tollgate_core::Scope,
    by: ResolvedBy,
}

impl<'a> Looks<'a> {
    fn add(
        &mut self,
        rule: &'a Rule,
        Counted { limit, scope, by }: Counted<'a>,
        values: SmallVec<[Value<'a>; 2]>,
        tier: usize,
    ) {
        let key = Key::new(scope, values);
        let mode: Mode = rule.mode_for(&key);
        let (on_failure, strict) = (rule.tiers[tier].on_failure, rule.is_strict());
        self.claim.charges.push(Charge { key, limit, ask: Ask::Exactly, units: 0, mode, on_failure, strict });
        self.rules.push((rule, by));
    }
}

impl Rule {
    /// The attributes that name its counters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let path = self.path.iter().map(|(key, _)| &**key);
        self.key_names.iter().map(|name| &**name).chain(path)
    }

    /// The values of a rule of the list, or why there are none.
    fn standing_of<'a>(
        &'a self,
        attributes: &Attributes<'a>,
        domain: &Domain,
    ) -> Result<SmallVec<[Value<'a>; 2]>, String> {
        for part in self.key.iter().filter(|part| !part.optional) {
            if attributes.get(part.attribute).is_none() {
                return Err(unknown(domain.attribute_name(part.attribute)));
            }
        }
        for (attribute, test) in &self.clauses {
            let value = attributes.get(*attribute);
            if value.is_some() && !test.holds(value) {
                return Err(format!("it is for another `{}`", domain.attribute_name(*attribute)));
            }
        }
        Ok(self.key.iter().map(|part| self.key_value(part, attributes)).collect())
    }

    /// The same for a limit of the tree.
    fn standing_at<'a>(
        &self,
        way: Option<&'a [(&'a str, &'a str)]>,
        domain: &'a Domain,
        known: &[(&str, &str)],
    ) -> Result<SmallVec<[Value<'a>; 2]>, String> {
        let Some(way) = way else {
            let missing = self.path.iter().find(|(key, _)| known.iter().all(|(name, _)| name != key));
            return Err(unknown(missing.map_or("", |(key, _)| key)));
        };
        let walk = domain.tree.walk(way);
        let own = |met: &crate::tree::Met<'_>| {
            domain.rules.get(met.limit.rule as usize).is_some_and(|rule| std::ptr::eq(rule, self))
        };
        let met = domain.tree.met(&walk, way).find(own);
        met.map(|met| met.values).ok_or_else(|| "it is for other values".to_owned())
    }

    fn cap_of<'a>(
        &'a self,
        tier: usize,
        domain: &Domain,
        found: Option<&Found<'_>>,
        room: &'a Room,
    ) -> Result<Counted<'a>, String> {
        let (cap, by) = match self.cap_under(tier, found, room) {
            Some((cap, by)) => (Some(cap), by),
            None => (None, ResolvedBy::Default),
        };
        match cap {
            Some(CapRef::Limit { limit, scope }) => Ok(Counted { limit, scope, by }),
            Some(CapRef::Unlimited) if !matches!(by, ResolvedBy::Default | ResolvedBy::Tier) => {
                Err(format!("an override ({}) lifts it", by.name()))
            }
            Some(CapRef::Unlimited) => Err(format!("it does not limit tier {}", domain.tiers[tier].name)),
            None => Err(format!("it has no limit for tier {}", domain.tiers[tier].name)),
        }
    }
}

fn unknown(attribute: &str) -> String {
    format!("its key needs `{attribute}`, which is not known")
}
