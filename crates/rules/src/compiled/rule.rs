//! One rule, compiled: what it asks of a request, and what it holds each tier to.

use smallvec::SmallVec;
use tollgate_core::key::Home;
use tollgate_core::{Algorithm, Limit, OnFailure, Scope};

use super::{Attribute, AttributeNumbers};
use crate::address::is_address;
use crate::model::{self, Cap, Cost, EndTerms, Headers, Place, Policy, RuleMode, Test};
use crate::pattern::Pattern;
use crate::tenants::{OtherScopes, Selector};

/// A compiled rule.
#[derive(Debug)]
pub struct Rule {
    pub(crate) number: usize,
    pub(crate) name: Box<str>,
    pub(crate) key: SmallVec<[KeyPart; 2]>,
    /// The attributes of `key`, for people.
    pub(crate) key_names: Box<[Box<str>]>,
    pub(crate) clauses: Vec<(Attribute, Test)>,
    pub(crate) cost: CompiledCost,
    pub(crate) mode: RuleMode,
    pub(crate) policy: Policy,
    pub(crate) headers: Headers,
    pub(crate) denied_by_label: Option<Box<str>>,
    /// Whether a file gave the name. In a tree one may come from the way to it.
    pub(crate) named: bool,
    pub(crate) metadata: Box<[(String, String)]>,
    pub(crate) ipv6_prefix: u8,
    pub(crate) ending: EndTerms,
    /// What each tier has.
    pub(crate) tiers: SmallVec<[TierTerms; 4]>,
    /// In line with the rule, so that a rule that applies costs few loads.
    pub(crate) caps: SmallVec<[CompiledCap; 1]>,
    /// Whether it does not hold all tiers to the same.
    pub(crate) is_by_tier: bool,
    /// By which overrides name it.
    pub(crate) names: SmallVec<[Selector; 2]>,
    /// Scopes of its counters under overrides.
    pub(crate) others: OtherScopes,
    /// The clause by which the index finds the rule: it holds for whatever was found.
    pub(crate) pivot: Option<usize>,
    /// The entries that lead to it, where it is one of the tree.
    pub(crate) path: Vec<(String, Option<Pattern>)>,
    pub(crate) place: Place,
    pub(crate) version: Option<u64>,
}

/// A part of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyPart {
    pub(crate) attribute: Attribute,
    pub(crate) optional: bool,
    /// Its values are addresses.
    pub(crate) address: bool,
}

/// What a rule holds one tier to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierTerms {
    /// Which of the rule's caps; `None` where the rule does not apply.
    pub(crate) cap: Option<u16>,
    pub(crate) on_failure: OnFailure,
}

/// What a tier is held to, with the scope of its counters.
#[derive(Debug)]
pub(crate) enum CompiledCap {
    Unlimited,
    Limit { limit: Limit, scope: Scope },
}

/// What a request costs, with attributes by number.
#[derive(Debug)]
pub(crate) enum CompiledCost {
    Request,
    Fixed(u64),
    Attribute(Attribute),
    Table { attribute: Attribute, cases: Vec<(Pattern, u64)>, default: Option<u64> },
}

impl Rule {
    /// Its place among all rules of the ruleset, domain after domain: where what is kept for each rule can be found without
    /// a lookup by name.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Its name in headers, metrics and logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether it refuses.
    pub fn mode(&self) -> RuleMode {
        self.mode
    }

    /// What of it clients are shown.
    pub fn headers(&self) -> Headers {
        self.headers
    }

    /// How it is named to clients that it refuses.
    pub fn label(&self) -> &str {
        self.denied_by_label.as_deref().unwrap_or(&self.name)
    }

    /// The same, where a file gave one.
    pub fn given_label(&self) -> Option<&str> {
        self.denied_by_label.as_deref()
    }

    /// The name, where a file gave one.
    pub fn given_name(&self) -> Option<&str> {
        self.named.then_some(&self.name)
    }

    /// What the gateway is told with the answer: names and texts, nested ones as JSON text.
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// Where it was declared.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Which of its versions this is; rules of files have none.
    pub fn version(&self) -> Option<u64> {
        self.version
    }

    /// A rule of the list.
    pub(super) fn listed(rule: &model::Rule, domain: &str, entity: Option<&str>, names: &mut AttributeNumbers) -> Rule {
        let home = match rule.key.iter().position(|part| Some(part.attribute.as_str()) == entity && !part.optional) {
            Some(place) => Home::Caller(place),
            None => Home::Own,
        };
        let mut compiled = Rule::with_terms(&rule.name, &rule.name, domain, home, &rule.terms, rule.at.clone());
        compiled.version = rule.version;
        compiled.key = rule
            .key
            .iter()
            .map(|part| KeyPart {
                attribute: names.number(&part.attribute),
                optional: part.optional,
                address: rule.terms.ipv6_prefix_given || is_address(&part.attribute),
            })
            .collect();
        compiled.key_names = rule.key.iter().map(|part| part.attribute.as_str().into()).collect();
        compiled.clauses =
            rule.clauses.iter().map(|clause| (names.number(&clause.attribute), clause.test.clone())).collect();
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

    /// A rule with what both forms share. `path` names its counters, `name` the rule to people.
    pub(crate) fn with_terms(
        name: &str,
        path: &str,
        domain: &str,
        home: Home,
        terms: &model::Terms,
        place: Place,
    ) -> Rule {
        let mut known: Vec<&Cap> = Vec::new();
        let mut tiers: SmallVec<[TierTerms; 4]> = SmallVec::new();
        for (cap, on_failure) in terms.caps.iter().zip(&terms.on_failure) {
            let cap = cap.as_ref().map(|cap| {
                known.iter().position(|known| *known == cap).unwrap_or_else(|| {
                    known.push(cap);
                    known.len() - 1
                }) as u16
            });
            tiers.push(TierTerms { cap, on_failure: *on_failure });
        }
        Rule {
            // Given when all domains are compiled.
            number: 0,
            name: name.into(),
            key: SmallVec::new(),
            key_names: Box::default(),
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
            caps: known.into_iter().map(|cap| CompiledCap::new(cap, domain, path, home)).collect(),
            is_by_tier: tiers.iter().any(|terms| terms.cap != tiers[0].cap),
            tiers,
            names: SmallVec::new(),
            others: OtherScopes::default(),
            pivot: None,
            path: Vec::new(),
            place,
            version: None,
        }
    }

    /// Whether only the store itself may say how its counters stand: where what was taken may be given back, a refusal does not
    /// hold until its wait is over.
    pub(crate) fn is_strict(&self) -> bool {
        self.policy == Policy::Quota || self.ending.settle || self.ending.refund
    }

    /// What becomes of what it took when a request has ended.
    pub fn ending(&self) -> EndTerms {
        self.ending
    }

    /// Whether a request that it admitted has something to settle under this limit of it.
    pub fn needs_receipt(&self, limit: &Limit) -> bool {
        self.ending.settle || self.ending.refund || limit.algorithm() == Algorithm::Concurrency
    }

    /// The limit of a tier; `None` where the rule does not apply to it or does not limit it.
    pub fn limit(&self, tier: u16) -> Option<&Limit> {
        match self.cap(usize::from(tier))? {
            CompiledCap::Limit { limit, .. } => Some(limit),
            CompiledCap::Unlimited => None,
        }
    }

    /// Whether the rule applies to a tier and does not limit it.
    pub fn is_unlimited(&self, tier: u16) -> bool {
        matches!(self.cap(usize::from(tier)), Some(CompiledCap::Unlimited))
    }

    /// Whether it does not hold all tiers to the same.
    pub fn is_by_tier(&self) -> bool {
        self.is_by_tier
    }

    /// What a tier is held to.
    pub(crate) fn cap(&self, tier: usize) -> Option<&CompiledCap> {
        self.caps.get(usize::from(self.tiers.get(tier)?.cap?))
    }

    /// Whether it counts requests in flight for some tier.
    pub fn is_concurrency(&self) -> bool {
        self.caps.iter().any(CompiledCap::is_concurrency)
    }
}

impl CompiledCap {
    pub(crate) fn is_concurrency(&self) -> bool {
        matches!(self, CompiledCap::Limit { limit, .. } if limit.algorithm() == Algorithm::Concurrency)
    }

    fn new(cap: &Cap, domain: &str, path: &str, home: Home) -> CompiledCap {
        match cap {
            Cap::Unlimited => CompiledCap::Unlimited,
            Cap::Limit(limit) => CompiledCap::Limit {
                scope: Scope::new(domain, path, limit.algorithm(), limit.period(), home),
                limit: limit.clone(),
            },
        }
    }
}
