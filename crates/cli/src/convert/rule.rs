//! A converted rule, and its text.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::Conversion;

/// A rule in the words of rule files.
#[derive(Clone, Debug, Default)]
pub(super) struct ConvertedRule {
    /// `None` for the domain that is named after the program.
    pub(super) domain: Option<String>,
    pub(super) name: String,
    pub(super) key: Vec<String>,
    /// Attributes and the values that they must have.
    pub(super) conditions: Vec<(String, ValueCondition)>,
    pub(super) limit: String,
    /// Other keys of the rule, with their values.
    pub(super) terms: Vec<(&'static str, String)>,
    pub(super) line: usize,
}

/// A condition on an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ValueCondition {
    AnyOf(Vec<String>),
    NoneOf(Vec<String>),
}

/// What could not be converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) line: usize,
    pub(super) text: String,
}

/// The longest name of a rule.
const MAX_NAME_BYTES: usize = 100;

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: not converted: {}", self.line, one_line(&self.text))
    }
}

/// Gives each rule of a domain a valid name of its own.
pub(super) fn name_apart(rules: &mut [ConvertedRule]) {
    let mut names: HashSet<(Option<String>, String)> = HashSet::new();
    let mut counts: HashMap<(Option<String>, String), usize> = HashMap::new();
    for rule in rules {
        let words = rule.name.split(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c));
        let clean = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
        let mut name = clean.trim_matches('-').replace("--", "-").chars().take(MAX_NAME_BYTES).collect::<String>();
        if name.is_empty() {
            name = "rule".to_owned();
        }
        let count = counts.entry((rule.domain.clone(), name.clone())).or_default();
        rule.name.clone_from(&name);
        while !names.insert((rule.domain.clone(), rule.name.clone())) {
            *count += 1;
            rule.name = format!("{name}-{}", *count + 1);
        }
    }
}

/// A rule file.
pub(super) fn to_yaml(origin: &str, conversion: &Conversion) -> String {
    let mut text = format!(
        "# Converted from {origin} by `tollgate convert`. Check it with `tollgate lint`, try it in shadow mode, and compare it\n\
         # with your traffic by `tollgate replay`. The gateway has to send the attributes in `key` and `match`.\n"
    );
    if !conversion.notes.is_empty() {
        text.push_str("#\n# Not converted:\n");
        for note in &conversion.notes {
            text.push_str(&format!("#   line {}: {}\n", note.line, one_line(&note.text)));
        }
    }
    let mut domains: Vec<Option<&str>> = Vec::new();
    for rule in &conversion.rules {
        if !domains.contains(&rule.domain.as_deref()) {
            domains.push(rule.domain.as_deref());
        }
    }
    for (number, domain) in domains.iter().enumerate() {
        let rules: Vec<&ConvertedRule> =
            conversion.rules.iter().filter(|rule| rule.domain.as_deref() == *domain).collect();
        text.push_str(if number == 0 { "\n" } else { "\n---\n" });
        text.push_str(&format!("domain: {}\n", quote(domain.unwrap_or(origin))));
        if let Some(entity) = rules.iter().find_map(|rule| rule.key.first()) {
            text.push_str(&format!("entity: {}\n", quote(entity)));
        }
        text.push_str("rules:\n");
        rules.iter().for_each(|rule| text.push_str(&rule.to_yaml()));
    }
    text
}

impl ConvertedRule {
    fn to_yaml(&self) -> String {
        let key: Vec<String> = self.key.iter().map(|attribute| quote(attribute)).collect();
        let mut text =
            format!("  # line {}\n  - name: {}\n    key: [{}]\n", self.line, quote(&self.name), key.join(", "));
        if !self.conditions.is_empty() {
            let conditions: Vec<String> =
                self.conditions.iter().map(|(name, test)| format!("{}: {}", quote(name), test.to_yaml())).collect();
            text.push_str(&format!("    match: {{{}}}\n", conditions.join(", ")));
        }
        text.push_str(&format!("    limit: {}\n", self.limit));
        for (name, value) in &self.terms {
            text.push_str(&format!("    {name}: {value}\n"));
        }
        text
    }
}

impl ValueCondition {
    fn to_yaml(&self) -> String {
        let list = |values: &[String]| match values {
            [only] => quote(only),
            several => format!("[{}]", several.iter().map(|value| quote(value)).collect::<Vec<_>>().join(", ")),
        };
        match self {
            ValueCondition::AnyOf(values) => list(values),
            ValueCondition::NoneOf(values) => format!("{{not: {}}}", list(values)),
        }
    }
}

/// A plain word as it is, anything else in quotes. JSON's texts are YAML too.
fn quote(text: &str) -> String {
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
        && !["absent", "present", "true", "false", "yes", "no", "on", "off", "null"].contains(&&*text.to_lowercase());
    if is_word { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// A text for a comment.
fn one_line(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    text.chars().take(MAX_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
