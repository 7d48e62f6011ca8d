//! YAML as a tree in which every value knows its line.
//!
//! Files come from people and from templates, so everything is bounded: how deep values nest and how much they weigh, with
//! whatever aliases repeat. What makes a file ambiguous, such as a key that is written twice, is a fault.

pub(crate) mod json;

use std::cell::Cell;
use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};

use crate::problem::{Fault, MOST_PROBLEMS, quoted};

/// A value.
#[derive(Clone, Debug)]
pub struct Yaml {
    /// Where it begins, from 1.
    pub line: usize,
    /// What it is.
    pub kind: Kind,
}

/// What a value can be.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A single text.
    Scalar(Scalar),
    /// Values in a row.
    List(Vec<Yaml>),
    /// In the order of the file; no two keys are the same.
    Map(Vec<Entry>),
}

/// A text, with what its spelling says about it.
#[derive(Clone, Debug)]
pub struct Scalar {
    /// Without quotes and escapes.
    pub text: String,
    /// Written without quotes: only then can it be a word of the language, a number or nothing.
    pub plain: bool,
}

/// A key of a map, and what it stands for.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: Scalar,
    /// The line of the key.
    pub line: usize,
    /// The value.
    pub value: Yaml,
}

/// How deep values may nest: enough for a `descriptors` tree as deep as a request can be.
pub(crate) const DEEPEST: usize = 80;

/// What a file's values may weigh once every alias is written out: the length of their texts, and [`WEIGHT_OF_VALUE`] each.
pub(crate) const MOST_WEIGHT: usize = 128 << 20;

/// The longest list or map between brackets, and the longest text, in characters. The parser keeps all tokens between
/// brackets, some hundred times the memory of the text, because a `:` behind the last one would make a key of them.
pub(crate) const LONGEST_STRETCH: usize = 2 << 20;

/// What a value weighs besides its text.
const WEIGHT_OF_VALUE: usize = 32;

/// The documents of a text, as far as they can be read, and the faults with their lines.
pub type Documents = (Vec<Yaml>, Vec<(usize, Fault)>);

/// Reads JSON, or else YAML.
pub fn read_either(text: &str) -> Documents {
    json::read(text).unwrap_or_else(|| read(text))
}

/// Reads YAML.
pub fn read(text: &str) -> Documents {
    let mut builder = Builder::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // The parser takes a zero for the end of the text, and would drop what follows without a word.
    if let Some(at) = text.find('\0') {
        let line = text[..at].matches('\n').count() + 1;
        let fault = Fault::new("there is a zero byte in this line", "remove it; the file must be text");
        return (Vec::new(), vec![(line, fault)]);
    }
    let taken = Cell::new(0);
    let mut parser = Parser::new_from_iter(Stretch { characters: text.chars(), taken: &taken });
    // The parser counts the end of the text as a line of its own.
    let last = last_line(text);
    let mut line = 1;
    while let Some(step) = parser.next_event() {
        if taken.replace(0) > LONGEST_STRETCH {
            let message = format!("a value that begins about here is longer than {} MiB", LONGEST_STRETCH >> 20);
            builder
                .faults
                .push(line, Fault::new(message, "write lists and maps in lines of their own, without brackets"));
            break;
        }
        let event = match step {
            Ok((Event::StreamEnd, _)) => break,
            Ok((event, span)) => {
                line = span.start.line().min(last);
                event
            }
            Err(error) => {
                let column = error.marker().col() + 1;
                let message = format!("this is not YAML: {} (column {column})", error.info());
                let remedy = "look for wrong indentation, an open quote or bracket, or a text that needs quotes";
                builder.faults.push(error.marker().line().min(last), Fault::new(message, remedy));
                break;
            }
        };
        if let Err(fault) = builder.take(event, line) {
            builder.faults.push(line, fault);
            break;
        }
    }
    (builder.documents, builder.faults.0)
}

/// The number of the last line, where a `\r` by itself ends one too, as it does in YAML.
fn last_line(text: &str) -> usize {
    let breaks = text.matches(['\n', '\r']).count() - text.matches("\r\n").count();
    if text.ends_with(['\n', '\r']) { breaks } else { breaks + 1 }
}

/// Reads characters until too many were taken for one step of the parser; then the text seems to end.
struct Stretch<'s, I> {
    characters: I,
    taken: &'s Cell<usize>,
}

impl<I: Iterator<Item = char>> Iterator for Stretch<'_, I> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        self.taken.set(self.taken.get() + 1);
        if self.taken.get() > LONGEST_STRETCH { None } else { self.characters.next() }
    }
}

/// Collections that are not closed yet, innermost last, and what they were built from.
#[derive(Default)]
struct Builder {
    documents: Vec<Yaml>,
    open: Vec<Open>,
    /// By the parser's number, which is the same in all documents.
    anchors: HashMap<usize, Yaml>,
    weight: usize,
    faults: Faults,
}

/// Faults and their lines; one more than is told, so that there being more can be told.
#[derive(Default)]
struct Faults(Vec<(usize, Fault)>);

struct Open {
    line: usize,
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<Yaml>),
    Map(Box<OpenMap>),
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<Entry>,
    /// The line of each key.
    seen: HashMap<String, usize>,
    /// The values of `<<`, whose entries count where the map has none of its own.
    merged: Vec<Yaml>,
    key: Key,
}

/// The key whose value comes next.
#[derive(Default)]
enum Key {
    #[default]
    None,
    Text(Scalar, usize),
    /// It was a fault, and its value is dropped.
    Unusable,
}

// === impl Builder ===

impl Builder {
    /// Takes the next event; a fault means that no further ones can be taken.
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text_tag = self.check_tag(tag.as_deref(), line);
                let plain = style == ScalarStyle::Plain && !text_tag;
                self.weigh(WEIGHT_OF_VALUE + text.len())?;
                let scalar = Scalar { text: text.into_owned(), plain };
                self.add(Yaml { line, kind: Kind::Scalar(scalar) }, anchor)
            }
            Event::Alias(anchor) => {
                let Some(value) = self.anchors.get(&anchor) else {
                    return Err(Fault::new("this alias stands inside its own anchor", "write the value out"));
                };
                let (height, weight) = (value.height(), value.weight());
                if self.open.len() + height > DEEPEST {
                    return Err(too_deep());
                }
                self.weigh(weight)?;
                match self.anchors.get(&anchor).cloned() {
                    Some(value) => self.add(value, 0),
                    None => Ok(()),
                }
            }
            Event::SequenceStart(anchor, tag) => {
                self.check_tag(tag.as_deref(), line);
                self.open(line, anchor, Items::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.check_tag(tag.as_deref(), line);
                self.open(line, anchor, Items::Map(Box::default()))
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                Ok(())
            }
        }
    }

    fn open(&mut self, line: usize, anchor: usize, items: Items) -> Result<(), Fault> {
        if self.open.len() >= DEEPEST {
            return Err(too_deep());
        }
        self.weigh(WEIGHT_OF_VALUE)?;
        self.open.push(Open { line, anchor, items });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Fault> {
        let Some(Open { line, anchor, items }) = self.open.pop() else { return Ok(()) };
        let kind = match items {
            Items::List(items) => Kind::List(items),
            Items::Map(map) => Kind::Map(map.close(&mut self.faults)),
        };
        self.add(Yaml { line, kind }, anchor)
    }

    /// Puts a finished value where it belongs.
    fn add(&mut self, value: Yaml, anchor: usize) -> Result<(), Fault> {
        if anchor != 0 {
            self.weigh(value.weight())?;
            self.anchors.insert(anchor, value.clone());
        }
        match self.open.last_mut() {
            None => self.documents.push(value),
            Some(Open { items: Items::List(items), .. }) => items.push(value),
            Some(Open { items: Items::Map(map), .. }) => map.add(value, &mut self.faults),
        }
        Ok(())
    }

    fn weigh(&mut self, weight: usize) -> Result<(), Fault> {
        self.weight = self.weight.saturating_add(weight);
        if self.weight <= MOST_WEIGHT {
            return Ok(());
        }
        Err(Fault::new(
            format!("the values of this file, with what its aliases repeat, pass {} MiB", MOST_WEIGHT >> 20),
            "use fewer aliases, or split the file",
        ))
    }

    /// Whether a tag makes a text of a scalar that would be something else.
    fn check_tag(&mut self, tag: Option<&Tag>, line: usize) -> bool {
        let Some(tag) = tag else { return false };
        if !tag.is_yaml_core_schema() {
            let message = format!("the tag {} has no meaning here", quoted(&tag.to_string()));
            self.faults.push(line, Fault::new(message, "remove it"));
        }
        tag.is_yaml_core_schema() && tag.suffix == "str"
    }
}

fn too_deep() -> Fault {
    Fault::new(format!("values nest more than {DEEPEST} deep here"), "write them flatter")
}

impl Faults {
    fn push(&mut self, line: usize, fault: Fault) {
        if self.0.len() <= MOST_PROBLEMS {
            self.0.push((line, fault));
        }
    }
}

// === impl OpenMap ===

impl OpenMap {
    /// Takes a key or, after one, its value.
    fn add(&mut self, value: Yaml, faults: &mut Faults) {
        match std::mem::take(&mut self.key) {
            Key::None => self.key = self.as_key(value, faults),
            Key::Unusable => {}
            Key::Text(key, _) if key.plain && key.text == "<<" => self.merged.push(value),
            Key::Text(key, line) => {
                self.seen.insert(key.text.clone(), line);
                self.entries.push(Entry { key, line, value });
            }
        }
    }

    fn as_key(&self, value: Yaml, faults: &mut Faults) -> Key {
        let line = value.line;
        let Kind::Scalar(key) = value.kind else {
            faults.push(line, Fault::new("a key must be a text, not a list or a map", "write a text before the `:`"));
            return Key::Unusable;
        };
        if let Some(first) = self.seen.get(&key.text) {
            let message = format!("{} is here twice, first in line {first}", quoted(&key.text));
            faults.push(line, Fault::new(message, "keep one of the two"));
            return Key::Unusable;
        }
        Key::Text(key, line)
    }

    fn close(mut self, faults: &mut Faults) -> Vec<Entry> {
        for merged in std::mem::take(&mut self.merged) {
            let maps = match merged.kind {
                Kind::List(maps) => maps,
                _ => vec![merged],
            };
            for map in maps {
                let Kind::Map(entries) = map.kind else {
                    let fault =
                        Fault::new("`<<` takes in a map or a list of maps", "name the anchor of a map: `<<: *it`");
                    faults.push(map.line, fault);
                    continue;
                };
                for entry in entries {
                    if !self.seen.contains_key(&entry.key.text) {
                        self.seen.insert(entry.key.text.clone(), entry.line);
                        self.entries.push(entry);
                    }
                }
            }
        }
        self.entries
    }
}

// === impl Yaml ===

impl Yaml {
    /// The same as JSON. Whole numbers, `true`, `false` and null stay what they are; all else is text.
    pub fn to_json(&self) -> String {
        json::write(self)
    }

    /// Nothing: `null`, `~`, or no value at all.
    pub fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar(scalar) if scalar.is_null())
    }

    /// What it is, for a message.
    pub fn described(&self) -> String {
        match &self.kind {
            Kind::Scalar(scalar) if scalar.is_null() => "nothing".to_owned(),
            Kind::Scalar(scalar) => quoted(&scalar.text),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a map".to_owned(),
        }
    }

    fn weight(&self) -> usize {
        let within = match &self.kind {
            Kind::Scalar(scalar) => scalar.text.len(),
            Kind::List(items) => items.iter().map(Yaml::weight).sum(),
            Kind::Map(entries) => {
                entries.iter().map(|entry| WEIGHT_OF_VALUE + entry.key.text.len() + entry.value.weight()).sum()
            }
        };
        WEIGHT_OF_VALUE + within
    }

    fn height(&self) -> usize {
        match &self.kind {
            Kind::Scalar(_) => 0,
            Kind::List(items) => 1 + items.iter().map(Yaml::height).max().unwrap_or(0),
            Kind::Map(entries) => 1 + entries.iter().map(|entry| entry.value.height()).max().unwrap_or(0),
        }
    }
}

// === impl Scalar ===

impl Scalar {
    /// Nothing: `null`, `~`, or no value at all.
    pub fn is_null(&self) -> bool {
        self.plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// The words that YAML has for it, those of its version 1.1 included, which Go programs still read.
    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self.text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    /// A number with a fraction or an exponent, or none that is finite.
    pub(crate) fn is_float(&self) -> bool {
        let unsigned = self.text.trim_start_matches(['+', '-']);
        let special = matches!(unsigned.to_ascii_lowercase().as_str(), ".inf" | ".nan");
        let fraction = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && unsigned.contains(['.', 'e', 'E'])
            && unsigned.parse::<f64>().is_ok();
        self.plain && (special || fraction)
    }
}
