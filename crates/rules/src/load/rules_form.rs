//! Tollgate's own form: the `rules` list.

use crate::limit_text::{self, LimitText};
use crate::load::ban::BanKeys;
use crate::load::clauses;
use crate::load::count;
use crate::load::domain::DomainSettings;
use crate::load::foreign;
use crate::load::keys;
use crate::load::limit_by;
use crate::load::reader::{Fields, FileReader};
use crate::load::terms::{LimitKeys, TierLimits, WithLine};
use crate::model::{Clause, Cost, KeyPart, Rule, Test};
use crate::problem::{choose, quoted};
use crate::yaml::{Yaml, YamlEntry, YamlKind};

/// The maximum number of parts in a key.
const MAX_KEY_PARTS: usize = 16;

/// The valid rules of a list.
pub(super) fn read(list: &Yaml, settings: &DomainSettings, reader: &mut FileReader<'_>) -> Vec<Rule> {
    let items = reader.list(list, "rules", "`- {name: per-key, key: [api_key], limit: 100/minute}`").unwrap_or(&[]);
    if !items.is_empty() && items.iter().all(foreign::is_descriptor) {
        let (message, remedy) =
            ("`rules` has descriptors of envoyproxy/ratelimit", "write `descriptors:` instead of `rules:`");
        reader.error(list.line, message, remedy);
        return Vec::new();
    }
    items.iter().filter_map(|item| read_rule(item, None, settings, reader)).collect()
}

/// The names of a list's rules, including invalid ones.
pub(super) fn names(list: &Yaml) -> impl Iterator<Item = &str> {
    let items = if let YamlKind::List(items) = &list.kind { items.as_slice() } else { &[] };
    items
        .iter()
        .filter_map(|item| match &item.kind {
            YamlKind::Map(entries) => entries.iter().find(|entry| entry.key.text == "name"),
            _ => None,
        })
        .filter_map(|entry| match &entry.value.kind {
            YamlKind::Scalar(name) => Some(name.text.as_str()),
            _ => None,
        })
}

/// One rule. `given` is its name if it is already known; the text then need not have it.
pub(super) fn read_rule(
    item: &Yaml,
    given: Option<&str>,
    settings: &DomainSettings,
    reader: &mut FileReader<'_>,
) -> Option<Rule> {
    if let Some(remedy) = foreign::as_rule(item) {
        reader.error(item.line, "this is a descriptor of envoyproxy/ratelimit", remedy);
        return None;
    }
    let fields = reader.fields(item, &keys::RULE)?;
    // Everything is read before the rule is rejected, so that all errors are reported.
    let name = match given {
        None => required(&fields, "name", "write a `name`, unique in the domain", reader)
            .and_then(|value| reader.name(value, "name")),
        Some(given) => given_name(&fields, given, reader),
    };
    let key = required(&fields, "key", "write `key: [attribute]`, or `key: []` for one counter for all", reader)
        .and_then(|value| read_key(value, reader));
    let limit = match fields.get("limit") {
        // The key that stands for it has been reported.
        None if foreign::names_limit(fields.entries()) => None,
        _ => required(&fields, "limit", "write a `limit`, for instance `limit: 100/minute`", reader),
    };
    let limit_by = fields.get("limit_by").map(|value| reader.attribute(value, "limit_by"));
    let quotas = limit.and_then(|value| match &limit_by {
        None => read_quotas(value, settings, reader),
        Some(attribute) => limit_by::read(attribute.as_deref()?, value, settings, reader),
    });
    let clauses = fields.get("match").map_or(Some(Vec::new()), |value| clauses::read(value, reader));
    let cost = fields.get("cost").map_or(Some(Cost::Request), |value| read_cost(value, reader));
    let wording = LimitKeys::read(reader, &fields);
    let ban = fields.get("ban").map(|value| BanKeys::read(value, reader));
    let terms = quotas.and_then(|quotas| wording.terms(&quotas, settings, reader));

    let (name, key, clauses, cost) = (name?, key?, clauses?, cost?);
    refuse_never(&fields, &key, &clauses, &cost, reader);
    let terms = terms?;
    let ban = match ban {
        Some(ban) => Some(ban?.terms(&key, terms.mode, terms.shed, settings, reader)?),
        None => None,
    };
    let rule = Rule { name, key, clauses, cost, terms, ban, at: reader.place(fields.line), version: None };
    let line = fields.get("count").map_or(fields.line, |count| count.line);
    count::has_few_counters(&rule, line, reader).then_some(rule)
}

fn given_name(fields: &Fields<'_>, given: &str, reader: &mut FileReader<'_>) -> Option<String> {
    if let Some(value) = fields.get("name")
        && let Some(name) = reader.name(value, "name")
        && name != given
    {
        let message = format!("`name` is {}, and this is the rule {}", quoted(&name), quoted(given));
        reader.error(value.line, message, "write the same name, or leave it out");
    }
    reader.as_name(fields.line, given, "name")
}

fn required<'y>(fields: &Fields<'y>, key: &str, remedy: &str, reader: &mut FileReader<'_>) -> Option<&'y Yaml> {
    let value = fields.get(key);
    if value.is_none() {
        reader.error(fields.line, format!("the rule has no `{key}`"), remedy);
    }
    value
}

fn read_key(value: &Yaml, reader: &mut FileReader<'_>) -> Option<Vec<KeyPart>> {
    let items = reader.list(value, "key", "`key: [api_key]`, or `key: []` for one counter for all")?;
    if items.len() > MAX_KEY_PARTS {
        let message = format!("`key` has {} parts", items.len());
        reader.error(value.line, message, format!("write at most {MAX_KEY_PARTS}"));
        return None;
    }
    let mut parts: Vec<KeyPart> = Vec::new();
    for item in items {
        let text = reader.attribute(item, "key")?;
        let (attribute, optional) = match text.strip_suffix('?') {
            Some(attribute) => (attribute.to_owned(), true),
            None => (text, false),
        };
        if attribute.is_empty() || parts.iter().any(|part| part.attribute == attribute) {
            let what = if attribute.is_empty() { "has a part without a name" } else { "names an attribute twice" };
            reader.error(item.line, format!("`key` {what}: {}", item.described()), "name each attribute once");
            return None;
        }
        parts.push(KeyPart { attribute, optional });
    }
    Some(parts)
}

fn read_quotas(value: &Yaml, settings: &DomainSettings, reader: &mut FileReader<'_>) -> Option<TierLimits> {
    match &value.kind {
        YamlKind::Map(entries) => read_tier_map(value.line, entries, settings, reader),
        YamlKind::List(limits) => {
            let message = "`limit` is a single limit, or a map from tiers to limits, not a list";
            reader.error(value.line, message, foreign::several_limits(limits));
            None
        }
        _ => read_limit(value, reader).map(|text| TierLimits::same(text, &settings.tiers)),
    }
}

pub(super) fn read_limit(value: &Yaml, reader: &mut FileReader<'_>) -> Option<WithLine<LimitText>> {
    let text = reader.text(value, "limit")?;
    let read = reader.sound(value.line, "limit", limit_text::limit(text))?;
    Some(WithLine { value: read, line: value.line })
}

fn read_tier_map(
    line: usize,
    entries: &[YamlEntry],
    settings: &DomainSettings,
    reader: &mut FileReader<'_>,
) -> Option<TierLimits> {
    let tiers = &settings.tiers;
    let mut quotas = TierLimits { texts: Vec::new(), by_tier: vec![None; tiers.len()], by_value: None };
    let mut sound = true;
    for entry in entries {
        let tier = tiers.iter().position(|tier| tier.name == entry.key.text);
        if tier.is_none() {
            let remedy = match limit_by::is_class(&entry.key.text) {
                true => "add `limit_by: priority` for limits by priority class".to_owned(),
                false => choose(&entry.key.text, tiers.iter().map(|tier| tier.name.as_str())),
            };
            reader.error(entry.line, format!("`limit`: there is no tier {}", quoted(&entry.key.text)), remedy);
        }
        match (tier, read_limit(&entry.value, reader)) {
            (Some(tier), Some(text)) => {
                quotas.by_tier[tier] = Some(quotas.texts.len());
                quotas.texts.push(text);
            }
            _ => sound = false,
        }
    }
    if entries.is_empty() {
        reader.error(line, "`limit` names no tier", "write for instance `limit: {free: 100/minute}`");
        sound = false;
    }
    if !sound {
        return None;
    }
    fill_missing(line, &mut quotas, settings, reader);
    Some(quotas)
}

/// A tier that the map does not name has the default tier's limit, if that is named.
fn fill_missing(line: usize, quotas: &mut TierLimits, settings: &DomainSettings, reader: &mut FileReader<'_>) {
    let default = quotas.by_tier[settings.default_tier];
    let mut missing = Vec::new();
    for (tier, text) in settings.tiers.iter().zip(&mut quotas.by_tier) {
        if text.is_none() {
            *text = default;
            missing.push(quoted(&tier.name));
        }
    }
    if missing.is_empty() {
        return;
    }
    let default_name = quoted(&settings.tiers[settings.default_tier].name);
    let (consequence, remedy) = match default {
        Some(_) => (format!("there the limit of {default_name} holds"), "write its limit if another is meant"),
        None => ("there this rule does not apply".to_owned(), "write its limit, or `unlimited` if that is meant"),
    };
    let message = format!("`limit` does not name {}: {consequence}", missing.join(", "));
    reader.warning(line, message, remedy);
}

fn read_cost(value: &Yaml, reader: &mut FileReader<'_>) -> Option<Cost> {
    let YamlKind::Map(entries) = &value.kind else {
        let text = reader.attribute(value, "cost")?;
        // A text that begins like a number is meant as one.
        if text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+' || c == '.') {
            return read_units(value, reader).map(Cost::Fixed);
        }
        return Some(Cost::Attribute(text));
    };
    let [YamlEntry { key, line, value: table }] = entries.as_slice() else {
        let message = format!("`cost` is a table over {} attributes", entries.len());
        reader.error(value.line, message, "name one: `cost: {endpoint: {\"POST *\": 5, default: 1}}`");
        return None;
    };
    let attribute = reader.within_requests(*line, &key.text, "cost");
    let (mut cases, mut default) = (Vec::new(), None);
    let entries = reader.entries(table, "cost", "`cost: {endpoint: {\"POST *\": 5, default: 1}}`")?;
    for case in entries {
        let units = read_units(&case.value, reader);
        if case.key.plain && case.key.text == "default" {
            default = units;
        } else if let (Some(pattern), Some(units)) = (clauses::pattern(&case.key, case.line, reader), units) {
            cases.push((pattern, units));
        }
    }
    if entries.is_empty() {
        reader.error(table.line, "`cost` has no case", "write for instance `{\"POST *\": 5, default: 1}`");
    }
    Some(Cost::Table { attribute: attribute?, cases, default })
}

fn read_units(value: &Yaml, reader: &mut FileReader<'_>) -> Option<u64> {
    reader.number(value, "cost", 0..=tollgate_core::EXACT - 1)
}

/// A rule that requires an attribute both present and absent never applies.
fn refuse_never(fields: &Fields<'_>, key: &[KeyPart], clauses: &[Clause], cost: &Cost, reader: &mut FileReader<'_>) {
    let costs_by = match cost {
        Cost::Attribute(attribute) => Some(attribute),
        Cost::Table { attribute, default: None, .. } => Some(attribute),
        _ => None,
    };
    let needed = key.iter().filter(|part| !part.optional).map(|part| &part.attribute).chain(costs_by);
    for attribute in needed {
        if clauses.iter().any(|clause| clause.attribute == *attribute && clause.test == Test::Absent) {
            let line = fields.get("match").map_or(fields.line, |value| value.line);
            let message = format!("the rule never applies: it needs {} and needs it absent", quoted(attribute));
            reader.error(line, message, "remove one of the two, or make the part of the key optional with a `?`");
        }
    }
}
