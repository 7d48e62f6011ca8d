//! One who asks, over a connection of its own.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

pub(crate) const CHECK: &str = "/v1/ratelimit/check";
pub(crate) const SETTLE: &str = "/v1/ratelimit/settle";

/// A caller of one server.
pub(crate) struct Caller {
    address: String,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// What it was told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// Whether it was told before.
    pub(crate) is_replay: bool,
}

impl Caller {
    pub(crate) fn of(address: &str) -> Caller {
        Caller { address: address.to_owned(), connection: None }
    }

    /// Asks, with an idempotency key if there is one. None if the server is gone.
    pub(crate) async fn post(&mut self, path: &str, key: Option<&str>, body: String) -> Option<Told> {
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
        let answer = self.connection.as_mut()?.send_request(request).await.ok()?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some(Told {
            status: head.status.as_u16(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
            is_replay: head.headers.contains_key("idempotent-replayed"),
        })
    }

    /// The same of a server that is there.
    pub(crate) async fn ask(&mut self, path: &str, key: Option<&str>, body: String) -> Told {
        self.post(path, key, body).await.expect("a server that answers")
    }
}

impl Told {
    pub(crate) fn receipt(&self) -> &str {
        self.body["receipt"].as_str().unwrap_or_else(|| panic!("no receipt in {self:?}"))
    }
}

/// What says how a request ended.
pub(crate) fn settling(receipt: &str, outcome: &str, cost: Option<u64>) -> String {
    let cost = cost.map(|cost| format!(r#","cost":{cost}"#)).unwrap_or_default();
    format!(r#"{{"receipt":"{receipt}","outcome":"{outcome}"{cost}}}"#)
}

/// A runtime for many callers, which have this thread.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
