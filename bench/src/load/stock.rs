//! Requests made before the clock runs, all of one length, side by side.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use prost::Message;

use super::KEYS;
use crate::workload::Random;

/// A request for each caller.
pub struct Stock {
    bytes: Vec<u8>,
    length: usize,
    random: Random,
}

impl Stock {
    fn new(request: impl Fn(&str) -> Vec<u8>) -> Stock {
        let requests: Vec<Vec<u8>> = (0..KEYS).map(|n| request(&format!("u_{n:05}"))).collect();
        let length = requests[0].len();
        assert!(requests.iter().all(|request| request.len() == length), "requests of one length");
        Stock { bytes: requests.concat(), length, random: Random::new() }
    }

    /// gRPC's messages, each with what goes before it.
    pub fn messages() -> Stock {
        Stock::new(|user| {
            let entry = Entry { key: "user_id".to_owned(), value: user.to_owned() };
            let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
            let request = RateLimitRequest { domain: "api".to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
            let message = request.encode_to_vec();
            [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat()
        })
    }

    /// Requests of HTTP/1.1 to a path, with the body that it wants.
    pub fn posts(address: &str, path: &str, body: impl Fn(&str) -> String) -> Stock {
        Stock::new(|user| {
            let body = body(user);
            let length = body.len();
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
            );
            (head + &body).into_bytes()
        })
    }

    /// The request of a caller drawn by lot.
    pub fn draw(&mut self) -> &[u8] {
        let start = (self.random.next() % KEYS as u64) as usize * self.length;
        &self.bytes[start..start + self.length]
    }
}
