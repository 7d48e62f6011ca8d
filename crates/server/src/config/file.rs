//! `tollgate.yaml`: settings as keys of one map, each with its line.

use std::path::Path;
use std::sync::Arc;

use tollgate_rules::load::{RuleFile, read_file};
use tollgate_rules::problem::{TextFault, nearest, quoted};
use tollgate_rules::yaml::{self, Yaml, YamlEntry, YamlKind};

use super::origin::{ConfigProblems, Origin, SettingLayer, SettingValue};
use super::table::{Secrecy, Setting, SettingKind, SettingScope, find, table};
use super::text::without_password;

/// The settings of a file.
pub(super) fn read(path: &Path, problems: &mut ConfigProblems) -> SettingLayer {
    match read_file(path) {
        Ok(source) => parse(&source, problems),
        Err(fault) => {
            problems.error(path.display().to_string(), fault);
            SettingLayer::new()
        }
    }
}

/// The settings of a file's text.
pub(super) fn parse(source: &RuleFile, problems: &mut ConfigProblems) -> SettingLayer {
    let file: Arc<str> = source.name.as_str().into();
    let at = |line: usize| format!("{file}:{line}");
    let (documents, faults) = yaml::read(&source.text);
    for (line, fault) in faults {
        problems.error(at(line), fault);
    }
    let mut documents = documents.iter().filter(|document| !document.is_null());
    let Some(settings) = documents.next() else { return SettingLayer::new() };
    if let Some(second) = documents.next() {
        let fault = TextFault::new("a second document begins here", "remove the `---`; settings are one map");
        problems.error(at(second.line), fault);
    }
    let YamlKind::Map(entries) = &settings.kind else {
        let message = format!("settings must be a map, not {}", settings.described());
        problems.error(
            at(settings.line),
            TextFault::new(message, "write `key: value` lines, for instance grpc: 127.0.0.1:8081"),
        );
        return SettingLayer::new();
    };
    let mut layer = SettingLayer::new();
    for entry in entries {
        match setting_for(&entry.key.text) {
            Ok(setting) => {
                let text = text(setting, entry);
                layer.insert(&setting.name, SettingValue { text, origin: Origin::File(file.clone(), entry.line) });
            }
            Err(fault) => problems.error(at(entry.line), fault),
        }
    }
    layer
}

/// The setting of a key.
fn setting_for(key: &str) -> Result<&'static Setting, TextFault> {
    let setting = find(key);
    match setting.map(|setting| (setting.scope, setting)) {
        Some((SettingScope::Everywhere, setting)) => Ok(setting),
        Some((_, setting)) => {
            let message = format!("{} does not belong in the file", quoted(key));
            Err(TextFault::new(message, format!("use {} on the command line", setting.flag())))
        }
        None => {
            let keys = || {
                table().iter().filter(|setting| setting.scope == SettingScope::Everywhere).map(|setting| &*setting.name)
            };
            // Keys may be written like flags by mistake.
            let similar = nearest(&key.trim_start_matches('-').replace('-', "_"), keys());
            let remedy = match similar {
                Some(near) => format!("did you mean `{near}`?"),
                None => "remove it; `tollgate serve --help` lists the settings".to_owned(),
            };
            Err(TextFault::new(format!("{} is not a setting", quoted(key)), remedy))
        }
    }
}

/// A value as one would write it in a flag: lists with commas, maps as pairs.
fn text(setting: &Setting, entry: &YamlEntry) -> Result<String, TextFault> {
    let name = &setting.name;
    if entry.value.is_null() {
        return Err(no_value());
    }
    match &entry.value.kind {
        YamlKind::Scalar(scalar) => Ok(scalar.text.clone()),
        YamlKind::List(items) if setting.kind.is_list() => {
            joined(items.iter().map(|item| item_text(item, setting)), name)
        }
        YamlKind::Map(entries) if setting.kind == SettingKind::Attributes => {
            let pair = |entry: &YamlEntry| Ok(format!("{}={}", entry.key.text, item_text(&entry.value, setting)?));
            joined(entries.iter().map(pair), name)
        }
        YamlKind::Map(entries) if setting.kind == SettingKind::Regions => {
            // The URL of a cluster has commas.
            let pair = |entry: &YamlEntry| match &entry.value.kind {
                YamlKind::Scalar(scalar) if !scalar.is_null() => Ok(format!("{}={}", entry.key.text, scalar.text)),
                _ => Err(TextFault::new(
                    "a region has no URL",
                    "write for instance `us-west: rediss://redis.us-west:6379`",
                )),
            };
            joined(entries.iter().map(pair), name)
        }
        YamlKind::List(_) | YamlKind::Map(_) => {
            let remedy = if setting.kind.is_list() {
                "write a list, or values separated by commas"
            } else {
                "write a single value"
            };
            Err(TextFault::new(format!("{} can't be its value", entry.value.described()), remedy))
        }
    }
}

fn joined(items: impl Iterator<Item = Result<String, TextFault>>, name: &str) -> Result<String, TextFault> {
    let items = items.collect::<Result<Vec<_>, _>>()?;
    if items.is_empty() {
        return Err(TextFault::new("it is empty", format!("write `{name}: none`, or values")));
    }
    Ok(items.join(","))
}

fn item_text(item: &Yaml, setting: &Setting) -> Result<String, TextFault> {
    match &item.kind {
        YamlKind::Scalar(scalar) if scalar.is_null() => Err(no_value()),
        YamlKind::Scalar(scalar) if scalar.text.contains(',') => {
            let value = match setting.secret {
                Secrecy::Everything => "a value".to_owned(),
                Secrecy::Password | Secrecy::Nothing => quoted(&without_password(&scalar.text)),
            };
            let message = format!("{value} contains a comma, which separates values");
            Err(TextFault::new(message, "write each value on a line of its own, without commas"))
        }
        YamlKind::Scalar(scalar) => Ok(scalar.text.clone()),
        YamlKind::List(_) | YamlKind::Map(_) => {
            Err(TextFault::new(format!("{} can't be an item of the list", item.described()), "write single values"))
        }
    }
}

fn no_value() -> TextFault {
    TextFault::new("there is no value", "write one, or remove the line")
}
