//! YAML as a tree in which every value has its line.
//!
//! Files come from people and from templates, so everything is bounded: the nesting and the size, including
//! repetitions by aliases. Ambiguities, such as a key that occurs twice, are errors.

pub mod fields;
pub(crate) mod json;
mod syntax;

use std::cell::Cell;
use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};

use crate::problem::{MAX_PROBLEMS, TextFault, quoted};

/// A value.
#[derive(Clone, Debug)]
pub struct Yaml {
    /// The line of its beginning, from 1.
    pub line: usize,
    /// The content.
    pub kind: YamlKind,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub enum YamlKind {
    /// A single text.
    Scalar(Scalar),
    /// A list of values.
    List(Vec<Yaml>),
    /// In the order of the file, without duplicate keys.
    Map(Vec<YamlEntry>),
}

/// A text, and how it was written.
#[derive(Clone, Debug)]
pub struct Scalar {
    /// Without quotes and escapes.
    pub text: String,
    /// Written without quotes. Only then can it be a keyword, a number or null.
    pub plain: bool,
}

/// A key of a map, and its value.
#[derive(Clone, Debug)]
pub struct YamlEntry {
    /// The key.
    pub key: Scalar,
    /// The line of the key.
    pub line: usize,
    /// The value.
    pub value: Yaml,
}

/// The maximum nesting of values: enough for a `descriptors` tree as deep as a request can be.
pub(crate) const MAX_DEPTH: usize = 80;

/// The maximum size of a file's values with every alias expanded: the length of their texts, plus [`WEIGHT_OF_VALUE`]
/// each.
pub(crate) const MAX_WEIGHT: usize = 128 << 20;

/// The maximum length of a list or map in brackets, and of a text, in characters. The parser buffers all tokens
/// between brackets, which takes some hundred times the memory of the text, because a `:` after the last one would
/// turn them into a key.
pub(crate) const MAX_STRETCH_CHARS: usize = 2 << 20;

/// The size of a value without its text.
const WEIGHT_OF_VALUE: usize = 32;

/// The documents of a text, as far as they can be read, and the errors with their lines.
pub type Documents = (Vec<Yaml>, Vec<(usize, TextFault)>);

/// Parses JSON, otherwise YAML.
pub fn read_either(text: &str) -> Documents {
    json::read(text).unwrap_or_else(|| read(text))
}

/// Parses YAML.
pub fn read(text: &str) -> Documents {
    let mut builder = YamlBuilder::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // The parser treats NUL as the end of the text, and would silently drop the rest.
    if let Some(at) = text.find('\0') {
        let line = text[..at].matches('\n').count() + 1;
        let fault = TextFault::new("there is a zero byte in this line", "remove it; the file must be text");
        return (Vec::new(), vec![(line, fault)]);
    }
    let taken = Cell::new(0);
    let mut parser = Parser::new_from_iter(BoundedInput { characters: text.chars(), taken: &taken });
    // The parser counts the end of the text as a line of its own.
    let last = last_line(text);
    let mut line = 1;
    while let Some(step) = parser.next_event() {
        if taken.replace(0) > MAX_STRETCH_CHARS {
            let message = format!("a value that begins about here is longer than {} MiB", MAX_STRETCH_CHARS >> 20);
            builder
                .faults
                .push(line, TextFault::new(message, "write lists and maps in lines of their own, without brackets"));
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
                let line = error.marker().line().min(last);
                let remedy = syntax::remedy(text, line, column, error.info());
                builder.faults.push(line, TextFault::new(message, remedy));
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

/// The number of the last line. A `\r` by itself ends a line too, as in YAML.
fn last_line(text: &str) -> usize {
    let breaks = text.matches(['\n', '\r']).count() - text.matches("\r\n").count();
    if text.ends_with(['\n', '\r']) { breaks } else { breaks + 1 }
}

/// Limits the characters that one step of the parser may take; beyond the limit the text seems to end.
struct BoundedInput<'s, I> {
    characters: I,
    taken: &'s Cell<usize>,
}

impl<I: Iterator<Item = char>> Iterator for BoundedInput<'_, I> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        self.taken.set(self.taken.get() + 1);
        if self.taken.get() > MAX_STRETCH_CHARS { None } else { self.characters.next() }
    }
}

/// The collections that are still open, innermost last.
#[derive(Default)]
struct YamlBuilder {
    documents: Vec<Yaml>,
    open: Vec<OpenCollection>,
    /// By the parser's number, which is unique across documents.
    anchors: HashMap<usize, Yaml>,
    weight: usize,
    faults: YamlFaults,
}

/// Errors and their lines; one more than is reported, to know that there are more.
#[derive(Default)]
struct YamlFaults(Vec<(usize, TextFault)>);

struct OpenCollection {
    line: usize,
    anchor: usize,
    items: OpenItems,
}

enum OpenItems {
    List(Vec<Yaml>),
    Map(Box<OpenMap>),
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<YamlEntry>,
    /// The line of each key.
    seen: HashMap<String, usize>,
    /// The values of `<<`, whose entries apply where the map has none of its own.
    merged: Vec<Yaml>,
    key: PendingKey,
}

/// The key whose value comes next.
#[derive(Default)]
enum PendingKey {
    #[default]
    None,
    Text(Scalar, usize),
    /// The key was invalid, and its value is dropped.
    Unusable,
}

// === impl Builder ===

impl YamlBuilder {
    /// Handles the next event. After an error, no further events can be handled.
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), TextFault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text_tag = self.check_tag(tag.as_deref(), line);
                let plain = style == ScalarStyle::Plain && !text_tag;
                self.weigh(WEIGHT_OF_VALUE + text.len())?;
                let scalar = Scalar { text: text.into_owned(), plain };
                self.add(Yaml { line, kind: YamlKind::Scalar(scalar) }, anchor)
            }
            Event::Alias(anchor) => {
                let Some(value) = self.anchors.get(&anchor) else {
                    return Err(TextFault::new("this alias stands inside its own anchor", "write the value out"));
                };
                let (height, weight) = (value.height(), value.weight());
                if self.open.len() + height > MAX_DEPTH {
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
                self.open(line, anchor, OpenItems::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.check_tag(tag.as_deref(), line);
                self.open(line, anchor, OpenItems::Map(Box::default()))
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                Ok(())
            }
        }
    }

    fn open(&mut self, line: usize, anchor: usize, items: OpenItems) -> Result<(), TextFault> {
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep());
        }
        self.weigh(WEIGHT_OF_VALUE)?;
        self.open.push(OpenCollection { line, anchor, items });
        Ok(())
    }

    fn close(&mut self) -> Result<(), TextFault> {
        let Some(OpenCollection { line, anchor, items }) = self.open.pop() else { return Ok(()) };
        let kind = match items {
            OpenItems::List(items) => YamlKind::List(items),
            OpenItems::Map(map) => YamlKind::Map(map.close(&mut self.faults)),
        };
        self.add(Yaml { line, kind }, anchor)
    }

    /// Adds a finished value to the innermost collection.
    fn add(&mut self, value: Yaml, anchor: usize) -> Result<(), TextFault> {
        if anchor != 0 {
            self.weigh(value.weight())?;
            self.anchors.insert(anchor, value.clone());
        }
        match self.open.last_mut() {
            None => self.documents.push(value),
            Some(OpenCollection { items: OpenItems::List(items), .. }) => items.push(value),
            Some(OpenCollection { items: OpenItems::Map(map), .. }) => map.add(value, &mut self.faults),
        }
        Ok(())
    }

    fn weigh(&mut self, weight: usize) -> Result<(), TextFault> {
        self.weight = self.weight.saturating_add(weight);
        if self.weight <= MAX_WEIGHT {
            return Ok(());
        }
        Err(TextFault::new(
            format!("the values of this file, with what its aliases repeat, pass {} MiB", MAX_WEIGHT >> 20),
            "use fewer aliases, or split the file",
        ))
    }

    /// Whether a tag turns a scalar of another type into a text.
    fn check_tag(&mut self, tag: Option<&Tag>, line: usize) -> bool {
        let Some(tag) = tag else { return false };
        if !tag.is_yaml_core_schema() {
            let message = format!("the tag {} has no meaning here", quoted(&tag.to_string()));
            self.faults.push(line, TextFault::new(message, "remove it"));
        }
        tag.is_yaml_core_schema() && tag.suffix == "str"
    }
}

fn too_deep() -> TextFault {
    TextFault::new(format!("values nest more than {MAX_DEPTH} deep here"), "write them flatter")
}

impl YamlFaults {
    fn push(&mut self, line: usize, fault: TextFault) {
        if self.0.len() <= MAX_PROBLEMS {
            self.0.push((line, fault));
        }
    }
}

// === impl OpenMap ===

impl OpenMap {
    /// Adds a key or, after a key, its value.
    fn add(&mut self, value: Yaml, faults: &mut YamlFaults) {
        match std::mem::take(&mut self.key) {
            PendingKey::None => self.key = self.as_key(value, faults),
            PendingKey::Unusable => {}
            PendingKey::Text(key, _) if key.plain && key.text == "<<" => self.merged.push(value),
            PendingKey::Text(key, line) => {
                self.seen.insert(key.text.clone(), line);
                self.entries.push(YamlEntry { key, line, value });
            }
        }
    }

    fn as_key(&self, value: Yaml, faults: &mut YamlFaults) -> PendingKey {
        let line = value.line;
        let YamlKind::Scalar(key) = value.kind else {
            faults
                .push(line, TextFault::new("a key must be a text, not a list or a map", "write a text before the `:`"));
            return PendingKey::Unusable;
        };
        if let Some(first) = self.seen.get(&key.text) {
            let message = format!("{} is here twice, first in line {first}", quoted(&key.text));
            faults.push(line, TextFault::new(message, "keep one of the two"));
            return PendingKey::Unusable;
        }
        PendingKey::Text(key, line)
    }

    fn close(mut self, faults: &mut YamlFaults) -> Vec<YamlEntry> {
        for merged in std::mem::take(&mut self.merged) {
            let maps = match merged.kind {
                YamlKind::List(maps) => maps,
                _ => vec![merged],
            };
            for map in maps {
                let YamlKind::Map(entries) = map.kind else {
                    let fault =
                        TextFault::new("`<<` takes in a map or a list of maps", "name the anchor of a map: `<<: *it`");
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
    /// The value as JSON. Whole numbers, `true`, `false` and null keep their type; everything else is text.
    pub fn to_json(&self) -> String {
        json::write(self)
    }

    /// Whether it is null: `null`, `~`, or no value.
    pub fn is_null(&self) -> bool {
        matches!(&self.kind, YamlKind::Scalar(scalar) if scalar.is_null())
    }

    /// A description for messages.
    pub fn described(&self) -> String {
        match &self.kind {
            YamlKind::Scalar(scalar) if scalar.is_null() => "nothing".to_owned(),
            YamlKind::Scalar(scalar) => quoted(&scalar.text),
            YamlKind::List(_) => "a list".to_owned(),
            YamlKind::Map(_) => "a map".to_owned(),
        }
    }

    fn weight(&self) -> usize {
        let within = match &self.kind {
            YamlKind::Scalar(scalar) => scalar.text.len(),
            YamlKind::List(items) => items.iter().map(Yaml::weight).sum(),
            YamlKind::Map(entries) => {
                entries.iter().map(|entry| WEIGHT_OF_VALUE + entry.key.text.len() + entry.value.weight()).sum()
            }
        };
        WEIGHT_OF_VALUE + within
    }

    fn height(&self) -> usize {
        match &self.kind {
            YamlKind::Scalar(_) => 0,
            YamlKind::List(items) => 1 + items.iter().map(Yaml::height).max().unwrap_or(0),
            YamlKind::Map(entries) => 1 + entries.iter().map(|entry| entry.value.height()).max().unwrap_or(0),
        }
    }
}

// === impl Scalar ===

impl Scalar {
    /// Whether it is null: `null`, `~`, or no value.
    pub fn is_null(&self) -> bool {
        self.plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// The boolean, including the words of YAML 1.1, which Go programs still accept.
    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self.text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    /// Whether it is a number with a fraction or an exponent, or not finite.
    pub(crate) fn is_float(&self) -> bool {
        let unsigned = self.text.trim_start_matches(['+', '-']);
        let special = matches!(unsigned.to_ascii_lowercase().as_str(), ".inf" | ".nan");
        let fraction = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && unsigned.contains(['.', 'e', 'E'])
            && unsigned.parse::<f64>().is_ok();
        self.plain && (special || fraction)
    }
}
