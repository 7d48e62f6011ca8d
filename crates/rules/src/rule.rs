//! A compiled rule: its conditions, and its limits by tier. Everything that does not depend on a request is precomputed.

mod limited_by;
mod other_scopes;

use smallvec::SmallVec;
use tollgate_core::key::{Home, PrivateValues};
use tollgate_core::{Algorithm, GlobalTerms, Limit, OnFailure, Scope, Span};

use crate::address::is_address;
use crate::attributes::{Attribute, AttributeNumbers};
use crate::ban::Ban;
use crate::model::{self, Cap, Cost, EndTerms, Headers, HoldCounting, Lease, Policy, RuleMode, SourceLocation, Test};
use crate::pattern::Pattern;
use crate::regions::RegionMode;
use crate::shares::{MovingShares, counting_time};
use crate::tenants::Selector;
use limited_by::LimitedBy;
use other_scopes::OtherScopes;

pub(crate) use other_scopes::same_states;

/// The attribute with the method and the path of a request.
pub(crate) const ENDPOINT: &str = "endpoint";

/// A compiled rule.
#[derive(Debug)]
pub struct Rule {
    pub(crate) number: usize,
    pub(crate) name: Box<str>,
    pub(crate) key: SmallVec<[CompiledKeyPart; 2]>,
    /// The attributes of `key`, for display.
    pub(crate) key_names: Box<[Box<str>]>,
    /// Whether it has a condition on the endpoint.
    pub(crate) is_for_endpoint: bool,
    pub(crate) clauses: Vec<(Attribute, Test)>,
    pub(crate) cost: CompiledCost,
    pub(crate) mode: RuleMode,
    pub(crate) policy: Policy,
    pub(crate) headers: Headers,
    pub(crate) denied_by_label: Option<Box<str>>,
    /// Whether the name comes from a file. In a tree it may be derived from the path.
    pub(crate) named: bool,
    pub(crate) metadata: Box<[(String, String)]>,
    pub(crate) ipv6_prefix: u8,
    pub(crate) ending: EndTerms,
    pub(crate) count: HoldCounting,
    pub(crate) lease: Lease,
    pub(crate) ahead: Option<u16>,
    pub(crate) region: RegionMode,
    /// The terms of each tier, and after them those of each value that has its own: see [`Rule::row`].
    pub(crate) tiers: SmallVec<[TierTerms; 4]>,
    pub(crate) limited_by: Option<Box<LimitedBy>>,
    pub(crate) shed: bool,
    pub(crate) ban: Option<Box<Ban>>,
    /// Inline, so that a matching rule needs few memory accesses.
    pub(crate) caps: SmallVec<[CompiledCap; 1]>,
    /// Whether the tiers have different caps.
    pub(crate) is_by_tier: bool,
    /// The selectors by which overrides refer to it.
    pub(crate) selectors: SmallVec<[Selector; 2]>,
    /// The scopes of its counters under overrides.
    pub(crate) others: OtherScopes,
    /// The clause by which the index finds the rule. It holds for every request for which the rule is found.
    pub(crate) pivot: Option<usize>,
    /// The entries of its path, for a rule of the tree.
    pub(crate) path: Vec<(String, Option<Pattern>)>,
    pub(crate) location: SourceLocation,
    pub(crate) version: Option<u64>,
}

/// A part of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompiledKeyPart {
    pub(crate) attribute: Attribute,
    pub(crate) optional: bool,
    /// The values are addresses.
    pub(crate) address: bool,
}

/// The terms of a rule for one tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierTerms {
    /// The index of the cap. `None` if the rule does not apply.
    pub(crate) cap: Option<u16>,
    pub(crate) on_failure: OnFailure,
}

/// What identifies the counters of a rule, besides algorithm and period.
pub(crate) struct CounterScope<'s> {
    pub(crate) domain: &'s str,
    /// Identifies the rule.
    pub(crate) path: &'s str,
    pub(crate) home: Home,
    pub(crate) private: PrivateValues,
    /// If their units are debited in other regions: on which terms.
    pub(crate) global: Option<GlobalTerms>,
    /// Whether each is in one region, which the others call.
    pub(crate) is_owned: bool,
}

/// The cap of a tier, with the scope of its counters.
#[derive(Debug)]
pub(crate) enum CompiledCap {
    Unlimited,
    Limit {
        /// The limit that is counted here: with `region: split`, the share of this region.
        limit: Limit,
        scope: Scope,
        /// The limit of all regions together, where it is another one.
        whole: Option<Box<Limit>>,
    },
}

/// The cost of a request, with attributes by number.
#[derive(Debug)]
pub(crate) enum CompiledCost {
    Request,
    Fixed(u64),
    Attribute(Attribute),
    Table { attribute: Attribute, cases: Vec<(Pattern, u64)>, default: Option<u64> },
}

impl Rule {
    /// The index among all rules of the ruleset, domain by domain. Data for each rule can be indexed by it.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The name in headers, metrics and logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its purpose.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// How it is enforced.
    pub fn mode(&self) -> RuleMode {
        self.mode
    }

    /// Whether it protects the service: its refusals are 503, without the numbers of any limit.
    pub fn sheds(&self) -> bool {
        self.shed
    }

    /// When those whose requests it refuses are banned.
    pub fn ban(&self) -> Option<&Ban> {
        self.ban.as_deref()
    }

    /// Whether each server counts its concurrent requests by itself, and admits against the sum of what all publish.
    pub fn is_summed(&self) -> bool {
        self.count == HoldCounting::Summed
    }

    /// How much of it clients see.
    pub fn headers(&self) -> Headers {
        self.headers
    }

    /// Its name in refusals.
    pub fn label(&self) -> &str {
        self.denied_by_label.as_deref().unwrap_or(&self.name)
    }

    /// Its label, if the file has one.
    pub fn given_label(&self) -> Option<&str> {
        self.denied_by_label.as_deref()
    }

    /// Its name, if it comes from the file.
    pub fn given_name(&self) -> Option<&str> {
        self.named.then_some(&self.name)
    }

    /// Sent to the gateway with the answer: names and texts, nested values as JSON text.
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// Where it was declared.
    pub fn location(&self) -> &SourceLocation {
        &self.location
    }

    /// The version of the rule. `None` for rules of files.
    pub fn version(&self) -> Option<u64> {
        self.version
    }

    /// Compiles a rule of the list.
    pub(crate) fn compile(rule: &model::Rule, domain: &model::Domain, names: &mut AttributeNumbers) -> Rule {
        let entity = domain.entity.as_deref();
        let home = match rule.key.iter().position(|part| Some(part.attribute.as_str()) == entity && !part.optional) {
            Some(index) => Home::Caller(index),
            None => Home::Own,
        };
        let private = rule.key.iter().map(|part| domain.private.contains(&part.attribute)).collect();
        let (global, is_owned) = (rule.terms.region.global(), rule.terms.region.is_home());
        let counters = CounterScope { domain: &domain.name, path: &rule.name, home, private, global, is_owned };
        let mut compiled = Rule::with_terms(&rule.name, &counters, &rule.terms, rule.at.clone());
        compiled.version = rule.version;
        compiled.ban = Ban::compile(rule, domain, names).map(Box::new);
        compiled.key = rule
            .key
            .iter()
            .map(|part| CompiledKeyPart {
                attribute: names.number(&part.attribute),
                optional: part.optional,
                address: rule.terms.ipv6_prefix_given || is_address(&part.attribute),
            })
            .collect();
        compiled.key_names = rule.key.iter().map(|part| part.attribute.as_str().into()).collect();
        compiled.is_for_endpoint = rule.clauses.iter().any(|clause| clause.attribute == ENDPOINT);
        compiled.clauses =
            rule.clauses.iter().map(|clause| (names.number(&clause.attribute), clause.test.clone())).collect();
        let by_value = rule.terms.by_value.as_ref();
        compiled.limited_by = by_value.map(|caps| Box::new(LimitedBy::new(caps, names.number(&caps.attribute))));
        compiled.cost = match &rule.cost {
            Cost::Request => CompiledCost::Request,
            Cost::Fixed(cost) => CompiledCost::Fixed(*cost),
            Cost::Attribute(name) => CompiledCost::Attribute(names.number(name)),
            Cost::Table { attribute, cases, default } => {
                CompiledCost::Table { attribute: names.number(attribute), cases: cases.clone(), default: *default }
            }
        };
        compiled
    }

    /// A rule with the terms that both forms share. `name` is for display.
    pub(crate) fn with_terms(
        name: &str,
        counters: &CounterScope<'_>,
        terms: &model::Terms,
        location: SourceLocation,
    ) -> Rule {
        let mut known: Vec<&Cap> = Vec::new();
        let mut tiers: SmallVec<[TierTerms; 4]> = SmallVec::new();
        let by_tier = terms.caps.iter().map(Option::as_ref).zip(&terms.on_failure);
        let values = terms.by_value.iter().flat_map(|caps| &caps.cases);
        let by_value =
            values.flat_map(|(_, cap)| terms.on_failure.iter().map(move |on_failure| (Some(cap), on_failure)));
        for (cap, on_failure) in by_tier.chain(by_value) {
            let cap = cap.map(|cap| {
                known.iter().position(|known| *known == cap).unwrap_or_else(|| {
                    known.push(cap);
                    known.len() - 1
                }) as u16
            });
            tiers.push(TierTerms { cap, on_failure: *on_failure });
        }
        Rule {
            // Set when all domains are compiled.
            number: 0,
            name: name.into(),
            key: SmallVec::new(),
            key_names: Box::default(),
            is_for_endpoint: false,
            clauses: Vec::new(),
            cost: CompiledCost::Request,
            mode: terms.mode,
            policy: terms.policy,
            headers: terms.headers,
            denied_by_label: terms.denied_by_label.as_deref().map(Into::into),
            named: true,
            metadata: Box::default(),
            ipv6_prefix: terms.ipv6_prefix,
            ending: terms.ending,
            count: terms.count,
            lease: terms.lease,
            ahead: terms.ahead,
            region: terms.region.clone(),
            caps: known.into_iter().map(|cap| CompiledCap::new(cap, counters, &terms.region)).collect(),
            is_by_tier: terms.by_value.is_none() && tiers.iter().any(|terms| terms.cap != tiers[0].cap),
            tiers,
            limited_by: None,
            shed: terms.shed,
            ban: None,
            selectors: SmallVec::new(),
            others: OtherScopes::default(),
            pivot: None,
            path: Vec::new(),
            location,
            version: None,
        }
    }

    /// What happens to its units when a request has ended.
    pub fn ending(&self) -> EndTerms {
        self.ending
    }

    /// Whether an admitted request has something to settle under this limit.
    pub fn needs_receipt(&self, limit: &Limit) -> bool {
        self.ending.settle || self.ending.refund || limit.algorithm() == Algorithm::Concurrency
    }

    /// What its limits mean in several regions.
    pub fn region(&self) -> &RegionMode {
        &self.region
    }

    /// The limit of a tier, or of another [row](Self::rows) of its terms, in all regions together. `None` if the rule does
    /// not apply to it or does not limit it.
    pub fn whole_limit(&self, row: u16) -> Option<&Limit> {
        match self.cap(usize::from(row))? {
            CompiledCap::Limit { whole: Some(whole), .. } => Some(whole),
            CompiledCap::Limit { limit, .. } => Some(limit),
            CompiledCap::Unlimited => None,
        }
    }

    /// How long nothing more is given to a region after something was, if its shares follow demand.
    pub fn share_pace(&self) -> Span {
        MovingShares::pace(self.whole_limits())
    }

    /// The longest time for which a counter of its own limits counts a unit.
    pub(crate) fn counting_time(&self) -> Span {
        self.whole_limits().map(counting_time).max().unwrap_or_default()
    }

    fn whole_limits(&self) -> impl Iterator<Item = &Limit> {
        self.caps.iter().filter_map(|cap| match cap {
            CompiledCap::Limit { limit, whole, .. } => Some(whole.as_deref().unwrap_or(limit)),
            CompiledCap::Unlimited => None,
        })
    }

    /// The limit of a tier, or of another [row](Self::rows) of its terms, in this region. `None` if the rule does not apply
    /// to it or does not limit it.
    pub fn limit(&self, row: u16) -> Option<&Limit> {
        match self.cap(usize::from(row))? {
            CompiledCap::Limit { limit, .. } => Some(limit),
            CompiledCap::Unlimited => None,
        }
    }

    /// Whether the rule applies to a tier, or to another row of its terms, without limiting it.
    pub fn is_unlimited(&self, row: u16) -> bool {
        matches!(self.cap(usize::from(row)), Some(CompiledCap::Unlimited))
    }

    /// Whether the tiers have different caps.
    pub fn is_by_tier(&self) -> bool {
        self.is_by_tier
    }

    /// The cap of a row of its terms.
    pub(crate) fn cap(&self, row: usize) -> Option<&CompiledCap> {
        self.caps.get(usize::from(self.tiers.get(row)?.cap?))
    }

    /// Whether it limits concurrent requests of some tier.
    pub fn is_concurrency(&self) -> bool {
        self.caps.iter().any(CompiledCap::is_concurrency)
    }
}

impl CounterScope<'_> {
    fn scope(&self, limit: &Limit) -> Scope {
        let scope = Scope::new(self.domain, self.path, limit.algorithm(), limit.period(), self.home);
        scope.with_private(self.private).with_global(self.global).with_owner(self.is_owned)
    }
}

impl CompiledCap {
    pub(crate) fn is_concurrency(&self) -> bool {
        matches!(self, CompiledCap::Limit { limit, .. } if limit.algorithm() == Algorithm::Concurrency)
    }

    fn new(cap: &Cap, counters: &CounterScope<'_>, region: &RegionMode) -> CompiledCap {
        match (cap, region.share()) {
            (Cap::Unlimited, _) => CompiledCap::Unlimited,
            (Cap::Limit(whole), None) => {
                CompiledCap::Limit { scope: counters.scope(whole), limit: whole.clone(), whole: None }
            }
            (Cap::Limit(whole), Some(share)) => CompiledCap::Limit {
                scope: counters.scope(whole),
                limit: share.of(whole),
                whole: Some(Box::new(whole.clone())),
            },
        }
    }
}
