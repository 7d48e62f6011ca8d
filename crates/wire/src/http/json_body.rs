//! JSON request bodies, read member by member without copying texts that have no escapes.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tollgate_http::problem::Problem;
use tollgate_rules::quoted;

use crate::json_text::JsonBytes;

/// A request that is read from the members of a JSON object.
pub(super) trait FromMembers<'de>: Sized {
    /// A valid body, for error messages.
    const EXAMPLE: &'static str;

    /// The members that have been read.
    type Members: Default;

    /// Reads the value of a member; `false` if the member is a duplicate.
    fn read_member<M: MapAccess<'de>>(
        members: &mut Self::Members,
        name: &Cow<'de, str>,
        map: &mut M,
    ) -> Result<bool, M::Error>;

    /// The request with these members.
    fn from_members<E: serde::de::Error>(members: Self::Members) -> Result<Self, E>;
}

/// Parses a body, or explains why it is invalid.
pub(super) fn parse<'a, T: FromMembers<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    let example = T::EXAMPLE;
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::bad_request(
            "empty_body",
            format!("the body is empty; send a JSON object such as {example}"),
        ));
    }
    let parsed = serde_json::from_slice(body).map(|Parsed(request)| request);
    parsed.map_err(|error| {
        let code = if error.is_data() { "bad_member" } else { "bad_json" };
        Problem::bad_request(code, format!("the body is invalid: {error}; send a JSON object such as {example}"))
    })
}

/// Deserializes a [`FromMembers`] type from an object, and from nothing else.
struct Parsed<T>(T);

impl<'de, T: FromMembers<'de>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Parsed<T>, D::Error> {
        deserializer.deserialize_map(MembersVisitor(PhantomData)).map(Parsed)
    }
}

struct MembersVisitor<T>(PhantomData<T>);

impl<'de, T: FromMembers<'de>> Visitor<'de> for MembersVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<T, M::Error> {
        let mut members = T::Members::default();
        while let Some(MemberName(name)) = map.next_key()? {
            if !T::read_member(&mut members, &name, &mut map)? {
                return Err(duplicate_member(&name));
            }
        }
        T::from_members(members)
    }
}

/// The error for a member that occurs twice.
pub(super) fn duplicate_member<E: serde::de::Error>(name: &str) -> E {
    E::custom(format_args!("{} occurs twice; send it once", quoted(name)))
}

/// The value of an attribute, which a client may have chosen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AttributeValue<'a> {
    Text(Cow<'a, str>),
    /// A string with bytes that are not UTF-8, or that has backslashes.
    Bytes(Vec<u8>),
}

/// A string; anything else as it is written. `None` for null: the attribute is absent.
pub(super) fn attribute<'a, E: serde::de::Error>(
    raw: &'a RawValue,
    member: &str,
) -> Result<Option<AttributeValue<'a>>, E> {
    let raw = raw.get();
    let inner = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inner {
        Some(text) if memchr::memchr(b'\\', text.as_bytes()).is_none() => {
            Ok(Some(AttributeValue::Text(Cow::Borrowed(text))))
        }
        Some(_) => {
            let bytes = serde_json::from_str(raw).map(|JsonBytes(bytes)| AttributeValue::Bytes(bytes));
            bytes.map(Some).map_err(|error| E::custom(format_args!("{}: {error}", quoted(member))))
        }
        None if raw == "null" => Ok(None),
        None => Ok(Some(AttributeValue::Text(Cow::Borrowed(raw)))),
    }
}

/// A string; a number or a boolean as it is written.
pub(super) fn text<'a, E: serde::de::Error>(raw: &'a RawValue, member: &str) -> Result<Cow<'a, str>, E> {
    let raw = raw.get();
    let inner = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match (inner, raw.as_bytes()) {
        (Some(text), _) if memchr::memchr(b'\\', text.as_bytes()).is_none() => Ok(Cow::Borrowed(text)),
        (Some(_), _) => serde_json::from_str(raw).map(Cow::Owned).map_err(|_| {
            E::custom(format_args!("{} is not valid text: it has half of a surrogate pair", quoted(member)))
        }),
        (None, [b'n' | b'[' | b'{', ..]) => {
            Err(E::custom(format_args!("{} must be a string, a number, true or false", quoted(member))))
        }
        (None, _) => Ok(Cow::Borrowed(raw)),
    }
}

/// A string, and no other type.
pub(super) fn string<'a, E: serde::de::Error>(raw: &'a RawValue, member: &str) -> Result<Cow<'a, str>, E> {
    if raw.get().starts_with('"') {
        return text(raw, member);
    }
    Err(E::custom(format_args!("`{member}` must be a string, not {}", quoted(raw.get()))))
}

/// A whole number, which may be written as a string.
pub(super) fn count<E: serde::de::Error>(raw: &RawValue, member: &str) -> Result<u64, E> {
    whole_number(&text(raw, member)?, member)
}

/// A cost. A client may have chosen it, so a malformed one is no error: `None`. A number that is too large is the
/// largest one.
pub(super) fn cost(raw: &RawValue) -> Option<u64> {
    let raw = raw.get();
    cost_of(raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(raw).as_bytes())
}

/// The same for the text of a value.
pub(super) fn cost_of(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| str::from_utf8(text).ok()?.parse().ok()).map(|number| number.unwrap_or(u64::MAX))
}

/// A boolean.
pub(super) fn boolean<E: serde::de::Error>(raw: &RawValue, member: &str) -> Result<bool, E> {
    match raw.get() {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(E::custom(format_args!("`{member}` must be true or false, not {}", quoted(other)))),
    }
}

/// Parses a whole number. Protobuf's JSON mapping writes 64-bit numbers as strings.
pub(super) fn whole_number<E: serde::de::Error>(text: &str, member: &str) -> Result<u64, E> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or_else(|| {
        E::custom(format_args!("`{member}` must be a whole number, at least 0 and below 2^64, not {}", quoted(text)))
    })
}

/// The name of a member, borrowed unless it has escapes.
pub(super) struct MemberName<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for MemberName<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MemberName<'a>, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = MemberName<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<MemberName<'de>, E> {
                Ok(MemberName(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<MemberName<'de>, E> {
                Ok(MemberName(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}
