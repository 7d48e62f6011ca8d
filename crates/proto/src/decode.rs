//! Decoding a message that is in memory as a whole.

use prost::bytes::{Buf, Bytes};
use prost::{DecodeError, Message};

/// Decodes a message. Fields of type [`Bytes`] share its memory.
///
/// The same as `M::decode(message.clone())`, and faster: what is read in place is read from a slice.
///
/// # Errors
/// The bytes are not such a message.
pub fn decode<M: Message + Default>(message: &Bytes) -> Result<M, DecodeError> {
    M::decode(Cursor { rest: message, message })
}

/// The rest of a message.
struct Cursor<'a> {
    rest: &'a [u8],
    message: &'a Bytes,
}

impl Buf for Cursor<'_> {
    #[inline]
    fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        self.rest
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        self.rest = &self.rest[count..];
    }

    #[inline]
    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.message.slice_ref(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    use crate::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
    use crate::envoy::service::ratelimit::v3::RateLimitRequest;

    fn request(values: &[&[u8]]) -> RateLimitRequest {
        let entry = |value: &&[u8]| Entry { key: "key".to_owned(), value: Bytes::copy_from_slice(value) };
        let descriptor = RateLimitDescriptor { entries: values.iter().map(entry).collect(), ..Default::default() };
        RateLimitRequest { domain: "d".to_owned(), descriptors: vec![descriptor; 2], hits_addend: 7 }
    }

    #[test]
    fn it_reads_what_prost_reads() {
        let request = request(&[b"one", b"", b"\xff", &[b'x'; 5000]]);
        let message = Bytes::from(request.encode_to_vec());
        assert_eq!(decode::<RateLimitRequest>(&message).unwrap(), request);
        for length in 0..200 {
            let cut = message.slice(..length);
            assert_eq!(decode::<RateLimitRequest>(&cut), RateLimitRequest::decode(&cut[..]), "{length}");
        }
    }

    #[test]
    fn bytes_are_not_copied() {
        let message = Bytes::from(request(&[b"value"]).encode_to_vec());
        let decoded: RateLimitRequest = decode(&message).unwrap();
        let value = &decoded.descriptors[0].entries[0].value;
        assert!(message.as_ptr_range().contains(&value.as_ptr()));
    }
}
