//! Checks over HTTP, one after the other on a connection.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::traffic::Call;

/// A server that is about to start is looked for so often in a second.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(1_000 / TRIES as u64);
/// The domain of the demo's rules.
const DOMAIN: &str = "shop";
const CHECK: &str = "/v1/ratelimit/check";

pub(super) type Connection = SendRequest<Full<Bytes>>;

/// A connection to a server, which may have so many seconds to start.
pub(super) async fn connect(address: &str, wait: u32) -> Result<Connection, String> {
    let mut tries = 0;
    loop {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                let (connection, driven) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
                tokio::spawn(async move {
                    // Who sends hears of what breaks.
                    let _ = driven.await;
                });
                return Ok(connection);
            }
            Err(error) if tries >= wait * TRIES => return Err(format!("{address} can't be reached: {error}")),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Sends what comes until the connection breaks.
pub(super) async fn send(mut connection: Connection, address: String, mut calls: mpsc::Receiver<Call>) {
    while let Some(call) = calls.recv().await {
        let Some(request) = request(&call, &address) else { return };
        if connection.ready().await.is_err() {
            return;
        }
        let Ok(answer) = connection.send_request(request).await else { return };
        // Read to its end, so that the connection can be used again.
        if answer.into_body().collect().await.is_err() {
            return;
        }
    }
}

fn request(call: &Call, address: &str) -> Option<Request<Full<Bytes>>> {
    let Call { caller, plan, endpoint } = call;
    let body = json!({"domain": DOMAIN, "attributes": {"api_key": caller, "plan": plan, "endpoint": endpoint}});
    let request = Request::post(CHECK)
        .header(HOST, address)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .body(Full::new(Bytes::from(body.to_string())));
    request.ok()
}
