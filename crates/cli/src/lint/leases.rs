//! `tollgate lint --leases`: which limits servers may lease, and why not.

use tollgate::Ruleset;
use tollgate_observe::display;
use tollgate_rules::{Domain, Rule, quoted};

/// A line for each limit of each rule; limits that several tiers share have one.
pub(super) fn list(rules: &Ruleset) -> String {
    let lines = rules.domains().iter().flat_map(|domain| domain.rules().iter().flat_map(|rule| lines(domain, rule)));
    lines.map(|line| line + "\n").collect()
}

fn lines(domain: &Domain, rule: &Rule) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in 0..rule.row_count() {
        let Some(limit) = rule.limit(row) else { continue };
        let lease = match (rule.why_not_leased(limit), rule.ahead()) {
            (None, None) => "may be leased".to_owned(),
            (None, Some(share)) => {
                let units = limit.quota() * u64::from(share) / 10_000;
                format!("may be leased, and exceeded by up to {units}, of which each server has an equal share")
            }
            (Some(reason), _) => format!("not leased: {reason}"),
        };
        let line = format!("{}, rule {}: {}: {lease}", domain.name(), quoted(rule.name()), display::limit(limit));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}
