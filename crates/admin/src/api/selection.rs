//! Rules that overrides and emergencies select, and whether these can have a limit.

use tollgate::Algorithm;
use tollgate::tenants::OverrideCap;
use tollgate_records::FieldFault;
use tollgate_rules::{Domain, Rule, quoted};

use super::names::join_some;

/// The rules selected by a name or a descriptor.
pub(super) fn selected<'r>(rule: Option<&str>, descriptor: Option<&str>, domain: &'r Domain) -> Vec<&'r Rule> {
    match (rule, descriptor) {
        (Some(name), _) => domain.rules().iter().filter(|rule| rule.name() == name).collect(),
        (None, Some("default")) => domain.default_rule().into_iter().collect(),
        (None, Some(text)) => domain.select_rules(text),
        (None, None) => Vec::new(),
    }
}

/// The message if no rule is selected.
pub(super) fn none_message(rule: Option<&str>, descriptor: Option<&str>, domain: &Domain) -> String {
    match (rule, descriptor) {
        (Some(name), _) => {
            let names = domain.rules().iter().map(|rule| quoted(rule.name()).to_string()).collect();
            format!("there is no rule {}; the rules are {}", quoted(name), join_some(names))
        }
        (None, Some("default")) => "the domain has no default rule; set `default_rule` in its file".to_owned(),
        (None, text) => {
            let candidates = domain.descriptors().iter().map(|text| quoted(text).to_string()).collect();
            format!("no rule has {}; the descriptors are {}", quoted(text.unwrap_or_default()), join_some(candidates))
        }
    }
}

/// Why a limit can't replace that of a rule.
pub(super) fn mismatch(rule: &Rule, cap: &OverrideCap, at: &str) -> Option<FieldFault> {
    let holds = rule.is_concurrency();
    let (place, message) = match cap {
        OverrideCap::Unlimited | OverrideCap::Scaled(_) => return None,
        OverrideCap::Amount(_) if holds => return None,
        OverrideCap::Amount(_) => ("limit", "counts a rate; use for instance 100/minute"),
        OverrideCap::Rate { .. } if holds => ("limit", "counts requests in flight; use `limit: \"20 concurrent\"`"),
        OverrideCap::Rate { amount, period, burst } => match rule.override_limit(*amount, period, *burst) {
            Some(limit) if burst.is_some() && !matches!(limit.algorithm(), Algorithm::Bucket { .. }) => {
                ("burst", "is not a bucket and has no burst")
            }
            Some(_) => return None,
            None => ("requests_per_unit", "can't count that many exactly over this period"),
        },
    };
    Some(FieldFault { at: format!("{at}{place}"), what: format!("the rule {} {message}", quoted(rule.name())) })
}
