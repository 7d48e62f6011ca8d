//! Numbers in JSON documents, found while reading: no tree is built.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use tollgate_core::EXACT;

use crate::model::JsonPointer;

/// The place that is left to find. Without tokens it is here.
#[derive(Clone, Copy)]
struct Place<'p>(&'p [String]);

/// Whether the name of a member is this one.
struct IsNamed<'p>(&'p str);

impl JsonPointer {
    /// The number at this place. Of repeated members the last counts, as for most programs. Fractions are rounded up;
    /// negative numbers, those from 2^53 on, and whatever is no number are none.
    pub fn find(&self, document: &[u8]) -> Option<u64> {
        let mut reader = serde_json::Deserializer::from_slice(document);
        let found = Place(&self.0).deserialize(&mut reader).ok()?;
        reader.end().ok()?;
        found
    }
}

/// A number of units in a document.
pub(super) fn units(value: &Value) -> Option<u64> {
    whole(value.as_u64()).or_else(|| rounded(value.as_f64()?))
}

fn whole(number: Option<u64>) -> Option<u64> {
    number.filter(|number| *number < EXACT)
}

fn rounded(number: f64) -> Option<u64> {
    (0.0..EXACT as f64).contains(&number).then(|| number.ceil() as u64)
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Option<u64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<u64>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Option<u64>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Option<u64>, E> {
        Ok(whole(Some(number)).filter(|_| self.0.is_empty()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Option<u64>, E> {
        Ok(rounded(number).filter(|_| self.0.is_empty()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Option<u64>, A::Error> {
        let mut found = None;
        if let Some((first, rest)) = self.0.split_first()
            && let Some(index) = index(first)
        {
            for _ in 0..index {
                if list.next_element::<IgnoredAny>()?.is_none() {
                    return Ok(None);
                }
            }
            found = list.next_element_seed(Place(rest))?.flatten();
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Option<u64>, A::Error> {
        let Some((first, rest)) = self.0.split_first() else {
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(None);
        };
        let mut found = None;
        while let Some(is_named) = members.next_key_seed(IsNamed(first))? {
            match is_named {
                true => found = members.next_value_seed(Place(rest))?,
                false => _ = members.next_value::<IgnoredAny>()?,
            }
        }
        Ok(found)
    }
}

impl<'de> DeserializeSeed<'de> for IsNamed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsNamed<'_> {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// The index of an entry, as RFC 6901 writes it: without zeros in front.
fn index(token: &str) -> Option<usize> {
    let is_plain = token == "0" || !token.starts_with(['0', '+']);
    token.parse().ok().filter(|_| is_plain)
}
