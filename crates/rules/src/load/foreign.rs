//! Forms of other programs in a rule, and what to write instead.

use crate::load::tree_form::UNITS;
use crate::yaml::{Yaml, YamlEntry, YamlKind};

/// Keys of other programs for the amount and the period of a limit.
const AMOUNTS: [&str; 4] = ["rate", "requests", "max", "max_requests"];
const PERIODS: [&str; 4] = ["period", "window", "interval", "per"];

/// The maximum number of limits in a remedy.
const MAX_LIMITS: usize = 4;

/// Whether an entry of `rules` is a descriptor of envoyproxy/ratelimit.
pub(super) fn is_descriptor(item: &Yaml) -> bool {
    let YamlKind::Map(entries) = &item.kind else { return false };
    let has = |name: &str| find(entries, name).is_some();
    let is_map = |name: &str| find(entries, name).is_some_and(|value| matches!(value.kind, YamlKind::Map(_)));
    !has("limit") && (is_map("rate_limit") || has("descriptors"))
}

/// The remedy for a descriptor among rules: the same as a rule, if it can be written in one line.
pub(super) fn as_rule(item: &Yaml) -> Option<String> {
    if !is_descriptor(item) {
        return None;
    }
    let rule = one_line_rule(item).map(|rule| format!(", or as a rule: `{rule}`")).unwrap_or_default();
    Some(format!("move it to `descriptors:`{rule}"))
}

fn one_line_rule(item: &Yaml) -> Option<String> {
    let YamlKind::Map(entries) = &item.kind else { return None };
    let key = text(find(entries, "key")?)?;
    let YamlKind::Map(rate) = &find(entries, "rate_limit")?.kind else { return None };
    let limit = limit_of(rate)?;
    let condition = match find(entries, "value") {
        Some(value) => format!(", match: {{{key}: \"{}\"}}", text(value)?),
        None => String::new(),
    };
    let is_simple = entries.iter().all(|entry| ["key", "value", "rate_limit"].contains(&entry.key.text.as_str()));
    is_simple.then(|| format!("{{name: {key}, key: [{key}]{condition}, limit: {limit}}}"))
}

/// The remedy for a key of another program in a rule with these entries.
pub(super) fn rule_key(entry: &YamlEntry, entries: &[YamlEntry]) -> Option<String> {
    let value = text(&entry.value);
    Some(match entry.key.text.as_str() {
        "unit" | "requests_per_unit" | "rate_limit" => {
            let limit = match &entry.value.kind {
                YamlKind::Map(rate) => limit_of(rate),
                _ => limit_of(entries),
            };
            format!("write `limit: {}`", limit.as_deref().unwrap_or("20/minute"))
        }
        "concurrent" | "concurrency" | "max_concurrent" | "max_concurrency" => {
            format!("write `limit: {} concurrent`", value.unwrap_or("20"))
        }
        name if AMOUNTS.contains(&name) || PERIODS.contains(&name) => match value {
            Some(rate) if rate.contains('/') => format!("write `limit: {rate}`"),
            _ => format!("write `limit: {}/{}`", amount_of(entries), period_of(entries)),
        },
        _ => return None,
    })
}

/// Whether one of these keys stands for the limit, so that its absence is not another error.
pub(super) fn names_limit(entries: &[YamlEntry]) -> bool {
    entries.iter().any(|entry| rule_key(entry, entries).is_some())
}

/// The remedy for several limits in one rule.
pub(super) fn several_limits(limits: &[Yaml]) -> String {
    let texts: Vec<String> =
        limits.iter().take(MAX_LIMITS).filter_map(text).map(|limit| format!("`limit: {limit}`")).collect();
    match texts.as_slice() {
        [] => "write for instance `limit: 100/minute`".to_owned(),
        [only] => format!("write {only}"),
        several => format!(
            "write a rule for each, with the same `key` and `match`: one with {}; a request must pass all of them",
            several.join(", one with ")
        ),
    }
}

/// `5/minute`, from the keys of envoyproxy/ratelimit.
fn limit_of(entries: &[YamlEntry]) -> Option<String> {
    let unit = text(find(entries, "unit")?)?.to_ascii_lowercase();
    let amount = text(find(entries, "requests_per_unit")?)?;
    let is_unit = UNITS.iter().any(|(name, _)| *name == unit);
    is_unit.then(|| format!("{amount}/{unit}"))
}

/// The amount of a rule in the keys of other programs.
fn amount_of(entries: &[YamlEntry]) -> &str {
    AMOUNTS.iter().find_map(|name| text(find(entries, name)?)).unwrap_or("20")
}

/// The period of a rule in the keys of other programs: `60s`.
fn period_of(entries: &[YamlEntry]) -> String {
    let given = PERIODS.iter().find_map(|name| text(find(entries, name)?));
    match given {
        Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => format!("{number}s"),
        Some(period) => period.to_owned(),
        None => "minute".to_owned(),
    }
}

fn find<'y>(entries: &'y [YamlEntry], name: &str) -> Option<&'y Yaml> {
    entries.iter().find(|entry| entry.key.text == name).map(|entry| &entry.value)
}

/// A short text in one line.
fn text(value: &Yaml) -> Option<&str> {
    const MAX_CHARS: usize = 60;
    match &value.kind {
        YamlKind::Scalar(scalar) => {
            let text = scalar.text.as_str();
            let is_short = text.chars().count() <= MAX_CHARS && !text.chars().any(char::is_control);
            (is_short && !text.is_empty()).then_some(text)
        }
        _ => None,
    }
}
