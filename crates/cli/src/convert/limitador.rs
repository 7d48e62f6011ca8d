//! The limits file of Limitador: a list of limits, each with its namespace, conditions and variables.

use tollgate_rules::yaml::{Yaml, YamlKind};

use super::Conversion;
use super::rule::{ConvertedRule, ValueCondition};
use super::yaml_values::{documents, get, number, text, texts};

/// Keys of a limit that are converted.
const CONVERTED: [&str; 7] = ["namespace", "max_value", "seconds", "conditions", "variables", "name", "id"];

/// Converts a file.
pub(super) fn convert(text: &str) -> Conversion {
    let mut conversion = Conversion::default();
    for document in &documents(text, &mut conversion) {
        match &document.kind {
            YamlKind::List(limits) => limits.iter().for_each(|limit| add_limit(limit, &mut conversion)),
            _ => conversion.note(document.line, "the file is not a list of limits"),
        }
    }
    conversion
}

fn add_limit(limit: &Yaml, conversion: &mut Conversion) {
    let YamlKind::Map(entries) = &limit.kind else {
        conversion.note(limit.line, "this is not a limit");
        return;
    };
    let value = |name: &str| get(limit, name);
    let (amount, seconds) = (value("max_value").and_then(number), value("seconds").and_then(number));
    let (Some(amount), Some(seconds @ 1..)) = (amount, seconds) else {
        conversion.note(limit.line, "a limit without max_value and seconds");
        return;
    };
    for entry in entries.iter().filter(|entry| !CONVERTED.contains(&entry.key.text.as_str())) {
        conversion.note(entry.line, format!("{}: it is no part of a rule", entry.key.text));
    }
    let mut conditions = Vec::new();
    for condition in value("conditions").map(texts).unwrap_or_default() {
        match parse_condition(condition) {
            Some(condition) => conditions.push(condition),
            // Without the condition the limit would apply to other requests.
            None => {
                let text = format!("the limit with the condition {condition}: write its `match` yourself");
                conversion.note(limit.line, text);
                return;
            }
        }
    }
    let mut key = Vec::new();
    for variable in value("variables").map(texts).unwrap_or_default() {
        match attribute(variable) {
            Some(name) if !key.contains(&name) => key.push(name),
            Some(_) => {}
            None => {
                conversion
                    .note(limit.line, format!("the limit with the variable {variable}: write its `key` yourself"));
                return;
            }
        }
    }
    let name = value("name").or_else(|| value("id")).and_then(text).map(str::to_owned);
    let name = name.unwrap_or_else(|| if key.is_empty() { "all".to_owned() } else { format!("by-{}", key.join("-")) });
    conversion.rules.push(ConvertedRule {
        domain: value("namespace").and_then(text).map(str::to_owned),
        name,
        key,
        conditions,
        limit: format!("{amount}/{seconds}s"),
        terms: vec![("algorithm", "fixed_window".to_owned())],
        line: limit.line,
    });
}

/// `req.method == 'POST'`, `descriptors[0]['req.method'] != "GET"`.
fn parse_condition(text: &str) -> Option<(String, ValueCondition)> {
    let (left, right, is_equal) = match text.split_once("==") {
        Some((left, right)) => (left, right, true),
        None => text.split_once("!=").map(|(left, right)| (left, right, false))?,
    };
    // A value may come first.
    let (name, value) = match (literal(left.trim()), literal(right.trim())) {
        (None, Some(value)) => (attribute(left.trim())?, value),
        (Some(value), None) => (attribute(right.trim())?, value),
        _ => return None,
    };
    // In a pattern a `*` is any text.
    if value.contains('*') {
        return None;
    }
    let values = vec![value.to_owned()];
    Some((name, if is_equal { ValueCondition::AnyOf(values) } else { ValueCondition::NoneOf(values) }))
}

/// A text in quotes.
fn literal(text: &str) -> Option<&str> {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote).filter(|inner| !inner.contains(quote));
    inner('"').or_else(|| inner('\''))
}

/// The attribute that an expression names: `user_id`, `descriptors[0].user_id`, `descriptors[0]['user_id']`.
fn attribute(text: &str) -> Option<String> {
    let name = match text.strip_prefix("descriptors[0]") {
        None => text,
        Some(rest) => match rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(inner) => literal(inner)?,
            None => rest.strip_prefix('.')?,
        },
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "._-:".contains(c));
    is_name.then(|| name.to_owned())
}
