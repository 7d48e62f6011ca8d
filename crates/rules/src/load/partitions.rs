//! Warnings about counters that do not share the caller's partition, and about an `entity` that names no caller.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::load::domain::visit;
use crate::model::{Domain, Node, Rule, RuleMode, SourceLocation, Test};
use crate::problem::{Problems, TextFault, nearest, quoted};

/// The maximum number of rules in a warning.
const MAX_NAMED: usize = 5;

/// Warns about a domain whose `entity` is at this place.
pub(super) fn check(domain: &Domain, entity_at: &SourceLocation, problems: &mut Problems) {
    if let Some(fault) = unused_entity(domain) {
        // Without callers, the other warnings would name wrong remedies.
        problems.warning(&entity_at.file, entity_at.line, fault);
        return;
    }
    warn_of_partitions(domain, problems);
    warn_of_partitions_in_the_tree(domain, problems);
}

/// The warning for an `entity` that no limit counts by: then nobody is a caller, and quotas, tiers and `tollgate why` have no effect.
fn unused_entity(domain: &Domain) -> Option<TextFault> {
    let entity = domain.entity.as_deref()?;
    let mut keys: Vec<&str> =
        domain.rules.iter().flat_map(|rule| &rule.key).map(|part| part.attribute.as_str()).collect();
    visit(&domain.tree, &mut |node| keys.push(&node.key));
    if keys.is_empty() || keys.contains(&entity) {
        return None;
    }
    let rules: Vec<&Rule> = domain.rules.iter().collect();
    let attribute =
        nearest(entity, keys.iter().copied()).or_else(|| commonest_key(&rules)).or(keys.first().copied())?;
    let message = format!("`entity` is {}, and no rule counts by it, so that no request has a caller", quoted(entity));
    Some(TextFault::new(message, format!("did you mean `entity: {attribute}`?")))
}

/// The counters of one caller are settled in one step; each counter elsewhere needs a step of its own.
fn warn_of_partitions(domain: &Domain, problems: &mut Problems) {
    let counted: Vec<&Rule> = domain.rules.iter().filter(|rule| rule.mode() != RuleMode::Off).collect();
    let apart: Vec<&Rule> = match &domain.entity {
        Some(entity) => {
            counted.iter().copied().filter(|rule| !rule.always_has_key(entity) && !rule.needs_absent(entity)).collect()
        }
        None => counted.clone(),
    };
    if apart.is_empty() || counted.len() < 2 {
        return;
    }
    let mut names: Vec<String> = apart.iter().take(MAX_NAMED).map(|rule| quoted(&rule.name)).collect();
    if apart.len() > MAX_NAMED {
        names.push(format!("{} more", apart.len() - MAX_NAMED));
    }
    let names = names.join(", ");
    let fault = match (&domain.entity, commonest_key(&counted)) {
        (Some(entity), _) => TextFault::new(
            format!("counters of {names} live apart from those of the caller, and cost each request a step more"),
            format!("add {} to their keys if they count by caller; else this is the price", quoted(entity)),
        ),
        (None, Some(attribute)) => TextFault::new(
            format!("counters of one request live apart from each other: those of {names}"),
            format!("write `entity: {attribute}`, so that all counters of one caller are settled in one step"),
        ),
        (None, None) => return,
    };
    problems.warning(&domain.at.file, domain.at.line, fault);
}

/// A limit of the tree is combined with others if there are rules as well, or if the limits of its ancestors are
/// charged too.
fn warn_of_partitions_in_the_tree(domain: &Domain, problems: &mut Problems) {
    let mut limits = Vec::new();
    for node in &domain.tree {
        find_limits(node, &mut Vec::new(), 0, &mut limits);
    }
    let meets_others = |limit: &&TreeLimit<'_>| !domain.rules.is_empty() || (domain.match_parents && limit.overlay > 0);
    let lives_apart =
        |limit: &&TreeLimit<'_>| domain.entity.as_deref().is_none_or(|entity| !limit.path.contains(&entity));
    let apart: Vec<&TreeLimit<'_>> = limits.iter().filter(meets_others).filter(lives_apart).collect();
    let Some(first) = apart.first() else { return };
    let mut names: Vec<String> = apart.iter().take(MAX_NAMED).map(|limit| quoted(limit.name)).collect();
    if apart.len() > MAX_NAMED {
        names.push(format!("{} more", apart.len() - MAX_NAMED));
    }
    let message = format!("counters of {} live apart from others of the same request", names.join(", "));
    let remedy = match &domain.entity {
        Some(entity) => {
            format!("have {} on their path if they count by caller; else this is the price", quoted(entity))
        }
        None => {
            format!("write `entity: {}`, so that all counters of one caller are settled in one step", first.path[0])
        }
    };
    problems.warning(&domain.at.file, domain.at.line, TextFault::new(message, remedy));
}

/// A limit of the tree, the keys of its path, and the number of limits on the path.
struct TreeLimit<'d> {
    name: &'d str,
    path: Vec<&'d str>,
    overlay: usize,
}

fn find_limits<'d>(node: &'d Node, path: &mut Vec<&'d str>, mut overlay: usize, found: &mut Vec<TreeLimit<'d>>) {
    path.push(&node.key);
    if let Some(limit) = &node.limit {
        found.push(TreeLimit { name: &limit.name, path: path.clone(), overlay });
        overlay += 1;
    }
    for child in &node.children {
        find_limits(child, path, overlay, found);
    }
    path.pop();
}

/// The attribute by which most rules count; the first one if there are several.
fn commonest_key<'r>(rules: &[&'r Rule]) -> Option<&'r str> {
    let mut uses: HashMap<&str, (usize, Reverse<usize>)> = HashMap::new();
    for (place, part) in rules.iter().flat_map(|rule| &rule.key).enumerate() {
        uses.entry(&part.attribute).or_insert((0, Reverse(place))).0 += 1;
    }
    uses.into_iter().max_by_key(|(_, rank)| *rank).map(|(attribute, _)| attribute)
}

impl Rule {
    fn mode(&self) -> RuleMode {
        self.terms.mode
    }

    fn always_has_key(&self, attribute: &str) -> bool {
        self.key.iter().any(|part| part.attribute == attribute && !part.optional)
    }

    fn needs_absent(&self, attribute: &str) -> bool {
        self.clauses.iter().any(|clause| clause.attribute == attribute && clause.test == Test::Absent)
    }
}
