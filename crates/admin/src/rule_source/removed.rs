//! Rules of files that are in force and missing in their successors.

use std::collections::HashSet;
use std::fmt;

use tollgate::{RuleOrigin, Ruleset};

/// The rules that a change of the files removes, as `domain/rule`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RemovedRules {
    count: usize,
    /// The first of them.
    names: Vec<String>,
}

/// Rules that a warning names.
const MAX_NAMED: usize = 20;

impl RemovedRules {
    /// `None` if all rules of files are still there. Rules by API are removed on purpose.
    pub(super) fn between(before: &Ruleset, after: &Ruleset) -> Option<RemovedRules> {
        let all = |rules: &Ruleset| -> HashSet<(String, String)> {
            let rules = rules.domains().iter().flat_map(|domain| {
                domain.rules().iter().map(|rule| (domain.name().to_owned(), rule.name().to_owned()))
            });
            rules.collect()
        };
        let left = all(after);
        let mut removed = RemovedRules { count: 0, names: Vec::new() };
        for domain in before.domains() {
            for rule in domain.rules().iter().filter(|rule| matches!(*rule.location().file, RuleOrigin::File(_))) {
                if !left.contains(&(domain.name().to_owned(), rule.name().to_owned())) {
                    removed.count += 1;
                    if removed.names.len() < MAX_NAMED {
                        removed.names.push(format!("{}/{}", domain.name(), rule.name()));
                    }
                }
            }
        }
        (removed.count > 0).then_some(removed)
    }
}

impl fmt::Display for RemovedRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(", "))?;
        match self.count - self.names.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(domain: &str, names: impl IntoIterator<Item = usize>) -> Ruleset {
        let rule = |name| format!("  - {{name: r{name}, key: [], limit: 1/s}}\n");
        let list: String = names.into_iter().map(rule).collect();
        Ruleset::from_text(&format!("domain: {domain}\nrules:\n{list}"), 1).unwrap().0
    }

    fn removed(before: &Ruleset, after: &Ruleset) -> Option<String> {
        RemovedRules::between(before, after).map(|removed| removed.to_string())
    }

    #[test]
    fn rules_are_compared_by_domain_and_name() {
        let all = rules("d", 0..3);
        assert_eq!(removed(&all, &rules("d", 0..4)), None);
        assert_eq!(removed(&all, &rules("d", [1])).as_deref(), Some("d/r0, d/r2"));
        assert_eq!(removed(&all, &rules("e", 0..3)).as_deref(), Some("d/r0, d/r1, d/r2"));
    }

    #[test]
    fn the_list_is_bounded() {
        let text = removed(&rules("d", 0..50), &rules("d", [0])).unwrap();
        assert!(text.starts_with("d/r1, ") && text.ends_with("d/r20 and 29 more"), "{text}");
    }
}
