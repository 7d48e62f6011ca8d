//! Shares of regions that follow demand: what servers report of them, and what one of the servers makes of the reports.
//!
//! Any server may plan, and two may do it at the same time: a write is for the shares that it was made from, or fails. That no
//! two regions use the same part follows from what is held ([`MovingShares`]): a region is confirmed only if every server that
//! counts in its store has reported the shares in force.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use tollgate::{Ruleset, Span, Timestamp};
use tollgate_control::{Change, Precondition, RecordName};
use tollgate_observe::{CountKind, Tally};
use tollgate_records::RecordKind;
use tollgate_records::documents::SharesDocument;
use tollgate_rules::{Domain, MovingOrigin, MovingShares, RegionDemand, Rule};

/// A rule in the report of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShareLine {
    pub(super) domain: String,
    pub(super) rule: String,
    /// What is in force on the server: a generation, `equal` or `unknown`.
    pub(super) in_force: SharesInForce,
    /// Units a minute that are requested there.
    pub(super) demand: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SharesInForce {
    Written(u64),
    Equal,
    Unknown,
}

/// The report of a server of a region.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionReport<'r> {
    pub(super) region: &'r str,
    /// When it was written, by the clock of the store of record.
    pub(super) at: Timestamp,
    /// How long the server ran then.
    pub(super) uptime: Span,
    /// How many servers count in the store of the region, as this one knows; `None` if it counts by itself.
    pub(super) counting: Option<u64>,
    pub(super) lines: &'r [ShareLine],
}

/// The demand for rules whose shares follow it.
#[derive(Debug, Default)]
pub(super) struct DemandMeter {
    /// All units until a time.
    counted: Option<(Timestamp, UnitsByRule)>,
    /// Units a minute.
    demand: UnitsByRule,
}

/// Units by domain and rule.
type UnitsByRule = HashMap<(String, String), u64>;

/// After this time a server that counts in the store of its region is known there.
const SETTLING_TIME: Span = Span::from_secs(10);
/// The most rules whose shares follow demand. Those beyond keep the shares that they have.
pub(super) const MAX_MOVING_RULES: usize = 256;

impl DemandMeter {
    /// Counts what was requested since the last time: a change counts by half at first, so that shares don't follow every gust.
    pub(super) fn measure(&mut self, rules: &Ruleset, tally: &Tally, now: Timestamp) {
        let mut units = UnitsByRule::new();
        for (domain, rule) in moving(rules) {
            units.insert((domain.name().to_owned(), rule.name().to_owned()), 0);
        }
        if !units.is_empty() {
            for row in tally.rows() {
                let name = (row.name().domain().to_owned(), row.name().rule().to_owned());
                if let Some(units) = units.get_mut(&name) {
                    *units = units.saturating_add(row.counts()[CountKind::Hits]);
                }
            }
        }
        if let Some((then, before)) = &self.counted {
            let millis = (now.since(*then).as_micros() / 1_000).max(1);
            let demand = units.iter().map(|(name, units)| {
                let new = units.saturating_sub(before.get(name).copied().unwrap_or(*units));
                let rate = new.saturating_mul(60_000).div_ceil(millis);
                let demand = self.demand.get(name).map_or(rate, |before| before.midpoint(rate));
                (name.clone(), demand)
            });
            self.demand = demand.collect();
        }
        self.counted = Some((now, units));
    }

    /// The part of this server's report.
    pub(super) fn report(&self, rules: &Ruleset) -> Vec<ShareLine> {
        let line = |(domain, rule): (&Domain, &Rule)| {
            let (domain, name) = (domain.name().to_owned(), rule.name().to_owned());
            let demand = self.demand.get(&(domain.clone(), name.clone())).copied().unwrap_or(0);
            let in_force = match rule.region().moving()? {
                MovingOrigin::Written(generation) => SharesInForce::Written(generation),
                MovingOrigin::Equal => SharesInForce::Equal,
                MovingOrigin::Unknown => SharesInForce::Unknown,
            };
            Some(ShareLine { domain, rule: name, in_force, demand })
        };
        moving(rules).filter_map(line).collect()
    }
}

/// The rules whose shares follow demand.
fn moving(rules: &Ruleset) -> impl Iterator<Item = (&Domain, &Rule)> {
    let all = rules.domains().iter().flat_map(|domain| domain.rules().iter().map(move |rule| (domain, rule)));
    all.filter(|(_, rule)| rule.region().moving().is_some()).take(MAX_MOVING_RULES)
}

/// The next shares of all rules, as changes of their records. `stored` returns a rule's record: its generation and shares.
pub(super) fn plan(
    rules: &Ruleset,
    reports: &[RegionReport<'_>],
    now: Timestamp,
    stored: impl Fn(&str, &str) -> Option<(u64, MovingShares)>,
) -> Vec<Change> {
    let change = |(domain, rule): (&Domain, &Rule)| {
        let names = domain.regions().all()?;
        let regions: Vec<&str> = names.iter().map(|(_, name)| name).collect();
        let (expect, shares, in_force) = match stored(domain.name(), rule.name()) {
            Some((generation, shares)) => {
                (Precondition::Generation(generation), shares, SharesInForce::Written(generation))
            }
            None => (Precondition::Absent, MovingShares::equal(&regions), SharesInForce::Equal),
        };
        let known: BTreeMap<&str, RegionDemand> =
            regions.iter().map(|region| (*region, state(region, (domain, rule), in_force, reports))).collect();
        let next = shares.next(&known, rule.share_pace(), now)?;
        let demands: Vec<String> = known.iter().map(|(region, state)| format!("{region} {}", state.demand)).collect();
        Some(Change {
            name: RecordName::new(RecordKind::Shares, domain.name(), rule.name()),
            expect,
            // Texts and numbers are always valid JSON.
            document: serde_json::to_string(&SharesDocument::from(&next)).ok(),
            action: "shares.put".to_owned(),
            reason: format!("units a minute: {}", demands.join(", ")),
        })
    };
    moving(rules).filter_map(change).collect()
}

/// What the reports of a region's servers say of a rule.
fn state(
    region: &str,
    (domain, rule): (&Domain, &Rule),
    in_force: SharesInForce,
    reports: &[RegionReport<'_>],
) -> RegionDemand {
    let of_region = || reports.iter().filter(|report| report.region == region);
    let line = |report: &RegionReport<'_>| {
        report.lines.iter().find(|line| line.domain == domain.name() && line.rule == rule.name()).cloned()
    };
    let lines: Vec<Option<ShareLine>> = of_region().map(line).collect();
    let is_current = |line: &Option<ShareLine>| line.as_ref().is_some_and(|line| line.in_force == in_force);
    RegionDemand {
        demand: lines.iter().flatten().fold(0, |sum, line| sum.saturating_add(line.demand)),
        is_confirmed: is_complete(of_region) && lines.iter().all(is_current),
    }
}

/// Whether there are reports of all servers that count in the store of a region. Others, and those of a region without reports,
/// may use what they had.
///
/// A report says how many servers counted when it was written. All of them are known if as many reported later, and ran for a
/// while before: neither a server that has ended nor one that has just begun stands in for one that is silent.
fn is_complete<'r, R: Iterator<Item = &'r RegionReport<'r>>>(of_region: impl Fn() -> R) -> bool {
    let is_known = |then: &RegionReport<'_>, counting: u64| {
        let ran_then = |other: &&RegionReport<'_>| {
            let began = other.at.before(other.uptime);
            other.counting.is_some() && other.at >= then.at && began.after(SETTLING_TIME) <= then.at
        };
        of_region().filter(ran_then).count() as u64 >= counting
    };
    of_region().any(|then| then.counting.is_some_and(|counting| is_known(then, counting)))
}

#[cfg(test)]
mod tests;
