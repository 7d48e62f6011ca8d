//! Tests of the wire itself, over a connection.

mod authorize;
mod bodies;
mod browsers;
mod check;
mod connection;
mod endpoints;
mod headers;
mod instructions;
mod once;
mod openapi;
mod plain;
mod settle;
mod status;
mod waiting;

use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tollgate::{Limiter, LoadOptions, MemoryConfig, Ruleset};
use tollgate_rules::{RuleFile, load_sources};

use super::{HostSettings, Http, HttpConfig, HttpTimeouts, ResponseStyle};
use crate::gate::Gate;
use crate::receipts::Receipts;
use tollgate_http::request_target::PathNormalization;
use tollgate_http::response::{Dialects, Jitter, ScopeValues};
use tollgate_net::closing::Closer;
use tollgate_net::{Closing, Stream};
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::Metrics;

/// Sliding logs of a day: results do not depend on the boundaries of windows.
const RULES: &str = "
domain: shop
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: 3/day, algorithm: sliding_log}
  - {name: orders, key: [api_key], match: {endpoint: 'POST /orders*'}, limit: 2/day, algorithm: sliding_log, denied_by_label: writes}
";

/// A wire, with what is behind it.
struct Server {
    http: Arc<Http>,
    health: Arc<Health>,
    closer: Closer,
    closing: Closing,
}

/// A response.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

fn ruleset(text: &str) -> Ruleset {
    let file = RuleFile { name: "rules.yaml".to_owned(), text: text.to_owned() };
    Ruleset::compile(load_sources(&[file], &LoadOptions::default()).unwrap().domains, 1).unwrap()
}

/// The parts of a wire, with all headers enabled and no jitter.
fn config(rules: &str, shadow: bool, max_in_flight: usize) -> HttpConfig {
    let limiter = Arc::new(Limiter::new(ruleset(rules), MemoryConfig::default().build().into()));
    HttpConfig {
        gate: Arc::new(Gate::new(limiter, shadow, max_in_flight, Metrics::new().wire("http"))),
        receipts: Receipts::ephemeral().unwrap(),
        health: Arc::new(Health::default()),
        style: ResponseStyle {
            dialects: Dialects::default(),
            jitter: Jitter::Off,
            scope_values: ScopeValues::Shortened,
        },
        authorize: super::AuthorizeSettings::default(),
        normalization: PathNormalization::default(),
        timeouts: HttpTimeouts::default(),
        hosts: HostSettings { is_loopback: true, allowed: vec!["tollgate.internal".to_owned()] },
        access: None,
        extra: None,
    }
}

impl Server {
    fn new(rules: &str) -> Server {
        Server::build(config(rules, false, 1024))
    }

    fn build(config: HttpConfig) -> Server {
        let health = Arc::clone(&config.health);
        let (closer, closing) = Closer::new();
        Server { http: config.build(), health, closer, closing }
    }

    /// A connection to it.
    fn connect(&self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(Arc::clone(&self.http).serve(Stream::Unix(theirs), self.closing.clone(), Arc::default()));
        ours
    }

    /// Sends one request on its own connection.
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut connection = self.connect();
        connection.write_all(written(method, path, headers, body).as_bytes()).await.unwrap();
        Reply::read(&mut connection, method == "HEAD").await
    }

    async fn check(&self, body: &str) -> Reply {
        self.ask("POST", "/v1/ratelimit/check", &[], body).await
    }

    /// A check whose body is no text.
    async fn check_bytes(&self, body: &[u8]) -> Reply {
        let mut connection = self.connect();
        let head =
            written("POST", "/v1/ratelimit/check", &[], "").replace("Length: 0", &format!("Length: {}", body.len()));
        connection.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        Reply::read(&mut connection, false).await
    }

    async fn settle(&self, body: &str) -> Reply {
        self.ask("POST", "/v1/ratelimit/settle", &[], body).await
    }

    async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], "").await
    }

    async fn authorize(&self, headers: &[(&str, &str)]) -> Reply {
        self.ask("GET", "/v1/ratelimit/authorize", headers, "").await
    }
}

fn written(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

impl Reply {
    /// Reads one response, and not a byte more.
    async fn read(connection: &mut UnixStream, is_head: bool) -> Reply {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(connection.read_u8().await.expect("an answer"));
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
        let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
        let headers = lines.filter_map(pair).collect();
        let mut reply = Reply { status, headers, body: String::new() };
        let length: usize = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; if is_head { 0 } else { length }];
        connection.read_exact(&mut body).await.unwrap();
        reply.body = String::from_utf8(body).unwrap();
        reply
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Asserts that this is a problem with this status and code, whose detail contains these words.
    #[track_caller]
    fn assert_problem(&self, status: u16, code: &str, words: &str) {
        let body = self.json();
        assert_eq!((self.status, body["code"].as_str()), (status, Some(code)), "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(body["status"], status);
        assert!(body["detail"].as_str().unwrap().contains(words), "{}", self.body);
    }
}
