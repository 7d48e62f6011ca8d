//! `--print-config`: every setting and where it came from, as a file that says the same.

use std::fmt::Write;

use super::origin::Given;
use super::table::{Said, Secret, Setting};
use super::text::{HIDDEN, without_password};
use super::values::Values;

/// How far the comments are moved to the right at most: a long value has its comment behind it.
const WIDEST: usize = 48;

/// The settings as a `tollgate.yaml`.
pub(super) fn print(values: &Values) -> String {
    let lines: Vec<(String, String)> = values
        .iter()
        .filter(|(setting, _)| setting.said == Said::Everywhere)
        .map(|(setting, given)| {
            (format!("{}: {}", setting.name, scalar(&shown(setting, given))), given.origin.to_string())
        })
        .collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).filter(|width| *width <= WIDEST).max().unwrap_or(0);
    let mut text = String::new();
    for (line, origin) in lines {
        let _ = writeln!(text, "{line:width$}  # {}", comment(&origin));
    }
    text
}

/// The value as it may be shown.
fn shown(setting: &Setting, given: &Given) -> String {
    let text = given.text.as_deref().unwrap_or_default().trim();
    match setting.secret {
        Secret::Password => without_password(text),
        Secret::Everything if text != setting.default => HIDDEN.to_owned(),
        Secret::Everything | Secret::Nothing => text.to_owned(),
    }
}

/// A text as a YAML scalar: in quotes, unless nothing in it could mean anything else.
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

/// Whether YAML lets a character stand as it is; line breaks that are not ASCII would be taken for a space.
fn is_printable(c: char) -> bool {
    !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// The name of a file may hold anything; a comment ends with its line.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || !is_printable(c) { '?' } else { c }).collect()
}
