//! Rules, compiled: everything that can be worked out before a request comes has been.

use std::any::Any;
use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

use smallvec::SmallVec;
use tollgate_core::key::Home;
use tollgate_core::{Algorithm, Limit, OnFailure, Period, Scope, Span};

use crate::address::{ADDRESSES, is_address};
use crate::index::ByText;
use crate::layer::Layer;
use crate::load::{Files, LoadOptions, Loaded, Source, load_sources};
use crate::lookup::{self, Index};
use crate::model::{self, Cap, Cost, EndTerms, Headers, Place, Policy, RuleMode, Test, Tier};
use crate::once::OnceScopes;
use crate::pattern::Pattern;
use crate::problem::Problem;
use crate::requested::Requested;
use crate::resolve::{Applied, AppliedTerms};
use crate::tenants::{OtherScopes, Selector, name_digest};
use crate::tree::Tree;

/// All rules in force: immutable, swapped whole.
#[derive(Debug)]
pub struct Ruleset {
    generation: u64,
    domains: Vec<Domain>,
    by_name: ByText<usize>,
    /// Where each scope of counters was compiled, by its digest: what a receipt names.
    by_scope: HashMap<u64, ScopeAt>,
    /// What somebody keeps beside it.
    beside: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// Where a scope of counters was compiled.
#[derive(Clone, Copy, Debug)]
struct ScopeAt {
    domain: u32,
    rule: u32,
}

/// The compiled rules of one domain.
#[derive(Debug)]
pub struct Domain {
    pub(crate) name: Box<str>,
    pub(crate) entity: Option<Box<str>>,
    /// The same, by its number: by its value callers are known.
    pub(crate) caller: Option<Attribute>,
    /// The attributes that carry addresses.
    pub(crate) addresses: SmallVec<[Attribute; 8]>,
    /// Digests of its name and of those of its tiers.
    pub(crate) digest: u64,
    pub(crate) tier_digests: SmallVec<[u64; 4]>,
    pub(crate) tiers: Vec<Tier>,
    pub(crate) default_tier: usize,
    pub(crate) tier_from: Option<Attribute>,
    /// The place of the rule that `default_rule` names.
    pub(crate) default_rule: Option<usize>,
    pub(crate) attributes: ByText<Attribute>,
    /// The rules of the list, and after them those of the tree.
    pub(crate) rules: Vec<Rule>,
    pub(crate) index: Index,
    pub(crate) tree: Tree,
    pub(crate) requested: Requested,
    pub(crate) once: OnceScopes,
}

/// An attribute that some rule of the domain speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Attribute(pub(crate) u32);

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

impl Ruleset {
    /// The most rules of a domain that only a look at each of them can tell apart: globs with `*` not at the end, `not`, `cidr`.
    pub const MOST_SCANNED: usize = 256;
    /// The most rules of a domain.
    pub const MOST_RULES: usize = 100_000;

    /// Compiles domains into a ruleset with this generation.
    pub fn compile(domains: Vec<model::Domain>, generation: u64) -> Result<Ruleset, Vec<Problem>> {
        let mut errors = Vec::new();
        let mut domains: Vec<Domain> = domains.into_iter().map(|domain| Domain::compile(domain, &mut errors)).collect();
        let written: usize = domains.iter().map(|domain| domain.rules.len()).sum();
        for (number, rule) in domains.iter_mut().flat_map(|domain| &mut domain.rules).enumerate() {
            rule.number = number;
        }
        for (number, domain) in domains.iter_mut().enumerate() {
            domain.requested.rule.number = written + number;
        }
        let by_name = domains.iter().enumerate().map(|(number, domain)| (domain.name.clone(), number)).collect();
        let by_scope = by_scope(&domains);
        if errors.is_empty() {
            Ok(Ruleset { generation, domains, by_name, by_scope, beside: OnceLock::new() })
        } else {
            Err(errors)
        }
    }

    /// Loads rule files and directories and compiles them; with the warnings.
    ///
    /// # Errors
    /// All problems of all files, if one of them is an error.
    pub fn load<P: AsRef<Path>>(
        paths: &[P],
        options: &LoadOptions,
        generation: u64,
    ) -> Result<(Ruleset, Vec<Problem>), Vec<Problem>> {
        Ruleset::load_under(Files::read(paths, options), options, &Layer::default(), generation)
    }

    /// The same for rules that are at hand, as those that are built into a program.
    ///
    /// # Errors
    /// All problems, if one of them is an error.
    pub fn from_text(text: &str, generation: u64) -> Result<(Ruleset, Vec<Problem>), Vec<Problem>> {
        let source = Source { name: "the rules".to_owned(), text: text.to_owned() };
        let Loaded { domains, warnings } = load_sources(&[source], &LoadOptions::default())?;
        Ok((Ruleset::compile(domains, generation)?, warnings))
    }

    /// Which of the rulesets that were in force this one is.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What somebody keeps beside these rules for as long as they live, made when it is first asked for: what is counted for each
    /// of them is found by a rule's place, and not by its name. There is one such thing: `None` for whoever asks for another type.
    pub fn beside<T: Any + Send + Sync>(&self, make: impl FnOnce(&Ruleset) -> T) -> Option<&T> {
        self.beside.get_or_init(|| Box::new(make(self))).downcast_ref()
    }

    /// The place in [`domains`](Self::domains) of a request's domain: the one that it names, or the only one.
    pub fn domain_number(&self, name: Option<&str>) -> Option<usize> {
        match name {
            Some(name) => self.by_name.get(name).copied(),
            None if self.domains.len() == 1 => Some(0),
            None => None,
        }
    }

    /// The longest period of its limits.
    pub fn longest_period(&self) -> Span {
        let rules = self.domains.iter().flat_map(|domain| &domain.rules);
        let periods = rules.flat_map(|rule| &rule.caps).filter_map(|cap| match cap {
            CompiledCap::Limit { limit, .. } => Some(limit.period().span()),
            CompiledCap::Unlimited => None,
        });
        periods.max().unwrap_or_default()
    }

    /// All domains.
    pub fn domains(&self) -> &[Domain] {
        &self.domains
    }

    /// Makes the scopes for a period that overrides may ask for.
    pub(crate) fn prepare(&self, period: &Period) {
        self.domains.iter().flat_map(|domain| &domain.rules).for_each(|rule| rule.prepare(period));
    }

    /// The counters that a receipt names by the digest of their scope, if there still are such, with a limit of this amount: what
    /// they were held to then, whatever tiers and overrides say now.
    pub fn counters(&self, scope: u64, amount: u64) -> Option<Counters<'_>> {
        let Some(at) = self.by_scope.get(&scope) else { return self.counters_apart(scope, amount) };
        let domain = self.domains.get(at.domain as usize)?;
        let rule = domain.rules.get(at.rule as usize)?;
        let mut found = None;
        for terms in &rule.tiers {
            let cap = terms.cap.and_then(|cap| rule.caps.get(usize::from(cap)));
            if let Some(CompiledCap::Limit { limit, scope: own }) = cap
                && own.short() == scope
                && (found.is_none() || limit.amount() == amount)
            {
                found = Some(Counters { domain, rule, limit: limit.clone(), scope: own, on_failure: terms.on_failure });
            }
        }
        // Of an override's amount.
        found.map(|found| match found.limit.amount() {
            same if same == amount => found,
            _ => Counters { limit: found.limit.with_amount(amount), ..found },
        })
    }

    /// The same for counters under overrides of another period than the rule's.
    fn counters_apart(&self, scope: u64, amount: u64) -> Option<Counters<'_>> {
        let mut rules = self.domains.iter().flat_map(|domain| domain.rules.iter().map(move |rule| (domain, rule)));
        rules.find_map(|(domain, rule)| {
            let (limit, scope) = rule.others.find(scope, amount)?;
            Some(Counters { domain, rule, limit, scope, on_failure: rule.tiers.first()?.on_failure })
        })
    }
}

/// The counters of a rule.
#[derive(Clone, Debug)]
pub struct Counters<'r> {
    /// Their domain.
    pub domain: &'r Domain,
    /// Their rule.
    pub rule: &'r Rule,
    /// What they are held to.
    pub limit: Limit,
    /// What their keys have in common.
    pub scope: &'r Scope,
    /// What charges on them become when the store fails.
    pub on_failure: OnFailure,
}

fn by_scope(domains: &[Domain]) -> HashMap<u64, ScopeAt> {
    let mut by_scope = HashMap::new();
    for (number, domain) in domains.iter().enumerate() {
        for (place, rule) in domain.rules.iter().enumerate() {
            for cap in &rule.caps {
                if let CompiledCap::Limit { scope, .. } = cap {
                    by_scope.insert(scope.short(), ScopeAt { domain: number as u32, rule: place as u32 });
                }
            }
        }
    }
    by_scope
}

impl Domain {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The attribute that names a caller.
    pub fn entity(&self) -> Option<&str> {
        self.entity.as_deref()
    }

    /// Its rules: those of the list, then those of the tree.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule behind a limit that applies; for one that came with the request, what stands for it.
    pub fn rule(&self, applied: &Applied) -> Option<&Rule> {
        match applied.terms {
            AppliedTerms::Tier(_) | AppliedTerms::Override(_) => self.rules.get(applied.rule as usize),
            AppliedTerms::Requested(_) => Some(&self.requested.rule),
        }
    }

    /// The place in [`tiers`](Self::tiers) of the one that callers have who have none.
    pub fn default_tier(&self) -> usize {
        self.default_tier
    }

    /// Its tiers.
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    fn compile(domain: model::Domain, errors: &mut Vec<Problem>) -> Domain {
        let mut names = AttributeNumbers::default();
        let entity = domain.entity.as_deref();
        let mut rules: Vec<Rule> =
            domain.rules.iter().map(|rule| Rule::listed(rule, &domain.name, entity, &mut names)).collect();
        let listed = rules.len();
        let tree = Tree::compile(&domain, &mut rules);
        let index = Index::new(&mut rules[..listed], &domain.at, errors);
        lookup::check_scanned(globs(&domain.tree), &domain.at, errors);
        if rules.len() > Ruleset::MOST_RULES {
            let message = format!("domain {} has {} rules", domain.name, rules.len());
            let remedy = format!("split it into several domains of at most {} rules each", Ruleset::MOST_RULES);
            errors.push(Problem::error(&domain.at, message, remedy));
        }
        let tier_from = domain.tier_from.as_deref().map(|name| names.number(name));
        let caller = entity.map(|name| names.number(name));
        let addresses = ADDRESSES.iter().map(|name| names.number(name)).collect();
        let named = |name: &str| rules.iter().position(|rule| &*rule.name == name);
        let default_rule = domain.default_rule.as_deref().and_then(named);
        let requested = Requested::new(&domain);
        let once = OnceScopes::new(&domain.name);
        let mut domain = Domain {
            digest: name_digest(&domain.name),
            tier_digests: domain.tiers.iter().map(|tier| name_digest(&tier.name)).collect(),
            name: domain.name.into(),
            entity: domain.entity.map(Into::into),
            caller,
            addresses,
            tiers: domain.tiers,
            default_tier: domain.default_tier,
            tier_from,
            default_rule,
            attributes: names.numbers,
            rules,
            index,
            tree,
            requested,
            once,
        };
        domain.name_rules();
        domain
    }
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

    fn listed(rule: &model::Rule, domain: &str, entity: Option<&str>, names: &mut AttributeNumbers) -> Rule {
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

/// How many nodes of a tree only a look at each can find.
fn globs(nodes: &[model::Node]) -> usize {
    nodes.iter().map(|node| usize::from(matches!(node.value, Some(Pattern::Glob(_)))) + globs(&node.children)).sum()
}

/// Numbers for the attributes that rules speak of.
#[derive(Debug, Default)]
pub(crate) struct AttributeNumbers {
    numbers: ByText<Attribute>,
}

impl AttributeNumbers {
    pub(crate) fn number(&mut self, name: &str) -> Attribute {
        let next = Attribute(self.numbers.len() as u32);
        *self.numbers.entry(name.into()).or_insert(next)
    }
}
