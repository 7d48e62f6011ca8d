//! envoyproxy/ratelimit's form: the `descriptors` tree, as its users write it.
//!
//! That program silently ignores keys without effect; this one reports them.

use tollgate_core::{Period, Span};

use crate::limit_text::LimitText;
use crate::load::domain::DomainSettings;
use crate::load::keys::{self, DESCRIPTOR_TERMS};
use crate::load::reader::{Fields, FileReader};
use crate::load::terms::{LimitKeys, TierLimits, WithLine};
use crate::model::{Node, NodeLimit, RuleMode};
use crate::pattern::Pattern;
use crate::problem::{choose, quoted};
use crate::yaml::{Yaml, YamlKind, json};

/// Units and their lengths in seconds.
pub(crate) const UNITS: &[(&str, u64)] = &[
    ("second", 1),
    ("minute", 60),
    ("hour", 3_600),
    ("day", 86_400),
    ("week", 7 * 86_400),
    ("month", 30 * 86_400),
    ("year", 365 * 86_400),
];

/// The maximum length of the path that names a limit. Every node has a path of its own, so long ones would multiply.
const MAX_PATH_BYTES: usize = 1_024;

/// The valid roots of a tree.
pub(super) fn read(list: &Yaml, settings: &DomainSettings, reader: &mut FileReader<'_>) -> Vec<Node> {
    read_nodes(list, Some(""), settings, reader)
}

/// An entry of a path, as in the names of limits.
pub(super) fn entry_text(key: &str, value: Option<&str>) -> String {
    match value {
        Some(value) => format!("{key}={value}"),
        None => key.to_owned(),
    }
}

/// `parents` is the path so far, unless it is too long.
fn read_nodes(list: &Yaml, parents: Option<&str>, settings: &DomainSettings, reader: &mut FileReader<'_>) -> Vec<Node> {
    let items = reader.list(list, "descriptors", "`- key: api_key`").unwrap_or(&[]);
    items.iter().filter_map(|item| read_node(item, parents, settings, reader)).collect()
}

fn read_node(
    item: &Yaml,
    parents: Option<&str>,
    settings: &DomainSettings,
    reader: &mut FileReader<'_>,
) -> Option<Node> {
    let fields = reader.fields(item, &keys::DESCRIPTOR)?;
    let key = match fields.get_given("key") {
        Some(value) => text(value, "key", reader),
        None => {
            reader.error(fields.line, "the descriptor has no `key`", "write `key: NAME`");
            None
        }
    };
    // An empty value means no value in that form.
    let value_text = fields.get_given("value").and_then(|value| text_or_empty(value, "value", reader));
    let value_text = value_text.filter(|text| !text.is_empty());
    let entry = entry_text(key.as_deref().unwrap_or_default(), value_text.as_deref());
    let path = parents.map(|parents| if parents.is_empty() { entry } else { format!("{parents}/{entry}") });
    let path = path.filter(|path| path.len() <= MAX_PATH_BYTES);

    let mut flag = |key| fields.get_given(key).and_then(|value| reader.boolean(value, key)).unwrap_or(false);
    let (share_threshold, detailed_metric) = (flag("share_threshold"), flag("detailed_metric"));
    let value_to_metric = flag("value_to_metric");
    let value = value_text.as_deref().map(Pattern::new);
    if share_threshold && !value.as_ref().is_some_and(Pattern::is_wild) {
        let line = fields.entry("share_threshold").map_or(fields.line, |entry| entry.line);
        reader.error(line, "`share_threshold` needs a value with a wildcard", "write a `*` in `value`, or remove it");
    }
    let node_limit = read_node_limit(&fields, path.as_deref(), settings, reader);
    let metadata = fields.get_given("metadata").and_then(|value| read_metadata(value, reader)).unwrap_or_default();
    let children = fields.get_given("descriptors").map(|list| read_nodes(list, path.as_deref(), settings, reader));
    Some(Node {
        key: key?,
        value,
        value_text,
        limit: node_limit,
        share_threshold,
        detailed_metric,
        value_to_metric,
        metadata,
        children: children.unwrap_or_default(),
        at: reader.place(fields.line),
    })
}

fn read_node_limit(
    fields: &Fields<'_>,
    path: Option<&str>,
    settings: &DomainSettings,
    reader: &mut FileReader<'_>,
) -> Option<NodeLimit> {
    let mut wording = LimitKeys::read(reader, fields);
    if let Some(mode) = tree_mode(fields, reader) {
        wording.mode = if wording.mode == RuleMode::Off { RuleMode::Off } else { mode };
    }
    let Some(rate_limit) = fields.get_given("rate_limit") else {
        for entry in DESCRIPTOR_TERMS.iter().filter_map(|key| fields.entry(key)) {
            let message = format!("`{}` means nothing without `rate_limit`", entry.key.text);
            reader.error(entry.line, message, "add a `rate_limit` to the descriptor, or remove it");
        }
        return None;
    };
    let limit = reader.fields(rate_limit, &keys::RATE_LIMIT)?;
    let name = limit.get_given("name").and_then(|value| text_or_empty(value, "name", reader));
    let name = name.filter(|name| !name.is_empty());
    let replaces = read_replaces(&limit, name.as_deref(), reader);
    let rate = read_rate(&limit, reader)?;
    let quotas = TierLimits::same(WithLine { value: rate, line: limit.line }, &settings.tiers);
    let terms = wording.terms(&quotas, settings, reader)?;
    let named = name.is_some();
    let Some(name) = name.or_else(|| path.map(str::to_owned)) else {
        let message = format!("the keys and values that lead here are longer than {MAX_PATH_BYTES} bytes together");
        reader.error(limit.line, message, "give the `rate_limit` a `name` of its own");
        return None;
    };
    Some(NodeLimit { name, named, replaces, terms })
}

/// `shadow_mode` and `quota_mode`, if one of them is set.
fn tree_mode(fields: &Fields<'_>, reader: &mut FileReader<'_>) -> Option<RuleMode> {
    let mut flag = |key| fields.get_given(key).and_then(|value| reader.boolean(value, key)).unwrap_or(false);
    let (key, mode) = match (flag("shadow_mode"), flag("quota_mode")) {
        (false, false) => return None,
        (true, quota) => {
            if quota {
                let line = fields.entry("quota_mode").map_or(fields.line, |entry| entry.line);
                reader.warning(line, "`quota_mode` has no effect with `shadow_mode`", "keep one of the two");
            }
            ("shadow_mode", RuleMode::Shadow)
        }
        (false, true) => ("quota_mode", RuleMode::AnyOf),
    };
    for entry in ["mode", "enforce"].into_iter().filter_map(|key| fields.entry(key)) {
        let message = format!("`{}` conflicts with `{key}`", entry.key.text);
        reader.error(entry.line, message, "keep one of the two");
    }
    Some(mode)
}

fn read_rate(limit: &Fields<'_>, reader: &mut FileReader<'_>) -> Option<LimitText> {
    let unlimited = limit.get_given("unlimited").and_then(|value| reader.boolean(value, "unlimited")).unwrap_or(false);
    let amount = match limit.get_given("requests_per_unit") {
        // Envoy users omit the number to block.
        None => Some(0),
        Some(value) => reader.number(value, "requests_per_unit", 0..=tollgate_core::EXACT - 1),
    };
    let unit = limit.get_given("unit");
    if unlimited {
        if let Some(unit) = unit {
            reader.error(unit.line, "`unit` conflicts with `unlimited`", "keep one of the two");
            return None;
        }
        return Some(LimitText::Unlimited);
    }
    let Some(unit) = unit else {
        reader.error(limit.line, "the `rate_limit` has no `unit`", "write `unit: minute`, or `unlimited: true`");
        return None;
    };
    let period = read_unit(unit, reader)?;
    Some(LimitText::Rate { amount: amount?, period })
}

fn read_unit(value: &Yaml, reader: &mut FileReader<'_>) -> Option<Period> {
    let text = text(value, "unit", reader)?;
    let Some((_, seconds)) = UNITS.iter().find(|(unit, _)| unit.eq_ignore_ascii_case(&text)) else {
        let message = format!("`unit` can't be {}", quoted(&text));
        // Other periods are a reason to migrate from envoyproxy/ratelimit.
        let length = text.starts_with(|c: char| c.is_ascii_digit());
        let remedy = if length {
            "write one of second, minute, hour, day, week, month, year; other lengths are for `rules`: `limit: 20/30s`"
                .to_owned()
        } else {
            choose(&text, UNITS.iter().map(|(unit, _)| *unit))
        };
        reader.error(value.line, message, remedy);
        return None;
    };
    Period::fixed(Span::from_secs(*seconds)).ok()
}

fn read_replaces(limit: &Fields<'_>, own: Option<&str>, reader: &mut FileReader<'_>) -> Vec<String> {
    let Some(list) = limit.get_given("replaces") else { return Vec::new() };
    let items = reader.list(list, "replaces", "`replaces: [{name: other}]`").unwrap_or(&[]);
    let mut names = Vec::new();
    for item in items {
        let Some(fields) = reader.fields(item, &keys::REPLACED) else { continue };
        match fields.get_given("name").and_then(|value| text_or_empty(value, "name", reader)) {
            Some(name) if Some(name.as_str()) == own => {
                let message = format!("{} replaces itself", quoted(&name));
                reader.error(fields.line, message, "name another limit, or remove the entry");
            }
            Some(name) if !name.is_empty() => names.push(name),
            _ => reader.error(fields.line, "an entry of `replaces` names nothing", "write `- name: OTHER`"),
        }
    }
    names
}

/// A text that is not empty.
fn text(value: &Yaml, what: &str, reader: &mut FileReader<'_>) -> Option<String> {
    let text = text_or_empty(value, what, reader)?;
    if text.is_empty() {
        reader.error(value.line, format!("`{what}` is empty"), "write a text");
        return None;
    }
    Some(text)
}

/// Numbers and words are taken as texts as written. For a number with a fraction, the text would be ambiguous in that
/// program.
fn text_or_empty(value: &Yaml, what: &str, reader: &mut FileReader<'_>) -> Option<String> {
    match &value.kind {
        YamlKind::Scalar(scalar) if scalar.is_float() => {
            reader.wrong(value, what, "a text", format!("put it in quotes: \"{}\"", scalar.text))
        }
        YamlKind::Scalar(scalar) => reader.within_requests(value.line, &scalar.text, what),
        _ => reader.wrong(value, what, "a text", "write a single value"),
    }
}

fn read_metadata(value: &Yaml, reader: &mut FileReader<'_>) -> Option<Vec<(String, String)>> {
    let entries = reader.entries(value, "metadata", "`metadata: {team: payments}`")?;
    let text = |value: &Yaml| match &value.kind {
        YamlKind::Scalar(scalar) if !scalar.is_null() => scalar.text.clone(),
        _ => json::write(value),
    };
    Some(entries.iter().map(|entry| (entry.key.text.clone(), text(&entry.value))).collect())
}
