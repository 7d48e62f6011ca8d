//! Domains, rules and limits, as requests and responses name them.

use serde::Serialize;
use serde_json::{Value, json};
use tollgate::{AdjustmentReport, Algorithm, CallerTier, KnownRegions, Limit, Rule, Ruleset};
use tollgate_control::RecordName;
use tollgate_rules::{Domain, quoted};

use super::ApiProblem;
use tollgate_observe::display;

/// Candidates that a problem lists.
pub(super) const MAX_NAMED: usize = 20;

/// The named domain, or the only one with callers.
pub(super) fn domain<'r>(rules: &'r Ruleset, name: Option<&str>) -> Result<&'r Domain, ApiProblem> {
    let list = |domains: &[&Domain]| {
        domains.iter().take(MAX_NAMED).map(|domain| quoted(domain.name())).collect::<Vec<_>>().join(", ")
    };
    if let Some(name) = name {
        let found = rules.domains().iter().find(|domain| domain.name() == name);
        return found.ok_or_else(|| {
            let all: Vec<&Domain> = rules.domains().iter().collect();
            ApiProblem::not_found(
                "unknown_domain",
                format!("there is no domain {}; the rules have {}", quoted(name), list(&all)),
            )
        });
    }
    let with_callers: Vec<&Domain> = rules.domains().iter().filter(|domain| domain.entity().is_some()).collect();
    match &with_callers[..] {
        [one] => Ok(one),
        [] => Err(ApiProblem::bad_request("no_entity", "no domain has an `entity`; set it in one")),
        several => Err(ApiProblem::bad_request("no_domain", format!("choose one with ?domain=…: {}", list(several)))),
    }
}

/// The domain of a record; `None` if it applies to all.
pub(super) fn domain_of(record: &RecordName) -> Option<&str> {
    (!record.domain.is_empty()).then_some(&record.domain)
}

/// Fails for a domain without an `entity`.
pub(super) fn has_callers(domain: &Domain) -> Result<(), ApiProblem> {
    if domain.entity().is_some() {
        return Ok(());
    }
    let detail = format!("domain {} has no `entity`; set it in its file", quoted(domain.name()));
    Err(ApiProblem::bad_request("no_entity", detail))
}

/// The named domain, the only one, or else the only one with callers.
pub(super) fn any_domain<'r>(rules: &'r Ruleset, name: Option<&str>) -> Result<&'r Domain, ApiProblem> {
    match (rules.domains(), name) {
        ([one], None) => Ok(one),
        _ => domain(rules, name),
    }
}

/// A rule of a domain. The problem lists the existing ones.
pub(super) fn rule<'r>(domain: &'r Domain, name: &str) -> Result<&'r Rule, ApiProblem> {
    let found = domain.rules().iter().find(|rule| rule.name() == name);
    found.ok_or_else(|| {
        let names = domain.rules().iter().map(|rule| quoted(rule.name())).collect();
        let of = quoted(domain.name());
        let detail = format!("domain {of} has no rule {}; it has {}", quoted(name), join_some(names));
        ApiProblem::not_found("unknown_rule", detail)
    })
}

/// Joins some of these texts, with the number of further ones.
pub(super) fn join_some(candidates: Vec<String>) -> String {
    let more = candidates.len().saturating_sub(MAX_NAMED);
    let mut text = candidates.into_iter().take(MAX_NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// The name of the region of this server.
pub(super) fn this_region(rules: &Ruleset) -> &str {
    match rules.domains().first().map(Domain::regions) {
        Some(KnownRegions::All(names)) => names.here(),
        Some(KnownRegions::Here(name)) => name,
        Some(KnownRegions::None | KnownRegions::Unchecked) | None => "this region",
    }
}

/// That an adjustment was not made in some other regions, if so.
pub(super) fn missed_regions(adjusted: &AdjustmentReport) -> Option<String> {
    let missed = adjusted.missed_regions();
    (!missed.is_empty()).then(|| format!("no answer from {}", missed.join(", ")))
}

/// Adds the other regions that did not answer.
pub(super) fn add_missed_regions(answer: &mut Value, adjusted: &AdjustmentReport) {
    let missed = adjusted.missed_regions();
    if !missed.is_empty() {
        answer["missed_regions"] = json!(missed);
    }
}

/// A limit as amount and unit, where possible; otherwise in the notation of rule files.
pub(super) fn limit(limit: &Limit) -> Value {
    match unit(limit) {
        Some(unit) => json!({"requests_per_unit": limit.amount(), "unit": unit}),
        None => json!({"limit": display::limit(limit)}),
    }
}

/// The unit of a limit's period.
fn unit(limit: &Limit) -> Option<&'static str> {
    if limit.algorithm() == Algorithm::Concurrency {
        return None;
    }
    if let Some(calendar) = limit.period().as_calendar() {
        return Some(calendar.unit().name());
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

/// The name of a rule in usage reports: `default`, the descriptor that selects it alone, or its name.
pub(super) fn display_name(domain: &Domain, rule: &Rule) -> String {
    if domain.default_rule().is_some_and(|default| std::ptr::eq(default, rule)) {
        return "default".to_owned();
    }
    let mut texts = domain.descriptors_of(rule).into_iter();
    let own = texts.find(|text| matches!(&domain.select_rules(text)[..], [one] if std::ptr::eq(*one, rule)));
    own.unwrap_or_else(|| rule.name().to_owned())
}

/// A page of a list.
#[derive(Serialize)]
pub(super) struct ListPage<T> {
    pub(super) items: Vec<T>,
    /// The `after` of the next page; `null` at the end.
    pub(super) next: Option<String>,
}

/// The caller's tier, where it comes from, and, if a request named it, how long ago this server saw that. Null if requests name it and
/// none has been seen.
pub(super) fn caller_tier(tier: Option<&CallerTier>) -> Value {
    let Some(CallerTier { name, by, seen }) = tier else { return Value::Null };
    let mut tier = json!({"name": name, "by": by.name()});
    if let Some(ago) = seen {
        tier["seen_seconds_ago"] = json!(ago.as_micros() / 1_000_000);
    }
    tier
}
