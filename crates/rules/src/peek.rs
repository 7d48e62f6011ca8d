//! Peeks at all counters of one caller.
//!
//! A counter is included if the rule's key has the caller and all of its attributes are known. Conditions on unknown
//! attributes are ignored: they determine when a counter is charged, not which one it is.

use smallvec::SmallVec;
use tollgate_core::{Ask, Charge, Claim, ClaimId, Descriptor, Key, Mode, Request, Value};

use crate::attributes::{Attributes, Outline, attribute_places};
use crate::error::RequestError;
use crate::model::RuleMode;
use crate::overrides::CapRef;
use crate::pattern::Pattern;
use crate::resolve::TenantContext;
use crate::rule::Rule;
use crate::ruleset::Domain;
use crate::tenants::{LimitArena, ResolvedBy, Tenant, TenantLookup};

/// A claim that peeks at a caller's counters, and the rules without one.
#[derive(Debug)]
pub struct Peek<'a> {
    /// A peek at each counter.
    pub claim: Claim<'a>,
    /// The rule of each charge, in order, and how its limit was chosen.
    pub rules: Vec<(&'a Rule, ResolvedBy)>,
    /// The rules that are left out, and why.
    pub left_out: Vec<(&'a Rule, String)>,
    /// The caller's tier, and where it comes from. `None` if requests name it, and the attributes do not have it: the limits are
    /// those of the default tier.
    pub tier: Option<(&'a str, TierOrigin)>,
}

/// Where a caller's tier comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierOrigin {
    /// Operators assigned it, to the caller or to a group of them.
    Quota,
    /// Requests name it.
    Request,
    /// It is the domain's default.
    Default,
}

/// The entries of the path to each rule of a tree, in the order of the rules. `None` if an entry is unknown.
pub type TreePaths<'a> = Vec<Option<Vec<(&'a str, &'a str)>>>;

impl Domain {
    /// The paths to the tree's limits for a caller with these attributes.
    pub fn tree_paths<'a>(&'a self, known: &[(&'a str, &'a str)]) -> TreePaths<'a> {
        let value = |key: &str, pattern: &'a Option<Pattern>| match known.iter().find(|(name, _)| *name == key) {
            Some((_, value)) => Some(*value),
            None => match pattern {
                Some(Pattern::Exact(text)) => Some(&**text),
                _ => None,
            },
        };
        let path = |rule: &'a Rule| rule.path.iter().map(|(key, value_)| Some((&**key, value(key, value_)?))).collect();
        self.rules.iter().map(path).collect()
    }

    /// A peek at every counter of a caller. The first known entry is the caller, and `paths` must come from the same
    /// entries.
    ///
    /// # Errors
    /// If the entries exceed the bounds of a request.
    pub fn peek<'a>(
        &'a self,
        known: &'a [Descriptor<'a>; 1],
        paths: &'a TreePaths<'a>,
        id: ClaimId,
        context: &TenantContext<'a, '_>,
    ) -> Result<Peek<'a>, RequestError> {
        let request = Request { domain: None, descriptors: known, cost: 0, ..Request::default() };
        let [Descriptor { entries: known, .. }] = known;
        let outline = Outline::of(&request)?;
        let places = attribute_places(&request, &self.attributes);
        let attributes = Attributes::new(&request, &outline, &places);
        let caller = known.first().map_or("", |(name, _)| name);
        let claim = Claim { id, charges: SmallVec::new(), once: None, timeout: None };
        let mut peek = Peek { claim, rules: Vec::new(), left_out: Vec::new(), tier: None };
        let lookup = TenantLookup::new(context.tenants, self.digest, self.caller(&attributes));
        let tenant = Tenant::find(context.tenants, &lookup, context.now);
        let tier = self.tier(&attributes, tenant.as_ref());
        let assigned = tenant.as_ref().and_then(Tenant::tier).filter(|digest| self.tier_digests.contains(digest));
        let requested = self.tier_from.map(|attribute| attributes.get(attribute));
        let origin = match (assigned, requested) {
            (Some(_), _) => Some(TierOrigin::Quota),
            (None, Some(None)) => None,
            (None, Some(Some(name))) if self.tiers[tier].name == name => Some(TierOrigin::Request),
            (None, _) => Some(TierOrigin::Default),
        };
        peek.tier = origin.map(|origin| (&*self.tiers[tier].name, origin));
        for (rule, path) in self.rules.iter().zip(paths) {
            let values = match rule.names().any(|name| name == caller) {
                _ if rule.mode == RuleMode::Off => Err("it is switched off".to_owned()),
                false => Err(format!("its key does not have `{caller}`")),
                true if rule.path.is_empty() => rule.listed_values(&attributes, self),
                true => rule.tree_values(path.as_deref(), self, known),
            };
            let row = rule.row(tier, &attributes);
            let cap = || match rule.cap_of((tier, row), self, tenant.as_ref(), context.arena) {
                // Another tier may have one.
                Err(_) if peek.tier.is_none() && rule.is_by_tier => Err(rule.describe_tiers(self)),
                cap => cap,
            };
            match values.and_then(|values| Ok((values, cap()?))) {
                Ok(_) if peek.rules.len() >= Claim::MAX_CHARGES => {
                    peek.left_out.push((rule, format!("more than {} limits are not looked at", Claim::MAX_CHARGES)));
                }
                Ok((values, cap)) => peek.add(rule, cap, values, row, tenant.as_ref()),
                Err(why) => peek.left_out.push((rule, why)),
            }
        }
        Ok(peek)
    }
}

/// The part of a cap that is counted.
struct CountedLimit<'a> {
    limit: &'a tollgate_core::Limit,
    scope: &'a tollgate_core::Scope,
    by: ResolvedBy,
}

impl<'a> Peek<'a> {
    fn add(
        &mut self,
        rule: &'a Rule,
        CountedLimit { limit, scope, by }: CountedLimit<'a>,
        values: SmallVec<[Value<'a>; 2]>,
        row: usize,
        tenant: Option<&Tenant<'_>>,
    ) {
        let key = Key::new(scope, values);
        let mode: Mode = rule.mode_for(&key);
        let key = rule.in_its_region(key, tenant);
        let (on_failure, shortcuts) = (rule.tiers[row].on_failure, rule.shortcuts(limit));
        self.claim.charges.push(Charge { key, limit, ask: Ask::Exactly, units: 0, mode, on_failure, shortcuts });
        self.rules.push((rule, by));
    }
}

impl TierOrigin {
    /// `quota`, `request`, `default`.
    pub fn name(self) -> &'static str {
        match self {
            TierOrigin::Quota => "quota",
            TierOrigin::Request => "request",
            TierOrigin::Default => "default",
        }
    }
}

impl Rule {
    /// Why the caller's limit is not known without the tier, with the limit of each.
    pub fn describe_tiers(&self, domain: &Domain) -> String {
        let limits = domain.tiers.iter().enumerate().filter_map(|(tier, named)| {
            let limit = self.whole_limit(u16::try_from(tier).ok()?)?;
            Some(format!("{} {}", named.name, limit.quota()))
        });
        let limits: Vec<String> = limits.collect();
        let attribute = domain.tier_attribute().unwrap_or_default();
        format!(
            "its limit depends on the tier, which requests name in `{attribute}` and which has not been seen: {}",
            limits.join(", ")
        )
    }

    /// The attributes that identify its counters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let path = self.path.iter().map(|(key, _)| &**key);
        self.key_names.iter().map(|name| &**name).chain(path)
    }

    /// The values of a rule of the list, or why there are none.
    fn listed_values<'a>(
        &'a self,
        attributes: &Attributes<'_, 'a>,
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
    fn tree_values<'a>(
        &self,
        path: Option<&'a [(&'a str, &'a str)]>,
        domain: &'a Domain,
        known: &[(&str, &str)],
    ) -> Result<SmallVec<[Value<'a>; 2]>, String> {
        let Some(path) = path else {
            let missing = self.path.iter().find(|(key, _)| known.iter().all(|(name, _)| name != key));
            return Err(unknown(missing.map_or("", |(key, _)| key)));
        };
        let walk = domain.tree.walk(path);
        let own = |met: &crate::tree::TreeMatch<'_>| {
            domain.rules.get(met.limit.rule as usize).is_some_and(|rule| std::ptr::eq(rule, self))
        };
        let met = domain.tree.met(&walk, path).find(own);
        met.map(|met| met.values).ok_or_else(|| "it is for other values".to_owned())
    }

    fn cap_of<'a>(
        &'a self,
        (tier, row): (usize, usize),
        domain: &Domain,
        tenant: Option<&Tenant<'_>>,
        arena: &'a LimitArena,
    ) -> Result<CountedLimit<'a>, String> {
        let (cap, by) = match self.cap_under(row, tenant, arena) {
            Some((cap, by)) => (Some(cap), by),
            None => (None, ResolvedBy::Default),
        };
        match cap {
            Some(CapRef::Limit { limit, scope, .. }) => Ok(CountedLimit { limit, scope, by }),
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
