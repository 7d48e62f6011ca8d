//! JSON, to and from the same tree.
//!
//! Nearly every JSON text is YAML, but YAML has no surrogate pairs, no tabs before a value and no very long keys.
//! JSON texts are therefore parsed as JSON, by the same builder, with the same bounds.

use std::borrow::Cow;
use std::fmt::Write as _;

use saphyr_parser::{Event, ScalarStyle};

use super::{Documents, Scalar, Yaml, YamlBuilder, YamlEntry, YamlKind};
use crate::problem::TextFault;

/// The value of a JSON text, as far as it can be read, and the errors with their lines. `None` if the text is not
/// JSON.
pub(crate) fn read(text: &str) -> Option<Documents> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = JsonReader { text, at: 0, line: 1, builder: YamlBuilder::default() };
    match reader.document() {
        Err(Stop::NotJson) => return None,
        Err(Stop::TextFault(fault)) => reader.builder.faults.push(reader.line, fault),
        Ok(()) => {}
    }
    Some((reader.builder.documents, reader.builder.faults.0))
}

/// A value as JSON.
pub(crate) fn write(value: &Yaml) -> String {
    let joined = |parts: Vec<String>| parts.join(",");
    match &value.kind {
        YamlKind::Scalar(scalar) => write_scalar(scalar),
        YamlKind::List(items) => format!("[{}]", joined(items.iter().map(write).collect())),
        YamlKind::Map(entries) => {
            let member = |entry: &YamlEntry| format!("{}:{}", write_text(&entry.key.text), write(&entry.value));
            format!("{{{}}}", joined(entries.iter().map(member).collect()))
        }
    }
}

fn write_scalar(scalar: &Scalar) -> String {
    let text = scalar.text.as_str();
    match text {
        _ if scalar.is_null() => "null".to_owned(),
        "true" | "false" if scalar.plain => text.to_owned(),
        _ if scalar.plain && is_integer(text) => text.to_owned(),
        _ => write_text(text),
    }
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits == "0" || (!digits.starts_with('0') && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// A text as JSON.
pub(crate) fn write_text(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            // Writing to a String cannot fail.
            c if c < ' ' => drop(write!(json, "\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

struct JsonReader<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    builder: YamlBuilder,
}

/// Why parsing stops early.
enum Stop {
    NotJson,
    /// It is JSON so far, but exceeds a bound.
    TextFault(TextFault),
}

impl<'t> JsonReader<'t> {
    fn document(&mut self) -> Result<(), Stop> {
        self.value()?;
        self.skip_space();
        if self.at == self.text.len() { Ok(()) } else { Err(Stop::NotJson) }
    }

    /// The depth is bounded by the builder.
    fn value(&mut self) -> Result<(), Stop> {
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                self.give(Event::MappingStart(0, None))?;
                self.members(b'}', |reader| {
                    if reader.peek() != Some(b'"') {
                        return Err(Stop::NotJson);
                    }
                    reader.value()?;
                    reader.expect(b':')?;
                    reader.value()
                })?;
                self.give(Event::MappingEnd)
            }
            Some(b'[') => {
                self.at += 1;
                self.give(Event::SequenceStart(0, None))?;
                self.members(b']', Self::value)?;
                self.give(Event::SequenceEnd)
            }
            Some(b'"') => {
                let text = self.string()?;
                self.give(Event::Scalar(text, ScalarStyle::DoubleQuoted, 0, None))
            }
            _ => {
                let word = self.word()?;
                self.give(Event::Scalar(word.into(), ScalarStyle::Plain, 0, None))
            }
        }
    }

    fn members(&mut self, end: u8, mut member: impl FnMut(&mut Self) -> Result<(), Stop>) -> Result<(), Stop> {
        if self.peek() == Some(end) {
            self.at += 1;
            return Ok(());
        }
        loop {
            member(self)?;
            if self.peek() == Some(end) {
                self.at += 1;
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    fn give(&mut self, event: Event<'_>) -> Result<(), Stop> {
        self.builder.take(event, self.line).map_err(Stop::TextFault)
    }

    fn skip_space(&mut self) {
        while let Some(byte @ (b' ' | b'\t' | b'\n' | b'\r')) = self.byte(self.at) {
            self.at += 1;
            // A `\r` by itself ends a line too, as in YAML.
            self.line += usize::from(byte == b'\n' || byte == b'\r' && self.byte(self.at) != Some(b'\n'));
        }
    }

    /// The next byte after whitespace.
    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.byte(self.at)
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn expect(&mut self, expected: u8) -> Result<(), Stop> {
        if self.peek() != Some(expected) {
            return Err(Stop::NotJson);
        }
        self.at += 1;
        Ok(())
    }

    /// A number, or one of the three keywords.
    fn word(&mut self) -> Result<&'t str, Stop> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        if !matches!(word, "true" | "false" | "null") && !is_number(word) {
            return Err(Stop::NotJson);
        }
        self.at += end;
        Ok(word)
    }

    fn string(&mut self) -> Result<Cow<'t, str>, Stop> {
        self.expect(b'"')?;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let end = rest.find(|c: char| c == '"' || c == '\\' || c < ' ').ok_or(Stop::NotJson)?;
            text.push_str(&rest[..end]);
            self.at += end + 1;
            match rest.as_bytes()[end] {
                b'"' => return Ok(text.into()),
                b'\\' => text.push(self.escaped()?),
                _ => return Err(Stop::NotJson),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, Stop> {
        let escape = self.byte(self.at).ok_or(Stop::NotJson)?;
        self.at += 1;
        Ok(match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut units = vec![self.unit()?];
                if (0xd800..0xdc00).contains(&units[0]) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    units.push(self.unit()?);
                }
                // Half a surrogate pair is invalid.
                let text = String::from_utf16(&units).map_err(|_| Stop::NotJson)?;
                text.chars().next().ok_or(Stop::NotJson)?
            }
            _ => return Err(Stop::NotJson),
        })
    }

    fn unit(&mut self) -> Result<u16, Stop> {
        let digits = self.text.get(self.at..self.at + 4).ok_or(Stop::NotJson)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Stop::NotJson);
        }
        self.at += 4;
        u16::from_str_radix(digits, 16).map_err(|_| Stop::NotJson)
    }
}

fn is_number(word: &str) -> bool {
    let (number, exponent) = match word.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (word, None),
    };
    let (integer, fraction) = match number.split_once('.') {
        Some((integer, fraction)) => (integer, Some(fraction)),
        None => (number, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    is_integer(integer) && fraction.is_none_or(digits) && exponent.is_none_or(digits)
}

#[cfg(test)]
mod tests;
