//! The part of a response for the client of the gateway: headers, and the body of a refusal.
//!
//! It is encoded here, field by field, and appended to the message: as values of the message, each header would be two
//! allocations.

use http::header::CONTENT_TYPE;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use tollgate_http::response::WrittenResponse;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitResponse;

/// A response, and its encoded fields for the client.
#[derive(Clone, Debug)]
pub struct EnvoyResponse {
    pub message: RateLimitResponse,
    /// Fields of the message that `message` does not have, encoded.
    pub client: Vec<u8>,
}

/// The numbers of fields of `RateLimitResponse`.
const RESPONSE_HEADERS_TO_ADD: u32 = 3;
const RAW_BODY: u32 = 5;
/// The numbers of fields of `HeaderValue`.
const KEY: u32 = 1;
const VALUE: u32 = 2;
/// The length of a key of a field: all numbers are small.
const FIELD_KEY_BYTES: usize = 1;
/// Enough for the headers of nearly every response that passes.
const INITIAL_CAPACITY: usize = 512;

impl From<RateLimitResponse> for EnvoyResponse {
    fn from(message: RateLimitResponse) -> EnvoyResponse {
        EnvoyResponse { message, client: Vec::new() }
    }
}

/// The encoded fields of a response.
pub(super) fn encode_fields(written: &WrittenResponse) -> Vec<u8> {
    let (content_type, body) = written.body();
    let mut out = Vec::with_capacity(INITIAL_CAPACITY + body.len());
    for (name, value) in written.fields() {
        header(&mut out, name.as_str().as_bytes(), value);
    }
    if let Some(content_type) = content_type {
        header(&mut out, CONTENT_TYPE.as_str().as_bytes(), content_type.as_bytes());
        bytes(&mut out, RAW_BODY, body);
    }
    out
}

fn header(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    encode_key(RESPONSE_HEADERS_TO_ADD, WireType::LengthDelimited, out);
    encode_varint((bytes_length(key) + bytes_length(value)) as u64, out);
    bytes(out, KEY, key);
    bytes(out, VALUE, value);
}

fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

fn bytes_length(value: &[u8]) -> usize {
    FIELD_KEY_BYTES + encoded_len_varint(value.len() as u64) + value.len()
}
