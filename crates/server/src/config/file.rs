//! `tollgate.yaml`: settings as the keys of one map, each known by its line.

use std::path::Path;
use std::sync::Arc;

use tollgate_rules::load::{Source, read_file};
use tollgate_rules::problem::{Fault, nearest, quoted};
use tollgate_rules::yaml::{self, Entry, Kind as Form, Yaml};

use super::origin::{Given, Layer, Origin, Problems};
use super::table::{Kind, Said, Secret, Setting, find, table};
use super::text::without_password;

/// The settings of a file.
pub(super) fn read(path: &Path, problems: &mut Problems) -> Layer {
    match read_file(path) {
        Ok(source) => parse(&source, problems),
        Err(fault) => {
            problems.error(path.display().to_string(), fault);
            Layer::new()
        }
    }
}

/// The settings of a file's text.
pub(super) fn parse(source: &Source, problems: &mut Problems) -> Layer {
    let file: Arc<str> = source.name.as_str().into();
    let at = |line: usize| format!("{file}:{line}");
    let (documents, faults) = yaml::read(&source.text);
    for (line, fault) in faults {
        problems.error(at(line), fault);
    }
    let mut documents = documents.iter().filter(|document| !document.is_null());
    let Some(settings) = documents.next() else { return Layer::new() };
    if let Some(second) = documents.next() {
        let fault = Fault::new("a second document begins here", "remove the `---`; settings are one map");
        problems.error(at(second.line), fault);
    }
    let Form::Map(entries) = &settings.kind else {
        let message = format!("settings must be a map, not {}", settings.described());
        problems.error(
            at(settings.line),
            Fault::new(message, "write `key: value` lines, for instance grpc: 127.0.0.1:8081"),
        );
        return Layer::new();
    };
    let mut layer = Layer::new();
    for entry in entries {
        match setting(&entry.key.text) {
            Ok(setting) => {
                let text = text(setting, entry);
                layer.insert(&setting.name, Given { text, origin: Origin::File(file.clone(), entry.line) });
            }
            Err(fault) => problems.error(at(entry.line), fault),
        }
    }
    layer
}

/// The setting that a key names.
fn setting(key: &str) -> Result<&'static Setting, Fault> {
    let setting = find(key);
    match setting.map(|setting| (setting.said, setting)) {
        Some((Said::Everywhere, setting)) => Ok(setting),
        Some((_, setting)) => {
            let message = format!("{} does not belong in the file", quoted(key));
            Err(Fault::new(message, format!("say {} on the command line", setting.flag())))
        }
        None => {
            let keys =
                || table().iter().filter(|setting| setting.said == Said::Everywhere).map(|setting| &*setting.name);
            // People also write keys as they write flags.
            let meant = nearest(&key.trim_start_matches('-').replace('-', "_"), keys());
            let remedy = match meant {
                Some(near) => format!("did you mean `{near}`?"),
                None => "remove it; `tollgate serve --help` lists the settings".to_owned(),
            };
            Err(Fault::new(format!("{} is not a setting", quoted(key)), remedy))
        }
    }
}

/// A value as one would write it in a flag: lists with commas, maps as pairs.
fn text(setting: &Setting, entry: &Entry) -> Result<String, Fault> {
    let name = &setting.name;
    if entry.value.is_null() {
        return Err(no_value());
    }
    match &entry.value.kind {
        Form::Scalar(scalar) => Ok(scalar.text.clone()),
        Form::List(items) if setting.kind.is_list() => joined(items.iter().map(|item| item_text(item, setting)), name),
        Form::Map(entries) if setting.kind == Kind::Attributes => {
            let pair = |entry: &Entry| Ok(format!("{}={}", entry.key.text, item_text(&entry.value, setting)?));
            joined(entries.iter().map(pair), name)
        }
        Form::List(_) | Form::Map(_) => {
            let remedy = if setting.kind.is_list() {
                "write a list, or values with commas between them"
            } else {
                "write a single value"
            };
            Err(Fault::new(format!("{} can't be its value", entry.value.described()), remedy))
        }
    }
}

fn joined(items: impl Iterator<Item = Result<String, Fault>>, name: &str) -> Result<String, Fault> {
    let items = items.collect::<Result<Vec<_>, _>>()?;
    if items.is_empty() {
        return Err(Fault::new("there is nothing in it", format!("write `{name}: none`, or values")));
    }
    Ok(items.join(","))
}

fn item_text(item: &Yaml, setting: &Setting) -> Result<String, Fault> {
    match &item.kind {
        Form::Scalar(scalar) if scalar.is_null() => Err(no_value()),
        Form::Scalar(scalar) if scalar.text.contains(',') => {
            let what = match setting.secret {
                Secret::Everything => "one".to_owned(),
                Secret::Password | Secret::Nothing => quoted(&without_password(&scalar.text)),
            };
            let message = format!("{what} has a comma in it, which parts values");
            Err(Fault::new(message, "write each value in a line of its own, without commas"))
        }
        Form::Scalar(scalar) => Ok(scalar.text.clone()),
        Form::List(_) | Form::Map(_) => {
            Err(Fault::new(format!("{} can't be a value of the list", item.described()), "write single values"))
        }
    }
}

fn no_value() -> Fault {
    Fault::new("there is no value", "write one, or remove the line")
}
