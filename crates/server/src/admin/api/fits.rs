//! Whether limits that operators name fit the rules in force: which rules are meant, and whether these can have them.

use tollgate::Algorithm;
use tollgate::control::Fault;
use tollgate::tenants::OverrideCap;
use tollgate_rules::{Domain, Rule, quoted};

use super::names::some;

/// The rules that a name or a descriptor means.
pub(super) fn selected<'r>(rule: Option<&str>, descriptor: Option<&str>, domain: &'r Domain) -> Vec<&'r Rule> {
    match (rule, descriptor) {
        (Some(name), _) => domain.rules().iter().filter(|rule| rule.name() == name).collect(),
        (None, Some("default")) => domain.default_rule().into_iter().collect(),
        (None, Some(text)) => domain.selected(text),
        (None, None) => Vec::new(),
    }
}

/// What to say where no rule is meant.
pub(super) fn none(rule: Option<&str>, descriptor: Option<&str>, domain: &Domain) -> String {
    match (rule, descriptor) {
        (Some(name), _) => {
            let names = domain.rules().iter().map(|rule| quoted(rule.name()).to_string()).collect();
            format!("there is no rule {}; there are {}", quoted(name), some(names))
        }
        (None, Some("default")) => "the domain has no default rule; set `default_rule` in its file".to_owned(),
        (None, text) => {
            let candidates = domain.descriptors().iter().map(|text| quoted(text).to_string()).collect();
            format!("no rule has {}; there are {}", quoted(text.unwrap_or_default()), some(candidates))
        }
    }
}

/// Why a limit can't take the place of a rule's.
pub(super) fn unfit(rule: &Rule, cap: &OverrideCap, at: &str) -> Option<Fault> {
    let holds = rule.is_concurrency();
    let (place, what) = match cap {
        OverrideCap::Unlimited | OverrideCap::Scaled(_) => return None,
        OverrideCap::Amount(_) if holds => return None,
        OverrideCap::Amount(_) => ("limit", "counts a rate: write for instance 100/minute"),
        OverrideCap::Rate { .. } if holds => ("limit", "counts requests in flight: write `limit: \"20 concurrent\"`"),
        OverrideCap::Rate { amount, period, burst } => match rule.would_be(*amount, period, *burst) {
            Some(limit) if burst.is_some() && !matches!(limit.algorithm(), Algorithm::Bucket { .. }) => {
                ("burst", "is no bucket, and has no burst")
            }
            Some(_) => return None,
            None => ("requests_per_unit", "can't count so many exactly over this period"),
        },
    };
    Some(Fault { at: format!("{at}{place}"), what: format!("the rule {} {what}", quoted(rule.name())) })
}
