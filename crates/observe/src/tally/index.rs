//! The rows of one ruleset, indexed by the positions of its rules.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use tollgate::{ResolvedBy, Ruleset};
use tollgate_rules::{AppliedRule, AppliedTerms, Domain, Rule};

use super::{RowName, Tally, TallyRow};

#[derive(Debug)]
pub(super) struct RowIndex {
    domains: Vec<DomainRows>,
}

#[derive(Debug)]
pub(super) struct DomainRows {
    rules: Vec<RuleRows>,
    /// Limits that come with requests.
    requested: OnceLock<Arc<TallyRow>>,
    /// Decisions without a limit.
    none: Arc<TallyRow>,
    /// Decisions about blocked callers.
    block: Arc<TallyRow>,
}

#[derive(Debug)]
struct RuleRows {
    /// One per limited tier or value, or one for all. Several rows of a rule's terms may share one.
    tiers: SmallVec<[Option<Arc<TallyRow>>; 4]>,
    /// Created on first use: few rules have overrides.
    overridden: OnceLock<Arc<TallyRow>>,
    emergency: OnceLock<Arc<TallyRow>>,
}

impl RowIndex {
    pub(super) fn new(tally: &Tally, rules: &Ruleset) -> RowIndex {
        RowIndex { domains: rules.domains().iter().map(|domain| DomainRows::new(tally, domain)).collect() }
    }

    #[inline]
    pub(super) fn domain(&self, number: usize) -> &DomainRows {
        &self.domains[number]
    }
}

impl DomainRows {
    fn new(tally: &Tally, domain: &Domain) -> DomainRows {
        let special = |rule| tally.row(RowName::new(domain.name(), rule, RowName::DEFAULT));
        DomainRows {
            none: special(RowName::NONE),
            block: special(RowName::BLOCK),
            requested: OnceLock::new(),
            rules: domain.rules().iter().map(|rule| RuleRows::new(tally, domain, rule)).collect(),
        }
    }

    pub(super) fn none(&self) -> &TallyRow {
        &self.none
    }

    pub(super) fn block(&self) -> &TallyRow {
        &self.block
    }

    /// The row of an applied limit of this domain.
    #[inline]
    pub(super) fn row(&self, tally: &Tally, domain: &Domain, applied: &AppliedRule) -> &TallyRow {
        match (applied.terms, applied.rule.and_then(|rule| self.rules.get(rule as usize))) {
            (AppliedTerms::Tier(tier), Some(rule)) => {
                rule.tiers.get(usize::from(tier)).and_then(Option::as_deref).unwrap_or(&self.none)
            }
            (_, rule) => self.rare_row(tally, domain, applied, rule),
        }
    }

    fn rare_row<'b>(
        &'b self,
        tally: &Tally,
        domain: &Domain,
        applied: &AppliedRule,
        rows: Option<&'b RuleRows>,
    ) -> &'b TallyRow {
        let (row, tier) = match (applied.by, rows) {
            (ResolvedBy::Emergency, Some(rows)) => (&rows.emergency, RowName::EMERGENCY),
            (_, Some(rows)) => (&rows.overridden, RowName::OVERRIDE),
            (_, None) => (&self.requested, RowName::REQUEST),
        };
        let rule = || domain.rule(applied).map_or(RowName::OTHER, Rule::name);
        row.get_or_init(|| tally.row(RowName::new(domain.name(), rule(), tier)))
    }
}

impl RuleRows {
    fn new(tally: &Tally, domain: &Domain, rule: &Rule) -> RuleRows {
        let (overridden, emergency) = (OnceLock::new(), OnceLock::new());
        let row = |tier| tally.row(RowName::new(domain.name(), rule.name(), tier));
        let is_counted = |place: u16| !rule.is_by_tier() || rule.limit(place).is_some();
        let named: SmallVec<[(&str, Arc<TallyRow>); 4]> =
            rule.rows(domain).filter(|(_, place)| is_counted(*place)).map(|(name, _)| (name, row(name))).collect();
        let find = |place: u16| {
            let name = rule.row_name(domain, place);
            rule.limit(place).and(named.iter().find(|(known, _)| *known == name)).map(|(_, row)| row.clone())
        };
        RuleRows { tiers: (0..rule.row_count()).map(find).collect(), overridden, emergency }
    }
}
