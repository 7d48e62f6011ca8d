//! What is checked in, against what the generator makes of `proto/` and against the bytes of the protocol.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test says what it expects by failing.

#[path = "../generator/mod.rs"]
mod generator;

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;
use prost::bytes::Bytes;
use prost_types::field_descriptor_proto::Type;
use prost_types::{Duration, FileDescriptorSet, Struct, Timestamp, Value, value};
use tollgate_proto::envoy::config::core::v3::HeaderValue;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, Quota, RateLimit, quota::ExpirationSpecifier,
};
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tollgate_proto::envoy::r#type::v3::RateLimitUnit;

#[test]
fn generated_files_are_up_to_date() {
    if !generator::has_protoc() {
        println!("skipped: no protoc");
        return;
    }
    let directory = generator::directory();
    let files = generator::generate().unwrap();
    for (path, content) in &files {
        let same = fs::read(directory.join(path)).is_ok_and(|found| found == *content);
        assert!(same, "src/generated/{} is not what proto/ says; run `make proto`", path.display());
    }
    let paths: Vec<&PathBuf> = files.keys().collect();
    let mut found = paths_below(&directory);
    found.sort();
    assert_eq!(found.iter().collect::<Vec<_>>(), paths, "run `make proto`");
}

/// All files in a directory and those inside it, by their paths from there.
fn paths_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            let name = PathBuf::from(path.file_name().unwrap());
            if path.is_dir() {
                paths_below(&path).into_iter().map(|inner| name.join(inner)).collect()
            } else {
                vec![name]
            }
        })
        .collect()
}

/// A field: its key, the length of its content, and that.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(content.len()).unwrap()][..], content].concat()
}

#[test]
fn requests_are_those_of_the_protocol() {
    let entry = [field(1, b"k"), field(2, b"v\xff")].concat();
    let limit = [0x08, 5, 0x10, 6];
    let descriptor = [field(1, &entry), field(2, &limit), field(3, &[0x08, 9]), vec![0x20, 1]].concat();
    let bytes = [field(1, b"shop"), field(2, &descriptor), vec![0x18, 7]].concat();
    let request = RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry { key: "k".to_owned(), value: Bytes::from_static(b"v\xff") }],
            limit: Some(RateLimitOverride { requests_per_unit: 5, unit: RateLimitUnit::Year as i32 }),
            hits_addend: Some(9),
            is_negative_hits: true,
        }],
        hits_addend: 7,
    };
    assert_eq!(request.encode_to_vec(), bytes);
    assert_eq!(tollgate_proto::decode::<RateLimitRequest>(&bytes.into()).unwrap(), request);
}

#[test]
fn responses_are_those_of_the_protocol() {
    let header = [field(1, b"k"), field(2, b"v"), field(3, b"\xff")].concat();
    let quota = [vec![0x08, 9], field(2, &[0x08, 1, 0x10, 2]), field(3, b"q")].concat();
    let limit = [vec![0x08, 3, 0x10, 7], field(3, b"n")].concat();
    let status =
        [vec![0x08, 1], field(2, &limit), vec![0x18, 4], field(4, &[0x08, 5, 0x10, 6]), field(5, &quota)].concat();
    let metadata = field(1, &[field(1, b"f"), field(2, &field(3, b"text"))].concat());
    let bytes = [
        vec![0x08, 2],
        field(2, &status),
        field(3, &header),
        field(4, &header),
        field(5, b"\x00"),
        field(6, &metadata),
        field(7, &quota),
    ];
    let header = || vec![HeaderValue { key: "k".to_owned(), value: "v".to_owned(), raw_value: vec![0xff] }];
    let quota = || Quota {
        requests: 9,
        id: "q".to_owned(),
        expiration_specifier: Some(ExpirationSpecifier::ValidUntil(Timestamp { seconds: 1, nanos: 2 })),
    };
    let text = Value { kind: Some(value::Kind::StringValue("text".to_owned())) };
    let response = RateLimitResponse {
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
        raw_body: vec![0],
        dynamic_metadata: Some(Struct { fields: [("f".to_owned(), text)].into() }),
        quota: Some(quota()),
    };
    assert_eq!(RateLimitResponse::decode(&bytes.concat()[..]).unwrap(), response);
}

#[test]
fn reflection_calls_a_string_a_string() {
    let set = FileDescriptorSet::decode(tollgate_proto::FILE_DESCRIPTOR_SET).unwrap();
    let file = set.file.iter().find(|file| file.name() == "envoy/extensions/common/ratelimit/v3/ratelimit.proto");
    let entry = &file.unwrap().message_type[0].nested_type[0];
    let fields: Vec<_> = entry.field.iter().map(|field| (field.name(), field.r#type())).collect();
    assert_eq!((entry.name(), &fields[..]), ("Entry", &[("key", Type::String), ("value", Type::String)][..]));
}

#[test]
fn every_file_comes_after_those_that_it_imports() {
    let set = FileDescriptorSet::decode(tollgate_proto::FILE_DESCRIPTOR_SET).unwrap();
    let mut before = Vec::new();
    for file in &set.file {
        assert!(file.dependency.iter().all(|path| before.contains(&path.as_str())), "{}", file.name());
        before.push(file.name());
    }
}
