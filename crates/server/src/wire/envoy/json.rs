//! The messages as JSON, by protobuf's rules for it: names in either spelling, numbers also as texts, what is not set left out.

use std::fmt;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, UInt64Value, Value};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema, Type};

use crate::wire::object::{Called, Object};

/// A `RateLimitRequest`. Names may also be written as in `hits_addend`, and numbers as texts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RateLimitRequest)]
pub(super) struct Request {
    #[serde(default)]
    #[schema(required, nullable = false, min_length = 1)]
    domain: Option<String>,
    #[serde(default)]
    #[schema(required, nullable = false, min_items = 1, max_items = 64, value_type = Vec<Descriptor>)]
    descriptors: Option<Vec<Object<Descriptor>>>,
    /// What the request costs; 1 if it is missing or 0.
    #[serde(default, alias = "hits_addend", rename = "hitsAddend")]
    #[schema(schema_with = whole_number::<{ u32::MAX as u64 }>)]
    hits_addend: Option<Number>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RateLimitDescriptor)]
struct Descriptor {
    #[serde(default)]
    #[schema(value_type = Option<Vec<JsonEntry>>)]
    entries: Option<Vec<Object<JsonEntry>>>,
    #[serde(default)]
    #[schema(value_type = Option<Override>)]
    limit: Option<Object<Override>>,
    /// What it costs under this descriptor; 0 is a look.
    #[serde(default, alias = "hits_addend", rename = "hitsAddend")]
    #[schema(schema_with = whole_number::<{ u64::MAX }>)]
    hits_addend: Option<Number>,
    #[serde(default, alias = "is_negative_hits", rename = "isNegativeHits")]
    #[schema(ignore)]
    is_negative_hits: Option<bool>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Entry)]
struct JsonEntry {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    value: Option<String>,
}

/// A limit in the place of the rule's.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RateLimitOverride)]
struct Override {
    #[serde(default, alias = "requests_per_unit", rename = "requestsPerUnit")]
    #[schema(schema_with = whole_number::<{ u32::MAX as u64 }>)]
    requests_per_unit: Option<Number>,
    /// SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR, or the number that it has there.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    unit: Option<UnitName>,
}

/// A whole number, also as a text.
#[derive(Clone, Copy, Debug)]
struct Number(u64);

/// A unit by its name or its number.
#[derive(Clone, Copy, Debug)]
struct UnitName(i32);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    overall_code: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<Status<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<Header<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dynamic_metadata: Option<serde_json::Value>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<CurrentLimit<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CurrentLimit<'a> {
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Debug, Serialize)]
struct Header<'a> {
    key: &'a str,
    value: &'a str,
}

/// How a [`Number`] up to this is described.
fn whole_number<const MOST: u64>() -> Schema {
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(MOST));
    let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[0-9]{1,9}$"));
    let missing = ObjectBuilder::new().schema_type(Type::Null);
    AnyOfBuilder::new().item(number).item(text).item(missing).into()
}

/// Reads a request.
///
/// # Errors
/// What is wrong with it, and where.
pub(super) fn read(bytes: &[u8]) -> Result<RateLimitRequest, serde_json::Error> {
    let Object(Request { domain, descriptors, hits_addend }) = serde_json::from_slice(bytes)?;
    let hits_addend = hits_addend.map_or(0, |Number(number)| number);
    Ok(RateLimitRequest {
        domain: domain.unwrap_or_default(),
        descriptors: descriptors
            .unwrap_or_default()
            .into_iter()
            .map(|one| one.0.message())
            .collect::<Result<_, _>>()?,
        hits_addend: small(hits_addend, "hitsAddend")?,
    })
}

/// Writes an answer.
pub(super) fn write(response: &RateLimitResponse) -> String {
    let headers = response.response_headers_to_add.iter();
    let written = serde_json::to_string(&Response {
        overall_code: response.overall_code().as_str_name(),
        statuses: response.statuses.iter().map(status).collect(),
        response_headers_to_add: headers.map(|one| Header { key: &one.key, value: &one.value }).collect(),
        dynamic_metadata: response.dynamic_metadata.as_ref().map(object),
    });
    // Texts and numbers alone: nothing that JSON can't say.
    written.unwrap_or_default()
}

impl Called for Request {
    const NAME: &'static str = "an object with `domain` and `descriptors`";
}

impl Called for Descriptor {
    const NAME: &'static str = "a descriptor: an object with `entries`";
}

impl Called for JsonEntry {
    const NAME: &'static str = "an entry: an object with `key` and `value`";
}

impl Called for Override {
    const NAME: &'static str = "a limit: an object with `requestsPerUnit` and `unit`";
}

impl Descriptor {
    fn message(self) -> Result<RateLimitDescriptor, serde_json::Error> {
        let entry = |Object(entry): Object<JsonEntry>| Entry {
            key: entry.key.unwrap_or_default(),
            value: entry.value.unwrap_or_default(),
        };
        let limit = |Object(limit): Object<Override>| {
            let amount = limit.requests_per_unit.map_or(0, |Number(number)| number);
            let unit = limit.unit.map_or(0, |UnitName(unit)| unit);
            Ok::<_, serde_json::Error>(RateLimitOverride { requests_per_unit: small(amount, "requestsPerUnit")?, unit })
        };
        Ok(RateLimitDescriptor {
            entries: self.entries.unwrap_or_default().into_iter().map(entry).collect(),
            limit: self.limit.map(limit).transpose()?,
            hits_addend: self.hits_addend.map(|Number(value)| UInt64Value { value }),
            is_negative_hits: self.is_negative_hits.unwrap_or_default(),
        })
    }
}

fn small(number: u64, name: &str) -> Result<u32, serde_json::Error> {
    u32::try_from(number).map_err(|_| Error::custom(format_args!("{name} is {number}; at most {}", u32::MAX)))
}

fn status(status: &DescriptorStatus) -> Status<'_> {
    Status {
        code: Code::try_from(status.code).unwrap_or(Code::Unknown).as_str_name(),
        current_limit: status.current_limit.as_ref().map(current_limit),
        limit_remaining: status.limit_remaining,
        duration_until_reset: status.duration_until_reset.as_ref().map(|reset| format!("{}s", reset.seconds)),
    }
}

fn current_limit(limit: &RateLimit) -> CurrentLimit<'_> {
    let unit = Unit::try_from(limit.unit).unwrap_or(Unit::Unknown);
    CurrentLimit {
        requests_per_unit: limit.requests_per_unit,
        unit: (unit != Unit::Unknown).then(|| unit.as_str_name()),
        name: &limit.name,
    }
}

fn object(fields: &Struct) -> serde_json::Value {
    fields.fields.iter().map(|(name, value)| (name.clone(), told(value))).collect()
}

/// Metadata has texts, whole numbers and lists of them.
fn told(value: &Value) -> serde_json::Value {
    match &value.kind {
        Some(Kind::StringValue(text)) => text.as_str().into(),
        // Whole ones, and written so.
        Some(Kind::NumberValue(number)) => (*number as u64).into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(told).collect(),
        _ => serde_json::Value::Null,
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        struct Whole;
        impl Visitor<'_> for Whole {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Number, E> {
                Ok(Number(number))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
                text.parse().map(Number).map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Whole)
    }
}

impl<'de> Deserialize<'de> for UnitName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UnitName, D::Error> {
        struct NameOrNumber;
        impl Visitor<'_> for NameOrNumber {
            type Value = UnitName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<UnitName, E> {
                Ok(UnitName(i32::try_from(number).unwrap_or(i32::MAX)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<UnitName, E> {
                let unit = Unit::from_str_name(text);
                unit.map(|unit| UnitName(unit.into()))
                    .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(NameOrNumber)
    }
}
