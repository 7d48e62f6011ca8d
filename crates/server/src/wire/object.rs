//! Objects of JSON, and nothing else: what serde derives takes a list for a struct too, by the order of its fields.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// What is read as the members of an object.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

/// What such an object is called where something else was sent.
pub(crate) trait Called {
    /// `a descriptor`, …
    const NAME: &'static str;
}

impl<'de, T: Deserialize<'de> + Called> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        deserializer.deserialize_map(Members(PhantomData))
    }
}

struct Members<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Called> Visitor<'de> for Members<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::NAME)
    }

    fn visit_map<M: MapAccess<'de>>(self, members: M) -> Result<Object<T>, M::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}
