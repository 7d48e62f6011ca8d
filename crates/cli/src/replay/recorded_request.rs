//! A recorded request: one line of JSON.
//!
//! Texts without escapes are borrowed from the line, and attributes stay in their order.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use smallvec::SmallVec;
use tollgate::{Request, Timestamp};

use super::timestamp;
use tollgate_rules::quoted;

/// A request with its time.
#[derive(Debug)]
pub(crate) struct RecordedRequest<'a> {
    pub(crate) at: Timestamp,
    pub(crate) domain: Option<Cow<'a, str>>,
    pub(crate) descriptors: SmallVec<[RecordedDescriptor<'a>; 1]>,
    pub(crate) cost: u64,
    /// Whether it came as attributes, and not as descriptors, in which the server changes no paths.
    pub(crate) is_of_http: bool,
}

/// A list of attributes, in their order.
#[derive(Debug)]
pub(crate) struct RecordedDescriptor<'a> {
    pub(crate) entries: SmallVec<[AttributePair<'a>; 4]>,
    pub(crate) hits: Option<u64>,
}

type AttributePair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The line as JSON. Other members of decision logs are ignored.
#[derive(Deserialize)]
#[serde(expecting = "an object with `at` and `attributes`")]
struct RequestLine<'a> {
    #[serde(borrow)]
    at: &'a RawValue,
    #[serde(borrow, default)]
    domain: Option<TextValue<'a>>,
    #[serde(borrow, default)]
    attributes: Option<LineAttributes<'a>>,
    #[serde(borrow, default)]
    descriptors: Option<Vec<LineDescriptor<'a>>>,
    #[serde(default)]
    cost: Option<HitCount>,
}

/// A descriptor in the format of Envoy's logs.
#[derive(Deserialize)]
#[serde(expecting = "a descriptor: an object with `entries`")]
struct LineDescriptor<'a> {
    #[serde(borrow)]
    entries: Vec<LineEntry<'a>>,
    #[serde(default, alias = "hitsAddend")]
    hits_addend: Option<HitCount>,
}

#[derive(Deserialize)]
#[serde(expecting = "an entry: an object with `key` and `value`")]
struct LineEntry<'a> {
    #[serde(borrow)]
    key: TextValue<'a>,
    #[serde(borrow)]
    value: TextValue<'a>,
}

struct TextValue<'a>(Cow<'a, str>);
struct HitCount(u64);
/// The first value of each name.
struct LineAttributes<'a>(SmallVec<[AttributePair<'a>; 4]>);

impl<'a> RecordedRequest<'a> {
    /// Parses a line.
    pub(crate) fn parse(line: &'a [u8]) -> Result<RecordedRequest<'a>, String> {
        // serde would accept a list of values as an object.
        if line.first() != Some(&b'{') {
            return Err("it is not a JSON object".to_owned());
        }
        let line: RequestLine<'a> = serde_json::from_slice(line).map_err(|error| without_line(&error))?;
        let is_of_http = line.attributes.is_some();
        let descriptors = match (line.attributes, line.descriptors) {
            (Some(LineAttributes(entries)), None) => SmallVec::from_iter([RecordedDescriptor { entries, hits: None }]),
            (None, Some(descriptors)) => descriptors.into_iter().map(LineDescriptor::into_recorded).collect(),
            (None, None) => return Err("it has no `attributes`".to_owned()),
            (Some(_), Some(_)) => return Err("it has both `attributes` and `descriptors`".to_owned()),
        };
        Ok(RecordedRequest {
            at: parse_time(line.at)?,
            domain: line.domain.map(|TextValue(name)| name),
            descriptors,
            cost: line.cost.map_or(1, |HitCount(cost)| cost),
            is_of_http,
        })
    }
}

impl<'a> LineDescriptor<'a> {
    fn into_recorded(self) -> RecordedDescriptor<'a> {
        RecordedDescriptor {
            entries: self
                .entries
                .into_iter()
                .map(|LineEntry { key: TextValue(key), value: TextValue(value) }| (key, value))
                .collect(),
            hits: self.hits_addend.map(|HitCount(hits)| hits),
        }
    }
}

fn parse_time(at: &RawValue) -> Result<Timestamp, String> {
    let time = match at.get().as_bytes() {
        [b'"', ..] => {
            serde_json::from_str::<Cow<'_, str>>(at.get()).ok().and_then(|text| timestamp::from_rfc3339(&text))
        }
        [b'-' | b'0'..=b'9', ..] => timestamp::from_seconds(at.get()),
        _ => None,
    };
    time.ok_or_else(|| {
        format!(
            "`at` is {}, and must be Unix seconds or a time such as \"2023-11-14T22:13:20.5Z\", from 1970 to 2255",
            quoted(at.get())
        )
    })
}

/// The parser's message without its line number, which is always 1.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((message, _)) => format!("{message} (column {})", error.column()),
        None => text,
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for TextValue<'a> {
    /// A text; numbers and booleans as they are written.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TextValue<'a>, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?.get();
        let inner = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        match (inner, raw.as_bytes()) {
            (Some(text), _) if !text.as_bytes().contains(&b'\\') => Ok(TextValue(Cow::Borrowed(text))),
            (Some(_), _) => serde_json::from_str(raw).map(|text| TextValue(Cow::Owned(text))).map_err(D::Error::custom),
            (None, [b'n' | b'[' | b'{', ..]) => {
                Err(D::Error::custom(format_args!("{} is not a text, number or boolean", quoted(raw))))
            }
            (None, _) => Ok(TextValue(Cow::Borrowed(raw))),
        }
    }
}

impl<'de> Deserialize<'de> for HitCount {
    /// Protobuf's JSON mapping writes 64-bit numbers as texts.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HitCount, D::Error> {
        let TextValue(text) = TextValue::deserialize(deserializer)?;
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_number).map(HitCount).ok_or_else(|| {
            D::Error::custom(format_args!("a cost is a whole number of at least 0, not {}", quoted(&text)))
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for LineAttributes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LineAttributes<'a>, D::Error> {
        deserializer.deserialize_map(AttributesVisitor(PhantomData))
    }
}

struct AttributesVisitor<'a>(PhantomData<&'a str>);

impl<'de: 'a, 'a> Visitor<'de> for AttributesVisitor<'a> {
    type Value = LineAttributes<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`attributes` as an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<LineAttributes<'a>, M::Error> {
        let mut entries = SmallVec::<[AttributePair<'a>; 4]>::new();
        while let Some((TextValue(name), TextValue(value))) = map.next_entry()? {
            // One more than the maximum is enough for the request to be rejected.
            if entries.len() <= Request::MAX_ENTRIES && entries.iter().all(|(other, _)| *other != name) {
                entries.push((name, value));
            }
        }
        Ok(LineAttributes(entries))
    }
}
