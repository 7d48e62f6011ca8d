//! The messages as JSON, by protobuf's mapping: names in either case style, numbers also as strings, unset fields
//! omitted.

use std::fmt;

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use utoipa::ToSchema;

use crate::json_text::JsonBytes;
use crate::object::{Object, ObjectName};

/// A `RateLimitRequest`. Names may also be in snake case, such as `hits_addend`, and numbers may be strings.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RateLimitRequest)]
pub(super) struct JsonRequest {
    #[serde(default)]
    #[schema(required, nullable = false, min_length = 1)]
    domain: Option<String>,
    #[serde(default)]
    #[schema(required, nullable = false, min_items = 1, value_type = Vec<JsonDescriptor>)]
    descriptors: Option<Vec<Object<JsonDescriptor>>>,
    /// The cost of the request; 1 if it is missing, 0 or malformed.
    #[serde(default, alias = "hits_addend", rename = "hitsAddend")]
    #[schema(value_type = Option<serde_json::Value>)]
    hits_addend: Option<JsonCost>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RateLimitDescriptor)]
struct JsonDescriptor {
    #[serde(default)]
    #[schema(value_type = Option<Vec<JsonEntry>>)]
    entries: Option<Vec<Object<JsonEntry>>>,
    #[serde(default)]
    #[schema(value_type = Option<JsonOverride>)]
    limit: Option<Object<JsonOverride>>,
    /// The cost under this descriptor; 0 peeks, and a malformed one is 1.
    #[serde(default, alias = "hits_addend", rename = "hitsAddend")]
    #[schema(value_type = Option<serde_json::Value>)]
    hits_addend: Option<JsonCost>,
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
    /// Bytes that are not UTF-8, and halves of surrogate pairs, are escaped.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    value: Option<JsonBytes>,
}

/// A limit that replaces the rule's.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RateLimitOverride)]
struct JsonOverride {
    #[serde(default, alias = "requests_per_unit", rename = "requestsPerUnit")]
    #[schema(schema_with = whole_number::<{ u32::MAX as u64 }>)]
    requests_per_unit: Option<JsonNumber>,
    /// SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR, or its number.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    unit: Option<UnitName>,
}

/// A whole number, possibly as a string.
#[derive(Clone, Copy, Debug)]
struct JsonNumber(u64);

/// A cost, which a client may have chosen: a malformed one is no error.
#[derive(Clone, Copy, Debug)]
enum JsonCost {
    Units(u64),
    Malformed,
}

/// A unit by its name or number.
#[derive(Clone, Copy, Debug)]
struct UnitName(i32);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonResponse<'a> {
    overall_code: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<JsonStatus<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<JsonHeader<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dynamic_metadata: Option<serde_json::Value>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonStatus<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<JsonCurrentLimit<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonCurrentLimit<'a> {
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Debug, Serialize)]
struct JsonHeader<'a> {
    key: &'a str,
    value: &'a str,
}

/// The schema of a [`JsonNumber`] up to `MAX`.
#[cfg(test)]
fn whole_number<const MAX: u64>() -> utoipa::openapi::schema::Schema {
    use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Type};
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(MAX));
    let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[0-9]{1,9}$"));
    let missing = ObjectBuilder::new().schema_type(Type::Null);
    AnyOfBuilder::new().item(number).item(text).item(missing).into()
}

/// Reads a request, and whether a cost in it is malformed, and counts as 1.
///
/// # Errors
/// If it is invalid: what and where.
pub(super) fn read(bytes: &[u8]) -> Result<(RateLimitRequest, bool), serde_json::Error> {
    let Object(request) = serde_json::from_slice::<Object<JsonRequest>>(bytes)?;
    let descriptors = request.descriptors.iter().flatten().map(|Object(one)| one.hits_addend);
    let bad_cost = descriptors.chain([request.hits_addend]).any(|cost| matches!(cost, Some(JsonCost::Malformed)));
    Ok((request.try_into()?, bad_cost))
}

/// Writes a response.
pub(super) fn write(response: &RateLimitResponse) -> String {
    let headers = response.response_headers_to_add.iter();
    let written = serde_json::to_string(&JsonResponse {
        overall_code: response.overall_code().as_str_name(),
        statuses: response.statuses.iter().map(status).collect(),
        response_headers_to_add: headers.map(|one| JsonHeader { key: &one.key, value: &one.value }).collect(),
        dynamic_metadata: response.dynamic_metadata.as_ref().map(object),
    });
    // It has only texts and numbers, which JSON can always represent.
    written.unwrap_or_default()
}

impl ObjectName for JsonRequest {
    const NAME: &'static str = "an object with `domain` and `descriptors`";
}

impl ObjectName for JsonDescriptor {
    const NAME: &'static str = "a descriptor: an object with `entries`";
}

impl ObjectName for JsonEntry {
    const NAME: &'static str = "an entry: an object with `key` and `value`";
}

impl ObjectName for JsonOverride {
    const NAME: &'static str = "a limit: an object with `requestsPerUnit` and `unit`";
}

impl TryFrom<JsonRequest> for RateLimitRequest {
    type Error = serde_json::Error;

    fn try_from(json: JsonRequest) -> Result<RateLimitRequest, serde_json::Error> {
        let hits_addend = json.hits_addend.map_or(0, JsonCost::units);
        let descriptors = json.descriptors.unwrap_or_default().into_iter();
        Ok(RateLimitRequest {
            domain: json.domain.unwrap_or_default(),
            descriptors: descriptors.map(|Object(one)| one.try_into()).collect::<Result<_, _>>()?,
            hits_addend: u32::try_from(hits_addend).unwrap_or(u32::MAX),
        })
    }
}

impl TryFrom<JsonDescriptor> for RateLimitDescriptor {
    type Error = serde_json::Error;

    fn try_from(json: JsonDescriptor) -> Result<RateLimitDescriptor, serde_json::Error> {
        let entry = |Object(entry): Object<JsonEntry>| Entry {
            key: entry.key.unwrap_or_default(),
            value: entry.value.map(|JsonBytes(bytes)| bytes.into()).unwrap_or_default(),
        };
        let limit = |Object(limit): Object<JsonOverride>| {
            let amount = limit.requests_per_unit.map_or(0, |JsonNumber(number)| number);
            let unit = limit.unit.map_or(0, |UnitName(unit)| unit);
            Ok::<_, serde_json::Error>(RateLimitOverride {
                requests_per_unit: to_u32(amount, "requestsPerUnit")?,
                unit,
            })
        };
        Ok(RateLimitDescriptor {
            entries: json.entries.unwrap_or_default().into_iter().map(entry).collect(),
            limit: json.limit.map(limit).transpose()?,
            hits_addend: json.hits_addend.map(JsonCost::units),
            is_negative_hits: json.is_negative_hits.unwrap_or_default(),
        })
    }
}

fn to_u32(number: u64, name: &str) -> Result<u32, serde_json::Error> {
    u32::try_from(number).map_err(|_| Error::custom(format_args!("{name} is {number}; at most {}", u32::MAX)))
}

fn status(status: &DescriptorStatus) -> JsonStatus<'_> {
    JsonStatus {
        code: Code::try_from(status.code).unwrap_or(Code::Unknown).as_str_name(),
        current_limit: status.current_limit.as_ref().map(current_limit),
        limit_remaining: status.limit_remaining,
        duration_until_reset: status.duration_until_reset.as_ref().map(|reset| format!("{}s", reset.seconds)),
    }
}

fn current_limit(limit: &RateLimit) -> JsonCurrentLimit<'_> {
    let unit = Unit::try_from(limit.unit).unwrap_or(Unit::Unknown);
    JsonCurrentLimit {
        requests_per_unit: limit.requests_per_unit,
        unit: (unit != Unit::Unknown).then(|| unit.as_str_name()),
        name: &limit.name,
    }
}

fn object(fields: &Struct) -> serde_json::Value {
    fields.fields.iter().map(|(name, value)| (name.clone(), json_value(value))).collect()
}

/// Metadata has texts, whole numbers and lists of them.
fn json_value(value: &Value) -> serde_json::Value {
    match &value.kind {
        Some(Kind::StringValue(text)) => text.as_str().into(),
        // Whole numbers, written without a fraction.
        Some(Kind::NumberValue(number)) => (*number as u64).into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(json_value).collect(),
        _ => serde_json::Value::Null,
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl<'de> Deserialize<'de> for JsonNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonNumber, D::Error> {
        struct NumberVisitor;
        impl Visitor<'_> for NumberVisitor {
            type Value = JsonNumber;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<JsonNumber, E> {
                Ok(JsonNumber(number))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<JsonNumber, E> {
                text.parse().map(JsonNumber).map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(NumberVisitor)
    }
}

impl JsonCost {
    fn units(self) -> u64 {
        match self {
            JsonCost::Units(units) => units,
            JsonCost::Malformed => 1,
        }
    }
}

impl<'de> Deserialize<'de> for JsonCost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonCost, D::Error> {
        let number = match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Number(number) => number.as_u64(),
            serde_json::Value::String(text) => text.parse().ok(),
            _ => None,
        };
        Ok(number.map_or(JsonCost::Malformed, JsonCost::Units))
    }
}

impl<'de> Deserialize<'de> for UnitName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UnitName, D::Error> {
        struct UnitVisitor;
        impl Visitor<'_> for UnitVisitor {
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
        deserializer.deserialize_any(UnitVisitor)
    }
}
