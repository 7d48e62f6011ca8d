//! Requests made before the clock runs, all of one length, side by side.

use prost::Message;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitRequest;

use super::{BUSY_KEYS, KEYS, RARE_KEYS};
use crate::workload::Random;

/// A request for each caller.
pub struct Stock {
    bytes: Vec<u8>,
    length: usize,
    keys: usize,
    random: Random,
}

/// What is requested through a proxy, with which headers besides the host and the caller's key.
pub const GET_PATH: &str = "/v1/orders/42?expand=items";
pub const GET_HEADERS: [(&str, &str); 5] = [
    ("user-agent", "orders-client/1.4.2 (linux; x86_64)"),
    ("accept", "application/json"),
    ("accept-encoding", "gzip, br"),
    ("accept-language", "en-GB,en;q=0.8"),
    ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
];
pub const KEY_HEADER: &str = "x-api-key";

/// What a call of gRPC asks.
#[derive(Clone, Copy)]
pub enum Asking {
    /// One descriptor: the user.
    One,
    /// The same, of few users.
    Busy,
    /// The same, of so many users that each comes rarely.
    Rare,
    /// Four: the customer, and each with the user, the key and the endpoint.
    Four,
}

impl Asking {
    pub fn name(self) -> &'static str {
        match self {
            Asking::One => "one",
            Asking::Busy => "busy",
            Asking::Rare => "rare",
            Asking::Four => "four",
        }
    }

    pub fn named(name: &str) -> Asking {
        let all = [Asking::One, Asking::Busy, Asking::Rare, Asking::Four];
        let named = all.into_iter().find(|asking| asking.name() == name);
        named.unwrap_or_else(|| panic!("nobody asks {name}"))
    }

    /// How many statuses an answer has.
    pub fn statuses(self) -> usize {
        self.descriptors("").len()
    }

    fn descriptors(self, user: &str) -> Vec<RateLimitDescriptor> {
        let customer = ("customer", user);
        let descriptors: &[&[(&str, &str)]] = match self {
            Asking::One | Asking::Busy | Asking::Rare => &[&[("user_id", user)]],
            Asking::Four => &[
                &[customer],
                &[customer, ("user_id", user)],
                &[customer, ("api_key", user)],
                &[customer, ("endpoint", "GET /v1/orders")],
            ],
        };
        let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned().into() };
        let descriptor = |entries: &&[(&str, &str)]| RateLimitDescriptor {
            entries: entries.iter().map(entry).collect(),
            ..RateLimitDescriptor::default()
        };
        descriptors.iter().map(descriptor).collect()
    }
}

impl Stock {
    fn new(keys: usize, request: impl Fn(&str) -> Vec<u8>) -> Stock {
        let requests: Vec<Vec<u8>> = (0..keys).map(|n| request(&format!("u_{n:06}"))).collect();
        let length = requests[0].len();
        assert!(requests.iter().all(|request| request.len() == length), "requests of one length");
        Stock { bytes: requests.concat(), length, keys, random: Random::new() }
    }

    /// gRPC's messages, each with what goes before it.
    pub fn messages(asking: Asking) -> Stock {
        let keys = match asking {
            Asking::Busy => BUSY_KEYS,
            Asking::Rare => RARE_KEYS,
            Asking::One | Asking::Four => KEYS,
        };
        Stock::new(keys, |user| {
            let descriptors = asking.descriptors(user);
            let request = RateLimitRequest { domain: "api".to_owned(), descriptors, hits_addend: 0 };
            let message = request.encode_to_vec();
            [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat()
        })
    }

    /// Requests of HTTP/1.1 to a path, with the body that it wants.
    pub fn posts(address: &str, path: &str, body: impl Fn(&str) -> String) -> Stock {
        Stock::new(KEYS, |user| {
            let body = body(user);
            let length = body.len();
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
            );
            (head + &body).into_bytes()
        })
    }

    /// Requests without a body, as a browser or an SDK sends them.
    pub fn gets(address: &str) -> Stock {
        Stock::new(KEYS, |user| {
            let headers: String = GET_HEADERS.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            format!("GET {GET_PATH} HTTP/1.1\r\nhost: {address}\r\n{headers}{KEY_HEADER}: {user}\r\n\r\n").into_bytes()
        })
    }

    /// The callers alone.
    pub fn callers() -> Stock {
        Stock::new(KEYS, |user| user.as_bytes().to_vec())
    }

    /// The request of a caller drawn by lot.
    pub fn draw(&mut self) -> &[u8] {
        let start = (self.random.next() % self.keys as u64) as usize * self.length;
        &self.bytes[start..start + self.length]
    }
}
