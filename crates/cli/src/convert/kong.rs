//! The plugins `rate-limiting` and `rate-limiting-advanced` of Kong's declarative configuration.

use tollgate_rules::yaml::{Yaml, YamlKind};

use super::Conversion;
use super::rule::{ConvertedRule, ValueCondition};
use super::yaml_values::{documents, get, items, number, text};

/// Where a plugin applies: an attribute and its value.
type Scope = Vec<(String, ValueCondition)>;

/// The periods of `rate-limiting`.
const PERIODS: [&str; 6] = ["second", "minute", "hour", "day", "month", "year"];

/// Keys of the configuration that become keys of the rule.
const CONVERTED: [&str; 9] = [
    "limit_by",
    "identifier",
    "header_name",
    "path",
    "fault_tolerant",
    "hide_client_headers",
    "limit",
    "window_size",
    "window_type",
];

/// Converts a configuration.
pub(super) fn convert(text: &str) -> Conversion {
    let mut conversion = Conversion::default();
    for document in &documents(text, &mut conversion) {
        add_plugins(document, &Vec::new(), &mut conversion);
        for (section, attribute) in [("services", "service"), ("routes", "route"), ("consumers", "consumer")] {
            for item in items(document, section) {
                let scope = scoped(&Vec::new(), attribute, item);
                add_plugins(item, &scope, &mut conversion);
                for route in items(item, "routes") {
                    add_plugins(route, &scoped(&scope, "route", route), &mut conversion);
                }
            }
        }
        for group in items(document, "consumer_groups").iter().filter(|group| !items(group, "plugins").is_empty()) {
            conversion.note(group.line, "plugins of a consumer group: write a tier of that name (docs/rules.md)");
        }
    }
    if let [first, others @ ..] = conversion.rules.as_slice()
        && let Some(other) = others.iter().find(|other| other.conditions != first.conditions)
    {
        let text = "Kong applies only the most specific plugin to a request; all rules apply that match. Exclude the others by `match`";
        conversion.note(other.line, text);
    }
    conversion
}

/// The scope within an item that has a name.
fn scoped(outer: &Scope, attribute: &str, item: &Yaml) -> Scope {
    let name = ["name", "username", "custom_id", "id"].iter().find_map(|key| text(get(item, key)?));
    let own = name.map(|name| (attribute.to_owned(), ValueCondition::AnyOf(vec![name.to_owned()])));
    outer.iter().cloned().chain(own).collect()
}

fn add_plugins(item: &Yaml, scope: &Scope, conversion: &mut Conversion) {
    for plugin in items(item, "plugins") {
        let name = get(plugin, "name").and_then(text).unwrap_or_default();
        match name {
            "rate-limiting" | "rate-limiting-advanced" => add_plugin(name, plugin, scope, conversion),
            other if other.contains("limit") || other == "service-protection" => {
                conversion.note(plugin.line, format!("the plugin {other}"));
            }
            _ => {}
        }
    }
}

fn add_plugin(name: &str, plugin: &Yaml, scope: &Scope, conversion: &mut Conversion) {
    let mut scope = scope.clone();
    for attribute in ["service", "route", "consumer"] {
        let referred = get(plugin, attribute);
        let named = referred.and_then(|value| text(value).or_else(|| text(get(value, "name")?)));
        if let Some(named) = named {
            scope.push((attribute.to_owned(), ValueCondition::AnyOf(vec![named.to_owned()])));
        }
    }
    let Some(config) = get(plugin, "config") else {
        conversion.note(plugin.line, format!("{name} has no config"));
        return;
    };
    let value = |key: &str| get(config, key).and_then(text);
    let by = value("limit_by").or_else(|| value("identifier")).unwrap_or("consumer");
    let key = match by {
        "ip" => vec!["remote_address".to_owned()],
        "header" => vec![value("header_name").unwrap_or("header").to_ascii_lowercase()],
        "path" => {
            scope.extend(value("path").map(|path| ("path".to_owned(), ValueCondition::AnyOf(vec![path.to_owned()]))));
            Vec::new()
        }
        other => vec![other.replace('-', "_")],
    };
    if matches!(by, "consumer" | "credential") {
        let text = format!(
            "limit_by {by}: Kong counts requests without one by address; add a rule with `match: {{{by}: absent}}`"
        );
        conversion.note(plugin.line, text);
    }
    let mut terms = vec![(
        "algorithm",
        if value("window_type") == Some("sliding") { "sliding_window" } else { "fixed_window" }.to_owned(),
    )];
    let is =
        |key: &str, expected: bool| get(config, key).and_then(text) == Some(if expected { "true" } else { "false" });
    if is("fault_tolerant", false) {
        terms.push(("on_failure", "deny".to_owned()));
    }
    if is("hide_client_headers", true) {
        terms.push(("headers", "hidden".to_owned()));
    }
    if get(plugin, "enabled").and_then(text) == Some("false") {
        terms.push(("mode", "off".to_owned()));
    }
    note_others(config, conversion);
    let limits = limits(config);
    if limits.is_empty() {
        conversion.note(plugin.line, format!("{name} has no limit that can be read"));
    }
    for (amount, period) in limits {
        let place = scope
            .last()
            .and_then(|(_, test)| if let ValueCondition::AnyOf(values) = test { values.first() } else { None });
        let name = format!("{}-{period}", place.map_or("all", String::as_str));
        let rule = ConvertedRule {
            name,
            key: key.clone(),
            conditions: scope.clone(),
            limit: format!("{amount}/{period}"),
            terms: terms.clone(),
            line: plugin.line,
            domain: None,
        };
        conversion.rules.push(rule);
    }
}

/// Amounts and periods.
fn limits(config: &Yaml) -> Vec<(u64, String)> {
    let by_period = PERIODS.iter().filter_map(|period| Some((number(get(config, period)?)?, (*period).to_owned())));
    let pairs = items(config, "limit").iter().zip(items(config, "window_size"));
    let by_window = pairs.filter_map(|(limit, window)| Some((number(limit)?, format!("{}s", number(window)?))));
    by_period.chain(by_window).collect()
}

/// Names the settings that have no counterpart in a rule.
fn note_others(config: &Yaml, conversion: &mut Conversion) {
    let YamlKind::Map(entries) = &config.kind else { return };
    for entry in entries {
        let key = entry.key.text.as_str();
        let is_known = PERIODS.contains(&key) || CONVERTED.contains(&key);
        let why = match key {
            _ if is_known || entry.value.is_null() => continue,
            "policy" | "strategy" => match text(&entry.value) {
                Some("local") => "counters in memory are the default",
                _ => "start the server with --store redis://HOST:PORT",
            },
            _ => "it is no part of a rule",
        };
        conversion.note(entry.line, format!("{key}: {why}"));
    }
}
