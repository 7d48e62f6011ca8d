//! A recorded request: one line of JSON.
//!
//! Texts are borrowed from the line unless they have escapes, and attributes keep the order in which they stand.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use smallvec::SmallVec;
use tollgate::{Request, Timestamp};

use super::moment;
use tollgate_rules::quoted;

/// What was asked, and when.
#[derive(Debug)]
pub(super) struct Recorded<'a> {
    pub(super) at: Timestamp,
    pub(super) domain: Option<Cow<'a, str>>,
    pub(super) descriptors: SmallVec<[RecordedDescriptor<'a>; 1]>,
    pub(super) cost: u64,
}

/// A list of attributes, in their order.
#[derive(Debug)]
pub(super) struct RecordedDescriptor<'a> {
    pub(super) entries: SmallVec<[Entry<'a>; 4]>,
    pub(super) hits: Option<u64>,
}

type Entry<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The line as it stands. What else decision logs carry is ignored.
#[derive(Deserialize)]
#[serde(expecting = "an object with `at` and `attributes`")]
struct Line<'a> {
    #[serde(borrow)]
    at: &'a RawValue,
    #[serde(borrow, default)]
    domain: Option<Text<'a>>,
    #[serde(borrow, default)]
    attributes: Option<Attributes<'a>>,
    #[serde(borrow, default)]
    descriptors: Option<Vec<LineDescriptor<'a>>>,
    #[serde(default)]
    cost: Option<Count>,
}

/// A descriptor in the form that Envoy logs.
#[derive(Deserialize)]
#[serde(expecting = "a descriptor: an object with `entries`")]
struct LineDescriptor<'a> {
    #[serde(borrow)]
    entries: Vec<LineEntry<'a>>,
    #[serde(default, alias = "hitsAddend")]
    hits_addend: Option<Count>,
}

#[derive(Deserialize)]
#[serde(expecting = "an entry: an object with `key` and `value`")]
struct LineEntry<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    value: Text<'a>,
}

struct Text<'a>(Cow<'a, str>);
struct Count(u64);
/// The first value of each name.
struct Attributes<'a>(SmallVec<[Entry<'a>; 4]>);

impl<'a> Recorded<'a> {
    /// Reads a line, or says why it can't be.
    pub(super) fn read(line: &'a [u8]) -> Result<Recorded<'a>, String> {
        // A list of the right values would pass for an object.
        if line.first() != Some(&b'{') {
            return Err("it is not a JSON object".to_owned());
        }
        let line: Line<'a> = serde_json::from_slice(line).map_err(|error| worded(&error))?;
        let descriptors = match (line.attributes, line.descriptors) {
            (Some(Attributes(entries)), None) => SmallVec::from_iter([RecordedDescriptor { entries, hits: None }]),
            (None, Some(descriptors)) => descriptors.into_iter().map(LineDescriptor::into_recorded).collect(),
            (None, None) => return Err("it has no `attributes`".to_owned()),
            (Some(_), Some(_)) => return Err("it has both `attributes` and `descriptors`".to_owned()),
        };
        Ok(Recorded {
            at: moment_of(line.at)?,
            domain: line.domain.map(|Text(name)| name),
            descriptors,
            cost: line.cost.map_or(1, |Count(cost)| cost),
        })
    }
}

impl<'a> LineDescriptor<'a> {
    fn into_recorded(self) -> RecordedDescriptor<'a> {
        RecordedDescriptor {
            entries: self
                .entries
                .into_iter()
                .map(|LineEntry { key: Text(key), value: Text(value) }| (key, value))
                .collect(),
            hits: self.hits_addend.map(|Count(hits)| hits),
        }
    }
}

fn moment_of(at: &RawValue) -> Result<Timestamp, String> {
    let moment = match at.get().as_bytes() {
        [b'"', ..] => serde_json::from_str::<Cow<'_, str>>(at.get()).ok().and_then(|text| moment::from_rfc3339(&text)),
        [b'-' | b'0'..=b'9', ..] => moment::from_seconds(at.get()),
        _ => None,
    };
    moment.ok_or_else(|| {
        format!(
            "`at` is {}, and must be Unix seconds or a time such as \"2023-11-14T22:13:20.5Z\", from 1970 to 2255",
            quoted(at.get())
        )
    })
}

/// The parser's own sentence. That it counts the line as its first would only mislead.
fn worded(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} (column {})", error.column()),
        None => text,
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    /// A text; a number or a truth value as it is written.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<'a>, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?.get();
        let inner = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        match (inner, raw.as_bytes()) {
            (Some(text), _) if !text.as_bytes().contains(&b'\\') => Ok(Text(Cow::Borrowed(text))),
            (Some(_), _) => serde_json::from_str(raw).map(|text| Text(Cow::Owned(text))).map_err(D::Error::custom),
            (None, [b'n' | b'[' | b'{', ..]) => {
                Err(D::Error::custom(format_args!("{} is no text, number, true or false", quoted(raw))))
            }
            (None, _) => Ok(Text(Cow::Borrowed(raw))),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    /// JSON's mapping of 64-bit numbers may write them as texts.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Count, D::Error> {
        let Text(text) = Text::deserialize(deserializer)?;
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_number).map(Count).ok_or_else(|| {
            D::Error::custom(format_args!("a cost is a whole number, at least 0, and not {}", quoted(&text)))
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Attributes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Attributes<'a>, D::Error> {
        deserializer.deserialize_map(AttributesReader(PhantomData))
    }
}

struct AttributesReader<'a>(PhantomData<&'a str>);

impl<'de: 'a, 'a> Visitor<'de> for AttributesReader<'a> {
    type Value = Attributes<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`attributes` as an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Attributes<'a>, M::Error> {
        let mut found = SmallVec::<[Entry<'a>; 4]>::new();
        while let Some((Text(name), Text(value))) = map.next_entry()? {
            // One more than a request may have is enough for it to be refused.
            if found.len() <= Request::MOST_ENTRIES && found.iter().all(|(known, _)| *known != name) {
                found.push((name, value));
            }
        }
        Ok(Attributes(found))
    }
}
