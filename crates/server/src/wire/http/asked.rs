//! The body of a check: three forms of JSON, one request.
//!
//! Texts are borrowed from the body unless they have escapes, and attributes keep the order in which they stand.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use smallvec::SmallVec;
use tollgate::{Descriptor, ReceiptWish, Request};
use tollgate_rules::quoted;

use super::problem::Problem;
use crate::wire::instructions::{Instructions, Misread, is_instruction};
use crate::wire::object::{Called, Object};

/// What a client asks.
#[derive(Debug, PartialEq)]
pub(super) struct Asked<'a> {
    pub(super) domain: Option<Cow<'a, str>>,
    pub(super) cost: u64,
    receipt: ReceiptWish,
    lists: SmallVec<[List<'a>; 1]>,
}

/// A list of attributes, in their order.
#[derive(Debug, Default, PartialEq)]
struct List<'a> {
    entries: Entries<'a>,
    hits: Option<u64>,
}

type Entries<'a> = SmallVec<[(Cow<'a, str>, Cow<'a, str>); 4]>;

/// Names and values of all lists, one after the other.
pub(super) type Pairs<'a> = SmallVec<[(&'a str, &'a str); 8]>;

const EXAMPLE: &str = r#"{"attributes": {"api_key": "k1"}}"#;

impl<'a> Asked<'a> {
    /// Reads a body, or says why it can't be.
    pub(super) fn read(body: &'a [u8]) -> Result<Asked<'a>, Problem> {
        if body.iter().all(u8::is_ascii_whitespace) {
            let detail = format!("the body is empty; send a JSON object such as {EXAMPLE}");
            return Err(Problem::bad_request("empty_body", detail));
        }
        serde_json::from_slice(body).map_err(|error| {
            let code = if error.is_data() { "bad_member" } else { "bad_json" };
            Problem::bad_request(code, format!("the body can't be read: {error}; send one such as {EXAMPLE}"))
        })
    }

    /// All names and values, for [`Self::descriptors`] to part, without the instructions among them.
    pub(super) fn pairs(&self) -> Result<(Pairs<'_>, Instructions<'_>), Problem> {
        let (mut pairs, mut instructions) = (Pairs::new(), Instructions::default());
        for (name, value) in self.lists.iter().flat_map(|list| &list.entries) {
            let is_taken = instructions.take(name, value);
            if !is_taken.map_err(|Misread(reason)| Problem::bad_request("bad_instruction", reason))? {
                pairs.push((name, value));
            }
        }
        Ok((pairs, instructions))
    }

    pub(super) fn descriptors<'p>(&self, pairs: &'p Pairs<'_>) -> SmallVec<[Descriptor<'p>; 1]> {
        let mut rest = &pairs[..];
        let part = |list: &List<'_>| {
            let length = list.entries.iter().filter(|(name, _)| !is_instruction(name)).count();
            let (own, others) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            rest = others;
            // One that only instructs costs nothing beside others.
            let instructs = length < list.entries.len() && own.is_empty() && !pairs.is_empty();
            Descriptor { entries: own, hits: list.hits.or(instructs.then_some(0)), limit: None }
        };
        self.lists.iter().map(part).collect()
    }

    pub(super) fn request<'r>(&'r self, descriptors: &'r [Descriptor<'r>]) -> Request<'r> {
        Request {
            domain: self.domain.as_deref(),
            descriptors,
            cost: self.cost,
            receipt: self.receipt,
            ..Request::default()
        }
    }
}

impl<'de> Deserialize<'de> for Asked<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Asked<'de>, D::Error> {
        deserializer.deserialize_map(AskedReader)
    }
}

struct AskedReader;

impl<'de> Visitor<'de> for AskedReader {
    type Value = Asked<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Asked<'de>, M::Error> {
        let (mut domain, mut cost, mut receipt, mut attributes, mut descriptors) = (None, None, None, None, None);
        let mut flat = Entries::new();
        while let Some(Name(name)) = map.next_key()? {
            let is_new = match &*name {
                "domain" => domain.replace(text(map.next_value()?, "domain")?).is_none(),
                "cost" => cost.replace(count(map.next_value()?, "cost")?).is_none(),
                "receipt" => receipt.replace(truth(map.next_value()?, "receipt")?).is_none(),
                "attributes" => attributes.replace(map.next_value_seed(Attributes)?).is_none(),
                "descriptors" => descriptors.replace(map.next_value_seed(Descriptors)?).is_none(),
                _ => {
                    let value = text(map.next_value()?, &name)?;
                    add(&mut flat, name.clone(), value)?
                }
            };
            if !is_new {
                return Err(twice(&name));
            }
        }
        let lists = match (attributes, descriptors) {
            (Some(_), Some(_)) => {
                return Err(M::Error::custom("it has both `attributes` and `descriptors`; send one of them"));
            }
            (None, None) if flat.is_empty() => SmallVec::new(),
            (None, None) => SmallVec::from_iter([List { entries: flat, hits: None }]),
            (attributes, descriptors) => {
                if descriptors.is_some() && cost.is_none() {
                    cost = take_hits(&mut flat)?;
                }
                if let Some((name, _)) = flat.first() {
                    return Err(M::Error::custom(format_args!(
                        "{} is no member of it beside `attributes` or `descriptors`; leave it out or put it into those",
                        quoted(name)
                    )));
                }
                let lone = |entries| SmallVec::from_iter([List { entries, hits: None }]);
                descriptors.unwrap_or_else(|| lone(attributes.unwrap_or_default()))
            }
        };
        let receipt = if receipt == Some(true) { ReceiptWish::Always } else { ReceiptWish::IfNeeded };
        Ok(Asked { domain, cost: cost.unwrap_or(1), receipt, lists })
    }
}

/// Envoy's name for the cost of a request with descriptors.
fn take_hits<E: serde::de::Error>(flat: &mut Entries<'_>) -> Result<Option<u64>, E> {
    let Some(at) = flat.iter().position(|(name, _)| name == "hits_addend" || name == "hitsAddend") else {
        return Ok(None);
    };
    whole_number(&flat.remove(at).1, "hits_addend").map(Some)
}

/// Adds an attribute; false if there is one of its name.
fn add<'a, E: serde::de::Error>(entries: &mut Entries<'a>, name: Cow<'a, str>, value: Cow<'a, str>) -> Result<bool, E> {
    if entries.len() >= Request::MOST_ENTRIES {
        return Err(E::custom(format_args!("there are too many attributes; send at most {}", Request::MOST_ENTRIES)));
    }
    if entries.iter().any(|(known, _)| *known == name) {
        return Ok(false);
    }
    entries.push((name, value));
    Ok(true)
}

pub(super) fn twice<E: serde::de::Error>(name: &str) -> E {
    E::custom(format_args!("{} is there twice; send it once", quoted(name)))
}

/// A text; a number or a truth value as it is written.
pub(super) fn text<'a, E: serde::de::Error>(raw: &'a RawValue, member: &str) -> Result<Cow<'a, str>, E> {
    let raw = raw.get();
    let inner = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match (inner, raw.as_bytes()) {
        (Some(text), _) if memchr::memchr(b'\\', text.as_bytes()).is_none() => Ok(Cow::Borrowed(text)),
        (Some(_), _) => serde_json::from_str(raw)
            .map(Cow::Owned)
            .map_err(|_| E::custom(format_args!("{} is no valid text: it has half a character", quoted(member)))),
        (None, [b'n' | b'[' | b'{', ..]) => {
            Err(E::custom(format_args!("{} must be a text, a number, true or false", quoted(member))))
        }
        (None, _) => Ok(Cow::Borrowed(raw)),
    }
}

pub(super) fn count<E: serde::de::Error>(raw: &RawValue, member: &str) -> Result<u64, E> {
    whole_number(&text(raw, member)?, member)
}

fn truth<E: serde::de::Error>(raw: &RawValue, member: &str) -> Result<bool, E> {
    match raw.get() {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(E::custom(format_args!("`{member}` must be true or false, not {}", quoted(other)))),
    }
}

/// JSON's mapping of 64-bit numbers may write them as texts.
fn whole_number<E: serde::de::Error>(text: &str, member: &str) -> Result<u64, E> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or_else(|| {
        E::custom(format_args!("`{member}` must be a whole number, at least 0 and below 2^64, not {}", quoted(text)))
    })
}

/// The name of a member.
pub(super) struct Name<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name<'a>, D::Error> {
        struct NameReader;
        impl<'de> Visitor<'de> for NameReader {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(NameReader)
    }
}

/// Reads `attributes`.
struct Attributes;

impl<'de> DeserializeSeed<'de> for Attributes {
    type Value = Entries<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Entries<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Attributes {
    type Value = Entries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`attributes` as an object of names and values")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Entries<'de>, M::Error> {
        let mut entries = Entries::new();
        while let Some(Name(name)) = map.next_key()? {
            let value = text(map.next_value()?, &name)?;
            if !add(&mut entries, name.clone(), value)? {
                return Err(twice(&name));
            }
        }
        Ok(entries)
    }
}

/// Reads `descriptors`.
struct Descriptors;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenDescriptor<'a> {
    #[serde(borrow)]
    entries: Vec<Object<WrittenEntry<'a>>>,
    #[serde(borrow, default, alias = "hitsAddend")]
    hits_addend: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEntry<'a> {
    #[serde(borrow)]
    key: &'a RawValue,
    #[serde(borrow)]
    value: &'a RawValue,
}

impl<'de> DeserializeSeed<'de> for Descriptors {
    type Value = SmallVec<[List<'de>; 1]>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Descriptors {
    type Value = SmallVec<[List<'de>; 1]>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`descriptors` as a list")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        let mut lists = SmallVec::new();
        while lists.len() < Request::MOST_DESCRIPTORS {
            let Some(written) = list.next_element::<Object<WrittenDescriptor<'de>>>()? else { return Ok(lists) };
            lists.push(written.0.into_list()?);
        }
        match list.next_element::<IgnoredAny>()? {
            None => Ok(lists),
            Some(_) => Err(S::Error::custom(format_args!(
                "there are too many descriptors; send at most {}",
                Request::MOST_DESCRIPTORS
            ))),
        }
    }
}

impl Called for WrittenDescriptor<'_> {
    const NAME: &'static str = "a descriptor: an object with `entries`";
}

impl Called for WrittenEntry<'_> {
    const NAME: &'static str = "an entry: an object with `key` and `value`";
}

impl<'a> WrittenDescriptor<'a> {
    fn into_list<E: serde::de::Error>(self) -> Result<List<'a>, E> {
        // Who sends too many is told so when the request is looked at; here it is only not kept.
        let kept = self.entries.iter().take(Request::MOST_ENTRIES + 1);
        let entries = kept.map(|Object(entry)| Ok((text(entry.key, "key")?, text(entry.value, "value")?)));
        Ok(List {
            entries: entries.collect::<Result<_, E>>()?,
            hits: self.hits_addend.map(|hits| count(hits, "hits_addend")).transpose()?,
        })
    }
}
