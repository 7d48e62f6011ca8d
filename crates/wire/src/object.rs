//! JSON objects only: serde's derived implementations accept a list for a struct too, in the order of its fields.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// A value that is read from an object.
#[derive(Debug)]
pub(crate) struct Object<T>(pub T);

/// The name of an object's type in error messages.
pub(crate) trait ObjectName {
    /// `a descriptor`, …
    const NAME: &'static str;
}

impl<'de, T: Deserialize<'de> + ObjectName> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + ObjectName> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::NAME)
    }

    fn visit_map<M: MapAccess<'de>>(self, members: M) -> Result<Object<T>, M::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}
