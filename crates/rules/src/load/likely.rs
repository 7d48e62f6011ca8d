//! Conditions that are valid, but can't be meant: networks and expressions that are compared as texts.

use crate::address::is_address;
use crate::load::reader::FileReader;
use crate::model::Network;
use crate::problem::{TextFault, quoted};
use crate::yaml::{Yaml, YamlEntry, YamlKind};

/// Whether an attribute must have one of the values, or none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueSense {
    Is,
    IsNot,
}

/// An attribute of Envoy whose values are networks as text.
const MASKED: &str = "masked_remote_address";

/// Names under which other programs have parts of a request.
const REQUEST_PARTS: [&str; 10] =
    ["header", "headers", "query", "query_params", "param", "params", "cookie", "cookies", "claim", "claims"];

/// Parts of regular expressions that stand for any text, longest first.
const ANY_TEXT: [&str; 12] =
    ["[^/]+", "[^/]*", "[0-9]+", "[0-9]*", "[a-z]+", "[a-zA-Z0-9]+", "(.*)", "(.+)", "\\d+", "\\w+", ".*", ".+"];

/// Checks the values of a condition. `None` if one of them is an error, which has been reported.
pub(super) fn check_values(
    attribute: &str,
    value: &Yaml,
    sense: ValueSense,
    reader: &mut FileReader<'_>,
) -> Option<()> {
    let items = match &value.kind {
        YamlKind::List(items) => items.as_slice(),
        _ => std::slice::from_ref(value),
    };
    let texts = || {
        items.iter().filter_map(|item| if let YamlKind::Scalar(text) = &item.kind { Some((item, text)) } else { None })
    };
    let mut sound = true;
    for (item, scalar) in texts() {
        let text = scalar.text.as_str();
        if let Some(remedy) = network_remedy(attribute, text, sense) {
            let message = format!("{} is compared with the text {}", quoted(attribute), quoted(text));
            // An address never has a `/`, so that the rule could never apply.
            if is_address(attribute) {
                reader.error(item.line, format!("{message}, which no address is"), remedy);
                sound = false;
            } else {
                reader.warning(item.line, message, remedy);
            }
            continue;
        }
        let Some((kind, guess)) = expression(text) else { continue };
        let is_covered = guess.as_deref().is_some_and(|guess| texts().any(|(_, other)| other.text == guess));
        if !is_covered {
            let message = format!("{} is compared with this text, which looks like {kind}", quoted(attribute));
            let remedy = match guess {
                Some(guess) => format!("write {}: a `*` is any text, and nothing else is special", quoted(&guess)),
                None => "write a text in which `*` is any text; nothing else is special".to_owned(),
            };
            reader.warning(item.line, message, remedy);
        }
    }
    sound.then_some(())
}

/// The remedy for a network without `cidr`.
fn network_remedy(attribute: &str, text: &str, sense: ValueSense) -> Option<String> {
    let is_network = text.contains('/') && (text.parse::<Network>().is_ok() || is_address(attribute));
    if !is_network || attribute == MASKED {
        return None;
    }
    let test = match sense {
        ValueSense::Is => format!("{{cidr: {text}}}"),
        ValueSense::IsNot => format!("{{not: {{cidr: {text}}}}}"),
    };
    Some(format!("for the addresses of this network write {}", quoted(&format!("{attribute}: {test}"))))
}

/// What a text looks like, and the pattern that says the same.
fn expression(text: &str) -> Option<(&'static str, Option<String>)> {
    if let Some(glob) = from_template(text) {
        return Some(("a path template", Some(glob)));
    }
    // `.*` alone is also a pattern: `10.0.*`.
    let is_expression = text.starts_with('^')
        || (text.ends_with('$') && text.contains('/'))
        || ["\\.", "(?", "/.*"].iter().any(|part| text.contains(part))
        || ANY_TEXT.iter().any(|part| *part != ".*" && text.contains(part));
    is_expression.then(|| ("a regular expression", from_expression(text)))
}

/// `POST /orders/*` for `POST /orders/{id}` and `POST /orders/:id`.
fn from_template(text: &str) -> Option<String> {
    if !text.contains('/') {
        return None;
    }
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-*".contains(&byte))
            && !name.as_bytes()[0].is_ascii_digit()
    };
    let is_parameter = |part: &str| {
        let inner = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
        let inner = inner.or_else(|| part.strip_prefix('<').and_then(|part| part.strip_suffix('>')));
        inner.or_else(|| part.strip_prefix(':')).is_some_and(is_name)
    };
    let parts: Vec<&str> = text.split('/').collect();
    parts.iter().skip(1).any(|part| is_parameter(part)).then(|| {
        let written: Vec<&str> = parts.iter().map(|part| if is_parameter(part) { "*" } else { *part }).collect();
        written.join("/")
    })
}

/// The pattern of a simple regular expression.
fn from_expression(text: &str) -> Option<String> {
    let ends = text.ends_with('$');
    let mut pattern = text.trim_start_matches('^').trim_end_matches('$').to_owned();
    for part in ANY_TEXT {
        pattern = pattern.replace(part, "*");
    }
    pattern = pattern.replace("\\.", ".").replace("\\/", "/");
    if !ends && !pattern.ends_with('*') {
        pattern.push('*');
    }
    let is_simple = !pattern.contains(['(', ')', '[', ']', '{', '}', '|', '\\', '^', '$', '+', '?']);
    is_simple.then_some(pattern)
}

/// The error for a condition in the words of another program.
pub(super) fn foreign_condition(attribute: &str, entries: &[YamlEntry]) -> Option<TextFault> {
    let [YamlEntry { key, value, .. }] = entries else { return None };
    let word = key.text.as_str();
    if REQUEST_PARTS.contains(&attribute) && !["not", "cidr"].contains(&word) {
        let message = format!("a rule sees attributes, not the {attribute} of a request");
        let written = match &value.kind {
            YamlKind::Scalar(scalar) if !scalar.text.is_empty() => {
                quoted(&format!("match: {{{word}: {}}}", scalar.text))
            }
            _ => quoted(&format!("match: {{{word}: …}}")),
        };
        return Some(TextFault::new(
            message,
            format!("write {written}, and let the gateway send {} as an attribute", quoted(word)),
        ));
    }
    let YamlKind::Scalar(scalar) = &value.kind else {
        let list = list_text(value)?;
        let condition = match word {
            "in" | "any" | "any_of" | "one_of" | "anyOf" => list,
            "not_in" | "none_of" => format!("{{not: {list}}}"),
            _ => return None,
        };
        return Some(not_a_condition(word, format!("write {}", quoted(&format!("{attribute}: {condition}")))));
    };
    let text = scalar.text.as_str();
    let pattern = match word {
        "exact" | "equals" | "equal" | "eq" | "is" | "value" => quote(text),
        "prefix" | "starts_with" | "startsWith" => quote(&format!("{text}*")),
        "suffix" | "ends_with" | "endsWith" => quote(&format!("*{text}")),
        "contains" => quote(&format!("*{text}*")),
        "regex" | "regexp" | "safe_regex" | "matches" | "pattern" => match from_expression(text) {
            Some(pattern) => quote(&pattern),
            None => "\"…*\"".to_owned(),
        },
        "ne" | "neq" | "not_equal" | "not_equals" => format!("{{not: {}}}", quote(text)),
        "present" | "exists" | "present_match" => {
            (if scalar.as_bool() == Some(false) { "absent" } else { "present" }).to_owned()
        }
        "absent" => (if scalar.as_bool() == Some(false) { "present" } else { "absent" }).to_owned(),
        _ => return None,
    };
    Some(not_a_condition(word, format!("write {}", quoted(&format!("{attribute}: {pattern}")))))
}

/// `["a", "b"]`, of a list of texts.
fn list_text(value: &Yaml) -> Option<String> {
    let YamlKind::List(items) = &value.kind else { return None };
    let texts =
        items.iter().map(|item| if let YamlKind::Scalar(text) = &item.kind { Some(quote(&text.text)) } else { None });
    Some(format!("[{}]", texts.collect::<Option<Vec<_>>>()?.join(", ")))
}

fn not_a_condition(word: &str, remedy: String) -> TextFault {
    TextFault::new(format!("{} is not a key of a condition of match", quoted(word)), remedy)
}

/// A text in double quotes.
fn quote(text: &str) -> String {
    format!("{text:?}")
}
