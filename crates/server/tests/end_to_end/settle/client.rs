//! A client of one server, with a connection of its own.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

pub(crate) const CHECK: &str = "/v1/ratelimit/check";
pub(crate) const SETTLE: &str = "/v1/ratelimit/settle";

/// A client of one server.
pub(crate) struct CheckClient {
    address: String,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// The response to a check or a settlement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CheckResponse {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// Whether it is the stored response of an earlier request.
    pub(crate) is_replay: bool,
}

impl CheckClient {
    pub(crate) fn new(address: &str) -> CheckClient {
        CheckClient { address: address.to_owned(), connection: None }
    }

    /// Sends a request, with an idempotency key if there is one. `None` if the server is unavailable.
    pub(crate) async fn try_send(&mut self, path: &str, key: Option<&str>, body: String) -> Option<CheckResponse> {
        let mut request = Request::post(path).header("host", &self.address).header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        if self.connection.as_ref().is_none_or(SendRequest::is_closed) {
            let stream = TcpStream::connect(&self.address).await.ok()?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
            tokio::spawn(connection);
            self.connection = Some(sender);
        }
        let response = self.connection.as_mut()?.send_request(request).await.ok()?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some(CheckResponse {
            status: head.status.as_u16(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
            is_replay: head.headers.contains_key("idempotent-replayed"),
        })
    }

    /// Sends a request to a server that must respond.
    pub(crate) async fn send(&mut self, path: &str, key: Option<&str>, body: String) -> CheckResponse {
        self.try_send(path, key, body).await.expect("the server responds")
    }
}

impl CheckResponse {
    pub(crate) fn receipt(&self) -> &str {
        self.body["receipt"].as_str().unwrap_or_else(|| panic!("no receipt in {self:?}"))
    }
}

/// The body of a settlement.
pub(crate) fn settle_body(receipt: &str, outcome: &str, cost: Option<u64>) -> String {
    let cost = cost.map(|cost| format!(r#","cost":{cost}"#)).unwrap_or_default();
    format!(r#"{{"receipt":"{receipt}","outcome":"{outcome}"{cost}}}"#)
}

/// A runtime on the calling thread, for many clients.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
