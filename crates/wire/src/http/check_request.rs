//! The body of a check: three JSON forms of one request.
//!
//! Texts are borrowed from the body unless they have escapes, and attributes stay in the order of the body.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use smallvec::SmallVec;
use tollgate::{Descriptor, ReceiptWish, Request};
use tollgate_http::problem::Problem;
use tollgate_rules::quoted;

use super::json_body::{self, FromMembers, MemberName, boolean, count, duplicate_member, text, whole_number};
use crate::instructions::{InstructionError, Instructions, is_instruction};
use crate::object::{Object, ObjectName};

/// A check as its body describes it.
#[derive(Debug, PartialEq)]
pub(super) struct CheckRequest<'a> {
    pub(super) domain: Option<Cow<'a, str>>,
    pub(super) cost: u64,
    receipt: ReceiptWish,
    lists: SmallVec<[AttributeList<'a>; 1]>,
}

/// The attributes of a descriptor, in order.
#[derive(Debug, Default, PartialEq)]
struct AttributeList<'a> {
    entries: Entries<'a>,
    hits: Option<u64>,
}

type Entries<'a> = SmallVec<[(Cow<'a, str>, Cow<'a, str>); 4]>;

/// The names and values of all lists, concatenated.
pub(super) type Pairs<'a> = SmallVec<[(&'a str, &'a str); 8]>;

/// The members of a body.
#[derive(Default)]
pub(super) struct CheckMembers<'a> {
    domain: Option<Cow<'a, str>>,
    cost: Option<u64>,
    receipt: Option<bool>,
    attributes: Option<Entries<'a>>,
    descriptors: Option<SmallVec<[AttributeList<'a>; 1]>>,
    /// All others: the attributes of the flat form.
    flat: Entries<'a>,
}

impl<'a> CheckRequest<'a> {
    /// Parses a body, or explains why it is invalid.
    pub(super) fn parse(body: &'a [u8]) -> Result<CheckRequest<'a>, Problem> {
        json_body::parse(body)
    }

    /// The attributes of all lists, for [`Self::descriptors`] to split, and the instructions among them.
    pub(super) fn pairs(&self) -> Result<(Pairs<'_>, Instructions<'_>), Problem> {
        let (mut pairs, mut instructions) = (Pairs::new(), Instructions::default());
        for (name, value) in self.lists.iter().flat_map(|list| &list.entries) {
            let is_taken = instructions.take(name, value);
            if !is_taken.map_err(|InstructionError(reason)| Problem::bad_request("bad_instruction", reason))? {
                pairs.push((name, value));
            }
        }
        Ok((pairs, instructions))
    }

    pub(super) fn descriptors<'p>(&self, pairs: &'p Pairs<'_>) -> SmallVec<[Descriptor<'p>; 1]> {
        let mut rest = &pairs[..];
        let descriptor = |list: &AttributeList<'_>| {
            let length = list.entries.iter().filter(|(name, _)| !is_instruction(name)).count();
            let (own, others) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            rest = others;
            // A list with only instructions costs nothing if there are other lists.
            let instructs = length < list.entries.len() && own.is_empty() && !pairs.is_empty();
            Descriptor { entries: own, hits: list.hits.or(instructs.then_some(0)), limit: None }
        };
        self.lists.iter().map(descriptor).collect()
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

impl<'de> FromMembers<'de> for CheckRequest<'de> {
    const EXAMPLE: &'static str = r#"{"attributes": {"api_key": "k1"}}"#;

    type Members = CheckMembers<'de>;

    fn read_member<M: MapAccess<'de>>(
        members: &mut CheckMembers<'de>,
        name: &Cow<'de, str>,
        map: &mut M,
    ) -> Result<bool, M::Error> {
        Ok(match &**name {
            "domain" => members.domain.replace(text(map.next_value()?, "domain")?).is_none(),
            "cost" => members.cost.replace(count(map.next_value()?, "cost")?).is_none(),
            "receipt" => members.receipt.replace(boolean(map.next_value()?, "receipt")?).is_none(),
            "attributes" => members.attributes.replace(map.next_value_seed(AttributesVisitor)?).is_none(),
            "descriptors" => members.descriptors.replace(map.next_value_seed(DescriptorsVisitor)?).is_none(),
            _ => {
                let value = text(map.next_value()?, name)?;
                add(&mut members.flat, name.clone(), value)?
            }
        })
    }

    fn from_members<E: serde::de::Error>(members: CheckMembers<'de>) -> Result<CheckRequest<'de>, E> {
        let CheckMembers { domain, mut cost, receipt, attributes, descriptors, mut flat } = members;
        let lists = match (attributes, descriptors) {
            (Some(_), Some(_)) => {
                return Err(E::custom("it has both `attributes` and `descriptors`; send one of them"));
            }
            (None, None) if flat.is_empty() => SmallVec::new(),
            (None, None) => SmallVec::from_iter([AttributeList { entries: flat, hits: None }]),
            (attributes, descriptors) => {
                if descriptors.is_some() && cost.is_none() {
                    cost = take_hits(&mut flat)?;
                }
                if let Some((name, _)) = flat.first() {
                    return Err(E::custom(format_args!(
                        "unknown member {} next to `attributes` or `descriptors`; omit it or move it into those",
                        quoted(name)
                    )));
                }
                let single = |entries| SmallVec::from_iter([AttributeList { entries, hits: None }]);
                descriptors.unwrap_or_else(|| single(attributes.unwrap_or_default()))
            }
        };
        let receipt = if receipt == Some(true) { ReceiptWish::Always } else { ReceiptWish::IfNeeded };
        Ok(CheckRequest { domain, cost: cost.unwrap_or(1), receipt, lists })
    }
}

/// Takes Envoy's member for the cost of a request with descriptors.
fn take_hits<E: serde::de::Error>(flat: &mut Entries<'_>) -> Result<Option<u64>, E> {
    let Some(at) = flat.iter().position(|(name, _)| name == "hits_addend" || name == "hitsAddend") else {
        return Ok(None);
    };
    whole_number(&flat.remove(at).1, "hits_addend").map(Some)
}

/// Adds an attribute; `false` if its name is a duplicate.
fn add<'a, E: serde::de::Error>(entries: &mut Entries<'a>, name: Cow<'a, str>, value: Cow<'a, str>) -> Result<bool, E> {
    if entries.len() >= Request::MAX_ENTRIES {
        return Err(E::custom(format_args!("there are too many attributes; send at most {}", Request::MAX_ENTRIES)));
    }
    if entries.iter().any(|(existing, _)| *existing == name) {
        return Ok(false);
    }
    entries.push((name, value));
    Ok(true)
}

/// Reads `attributes`.
struct AttributesVisitor;

impl<'de> DeserializeSeed<'de> for AttributesVisitor {
    type Value = Entries<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Entries<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for AttributesVisitor {
    type Value = Entries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`attributes` as an object of names and values")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Entries<'de>, M::Error> {
        let mut entries = Entries::new();
        while let Some(MemberName(name)) = map.next_key()? {
            let value = text(map.next_value()?, &name)?;
            if !add(&mut entries, name.clone(), value)? {
                return Err(duplicate_member(&name));
            }
        }
        Ok(entries)
    }
}

/// Reads `descriptors`.
struct DescriptorsVisitor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescriptorBody<'a> {
    #[serde(borrow)]
    entries: Vec<Object<EntryBody<'a>>>,
    #[serde(borrow, default, alias = "hitsAddend")]
    hits_addend: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryBody<'a> {
    #[serde(borrow)]
    key: &'a RawValue,
    #[serde(borrow)]
    value: &'a RawValue,
}

impl<'de> DeserializeSeed<'de> for DescriptorsVisitor {
    type Value = SmallVec<[AttributeList<'de>; 1]>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for DescriptorsVisitor {
    type Value = SmallVec<[AttributeList<'de>; 1]>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`descriptors` as a list")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        let mut lists = SmallVec::new();
        while lists.len() < Request::MAX_DESCRIPTORS {
            let Some(Object(body)) = list.next_element::<Object<DescriptorBody<'de>>>()? else { return Ok(lists) };
            lists.push(body.into_list()?);
        }
        match list.next_element::<IgnoredAny>()? {
            None => Ok(lists),
            Some(_) => Err(S::Error::custom(format_args!(
                "there are too many descriptors; send at most {}",
                Request::MAX_DESCRIPTORS
            ))),
        }
    }
}

impl ObjectName for DescriptorBody<'_> {
    const NAME: &'static str = "a descriptor: an object with `entries`";
}

impl ObjectName for EntryBody<'_> {
    const NAME: &'static str = "an entry: an object with `key` and `value`";
}

impl<'a> DescriptorBody<'a> {
    fn into_list<E: serde::de::Error>(self) -> Result<AttributeList<'a>, E> {
        // One more than the maximum is enough for the limiter to reject the request.
        let first = self.entries.iter().take(Request::MAX_ENTRIES + 1);
        let entries = first.map(|Object(entry)| Ok((text(entry.key, "key")?, text(entry.value, "value")?)));
        Ok(AttributeList {
            entries: entries.collect::<Result<_, E>>()?,
            hits: self.hits_addend.map(|hits| count(hits, "hits_addend")).transpose()?,
        })
    }
}
