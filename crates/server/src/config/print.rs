//! `--print-config`: every setting and its origin, as an equivalent file.

use std::fmt::Write;

use super::origin::SettingValue;
use super::table::{Secrecy, Setting, SettingKind, SettingScope};
use super::text::{HIDDEN, regions_without_passwords, without_password};
use super::values::Values;

/// The widest value with which comments are aligned.
const MAX_VALUE_WIDTH: usize = 48;

/// The settings as a `tollgate.yaml`.
pub(super) fn print(values: &Values) -> String {
    let lines: Vec<(String, String)> = values
        .iter()
        .filter(|(setting, _)| setting.scope == SettingScope::Everywhere)
        .map(|(setting, value)| {
            (format!("{}: {}", setting.name, scalar(&shown(setting, value))), value.origin.to_string())
        })
        .collect();
    let width =
        lines.iter().map(|(line, _)| line.chars().count()).filter(|width| *width <= MAX_VALUE_WIDTH).max().unwrap_or(0);
    let mut text = String::new();
    for (line, origin) in lines {
        let _ = writeln!(text, "{line:width$}  # {}", comment(&origin));
    }
    text
}

/// The value without secrets.
fn shown(setting: &Setting, value: &SettingValue) -> String {
    let text = value.text.as_deref().unwrap_or_default().trim();
    match setting.secret {
        Secrecy::Password if setting.kind == SettingKind::Regions => regions_without_passwords(text),
        Secrecy::Password => without_password(text),
        Secrecy::Everything if text != setting.default => HIDDEN.to_owned(),
        Secrecy::Everything | Secrecy::Nothing => text.to_owned(),
    }
}

/// A text as a YAML scalar, in quotes if necessary.
fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:,=+%-".contains(c);
    let nothing = ["null", "Null", "NULL"].contains(&text);
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/');
    if begins && !nothing && !text.ends_with(':') && text.chars().all(is_plain) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() || !is_printable(c) => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether YAML allows a character without an escape; line breaks outside ASCII would become spaces.
fn is_printable(c: char) -> bool {
    !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// A text as a comment: a file name may contain any character, but a comment ends with its line.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || !is_printable(c) { '?' } else { c }).collect()
}
