//! Domains, rules and limits, as requests name them and answers write them.

use serde::Serialize;
use serde_json::{Value, json};
use tollgate::{Algorithm, Limit, Rule, Ruleset};
use tollgate_control::Name;
use tollgate_core::calendar::CalendarUnit;
use tollgate_rules::{Domain, quoted};

use super::Problem;
use crate::words;

/// The most candidates that a problem names.
pub(super) const MOST_NAMED: usize = 20;

/// The domain that is meant: the one that is named, or the only one that has callers.
pub(super) fn domain<'r>(rules: &'r Ruleset, named: Option<&str>) -> Result<&'r Domain, Problem> {
    let list = |domains: &[&Domain]| {
        domains.iter().take(MOST_NAMED).map(|domain| quoted(domain.name())).collect::<Vec<_>>().join(", ")
    };
    if let Some(name) = named {
        let found = rules.domains().iter().find(|domain| domain.name() == name);
        return found.ok_or_else(|| {
            let all: Vec<&Domain> = rules.domains().iter().collect();
            Problem::not_found(
                "unknown_domain",
                format!("there is no domain {}; the rules have {}", quoted(name), list(&all)),
            )
        });
    }
    let with_callers: Vec<&Domain> = rules.domains().iter().filter(|domain| domain.entity().is_some()).collect();
    match &with_callers[..] {
        [one] => Ok(one),
        [] => Err(Problem::bad_request(
            "no_entity",
            "no domain of the rules says who a caller is; write `entity: …` in one",
        )),
        several => Err(Problem::bad_request("no_domain", format!("name one with ?domain=…: {}", list(several)))),
    }
}

/// The domain of a record; none if it is of all.
pub(super) fn domain_of(record: &Name) -> Option<&str> {
    (!record.domain.is_empty()).then_some(&record.domain)
}

/// Refuses what is about callers in a domain that does not say who one is.
pub(super) fn has_callers(domain: &Domain) -> Result<(), Problem> {
    if domain.entity().is_some() {
        return Ok(());
    }
    let detail =
        format!("domain {} does not say who a caller is; write `entity: …` in its file", quoted(domain.name()));
    Err(Problem::bad_request("no_entity", detail))
}

/// The domain of a rule: the one that is named, the only one that there is, or else the only one that has callers.
pub(super) fn any_domain<'r>(rules: &'r Ruleset, named: Option<&str>) -> Result<&'r Domain, Problem> {
    match (rules.domains(), named) {
        ([one], None) => Ok(one),
        _ => domain(rules, named),
    }
}

/// A rule of a domain, or which there are.
pub(super) fn rule<'r>(domain: &'r Domain, name: &str) -> Result<&'r Rule, Problem> {
    let found = domain.rules().iter().find(|rule| rule.name() == name);
    found.ok_or_else(|| {
        let names = domain.rules().iter().map(|rule| quoted(rule.name())).collect();
        let of = quoted(domain.name());
        let detail = format!("domain {of} has no rule {}; it has {}", quoted(name), some(names));
        Problem::not_found("unknown_rule", detail)
    })
}

/// Some of these texts, and how many more there are.
pub(super) fn some(candidates: Vec<String>) -> String {
    let more = candidates.len().saturating_sub(MOST_NAMED);
    let mut text = candidates.into_iter().take(MOST_NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// A limit as the seed documents write it, where it can be; else as rule files do.
pub(super) fn limit(limit: &Limit) -> Value {
    match unit(limit) {
        Some(unit) => json!({"requests_per_unit": limit.amount(), "unit": unit}),
        None => json!({"limit": words::limit(limit)}),
    }
}

/// The word for a limit's period.
fn unit(limit: &Limit) -> Option<&'static str> {
    if limit.algorithm() == Algorithm::Concurrency {
        return None;
    }
    if let Some(calendar) = limit.period().as_calendar() {
        return Some(match calendar.unit() {
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month { .. } => "month",
            CalendarUnit::Year => "year",
        });
    }
    match limit.period().span().as_micros() / 1_000 {
        1_000 => Some("second"),
        60_000 => Some("minute"),
        3_600_000 => Some("hour"),
        86_400_000 => Some("day"),
        604_800_000 => Some("week"),
        2_592_000_000 => Some("month"),
        31_536_000_000 => Some("year"),
        _ => None,
    }
}

/// What a rule is called beside `default`: what selects it alone, else its name.
pub(super) fn called(domain: &Domain, rule: &Rule) -> String {
    if domain.default_rule().is_some_and(|default| std::ptr::eq(default, rule)) {
        return "default".to_owned();
    }
    let mut texts = domain.descriptors_of(rule).into_iter();
    let own = texts.find(|text| matches!(&domain.selected(text)[..], [one] if std::ptr::eq(*one, rule)));
    own.unwrap_or_else(|| rule.name().to_owned())
}

/// A part of a list.
#[derive(Serialize)]
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    /// Where the next page begins; `null` at the end.
    pub(super) next: Option<String>,
}
