//! The conditions under `match`.

use crate::load::keys;
use crate::load::likely::{self, ValueSense};
use crate::load::reader::FileReader;
use crate::model::{Clause, Network, Test};
use crate::pattern::Pattern;
use crate::yaml::{Scalar, Yaml, YamlKind};

/// All conditions of a rule.
pub(super) fn read(value: &Yaml, reader: &mut FileReader<'_>) -> Option<Vec<Clause>> {
    let entries = reader.entries(value, "match", "`match: {endpoint: \"POST /login\"}`")?;
    // All of them are read before the rule is rejected, so that every error is reported.
    let clauses: Vec<Option<Clause>> = entries
        .iter()
        .map(|entry| {
            if entry.key.text.is_empty() {
                reader.error(
                    entry.line,
                    "`match` has a condition on no attribute",
                    "name the attribute before the `:`",
                );
            }
            let attribute = reader.within_requests(entry.line, &entry.key.text, "match");
            let test = read_test(&entry.value, &entry.key.text, reader);
            Some(Clause { attribute: attribute?, test: test? })
        })
        .collect();
    clauses.into_iter().collect()
}

/// A pattern that the value of a request can match.
pub(super) fn pattern(scalar: &Scalar, line: usize, reader: &mut FileReader<'_>) -> Option<Pattern> {
    reader.within_requests(line, &scalar.text, "match").map(|text| Pattern::new(&text))
}

/// The condition on an attribute.
fn read_test(value: &Yaml, attribute: &str, reader: &mut FileReader<'_>) -> Option<Test> {
    match &value.kind {
        YamlKind::Scalar(scalar) if scalar.plain && scalar.text == "absent" => Some(Test::Absent),
        YamlKind::Scalar(scalar) if scalar.plain && scalar.text == "present" => Some(Test::Present),
        YamlKind::Scalar(_) | YamlKind::List(_) => {
            likely::check_values(attribute, value, ValueSense::Is, reader)?;
            read_patterns(value, reader)
        }
        YamlKind::Map(entries) => {
            if let Some(fault) = likely::foreign_condition(attribute, entries) {
                reader.fault(value.line, fault);
                return None;
            }
            let fields = reader.fields(value, &keys::TEST)?;
            match (fields.get("not"), fields.get("cidr")) {
                (Some(refused), None) => read_refused(refused, attribute, reader).map(|test| Test::Not(Box::new(test))),
                (None, Some(networks)) => read_networks(networks, reader),
                // An unknown key has been reported.
                (None, None) if !fields.is_empty() => None,
                _ => {
                    let remedy = "write one of `{not: …}` and `{cidr: …}`, or `{not: {cidr: …}}`";
                    reader.error(value.line, "a condition of match is one thing", remedy);
                    None
                }
            }
        }
    }
}

/// The condition under `not`.
fn read_refused(value: &Yaml, attribute: &str, reader: &mut FileReader<'_>) -> Option<Test> {
    if !matches!(value.kind, YamlKind::Map(_)) {
        likely::check_values(attribute, value, ValueSense::IsNot, reader)?;
        return read_patterns(value, reader);
    }
    let fields = reader.fields(value, &keys::REFUSED_TEST)?;
    match fields.get("cidr") {
        Some(networks) => read_networks(networks, reader),
        None if !fields.is_empty() => None,
        None => {
            reader.error(
                value.line,
                "`not` refuses nothing",
                "write `{not: value}`, `{not: [values]}` or `{not: {cidr: …}}`",
            );
            None
        }
    }
}

fn read_patterns(value: &Yaml, reader: &mut FileReader<'_>) -> Option<Test> {
    let items = match &value.kind {
        YamlKind::List(items) => items.as_slice(),
        _ => std::slice::from_ref(value),
    };
    if items.is_empty() {
        reader.error(value.line, "`match` has an empty list, which nothing fits", "write values, or `absent`");
        return None;
    }
    let patterns: Vec<Option<Pattern>> = items.iter().map(|item| read_pattern(item, reader)).collect();
    patterns.into_iter().collect::<Option<Vec<_>>>().map(Test::AnyOf)
}

fn read_pattern(value: &Yaml, reader: &mut FileReader<'_>) -> Option<Pattern> {
    let YamlKind::Scalar(scalar) = &value.kind else {
        return reader.wrong(value, "match", "a value", "write an exact value or one with `*`");
    };
    let remedy = match scalar.text.as_str() {
        _ if scalar.is_null() => "write a value, `absent` or `present`; an empty text is \"\"",
        "absent" | "present" if scalar.plain => "write it alone, as the whole condition; as a text it needs quotes",
        _ => return pattern(scalar, value.line, reader),
    };
    reader.wrong(value, "match", "a value here", remedy)
}

fn read_networks(value: &Yaml, reader: &mut FileReader<'_>) -> Option<Test> {
    let items = match &value.kind {
        YamlKind::List(items) => items.as_slice(),
        _ => std::slice::from_ref(value),
    };
    if items.is_empty() {
        reader.error(value.line, "`cidr` has an empty list, which nothing fits", "write a network such as 10.0.0.0/8");
        return None;
    }
    let networks: Vec<Option<Network>> = items
        .iter()
        .map(|item| {
            let text = reader.text(item, "cidr")?;
            reader.sound(item.line, "cidr", text.parse())
        })
        .collect();
    networks.into_iter().collect::<Option<Vec<_>>>().map(Test::Within)
}
