//! How the class of a request is found.

use http::HeaderName;
use tollgate_rules::pattern::Pattern;
use tollgate_rules::problem::{TextFault, choose, quoted};
use tollgate_rules::yaml::fields::{Fields, text};
use tollgate_rules::yaml::{Yaml, YamlEntry, YamlKind};

use super::values;
use crate::model::{PriorityConfig, PriorityRule};
use tollgate_shed::Class;

/// The most rules of a class.
const MAX_RULES: usize = 256;

/// The most conditions of a rule.
const MAX_CONDITIONS: usize = 16;

pub(super) const CLASSES: [(&str, Class); 4] =
    [("test", Class::Test), ("get", Class::Get), ("post", Class::Post), ("critical", Class::Critical)];

pub(super) fn priorities(map: &Fields<'_>, attributes: &[&str], routes: &[(String, usize)]) -> PriorityConfig {
    let mut priorities = PriorityConfig::default();
    let Some(map) = map.map("priority") else { return priorities };
    let names = Names { attributes, routes };
    for entry in map.entries() {
        let faults = map.faults();
        if entry.key.text == "header" {
            priorities.header = map.read("header", |value| values::header(text(value)?));
            continue;
        }
        let Some((_, class)) = CLASSES.iter().find(|(name, _)| *name == entry.key.text) else {
            let words = CLASSES.iter().map(|(name, _)| *name).chain(["header"]);
            let message = format!("there is no class {}", quoted(&entry.key.text));
            faults.push(entry.line, TextFault::new(message, choose(&entry.key.text, words)));
            continue;
        };
        let items = faults.sound(entry.line, values::one_or_more(&entry.value, MAX_RULES)).unwrap_or_default();
        for item in items {
            let Some(conditions) = Fields::of(item, "a map of conditions", faults) else { continue };
            priorities.rules.push(names.rule(*class, &conditions));
        }
    }
    priorities
}

/// What conditions can name.
struct Names<'a> {
    attributes: &'a [&'a str],
    routes: &'a [(String, usize)],
}

impl Names<'_> {
    fn rule(&self, class: Class, map: &Fields<'_>) -> PriorityRule {
        let mut rule = PriorityRule { class, route: None, attributes: Vec::new(), headers: Vec::new() };
        if map.entries().is_empty() {
            map.fault("without a condition all requests would be of this class", "write for instance {route: charges}");
        }
        if map.entries().len() > MAX_CONDITIONS {
            map.fault("there are too many conditions", &format!("write at most {MAX_CONDITIONS}"));
        }
        for entry in map.entries() {
            let added = self.add(&mut rule, entry);
            map.faults().sound(entry.line, added);
        }
        rule
    }

    fn add(&self, rule: &mut PriorityRule, entry: &YamlEntry) -> Result<(), TextFault> {
        let key = entry.key.text.as_str();
        match key {
            "route" => {
                let given = text(&entry.value)?;
                let names = self.routes.iter().map(|(name, _)| name.as_str());
                if !names.clone().any(|name| name == given) {
                    return Err(values::unknown("route", given, names));
                }
                rule.route = Some(given.to_owned());
            }
            "header" => rule.headers = headers(&entry.value)?,
            // What every request has is known by its route.
            _ if self.attributes.contains(&key) => {
                rule.attributes.push((key.to_owned(), Pattern::new(text(&entry.value)?)));
            }
            _ => {
                let names = self.attributes.iter().copied().chain(["header", "route"]);
                return Err(values::unknown("attribute", key, names));
            }
        }
        Ok(())
    }
}

/// `{X-Mode: test}`
fn headers(value: &Yaml) -> Result<Vec<(HeaderName, Pattern)>, TextFault> {
    let YamlKind::Map(entries) = &value.kind else {
        let message = format!("{} stands where headers and their values belong", value.described());
        return Err(TextFault::new(message, "write for instance `header: {X-Mode: test}`"));
    };
    let read = |entry: &YamlEntry| Ok((values::header(&entry.key.text)?, Pattern::new(text(&entry.value)?)));
    entries.iter().map(read).collect()
}
