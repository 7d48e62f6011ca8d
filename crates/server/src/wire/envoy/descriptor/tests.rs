//! The description against the generated messages, and as it is served.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, Quota, RateLimit, quota::ExpirationSpecifier,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::value::Kind as AnyKind;
use envoy_types::pb::google::protobuf::{Duration, ListValue, Struct, Timestamp, UInt64Value, Value};
use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};
use tonic::codegen::tokio_stream;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};

use super::*;

/// All messages and enumerations of the set, by full name.
#[derive(Default)]
struct Described {
    messages: BTreeMap<String, DescriptorProto>,
    enums: BTreeMap<String, EnumDescriptorProto>,
}

fn described() -> Described {
    let mut all = Described::default();
    for file in FileDescriptorSet::decode(file_descriptor_set().as_slice()).unwrap().file {
        let package = format!(".{}", file.package());
        file.enum_type.iter().for_each(|one| all.add_enum(&package, one));
        file.message_type.iter().for_each(|one| all.add(&package, one));
    }
    all
}

impl Described {
    fn add(&mut self, within: &str, message: &DescriptorProto) {
        let name = format!("{within}.{}", message.name());
        message.enum_type.iter().for_each(|one| self.add_enum(&name, one));
        message.nested_type.iter().for_each(|one| self.add(&name, one));
        assert!(self.messages.insert(name, message.clone()).is_none());
    }

    fn add_enum(&mut self, within: &str, one: &EnumDescriptorProto) {
        assert!(self.enums.insert(format!("{within}.{}", one.name()), one.clone()).is_none());
    }

    /// Reads bytes as this message says, to the last, and notes which fields there were.
    fn walk(&self, name: &str, mut bytes: &[u8], met: &mut BTreeSet<(String, i32)>) {
        let message = &self.messages[name];
        while bytes.has_remaining() {
            let (number, wire) = decode_key(&mut bytes).unwrap();
            let field = message.field.iter().find(|field| field.number() == number as i32);
            let field = field.unwrap_or_else(|| panic!("{name} has no field {number}"));
            met.insert((name.to_owned(), field.number()));
            let expected = match field.r#type() {
                Type::Double => WireType::SixtyFourBit,
                Type::Float => WireType::ThirtyTwoBit,
                Type::String | Type::Bytes | Type::Message => WireType::LengthDelimited,
                _ => WireType::Varint,
            };
            assert_eq!(wire, expected, "{name}.{}", field.name());
            match wire {
                WireType::Varint => self.check_number(field, decode_varint(&mut bytes).unwrap()),
                WireType::SixtyFourBit => bytes.advance(8),
                WireType::ThirtyTwoBit => bytes.advance(4),
                _ => {
                    let length = decode_varint(&mut bytes).unwrap() as usize;
                    let (inside, rest) = bytes.split_at(length);
                    bytes = rest;
                    match field.r#type() {
                        Type::Message => self.walk(field.type_name(), inside, met),
                        Type::String => assert!(std::str::from_utf8(inside).is_ok()),
                        _ => {}
                    }
                }
            }
        }
    }

    fn check_number(&self, field: &FieldDescriptorProto, number: u64) {
        if field.r#type() == Type::Enum {
            let values = &self.enums[field.type_name()].value;
            assert!(values.iter().any(|value| value.number() as u64 == number), "{} {number}", field.type_name());
        }
    }
}

/// A request in which every field is set.
fn request() -> RateLimitRequest {
    RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry { key: "k".to_owned(), value: "v".to_owned() }; 2],
            limit: Some(RateLimitOverride { requests_per_unit: 5, unit: RateLimitUnit::Year as i32 }),
            hits_addend: Some(UInt64Value { value: u64::MAX }),
            is_negative_hits: true,
        }],
        hits_addend: 7,
    }
}

/// The same for a response.
fn response() -> RateLimitResponse {
    let header = || vec![HeaderValue { key: "k".to_owned(), value: "v".to_owned(), raw_value: vec![1, 255] }];
    let quota = || Quota {
        requests: 9,
        id: "q".to_owned(),
        expiration_specifier: Some(ExpirationSpecifier::ValidUntil(Timestamp { seconds: 1, nanos: 2 })),
    };
    let kinds = [
        AnyKind::NullValue(0),
        AnyKind::NumberValue(1.5),
        AnyKind::StringValue("text".to_owned()),
        AnyKind::BoolValue(true),
        AnyKind::StructValue(Struct::default()),
    ];
    let values = kinds.into_iter().map(|kind| Value { kind: Some(kind) }).collect();
    let list = Value { kind: Some(AnyKind::ListValue(ListValue { values })) };
    RateLimitResponse {
        overall_code: Code::OverLimit as i32,
        statuses: vec![DescriptorStatus {
            code: Code::Ok as i32,
            current_limit: Some(RateLimit { name: "n".to_owned(), requests_per_unit: 3, unit: Unit::Week as i32 }),
            limit_remaining: 4,
            duration_until_reset: Some(Duration { seconds: 5, nanos: 6 }),
            quota: Some(quota()),
        }],
        response_headers_to_add: header(),
        request_headers_to_add: header(),
        raw_body: vec![0, 159],
        dynamic_metadata: Some(Struct { fields: [("list".to_owned(), list)].into() }),
        quota: Some(quota()),
    }
}

#[test]
fn every_field_is_where_the_generated_messages_have_it() {
    let (all, mut met) = (described(), BTreeSet::new());
    all.walk(".envoy.service.ratelimit.v3.RateLimitRequest", &request().encode_to_vec(), &mut met);
    all.walk(".envoy.service.ratelimit.v3.RateLimitResponse", &response().encode_to_vec(), &mut met);
    let unused = ["Double", "Float", "Int64", "Int32", "UInt32", "Bool", "String", "Bytes"];
    let unused = unused.map(|of| format!(".google.protobuf.{of}Value"));
    for (name, message) in all.messages.iter().filter(|(name, _)| !unused.contains(name)) {
        for field in &message.field {
            assert!(met.contains(&(name.clone(), field.number())), "{name}.{} does not exist", field.name());
        }
    }
}

#[test]
fn the_names_of_fields_are_those_of_the_generated_messages() {
    // That is where the generated code has them: fields as they are, those of a `oneof` as the names of its variants.
    let shown = format!("{:?} {:?}", request(), response());
    for (name, message) in described().messages.iter().filter(|(name, _)| name.starts_with(".envoy.")) {
        for field in &message.field {
            let variant: String = field.name().split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
            let found = shown.contains(&format!(" {}: ", field.name())) || shown.contains(&format!("({variant}("));
            assert!(found, "{name}.{}", field.name());
        }
    }
}

#[test]
fn the_names_of_values_are_those_of_the_generated_enumerations() {
    let all = described();
    let check = |name: &str, named: &dyn Fn(i32) -> Option<&'static str>| {
        let values = &all.enums[name].value;
        for value in values {
            assert_eq!(named(value.number()), Some(value.name()), "{name}");
        }
        let known = (0..100).filter(|number| named(*number).is_some()).count();
        assert_eq!(known, values.len(), "{name}");
    };
    check(".envoy.type.v3.RateLimitUnit", &|number| Some(RateLimitUnit::try_from(number).ok()?.as_str_name()));
    check(".envoy.service.ratelimit.v3.RateLimitResponse.Code", &|number| {
        Some(Code::try_from(number).ok()?.as_str_name())
    });
    check(".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit", &|number| {
        Some(Unit::try_from(number).ok()?.as_str_name())
    });
}

#[test]
fn files_import_what_they_use_and_come_after_it() {
    let set = FileDescriptorSet::decode(file_descriptor_set().as_slice()).unwrap();
    let mut before = BTreeSet::new();
    for file in &set.file {
        assert!(file.dependency.iter().all(|path| before.contains(path.as_str())), "{}", file.name());
        before.insert(file.name());
        let reachable: Vec<_> = set
            .file
            .iter()
            .filter(|other| other.name() == file.name() || file.dependency.iter().any(|path| path == other.name()))
            .map(|other| format!(".{}.", other.package()))
            .collect();
        let mut messages: Vec<_> = file.message_type.iter().collect();
        while let Some(message) = messages.pop() {
            messages.extend(&message.nested_type);
            for field in message.field.iter().filter(|field| field.type_name.is_some()) {
                let name = field.type_name();
                assert!(reachable.iter().any(|package| name.starts_with(package)), "{} {name}", file.name());
            }
        }
    }
}

/// Asks a running server of one version of the protocol for its services and for the file of a symbol.
macro_rules! asks_reflection {
    ($test:ident, $build:ident, $version:ident) => {
        #[tokio::test]
        async fn $test() {
            use tonic_reflection::pb::$version::ServerReflectionRequest;
            use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
            use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
            use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;

            let set = file_descriptor_set();
            let builder = tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(&set);
            let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            let at = incoming.local_addr().unwrap();
            let server = Server::builder().add_service(builder.$build().unwrap()).serve_with_incoming(incoming);
            let ask = async {
                let channel = Endpoint::from_shared(format!("http://{at}")).unwrap().connect().await.unwrap();
                let mut client = ServerReflectionClient::new(channel);
                let asked = [
                    MessageRequest::ListServices(String::new()),
                    MessageRequest::FileContainingSymbol("envoy.service.ratelimit.v3.RateLimitService".to_owned()),
                    MessageRequest::FileContainingSymbol("google.protobuf.Struct.FieldsEntry".to_owned()),
                    MessageRequest::FileByFilename("envoy/config/core/v3/base.proto".to_owned()),
                ]
                .map(|ask| ServerReflectionRequest { host: String::new(), message_request: Some(ask) });
                let mut answers = client.server_reflection_info(tokio_stream::iter(asked)).await.unwrap().into_inner();
                let mut told = Vec::new();
                while let Some(answer) = answers.message().await.unwrap() {
                    told.push(match answer.message_response.unwrap() {
                        MessageResponse::ListServicesResponse(list) => {
                            list.service.into_iter().map(|service| service.name).collect::<Vec<_>>().join(" ")
                        }
                        MessageResponse::FileDescriptorResponse(files) => {
                            let file = FileDescriptorProto::decode(files.file_descriptor_proto[0].as_slice());
                            file.unwrap().name().to_owned()
                        }
                        other => panic!("{other:?}"),
                    });
                }
                told
            };
            let told = tokio::select! {
                served = server => panic!("{served:?}"),
                told = ask => told,
            };
            assert!(told[0].contains("envoy.service.ratelimit.v3.RateLimitService"), "{told:?}");
            assert_eq!(
                told[1..],
                [
                    "envoy/service/ratelimit/v3/rls.proto",
                    "google/protobuf/struct.proto",
                    "envoy/config/core/v3/base.proto"
                ]
            );
        }
    };
}

asks_reflection!(it_is_served_by_version_1, build_v1, v1);
asks_reflection!(it_is_served_by_version_1alpha, build_v1alpha, v1alpha);
