//! Rules by what people call them: the default rule of a domain, and those that a text such as `endpoint:POST /orders` selects.

use std::collections::HashSet;

use crate::compiled::{Domain, Rule};
use crate::model::Test;
use crate::pattern::Pattern;
use crate::tenants::Selector;

impl Domain {
    /// The rule that a caller's quota means where no other is named: the one that `default_rule` names; else the first of the list
    /// that counts by the caller alone and has no conditions; else the first that counts by the caller alone.
    ///
    /// Whether a rule is switched off makes no difference, so that a switch does not turn a quota to another rule.
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

    /// The rules that a text `attribute:value` selects: those whose `match` has this attribute with this one pattern, and the limits
    /// of the tree that have this key and value on their way. The pattern is meant as it is written: `POST /orders*` selects the
    /// rule with `POST /orders*`, and `POST /orders/7` does not.
    ///
    /// The text is parted at its first `:` that has an attribute of the domain before it.
    pub fn selected(&self, descriptor: &str) -> Vec<&Rule> {
        let names = self.attribute_names();
        let mut known: HashSet<&str> = names.iter().copied().collect();
        known.extend(self.rules.iter().flat_map(|rule| &rule.path).map(|(key, _)| key.as_str()));
        let parts = descriptor.match_indices(':').map(|(at, _)| (&descriptor[..at], &descriptor[at + 1..]));
        let Some((attribute, value)) = parts.into_iter().find(|(name, _)| known.contains(name)) else {
            return Vec::new();
        };
        let wanted = Pattern::new(value);
        let selects = |rule: &&Rule| rule.told(&names).any(|(name, pattern)| name == attribute && *pattern == wanted);
        self.rules.iter().filter(selects).collect()
    }

    /// The texts that select a rule of this domain, and perhaps others with it.
    pub fn descriptors_of(&self, rule: &Rule) -> Vec<String> {
        let names = self.attribute_names();
        rule.told(&names).map(|(name, pattern)| format!("{name}:{pattern}")).collect()
    }

    /// All texts that select a rule, each once, in the order of the rules.
    pub fn descriptors(&self) -> Vec<String> {
        let names = self.attribute_names();
        let mut seen = HashSet::new();
        let told = self.rules.iter().flat_map(|rule| rule.told(&names));
        told.filter(|descriptor| seen.insert(*descriptor)).map(|(name, pattern)| format!("{name}:{pattern}")).collect()
    }

    /// Says by which names overrides may mean each rule.
    pub(crate) fn name_rules(&mut self) {
        let names = self.attribute_names();
        let default = self.default_rule();
        let told = self.rules.iter().map(|rule| {
            let texts = rule.told(&names).map(|(name, pattern)| Selector::descriptor(&format!("{name}:{pattern}")));
            let default = default.filter(|default| std::ptr::eq(*default, rule)).map(|_| Selector::default_rule());
            std::iter::once(Selector::rule(&rule.name)).chain(texts).chain(default).collect()
        });
        let told: Vec<_> = told.collect();
        for (rule, names) in self.rules.iter_mut().zip(told) {
            rule.names = names;
        }
    }

    /// The names of attributes by their numbers.
    fn attribute_names(&self) -> Vec<&str> {
        let mut names = vec![""; self.attributes.len()];
        for (name, number) in &self.attributes {
            names[number.0 as usize] = name;
        }
        names
    }
}

impl Rule {
    /// The attributes that it has one pattern for.
    fn told<'r>(&'r self, names: &'r [&'r str]) -> impl Iterator<Item = (&'r str, &'r Pattern)> {
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
