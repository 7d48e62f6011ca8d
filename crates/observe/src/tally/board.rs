//! Where the rows of one ruleset are, by the places of its rules.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use tollgate::{ResolvedBy, Ruleset};
use tollgate_rules::{Applied, AppliedTerms, Domain, Rule};

use super::{Row, RowName, Tally};

#[derive(Debug)]
pub(super) struct Board {
    domains: Vec<DomainRows>,
}

#[derive(Debug)]
pub(super) struct DomainRows {
    rules: Vec<RuleRows>,
    /// Limits that came with requests.
    requested: OnceLock<Arc<Row>>,
    /// No limit applied.
    none: Arc<Row>,
    /// The caller is blocked.
    block: Arc<Row>,
}

#[derive(Debug)]
struct RuleRows {
    /// One for each tier that it limits, or one for all.
    tiers: SmallVec<[Option<Arc<Row>>; 4]>,
    /// Made when they are first needed: few rules have overrides.
    overridden: OnceLock<Arc<Row>>,
    emergency: OnceLock<Arc<Row>>,
}

impl Board {
    pub(super) fn new(tally: &Tally, rules: &Ruleset) -> Board {
        Board { domains: rules.domains().iter().map(|domain| DomainRows::new(tally, domain)).collect() }
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

    pub(super) fn none(&self) -> &Row {
        &self.none
    }

    pub(super) fn block(&self) -> &Row {
        &self.block
    }

    /// Where a limit of this domain that applied is counted.
    #[inline]
    pub(super) fn row(&self, tally: &Tally, domain: &Domain, applied: &Applied) -> &Row {
        match (applied.terms, self.rules.get(applied.rule as usize)) {
            (AppliedTerms::Tier(tier), Some(rule)) => {
                rule.tiers.get(usize::from(tier)).and_then(Option::as_deref).unwrap_or(&self.none)
            }
            (_, rule) => self.seldom(tally, domain, applied, rule),
        }
    }

    fn seldom<'b>(&'b self, tally: &Tally, domain: &Domain, applied: &Applied, rows: Option<&'b RuleRows>) -> &'b Row {
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
        let limits = |tier| rule.limit(tier as u16).is_some();
        let tiers = domain.tiers().iter().enumerate();
        let tiers = if rule.is_by_tier() {
            tiers.map(|(place, tier)| limits(place).then(|| row(&tier.name))).collect()
        } else {
            let one = row(RowName::DEFAULT);
            tiers.map(|(place, _)| limits(place).then(|| one.clone())).collect()
        };
        RuleRows { tiers, overridden, emergency }
    }
}
