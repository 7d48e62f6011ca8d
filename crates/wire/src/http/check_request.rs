//! The body of a check: three JSON forms of one request.
//!
//! Texts are borrowed from the body unless they have escapes, and attributes stay in the order of the body.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use smallvec::SmallVec;
use tollgate::{Descriptor, Limiter, ReceiptWish, Request};
use tollgate_http::problem::Problem;
use tollgate_http::request_target::PathNormalization;
use tollgate_rules::attribute_text::is_plain;
use tollgate_rules::quoted;
use tollgate_store::Counters;
use tollgate_telemetry::metrics::{Repair, Repairs};

use super::json_body::{
    self, AttributeValue, FromMembers, MemberName, attribute, boolean, cost, duplicate_member, text,
};
use crate::attributes::{self, Undecided, is_usable, repaired, shortened};
use crate::instructions::{InstructionError, Instructions, is_instruction};
use crate::object::{Object, ObjectName};

/// A check as its body describes it.
#[derive(Debug, PartialEq)]
pub(super) struct CheckRequest<'a> {
    pub(super) domain: Option<Cow<'a, str>>,
    pub(super) cost: u64,
    receipt: ReceiptWish,
    lists: SmallVec<[AttributeList<'a>; 1]>,
    /// What was wrong so far.
    repairs: Repairs,
}

/// The attributes of a descriptor, in order.
#[derive(Debug, Default, PartialEq)]
struct AttributeList<'a> {
    entries: Entries<'a>,
    hits: Option<u64>,
}

type Entries<'a> = SmallVec<[(Cow<'a, str>, AttributeValue<'a>); 4]>;

/// The names and values of all lists, concatenated.
pub(super) type Pairs<'a> = SmallVec<[(&'a str, &'a str); 8]>;

/// The members of a body.
#[derive(Default)]
pub(super) struct CheckMembers<'a> {
    domain: Option<Cow<'a, str>>,
    cost: Option<CostMember>,
    receipt: Option<bool>,
    attributes: Option<Entries<'a>>,
    descriptors: Option<Descriptors<'a>>,
    /// All others: the attributes of the flat form.
    flat: Entries<'a>,
    /// The names of flat members without a value.
    absent: SmallVec<[Cow<'a, str>; 1]>,
}

/// A cost; `None` if it is malformed.
type CostMember = Option<u64>;

/// The member `descriptors`.
pub(super) struct Descriptors<'a> {
    lists: SmallVec<[AttributeList<'a>; 1]>,
    repairs: Repairs,
}

impl<'a> CheckRequest<'a> {
    /// Parses a body, or explains why it is invalid.
    pub(super) fn parse(body: &'a [u8]) -> Result<CheckRequest<'a>, Problem> {
        json_body::parse(body)
    }

    /// Writes all names and values as rules see them, and leaves out what the request has too much of.
    ///
    /// # Errors
    /// If something would be left out that might be what refuses the request.
    pub(super) fn repair(
        &mut self,
        normalization: PathNormalization,
        limiter: &Limiter<Counters>,
        repairs: &mut Repairs,
    ) -> Result<(), Undecided> {
        if !self.repairs.is_empty() {
            repairs.add_all(self.repairs);
        }
        for list in &mut self.lists {
            if list.entries.len() > Request::MAX_ENTRIES {
                let rules = limiter.rules();
                let mut entries = std::mem::take(&mut list.entries).into_vec();
                let domain = rules.domain(self.domain.as_deref()).ok();
                attributes::trim(&mut entries, |(name, _)| name, domain, repairs)?;
                list.entries = entries.into();
            }
            for (name, value) in &mut list.entries {
                if let Some(normal) = normalization.attribute(name, value.as_bytes()) {
                    *value = AttributeValue::Bytes(normal);
                }
                if !matches!(value, AttributeValue::Text(text) if is_plain(text) && is_usable(name, text)) {
                    *value = AttributeValue::Text(Cow::Owned(repaired(name, value.as_bytes(), repairs).into_owned()));
                }
                if name.len() > Request::MAX_TEXT_BYTES {
                    *name = shortened(std::mem::take(name), Request::MAX_TEXT_BYTES, Repair::LongText, repairs);
                }
            }
        }
        Ok(())
    }

    /// The attributes of all lists, for [`Self::descriptors`] to split, and the instructions among them. The request is
    /// [repaired](Self::repair).
    pub(super) fn pairs(&self) -> Result<(Pairs<'_>, Instructions<'_>), Problem> {
        let (mut pairs, mut instructions) = (Pairs::new(), Instructions::default());
        for (name, value) in self.lists.iter().flat_map(|list| &list.entries) {
            let value = value.as_text();
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
            "cost" => members.cost.replace(cost(map.next_value()?)).is_none(),
            "receipt" => members.receipt.replace(boolean(map.next_value()?, "receipt")?).is_none(),
            "attributes" => members.attributes.replace(map.next_value_seed(AttributesVisitor)?).is_none(),
            "descriptors" => members.descriptors.replace(map.next_value_seed(DescriptorsVisitor)?).is_none(),
            _ => match attribute(map.next_value()?, name)? {
                Some(value) => add(&mut members.flat, name.clone(), value),
                None => {
                    members.absent.push(name.clone());
                    true
                }
            },
        })
    }

    fn from_members<E: serde::de::Error>(members: CheckMembers<'de>) -> Result<CheckRequest<'de>, E> {
        let CheckMembers { domain, mut cost, receipt, attributes, descriptors, mut flat, absent } = members;
        let mut repairs = Repairs::default();
        let lists = match (attributes, descriptors) {
            (Some(_), Some(_)) => {
                return Err(E::custom("it has both `attributes` and `descriptors`; send one of them"));
            }
            (None, None) if flat.is_empty() && absent.is_empty() => SmallVec::new(),
            (None, None) => SmallVec::from_iter([AttributeList { entries: flat, hits: None }]),
            (attributes, descriptors) => {
                if descriptors.is_some() && cost.is_none() {
                    cost = take_hits(&mut flat);
                }
                if let Some(name) = flat.first().map(|(name, _)| name).or(absent.first()) {
                    return Err(E::custom(format_args!(
                        "unknown member {} next to `attributes` or `descriptors`; omit it or move it into those",
                        quoted(name)
                    )));
                }
                let single = |entries| SmallVec::from_iter([AttributeList { entries, hits: None }]);
                match descriptors {
                    Some(descriptors) => {
                        repairs = descriptors.repairs;
                        descriptors.lists
                    }
                    None => single(attributes.unwrap_or_default()),
                }
            }
        };
        let receipt = if receipt == Some(true) { ReceiptWish::Always } else { ReceiptWish::IfNeeded };
        let cost = cost.unwrap_or(Some(1)).unwrap_or_else(|| {
            repairs.add(Repair::BadCost);
            1
        });
        Ok(CheckRequest { domain, cost, receipt, lists, repairs })
    }
}

/// Takes Envoy's member for the cost of a request with descriptors.
fn take_hits(flat: &mut Entries<'_>) -> Option<CostMember> {
    let at = flat.iter().position(|(name, _)| name == "hits_addend" || name == "hitsAddend")?;
    let (_, value) = flat.remove(at);
    Some(json_body::cost_of(value.as_bytes()))
}

/// Adds an attribute; `false` if its name is a duplicate. Duplicates past the maximum are left out later.
fn add<'a>(entries: &mut Entries<'a>, name: Cow<'a, str>, value: AttributeValue<'a>) -> bool {
    if entries.len() < Request::MAX_ENTRIES && entries.iter().any(|(existing, _)| *existing == name) {
        return false;
    }
    entries.push((name, value));
    true
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
            let Some(value) = attribute(map.next_value()?, &name)? else { continue };
            if !add(&mut entries, name.clone(), value) {
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
    type Value = Descriptors<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for DescriptorsVisitor {
    type Value = Descriptors<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`descriptors` as a list")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        let mut descriptors = Descriptors { lists: SmallVec::new(), repairs: Repairs::default() };
        while descriptors.lists.len() < Request::MAX_DESCRIPTORS {
            let Some(Object(body)) = list.next_element::<Object<DescriptorBody<'de>>>()? else {
                return Ok(descriptors);
            };
            let list = body.into_list(&mut descriptors.repairs)?;
            descriptors.lists.push(list);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            descriptors.repairs.add(Repair::TooMany);
        }
        Ok(descriptors)
    }
}

impl ObjectName for DescriptorBody<'_> {
    const NAME: &'static str = "a descriptor: an object with `entries`";
}

impl ObjectName for EntryBody<'_> {
    const NAME: &'static str = "an entry: an object with `key` and `value`";
}

impl<'a> DescriptorBody<'a> {
    fn into_list<E: serde::de::Error>(self, repairs: &mut Repairs) -> Result<AttributeList<'a>, E> {
        let entries = self.entries.into_iter().map(|Object(entry)| {
            let value = attribute(entry.value, "value")?.unwrap_or(AttributeValue::Text(Cow::Borrowed("")));
            Ok((text(entry.key, "key")?, value))
        });
        let hits = self.hits_addend.map(|hits| {
            cost(hits).unwrap_or_else(|| {
                repairs.add(Repair::BadCost);
                1
            })
        });
        Ok(AttributeList { entries: entries.collect::<Result<_, E>>()?, hits })
    }
}

impl AttributeValue<'_> {
    fn as_bytes(&self) -> &[u8] {
        match self {
            AttributeValue::Text(text) => text.as_bytes(),
            AttributeValue::Bytes(bytes) => bytes,
        }
    }

    /// The text of a value that was repaired.
    fn as_text(&self) -> &str {
        match self {
            AttributeValue::Text(text) => text,
            AttributeValue::Bytes(bytes) => str::from_utf8(bytes).unwrap_or_default(),
        }
    }
}
