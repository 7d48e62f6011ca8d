//! Explains why each rule applies to a request, or why not. Slow; for display.

use std::fmt::Write as _;

use tollgate_core::{ClaimId, Descriptor, Request};

use crate::applies::Miss;
use crate::attributes::{Attributes, Outline, attribute_places};
use crate::error::RequestError;
use crate::model::{RuleMode, Test};
use crate::pattern::Pattern;
use crate::resolve::{ResolvedRequest, TenantContext};
use crate::rule::{CompiledCost, Rule};
use crate::ruleset::{Domain, Ruleset};
use crate::tenants::{Tenant, TenantLookup};
use crate::tree::CompiledNodeLimit;

/// Whether a rule applies to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleMatch {
    /// It applies and limits.
    Applies,
    /// It applies without a limit.
    Unlimited,
    /// It does not apply, for this reason.
    Misses(String),
}

impl Ruleset {
    /// The result for every rule of the request's domain, in order.
    pub fn explain(&self, request: &Request<'_>) -> Result<Vec<RuleMatch>, RequestError> {
        self.explain_resolved(request, &self.resolve(request, ClaimId::default())?, None)
    }

    /// The same for a request that was already resolved.
    pub fn explain_resolved(
        &self,
        request: &Request<'_>,
        resolved: &ResolvedRequest<'_>,
        context: Option<&TenantContext<'_, '_>>,
    ) -> Result<Vec<RuleMatch>, RequestError> {
        let domain = resolved.domain;
        let outline = Outline::of(request)?;
        let places = attribute_places(request, &domain.attributes);
        let attributes = Attributes::new(request, &outline, &places);
        let tenant = context.and_then(|context| {
            let lookup = TenantLookup::new(context.tenants, domain.digest, domain.caller(&attributes));
            Tenant::find(context.tenants, &lookup, context.now)
        });
        let tier = domain.tier(&attributes, tenant.as_ref());
        let explain = |(number, rule): (usize, &Rule)| {
            if resolved.applied.iter().any(|applied| applied.rule == Some(number as u32)) {
                RuleMatch::Applies
            } else if resolved.unlimited.iter().any(|applied| applied.rule == Some(number as u32)) {
                RuleMatch::Unlimited
            } else if rule.mode == RuleMode::Off {
                RuleMatch::Misses("it is switched off".to_owned())
            } else if !rule.path.is_empty() {
                let replaced = domain.replaced_by(number, request.descriptors);
                RuleMatch::Misses(replaced.unwrap_or_else(|| rule.why_not_in_tree(domain, request.descriptors)))
            } else {
                RuleMatch::Misses(rule.why_not(&attributes, domain, tier))
            }
        };
        Ok(domain.rules.iter().enumerate().map(explain).collect())
    }
}

impl Domain {
    /// The limit that replaces a matching limit of the tree in this request.
    fn replaced_by(&self, number: usize, descriptors: &[Descriptor<'_>]) -> Option<String> {
        let walks: Vec<_> =
            descriptors.iter().map(|descriptor| (self.tree.walk(descriptor.entries), descriptor)).collect();
        let met =
            || walks.iter().flat_map(|(walk, descriptor)| self.tree.met(walk, descriptor.entries)).map(|met| met.limit);
        let name = met().find(|limit| limit.rule as usize == number)?.name.as_ref()?;
        let rule = |limit: &CompiledNodeLimit| &self.rules[limit.rule as usize];
        let other = met().find(|limit| limit.replaces.contains(name) && rule(limit).mode != RuleMode::Off)?;
        Some(format!("{} takes its place", rule(other).name()))
    }
}

impl Rule {
    fn why_not(&self, attributes: &Attributes<'_, '_>, domain: &Domain, tier: usize) -> String {
        match self.misses(attributes, None) {
            Some(Miss::Key(attribute)) => {
                format!("its key needs `{}`, which the request does not have", domain.attribute_name(attribute))
            }
            Some(Miss::Clause(attribute, test)) => {
                let name = domain.attribute_name(attribute);
                match attributes.get(attribute) {
                    Some(value) => format!("`{name}` is {value:?}, and {}", must(test)),
                    None => format!("the request has no `{name}`, and {}", must(test)),
                }
            }
            None if self.cap(self.row(tier, attributes)).is_none() => {
                format!("it has no limit for tier {}", domain.tiers[tier].name)
            }
            None => self.why_no_cost(attributes, domain),
        }
    }

    fn why_no_cost(&self, attributes: &Attributes<'_, '_>, domain: &Domain) -> String {
        let (CompiledCost::Attribute(attribute) | CompiledCost::Table { attribute, .. }) = &self.cost else {
            return "its cost is not known".to_owned();
        };
        let name = domain.attribute_name(*attribute);
        match attributes.get(*attribute) {
            Some(value) => format!("`{name}` is {value:?}, for which its cost has no case"),
            None => format!("its cost is in `{name}`, which the request does not have"),
        }
    }

    /// The reason of the descriptor that matches furthest.
    fn why_not_in_tree(&self, domain: &Domain, descriptors: &[Descriptor<'_>]) -> String {
        // Among equals, one whose next entry has the right key, and the first one.
        let nearest = descriptors.iter().enumerate().rev().max_by_key(|(_, descriptor)| {
            let depth = self.depth(descriptor);
            let key = |entries: Option<&(&str, &str)>| entries.map(|(key, _)| (*key).to_owned());
            (depth, key(descriptor.entries.get(depth)) == self.path.get(depth).map(|(key, _)| key.clone()))
        });
        let Some((number, nearest)) = nearest else { return "the request has no descriptors".to_owned() };
        let depth = self.depth(nearest);
        let mut why = String::new();
        // Writing to a String cannot fail.
        let _ = match (self.path.get(depth), nearest.entries.get(depth)) {
            (Some((key, pattern)), Some((has, value))) => {
                let expected = pattern.as_ref().map_or_else(|| key.clone(), |pattern| format!("{key}={pattern}"));
                write!(
                    why,
                    "entry {} of descriptor {} is {has}={value}, and it must be {expected}",
                    depth + 1,
                    number + 1
                )
            }
            (Some((key, _)), None) => {
                write!(why, "descriptor {} ends after entry {depth}, and `{key}` must follow", number + 1)
            }
            (None, Some((has, value))) if !domain.tree.matches_parents() => {
                write!(why, "descriptor {} goes on with {has}={value}, deeper than this limit", number + 1)
            }
            (None, _) => write!(why, "a more specific value or an earlier wildcard takes descriptor {}", number + 1),
        };
        why
    }

    /// The number of entries of a descriptor that follow the rule's path.
    fn depth(&self, descriptor: &Descriptor<'_>) -> usize {
        let follows = |((key, pattern), (has, value)): &(&(String, Option<Pattern>), &(&str, &str))| {
            key == has && pattern.as_ref().is_none_or(|pattern| pattern.matches(value))
        };
        self.path.iter().zip(descriptor.entries).take_while(follows).count()
    }
}

/// A condition as the end of a sentence.
fn must(test: &Test) -> String {
    match test {
        Test::Present => "it must be there".to_owned(),
        Test::Absent => "it must be absent".to_owned(),
        Test::AnyOf(patterns) => {
            format!("it must be {}", listed(patterns.iter().map(|pattern| format!("{:?}", pattern.to_string()))))
        }
        Test::Within(networks) => {
            format!("it must be in {}", listed(networks.iter().map(|it| format!("{}/{}", it.address, it.prefix))))
        }
        Test::Not(test) => must(test).replacen("must be", "must not be", 1),
    }
}

/// A few of many items.
fn listed(items: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 5;
    let more = items.len().saturating_sub(SHOWN);
    let mut text = items.take(SHOWN).collect::<Vec<_>>().join(" or ");
    if more > 0 {
        let _ = write!(text, " or {more} others");
    }
    text
}
