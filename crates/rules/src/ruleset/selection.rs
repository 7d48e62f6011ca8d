//! Selects rules: the default rule of a domain, and the rules of a descriptor such as `endpoint:POST /orders`.

use std::collections::HashSet;

use super::Domain;
use crate::model::Test;
use crate::pattern::Pattern;
use crate::rule::Rule;
use crate::tenants::Selector;

impl Domain {
    /// The rule that a caller's quota refers to if it names no other: the one of `default_rule`; otherwise the first
    /// rule of the list that counts by the caller alone and has no conditions; otherwise the first that counts by the
    /// caller alone.
    ///
    /// Whether a rule is switched off does not matter, so that a switch does not redirect a quota to another rule.
    pub fn default_rule(&self) -> Option<&Rule> {
        if let Some(named) = self.default_rule {
            return self.rules.get(named);
        }
        let by_caller = |rule: &&Rule| {
            let by = |part: &str| Some(part) == self.entity() && rule.key.iter().all(|part| !part.optional);
            rule.path.is_empty() && matches!(&*rule.key_names, [part] if by(part))
        };
        let of_all = self.rules.iter().filter(by_caller).find(|rule| rule.clauses.is_empty());
        of_all.or_else(|| self.rules.iter().find(by_caller))
    }

    /// The rules of a descriptor `attribute:value`: those whose `match` has this attribute with this one pattern, and
    /// the limits of the tree with this key and value on their path. The pattern is compared as written: `POST
    /// /orders*` selects the rule with `POST /orders*`, and `POST /orders/7` does not.
    ///
    /// The text is split at the first `:` after an attribute of the domain.
    pub fn select_rules(&self, descriptor: &str) -> Vec<&Rule> {
        let names = self.attribute_names();
        let mut known: HashSet<&str> = names.iter().copied().collect();
        known.extend(self.rules.iter().flat_map(|rule| &rule.path).map(|(key, _)| key.as_str()));
        let parts = descriptor.match_indices(':').map(|(at, _)| (&descriptor[..at], &descriptor[at + 1..]));
        let Some((attribute, value)) = parts.into_iter().find(|(name, _)| known.contains(name)) else {
            return Vec::new();
        };
        let selected = Pattern::new(value);
        let selects = |rule: &&Rule| {
            rule.single_patterns(&names).any(|(name, pattern)| name == attribute && *pattern == selected)
        };
        self.rules.iter().filter(selects).collect()
    }

    /// The descriptors that select a rule, and possibly others with it.
    pub fn descriptors_of(&self, rule: &Rule) -> Vec<String> {
        let names = self.attribute_names();
        rule.single_patterns(&names).map(|(name, pattern)| format!("{name}:{pattern}")).collect()
    }

    /// All descriptors that select a rule, each once, in the order of the rules.
    pub fn descriptors(&self) -> Vec<String> {
        let names = self.attribute_names();
        let mut seen = HashSet::new();
        let patterns = self.rules.iter().flat_map(|rule| rule.single_patterns(&names));
        patterns
            .filter(|descriptor| seen.insert(*descriptor))
            .map(|(name, pattern)| format!("{name}:{pattern}"))
            .collect()
    }

    /// Sets the selectors by which overrides refer to each rule.
    pub(super) fn set_selectors(&mut self) {
        let names = self.attribute_names();
        let default = self.default_rule();
        let selectors = self.rules.iter().map(|rule| {
            let texts =
                rule.single_patterns(&names).map(|(name, pattern)| Selector::descriptor(&format!("{name}:{pattern}")));
            let default = default.filter(|default| std::ptr::eq(*default, rule)).map(|_| Selector::default_rule());
            std::iter::once(Selector::rule(&rule.name)).chain(texts).chain(default).collect()
        });
        let selectors: Vec<_> = selectors.collect();
        for (rule, selectors) in self.rules.iter_mut().zip(selectors) {
            rule.selectors = selectors;
        }
    }

    /// The names of attributes by their numbers.
    fn attribute_names(&self) -> Vec<&str> {
        let mut numbered: Vec<_> = self.attributes.iter().collect();
        numbered.sort_unstable_by_key(|(_, number)| *number);
        numbered.into_iter().map(|(name, _)| name).collect()
    }
}

impl Rule {
    /// The attributes for which it has one pattern.
    fn single_patterns<'r>(&'r self, names: &'r [&'r str]) -> impl Iterator<Item = (&'r str, &'r Pattern)> {
        let of_list = self.clauses.iter().filter_map(|(attribute, test)| match test {
            Test::AnyOf(patterns) => match patterns.as_slice() {
                [pattern] => Some((*names.get(attribute.0 as usize)?, pattern)),
                _ => None,
            },
            _ => None,
        });
        let of_tree = self.path.iter().filter_map(|(key, pattern)| Some((key.as_str(), pattern.as_ref()?)));
        of_list.chain(of_tree)
    }
}
