//! The compiled rules of all domains, with what a request needs to find those that apply.

mod selection;

use std::any::Any;
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::path::Path;

use smallvec::SmallVec;
use tollgate_core::{Claim, Limit, LimitError, OnFailure, Once, Request, Scope, Span, Value};

use crate::address::ADDRESSES;
use crate::attributes::{Attribute, AttributeNumbers};
use crate::ban::Banned;
use crate::extensions::Extensions;
use crate::index::ByText;
use crate::layer::Layer;
use crate::load::{LoadOptions, LoadedRules, RuleFile, RuleFiles, load_sources};
use crate::lookup::{self, Index};
use crate::model::{self, HoldCounting, NeverBan, RuleMode, Tier};
use crate::once::{CallerDigest, OnceScopes};
use crate::pattern::Pattern;
use crate::plan::PlanTable;
use crate::private::PrivateAttributes;
use crate::problem::RuleProblem;
use crate::regions::KnownRegions;
use crate::requested::RequestLimits;
use crate::rule::{CompiledCap, CompiledCost, Rule, TierTerms};
use crate::signal::{self, Signal, SignalHit};
use crate::tenants::name_digest;
use crate::tree::Tree;

/// All rules in force. Immutable, and replaced as a whole.
#[derive(Debug)]
pub struct Ruleset {
    generation: u64,
    domains: Vec<Domain>,
    by_name: ByText<usize>,
    /// The rule of each counter scope, by its digest. Receipts refer to scopes by digest.
    by_scope: HashMap<u64, ScopeOwner>,
    /// Data that other crates attach to the ruleset.
    extensions: Extensions,
}

/// The rule that a counter scope belongs to.
#[derive(Clone, Copy, Debug)]
struct ScopeOwner {
    domain: u32,
    rule: u32,
}

/// The compiled rules of one domain.
#[derive(Debug)]
pub struct Domain {
    pub(crate) name: Box<str>,
    pub(crate) entity: Option<Box<str>>,
    pub(crate) private: PrivateAttributes,
    /// The number of the entity attribute, whose value identifies callers.
    pub(crate) caller: Option<Attribute>,
    /// The attributes with addresses.
    pub(crate) addresses: SmallVec<[Attribute; 8]>,
    /// Digests of its name and of the names of its tiers.
    pub(crate) digest: NonZeroU64,
    pub(crate) tier_digests: SmallVec<[NonZeroU64; 4]>,
    pub(crate) tiers: Vec<Tier>,
    pub(crate) default_tier: usize,
    pub(crate) tier_from: Option<Attribute>,
    pub(crate) tier_from_name: Option<Box<str>>,
    /// The index of the rule that `default_rule` names.
    pub(crate) default_rule: Option<usize>,
    pub(crate) attributes: AttributeNumbers,
    /// The rules of the list, followed by those of the tree.
    pub(crate) rules: Vec<Rule>,
    pub(crate) index: Index,
    pub(crate) plans: PlanTable,
    pub(crate) tree: Tree,
    pub(crate) requested: RequestLimits,
    pub(crate) once: OnceScopes,
    pub(crate) regions: KnownRegions,
    pub(crate) signals: Vec<Signal>,
    pub(crate) never_ban: NeverBan,
    /// Whether a rule or a signal bans.
    pub(crate) bans: bool,
}

const _: () = assert!(Ruleset::MAX_RULES < lookup::MAX_INDEXED);

impl Ruleset {
    /// The maximum number of rules of a domain that must be tried one by one: globs with `*` not at the end, `not`,
    /// `cidr`.
    pub const MAX_SCANNED: usize = lookup::MAX_SCANNED;
    /// The maximum number of counters of all rules that each server counts by itself.
    pub const MAX_SUMMED: usize = 1_024;
    /// The maximum number of signals of all domains. Each has a table of its own.
    pub const MAX_SIGNALS: usize = 16;
    /// The maximum number of rules in a domain.
    pub const MAX_RULES: usize = 100_000;

    /// Compiles domains into a ruleset with this generation.
    pub fn compile(domains: Vec<model::Domain>, generation: u64) -> Result<Ruleset, Vec<RuleProblem>> {
        let mut errors = Vec::new();
        check_summed(&domains, &mut errors);
        check_signals(&domains, &mut errors);
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
            Ok(Ruleset { generation, domains, by_name, by_scope, extensions: Extensions::default() })
        } else {
            Err(errors)
        }
    }

    /// Loads and compiles rule files and directories. Also returns the warnings.
    ///
    /// # Errors
    /// All problems of all files, if one of them is an error.
    pub fn load<P: AsRef<Path>>(
        paths: &[P],
        options: &LoadOptions,
        generation: u64,
    ) -> Result<(Ruleset, Vec<RuleProblem>), Vec<RuleProblem>> {
        Ruleset::load_with_layer(RuleFiles::read(paths, options), options, &Layer::default(), generation)
    }

    /// The same for files with a layer. Also returns the warnings.
    ///
    /// # Errors
    /// All problems of the files and of the layer, if one of them is an error.
    pub fn load_with_layer(
        files: RuleFiles,
        options: &LoadOptions,
        layer: &Layer,
        generation: u64,
    ) -> Result<(Ruleset, Vec<RuleProblem>), Vec<RuleProblem>> {
        let LoadedRules { domains, warnings } = files.load_with_layer(options, layer)?;
        match Ruleset::compile(domains, generation) {
            Ok(ruleset) => Ok((ruleset, warnings)),
            Err(errors) => Err(errors.into_iter().chain(warnings).collect()),
        }
    }

    /// The same for rules in memory, such as those built into a program.
    ///
    /// # Errors
    /// All problems, if one of them is an error.
    pub fn from_text(text: &str, generation: u64) -> Result<(Ruleset, Vec<RuleProblem>), Vec<RuleProblem>> {
        let source = RuleFile { name: "the rules".to_owned(), text: text.to_owned() };
        let LoadedRules { domains, warnings } = load_sources(&[source], &LoadOptions::default())?;
        Ok((Ruleset::compile(domains, generation)?, warnings))
    }

    /// Decides every request without a plan.
    #[cfg(test)]
    pub(crate) fn without_plans(&mut self) {
        self.domains.iter_mut().for_each(|domain| domain.plans = PlanTable::without_room());
    }

    /// The generation of this ruleset.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Data of type `T` that is attached to this ruleset and lives as long as it. Created at the first call. Data for
    /// each rule can be indexed by the rule's number instead of its name.
    pub fn extension<T: Any + Send + Sync>(&self, make: impl Fn(&Ruleset) -> T) -> &T {
        self.extensions.get_or_init(|| make(self))
    }

    /// The index in [`domains`](Self::domains) of a request's domain: the one that it names, or the only one.
    #[inline]
    pub fn domain_number(&self, name: Option<&str>) -> Option<usize> {
        match name {
            // Most rulesets have one domain, and comparing a name is quicker than hashing it.
            Some(name) => match &self.domains[..] {
                [only] => (only.name() == name).then_some(0),
                _ => self.by_name.get(name).copied(),
            },
            None if self.domains.len() == 1 => Some(0),
            None => None,
        }
    }

    /// Whether a request that can't be decided must be refused: a limit that refuses when it can't be counted might
    /// apply to it. Without a domain, a limit of any domain might.
    pub fn refuses_undecided(&self, domain: Option<&str>) -> bool {
        match domain {
            Some(name) => self.domain_number(Some(name)).is_some_and(|number| self.domains[number].refuses_undecided()),
            None => self.domains.iter().any(Domain::refuses_undecided),
        }
    }

    /// The longest period of all limits.
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

    /// The counters of a receipt, by the digest of their scope, if they still exist. The limit has this amount: the
    /// amount at the time of the receipt, whatever tiers and overrides say now.
    pub fn counters(&self, scope: u64, amount: u64) -> Option<RuleCounters<'_>> {
        let Some(at) = self.by_scope.get(&scope) else { return self.counters_of_overrides(scope, amount) };
        let domain = self.domains.get(at.domain as usize)?;
        let rule = domain.rules.get(at.rule as usize)?;
        let mut found = None;
        for terms in &rule.tiers {
            let cap = terms.cap.and_then(|cap| rule.caps.get(usize::from(cap)));
            if let Some(CompiledCap::Limit { limit, scope: own, .. }) = cap
                && own.short() == scope
                && (found.is_none() || limit.amount() == amount)
            {
                found =
                    Some(RuleCounters { domain, rule, limit: limit.clone(), scope: own, on_failure: terms.on_failure });
            }
        }
        // The amount of an override.
        found.map(|found| match found.limit.amount() {
            same if same == amount => found,
            _ => RuleCounters { limit: found.limit.with_amount(amount), ..found },
        })
    }

    /// The same for counters of overrides with another period than the rule's.
    fn counters_of_overrides(&self, scope: u64, amount: u64) -> Option<RuleCounters<'_>> {
        let mut rules = self.domains.iter().flat_map(|domain| domain.rules.iter().map(move |rule| (domain, rule)));
        rules.find_map(|(domain, rule)| {
            let (limit, scope) = rule.others.find(scope, amount)?;
            Some(RuleCounters { domain, rule, limit, scope, on_failure: rule.tiers.first()?.on_failure })
        })
    }
}

/// The number of counters that each server counts by itself.
fn check_summed(domains: &[model::Domain], errors: &mut Vec<RuleProblem>) {
    let rules = domains.iter().flat_map(|domain| &domain.rules).filter(|rule| rule.terms.count == HoldCounting::Summed);
    let mut counters = 0usize;
    for rule in rules {
        counters = counters.saturating_add(rule.listed_counters().unwrap_or(usize::MAX));
        if counters > Ruleset::MAX_SUMMED {
            let message = format!("all rules with `count: summed` have more than {} counters", Ruleset::MAX_SUMMED);
            errors.push(RuleProblem::error(&rule.at, message, "write `count: exact` for some of them".to_owned()));
            return;
        }
    }
}

/// The number of signals.
fn check_signals(domains: &[model::Domain], errors: &mut Vec<RuleProblem>) {
    if let Some(signal) = domains.iter().flat_map(|domain| &domain.signals).nth(Ruleset::MAX_SIGNALS) {
        let message = format!("all domains together have more than {} signals", Ruleset::MAX_SIGNALS);
        errors.push(RuleProblem::error(&signal.at, message, "remove those that nobody looks at".to_owned()));
    }
}

/// The counters of a rule.
#[derive(Clone, Debug)]
pub struct RuleCounters<'r> {
    /// Their domain.
    pub domain: &'r Domain,
    /// Their rule.
    pub rule: &'r Rule,
    /// Their limit.
    pub limit: Limit,
    /// The common part of their keys.
    pub scope: &'r Scope,
    /// The answer for charges on them while the store is unavailable.
    pub on_failure: OnFailure,
}

fn by_scope(domains: &[Domain]) -> HashMap<u64, ScopeOwner> {
    let mut by_scope = HashMap::new();
    for (number, domain) in domains.iter().enumerate() {
        for (index, rule) in domain.rules.iter().enumerate() {
            for cap in &rule.caps {
                if let CompiledCap::Limit { scope, .. } = cap {
                    by_scope.insert(scope.short(), ScopeOwner { domain: number as u32, rule: index as u32 });
                }
            }
        }
    }
    by_scope
}

impl Domain {
    /// Whether a rule of the list reads this attribute.
    pub fn reads(&self, attribute: &str) -> bool {
        self.attributes.get(attribute).is_some()
    }

    /// Whether a rule of the list or of the tree reads this attribute.
    pub fn knows(&self, attribute: &str) -> bool {
        self.used_attributes().any(|name| name == attribute)
    }

    /// The attributes that its rules use, in both forms. Some may be repeated.
    pub fn used_attributes(&self) -> impl Iterator<Item = &str> {
        let in_tree = self.rules.iter().flat_map(|rule| &rule.path).map(|(key, _)| key.as_str());
        self.attributes.iter().map(|(name, _)| name).chain(in_tree)
    }

    /// Whether some limit refuses when it can't be counted.
    fn refuses_undecided(&self) -> bool {
        let refuses = |terms: &TierTerms| terms.cap.is_some() && terms.on_failure == OnFailure::Deny;
        let is_enforced =
            |rule: &Rule| matches!(rule.mode, RuleMode::Enforce | RuleMode::AnyOf | RuleMode::Share { .. });
        self.rules.iter().any(|rule| is_enforced(rule) && rule.tiers.iter().any(refuses))
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A digest of its name. It is the same in every process.
    pub fn digest(&self) -> u64 {
        self.digest.get()
    }

    /// The attribute that identifies a caller.
    pub fn entity(&self) -> Option<&str> {
        self.entity.as_deref()
    }

    /// Whether the values of an attribute are private: no name of a counter and no log contains them.
    pub fn is_private(&self, attribute: &str) -> bool {
        self.private.contains(attribute)
    }

    /// The rules of the list, followed by those of the tree.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules whose cost is the number in an attribute.
    pub fn rules_of_cost(&self, attribute: &str) -> impl Iterator<Item = &Rule> {
        let number = self.attributes.get(attribute);
        self.rules.iter().filter(move |rule| match rule.cost {
            CompiledCost::Attribute(own) => number == Some(own),
            _ => false,
        })
    }

    /// The index in [`tiers`](Self::tiers) of the tier of callers without one.
    pub fn default_tier(&self) -> usize {
        self.default_tier
    }

    /// The regions that its rules may name.
    pub fn regions(&self) -> &KnownRegions {
        &self.regions
    }

    /// Its signals, in the order of the files.
    pub fn signals(&self) -> &[Signal] {
        &self.signals
    }

    /// Whether one of its rules or signals bans.
    #[inline]
    pub fn bans(&self) -> bool {
        self.bans
    }

    /// Whether someone must not be banned for a refusal of this request.
    pub fn never_bans(&self, request: &Request<'_>, banned: &Banned<'_>) -> bool {
        self.never_ban.exempts(request, self.entity(), banned)
    }

    /// Whether someone must not be banned, whatever the request.
    pub fn never_bans_subject(&self, banned: &Banned<'_>) -> bool {
        self.never_ban.exempts_subject(banned)
    }

    /// The signals that count a request.
    pub fn signal_hits<'r>(&'r self, request: &Request<'r>) -> SmallVec<[SignalHit<'r>; 2]> {
        match self.signals.is_empty() {
            true => SmallVec::new(),
            false => signal::hits(&self.signals, &self.attributes, request),
        }
    }

    /// The tiers.
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// The limit of this amount and period, with the domain's default algorithm.
    ///
    /// # Errors
    /// If it cannot be counted exactly.
    pub fn requested(&self, amount: u64, length: Span) -> Result<Limit, LimitError> {
        self.requested.limit(amount, length)
    }

    /// The record of a check with an idempotency key. The key belongs to the caller that the request names, otherwise to
    /// the attributes of the request: the same key of two callers is two keys, and so is that of a check and of a later
    /// debit.
    pub fn once_of_check<'a>(
        &'a self,
        request: &Request<'a>,
        name: &'a str,
        caller_digest: &'a CallerDigest,
        claim: &Claim<'a>,
        keep: Span,
    ) -> Once<'a> {
        self.once.of_check(request, name, self.entity(), caller_digest, claim, keep)
    }

    /// The record of a receipt of this name and caller. `ending` is a digest of the settlement.
    pub fn once_of_receipt<'a>(
        &'a self,
        name: &'a [u8],
        caller: Option<Value<'a>>,
        ending: u64,
        keep: Span,
    ) -> Once<'a> {
        self.once.of_receipt(name, caller, ending, keep)
    }

    /// The name of an attribute. Slow: for errors and explanations.
    pub(crate) fn attribute_name(&self, attribute: Attribute) -> &str {
        self.attributes.iter().find(|(_, number)| *number == attribute).map_or("", |(name, _)| name)
    }

    fn compile(domain: model::Domain, errors: &mut Vec<RuleProblem>) -> Domain {
        let mut names = AttributeNumbers::default();
        let entity = domain.entity.as_deref();
        let mut rules: Vec<Rule> = domain.rules.iter().map(|rule| Rule::compile(rule, &domain, &mut names)).collect();
        let listed = rules.len();
        let tree = Tree::compile(&domain, &mut rules);
        let index = Index::new(&mut rules[..listed], &domain.at, errors);
        lookup::check_scanned(globs(&domain.tree), &domain.at, errors);
        if rules.len() > Ruleset::MAX_RULES {
            let message = format!("domain {} has {} rules", domain.name, rules.len());
            let remedy = format!("split it into several domains of at most {} rules each", Ruleset::MAX_RULES);
            errors.push(RuleProblem::error(&domain.at, message, remedy));
        }
        let tier_from = domain.tier_from.as_deref().map(|name| names.number(name));
        let caller = entity.map(|name| names.number(name));
        let signals = domain.signals.iter().map(|signal| Signal::compile(signal, &domain, &mut names)).collect();
        let addresses = ADDRESSES.iter().map(|name| names.number(name)).collect();
        let named = |name: &str| rules.iter().position(|rule| &*rule.name == name);
        let default_rule = domain.default_rule.as_deref().and_then(named);
        let requested = RequestLimits::new(&domain);
        let once = OnceScopes::new(&domain.name, entity.is_some_and(|entity| domain.private.contains(entity)));
        let bans =
            rules.iter().any(|rule| rule.ban.is_some()) || domain.signals.iter().any(|signal| signal.ban.is_some());
        let mut domain = Domain {
            digest: name_digest(&domain.name),
            tier_digests: domain.tiers.iter().map(|tier| name_digest(&tier.name)).collect(),
            name: domain.name.into(),
            entity: domain.entity.map(Into::into),
            private: domain.private,
            caller,
            addresses,
            tiers: domain.tiers,
            default_tier: domain.default_tier,
            tier_from,
            tier_from_name: domain.tier_from.as_deref().map(Into::into),
            default_rule,
            attributes: names,
            rules,
            index,
            plans: PlanTable::default(),
            tree,
            requested,
            once,
            regions: domain.regions,
            signals,
            never_ban: domain.never_ban,
            bans,
        };
        domain.set_selectors();
        domain
    }
}

/// The number of tree nodes that must be tried one by one.
fn globs(nodes: &[model::Node]) -> usize {
    nodes.iter().map(|node| usize::from(matches!(node.value, Some(Pattern::Glob(_)))) + globs(&node.children)).sum()
}
