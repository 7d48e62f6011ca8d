//! The files: Envoy's with the messages that the service reaches, Google's well-known ones whole.

use super::Kind::{Bool, Bytes, Double, Float, I32, I64, Text, U32, U64};
use super::{Enum, Field, File, Kind, Message, Service};

pub(super) const FILES: [File; 8] = [
    File { messages: &DURATION, ..well_known("google/protobuf/duration.proto") },
    File { messages: &TIMESTAMP, ..well_known("google/protobuf/timestamp.proto") },
    File { messages: &WRAPPERS, ..well_known("google/protobuf/wrappers.proto") },
    File {
        messages: &STRUCT,
        enums: &[Enum { name: "NullValue", values: &[("NULL_VALUE", 0)] }],
        ..well_known("google/protobuf/struct.proto")
    },
    File {
        path: "envoy/type/v3/ratelimit_unit.proto",
        package: "envoy.type.v3",
        imports: &[],
        messages: &[],
        enums: &[Enum {
            name: "RateLimitUnit",
            values: &[("UNKNOWN", 0), ("SECOND", 1), ("MINUTE", 2), ("HOUR", 3), ("DAY", 4), ("MONTH", 5), ("YEAR", 6)],
        }],
        service: None,
    },
    File {
        path: "envoy/config/core/v3/base.proto",
        package: "envoy.config.core.v3",
        imports: &[],
        messages: &[Message::new(
            "HeaderValue",
            &[Field::new("key", 1, Text), Field::new("value", 2, Text), Field::new("raw_value", 3, Bytes)],
        )],
        enums: &[],
        service: None,
    },
    File {
        path: "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
        package: "envoy.extensions.common.ratelimit.v3",
        imports: &["envoy/type/v3/ratelimit_unit.proto", "google/protobuf/wrappers.proto"],
        messages: &DESCRIPTOR,
        enums: &[],
        service: None,
    },
    File {
        path: "envoy/service/ratelimit/v3/rls.proto",
        package: "envoy.service.ratelimit.v3",
        imports: &[
            "envoy/config/core/v3/base.proto",
            "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
            "google/protobuf/duration.proto",
            "google/protobuf/struct.proto",
            "google/protobuf/timestamp.proto",
        ],
        messages: &SERVICE,
        enums: &[],
        service: Some(Service {
            name: "RateLimitService",
            method: "ShouldRateLimit",
            input: "envoy.service.ratelimit.v3.RateLimitRequest",
            output: RESPONSE,
        }),
    },
];

const fn well_known(path: &'static str) -> File {
    File { path, package: "google.protobuf", imports: &[], messages: &[], enums: &[], service: None }
}

const MOMENT: [Field; 2] = [Field::new("seconds", 1, I64), Field::new("nanos", 2, I32)];

const DURATION: [Message; 1] = [Message::new("Duration", &MOMENT)];

const TIMESTAMP: [Message; 1] = [Message::new("Timestamp", &MOMENT)];

const WRAPPERS: [Message; 9] = [
    Message::new("DoubleValue", &[Field::new("value", 1, Double)]),
    Message::new("FloatValue", &[Field::new("value", 1, Float)]),
    Message::new("Int64Value", &[Field::new("value", 1, I64)]),
    Message::new("UInt64Value", &[Field::new("value", 1, U64)]),
    Message::new("Int32Value", &[Field::new("value", 1, I32)]),
    Message::new("UInt32Value", &[Field::new("value", 1, U32)]),
    Message::new("BoolValue", &[Field::new("value", 1, Bool)]),
    Message::new("StringValue", &[Field::new("value", 1, Text)]),
    Message::new("BytesValue", &[Field::new("value", 1, Bytes)]),
];

const VALUE: Kind = Kind::Message("google.protobuf.Value");

const STRUCT: [Message; 3] = [
    Message::new("Struct", &[Field::many("fields", 1, Kind::Message("google.protobuf.Struct.FieldsEntry"))])
        .with(&[Message::entry("FieldsEntry", &[Field::new("key", 1, Text), Field::new("value", 2, VALUE)])], &[]),
    Message::new(
        "Value",
        &[
            Field::one_of("null_value", 1, Kind::Enum("google.protobuf.NullValue")),
            Field::one_of("number_value", 2, Double),
            Field::one_of("string_value", 3, Text),
            Field::one_of("bool_value", 4, Bool),
            Field::one_of("struct_value", 5, Kind::Message("google.protobuf.Struct")),
            Field::one_of("list_value", 6, Kind::Message("google.protobuf.ListValue")),
        ],
    )
    .one_of("kind"),
    Message::new("ListValue", &[Field::many("values", 1, VALUE)]),
];

const DESCRIPTOR: [Message; 1] = [Message::new(
    "RateLimitDescriptor",
    &[
        Field::many("entries", 1, Kind::Message("envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry")),
        Field::new(
            "limit",
            2,
            Kind::Message("envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride"),
        ),
        Field::new("hits_addend", 3, Kind::Message("google.protobuf.UInt64Value")),
        Field::new("is_negative_hits", 4, Bool),
    ],
)
.with(
    &[
        Message::new("Entry", &[Field::new("key", 1, Text), Field::new("value", 2, Text)]),
        Message::new(
            "RateLimitOverride",
            &[
                Field::new("requests_per_unit", 1, U32),
                Field::new("unit", 2, Kind::Enum("envoy.type.v3.RateLimitUnit")),
            ],
        ),
    ],
    &[],
)];

const RESPONSE: &str = "envoy.service.ratelimit.v3.RateLimitResponse";
const CODE: Kind = Kind::Enum("envoy.service.ratelimit.v3.RateLimitResponse.Code");
const QUOTA: Kind = Kind::Message("envoy.service.ratelimit.v3.RateLimitResponse.Quota");
const HEADER: Kind = Kind::Message("envoy.config.core.v3.HeaderValue");

const SERVICE: [Message; 2] = [
    Message::new(
        "RateLimitRequest",
        &[
            Field::new("domain", 1, Text),
            Field::many("descriptors", 2, Kind::Message("envoy.extensions.common.ratelimit.v3.RateLimitDescriptor")),
            Field::new("hits_addend", 3, U32),
        ],
    ),
    Message::new(
        "RateLimitResponse",
        &[
            Field::new("overall_code", 1, CODE),
            Field::many("statuses", 2, Kind::Message("envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus")),
            Field::many("response_headers_to_add", 3, HEADER),
            Field::many("request_headers_to_add", 4, HEADER),
            Field::new("raw_body", 5, Bytes),
            Field::new("dynamic_metadata", 6, Kind::Message("google.protobuf.Struct")),
            Field::new("quota", 7, QUOTA),
        ],
    )
    .with(&INSIDE_RESPONSE, &[Enum { name: "Code", values: &[("UNKNOWN", 0), ("OK", 1), ("OVER_LIMIT", 2)] }]),
];

const INSIDE_RESPONSE: [Message; 3] = [
    Message::new(
        "RateLimit",
        &[
            Field::new("name", 3, Text),
            Field::new("requests_per_unit", 1, U32),
            Field::new("unit", 2, Kind::Enum("envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit")),
        ],
    )
    .with(
        &[],
        &[Enum {
            name: "Unit",
            values: &[
                ("UNKNOWN", 0),
                ("SECOND", 1),
                ("MINUTE", 2),
                ("HOUR", 3),
                ("DAY", 4),
                ("WEEK", 7),
                ("MONTH", 5),
                ("YEAR", 6),
            ],
        }],
    ),
    Message::new(
        "Quota",
        &[
            Field::new("requests", 1, U32),
            Field::one_of("valid_until", 2, Kind::Message("google.protobuf.Timestamp")),
            Field::new("id", 3, Text),
        ],
    )
    .one_of("expiration_specifier"),
    Message::new(
        "DescriptorStatus",
        &[
            Field::new("code", 1, CODE),
            Field::new("current_limit", 2, Kind::Message("envoy.service.ratelimit.v3.RateLimitResponse.RateLimit")),
            Field::new("limit_remaining", 3, U32),
            Field::new("duration_until_reset", 4, Kind::Message("google.protobuf.Duration")),
            Field::new("quota", 5, QUOTA),
        ],
    ),
];
