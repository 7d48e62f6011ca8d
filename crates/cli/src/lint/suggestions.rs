//! Suggestions of `tollgate lint`: rules that are valid and mean what they say, and could serve their callers better.

use tollgate::{Algorithm, RuleProblem, Severity};
use tollgate_observe::display;
use tollgate_rules::model::{Cap, Domain, Node, RuleMode, SourceLocation, Terms};
use tollgate_rules::quoted;

use crate::pluralize;

/// The largest amount for which a sliding window's extra unit is worth a suggestion.
const MAX_SMALL: u64 = 20;

/// Attributes that plainly name a caller, the plainest first.
const CALLERS: [&str; 22] = [
    "api_key",
    "apikey",
    "api-key",
    "x-api-key",
    "client_id",
    "user_id",
    "user",
    "customer_id",
    "customer",
    "account_id",
    "account",
    "tenant_id",
    "tenant",
    "org_id",
    "org",
    "team",
    "sub",
    "subject",
    "remote_address",
    "client_ip",
    "ip_address",
    "ip",
];

/// The suggestions for a domain, in the order of their lines.
pub(super) fn suggest(domain: &Domain) -> Vec<RuleProblem> {
    let limits = limits(domain);
    let mut found: Vec<RuleProblem> =
        suggest_entity(domain, &limits).into_iter().chain(suggest_exact(&limits)).collect();
    found.sort_by_key(|problem| problem.line);
    found
}

/// A limit of either form.
struct NamedLimit<'d> {
    name: &'d str,
    /// The attributes that it counts by.
    key: Vec<&'d str>,
    terms: &'d Terms,
    at: &'d SourceLocation,
}

fn limits(domain: &Domain) -> Vec<NamedLimit<'_>> {
    let of_list = domain.rules.iter().map(|rule| NamedLimit {
        name: &rule.name,
        key: rule.key.iter().map(|part| part.attribute.as_str()).collect(),
        terms: &rule.terms,
        at: &rule.at,
    });
    let mut limits: Vec<NamedLimit<'_>> = of_list.collect();
    for node in &domain.tree {
        add_tree_limits(node, &mut Vec::new(), &mut limits);
    }
    limits
}

fn add_tree_limits<'d>(node: &'d Node, path: &mut Vec<&'d str>, limits: &mut Vec<NamedLimit<'d>>) {
    path.push(&node.key);
    if let Some(limit) = &node.limit {
        limits.push(NamedLimit { name: &limit.name, key: path.clone(), terms: &limit.terms, at: &node.at });
    }
    for child in &node.children {
        add_tree_limits(child, path, limits);
    }
    path.pop();
}

/// A sliding window can admit a unit too many around the border of two windows, which shows with small amounts.
fn suggest_exact(limits: &[NamedLimit<'_>]) -> Option<RuleProblem> {
    let small = |limit: &&NamedLimit<'_>| {
        limit.terms.mode != RuleMode::Off && limit.terms.caps.iter().flatten().any(is_small_window)
    };
    let mut small_limits = limits.iter().filter(small);
    let first = small_limits.next()?;
    let text = first.terms.caps.iter().flatten().find_map(|cap| match cap {
        Cap::Limit(limit) if is_small_window(cap) => {
            Some(format!("{}/{}", limit.amount(), display::period(limit.period())))
        }
        _ => None,
    })?;
    let others = match small_limits.count() {
        0 => String::new(),
        others => format!(" and {}", pluralize(others, "other rule")),
    };
    let message = format!(
        "{}{others}: a sliding window of {text} may admit one more around the border of two windows",
        quoted(first.name)
    );
    Some(suggestion(
        first.at,
        message,
        "write `algorithm: sliding_log` for an exact count, or `algorithm: token_bucket`",
    ))
}

fn is_small_window(cap: &Cap) -> bool {
    match cap {
        Cap::Limit(limit) => {
            // Only windows can follow a calendar.
            matches!(limit.algorithm(), Algorithm::SlidingWindow { .. })
                && (1..=MAX_SMALL).contains(&limit.amount())
                && limit.period().as_calendar().is_none()
        }
        Cap::Unlimited => false,
    }
}

/// Without an `entity` there are no quotas, no usage and no explanations of refusals.
fn suggest_entity(domain: &Domain, limits: &[NamedLimit<'_>]) -> Option<RuleProblem> {
    if domain.entity.is_some() {
        return None;
    }
    let caller = CALLERS.iter().find(|caller| limits.iter().any(|limit| limit.key.contains(caller)))?;
    let message =
        format!("{} has no `entity`: quotas, usage and explanations by caller are not available", quoted(&domain.name));
    Some(suggestion(&domain.at, message, &format!("write `entity: {caller}` below `domain`")))
}

fn suggestion(at: &SourceLocation, message: String, remedy: &str) -> RuleProblem {
    // The report tells suggestions from warnings by their list.
    RuleProblem {
        severity: Severity::Warning,
        file: at.file.clone(),
        line: at.line,
        message,
        remedy: remedy.to_owned(),
    }
}
