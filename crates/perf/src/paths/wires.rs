//! Checks over connections, each a pair of sockets in this process.

use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_wire::grpc::Grpc;
use tollgate_wire::http::Http;

use prost::Message as _;

use super::Iteration;
use super::decisions::callers;
use crate::client::{grpc_frames, http1_end, http2_end, resp_end, set_stream};
use crate::server::Server;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Commands that are sent together.
const BATCH: usize = 16;

pub(super) fn grpc() -> Iteration {
    let server = Server::new();
    let grpc = server.grpc();
    grpc_on(&server, &grpc, &callers())
}

pub(super) fn http() -> Iteration {
    let server = Server::new();
    let http = server.http();
    http_on(&server, &http, &callers())
}

/// Calls for these callers in turn, on a new connection.
pub(crate) fn grpc_on(server: &Rc<Server>, grpc: &Arc<Grpc>, callers: &[String]) -> Iteration {
    let (server, mut client) = (server.clone(), server.connect(grpc));
    let mut calls: Vec<Vec<u8>> =
        callers.iter().map(|caller| grpc_frames(SHOULD_RATE_LIMIT, &message(caller))).collect();
    assert!(server.runtime.block_on(client.start_http2()).is_ok(), "the connection starts");
    let (mut next, mut stream) = (0, 1);
    Box::new(move || {
        next = (next + 1) % calls.len();
        set_stream(&mut calls[next], stream);
        stream += 2;
        let called = server.runtime.block_on(client.call(&calls[next], http2_end));
        assert!(called.is_ok(), "the call is answered: {called:?}");
    })
}

/// Checks for these callers in turn, on a new connection.
pub(crate) fn http_on(server: &Rc<Server>, http: &Arc<Http>, callers: &[String]) -> Iteration {
    let (server, mut client) = (server.clone(), server.connect(http));
    let requests: Vec<Vec<u8>> = callers.iter().map(|caller| check(caller)).collect();
    let mut next = 0;
    Box::new(move || {
        next = (next + 1) % requests.len();
        let called = server.runtime.block_on(client.call(&requests[next], http1_end));
        assert!(called.is_ok(), "the check is answered: {called:?}");
    })
}

/// A check that returns a receipt, and the settlement of that receipt.
pub(super) fn settlements() -> Iteration {
    const RECEIPT: &[u8] = b"\"receipt\":\"";
    let server = Server::new();
    let mut client = server.connect(&server.http());
    let checks: Vec<Vec<u8>> =
        callers().iter().map(|caller| post("check", &check_body(caller, ",\"receipt\":true"))).collect();
    let mut next = 0;
    Box::new(move || {
        next = (next + 1) % checks.len();
        let settled = server.runtime.block_on(async {
            let response = client.call_for(&checks[next], http1_end).await?;
            let receipt =
                memchr::memmem::find(&response, RECEIPT).map_or(&[][..], |at| &response[at + RECEIPT.len()..]);
            let receipt = receipt.split(|byte| *byte == b'"').next().unwrap_or_default();
            let body = format!(r#"{{"receipt":"{}","cost":1}}"#, String::from_utf8_lossy(receipt));
            client.call_for(&post("settle", &body), http1_end).await
        });
        assert!(
            settled.as_ref().is_ok_and(|response| response.starts_with(b"HTTP/1.1 200")),
            "it is settled: {settled:?}"
        );
    })
}

pub(super) fn resp() -> Iteration {
    let server = Server::new();
    let mut client = server.connect(&server.resp());
    let mut requests = String::new();
    for caller in callers().iter().take(BATCH) {
        let _ = write!(
            requests,
            "*5\r\n$11\r\nCL.THROTTLE\r\n${}\r\n{caller}\r\n$6\r\n999999\r\n$7\r\n1000000\r\n$5\r\n86400\r\n",
            caller.len()
        );
    }
    Box::new(move || {
        let called = server.runtime.block_on(client.call(requests.as_bytes(), |received| resp_end(received, BATCH)));
        assert!(called.is_ok(), "the commands are answered: {called:?}");
    })
}

fn message(caller: &str) -> Vec<u8> {
    let entry = Entry { key: "api_key".to_owned(), value: caller.to_owned().into() };
    let descriptors = vec![RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }];
    RateLimitRequest { domain: "api".to_owned(), descriptors, hits_addend: 0 }.encode_to_vec()
}

fn check(caller: &str) -> Vec<u8> {
    post("check", &check_body(caller, ""))
}

fn check_body(caller: &str, more: &str) -> String {
    format!(r#"{{"domain":"api","attributes":{{"api_key":"{caller}"}}{more}}}"#)
}

fn post(endpoint: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /v1/ratelimit/{endpoint} HTTP/1.1\r\nhost: tollgate\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
