//! Sends checks over HTTP, one after the other on a connection.

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

use super::traffic::DemoRequest;

/// Attempts per second to connect to a server that starts.
const TRIES_PER_SECOND: u32 = 10;
const RETRY_DELAY: Duration = Duration::from_millis(1_000 / TRIES_PER_SECOND as u64);
/// The domain of the demo's rules.
const DOMAIN: &str = "shop";
const CHECK: &str = "/v1/ratelimit/check";

pub(super) type HttpConnection = SendRequest<Full<Bytes>>;

/// Connects to a server, which may take `wait` seconds to start.
pub(super) async fn connect(address: &str, wait: u32) -> Result<HttpConnection, String> {
    let mut tries = 0;
    loop {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                let (connection, driver) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
                tokio::spawn(async move {
                    // The sender gets the error.
                    let _ = driver.await;
                });
                return Ok(connection);
            }
            Err(error) if tries >= wait * TRIES_PER_SECOND => {
                return Err(format!("{address} can't be reached: {error}"));
            }
            Err(_) => tries += 1,
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// Sends requests until the connection breaks.
pub(super) async fn send(mut connection: HttpConnection, address: String, mut requests: mpsc::Receiver<DemoRequest>) {
    while let Some(request) = requests.recv().await {
        let Some(request) = http_request(&request, &address) else { return };
        if connection.ready().await.is_err() {
            return;
        }
        let Ok(response) = connection.send_request(request).await else { return };
        // Read to its end, so that the connection can be reused.
        if response.into_body().collect().await.is_err() {
            return;
        }
    }
}

fn http_request(request: &DemoRequest, address: &str) -> Option<Request<Full<Bytes>>> {
    let DemoRequest { caller, plan, endpoint } = request;
    let body = json!({"domain": DOMAIN, "attributes": {"api_key": caller, "plan": plan, "endpoint": endpoint}});
    let request = Request::post(CHECK)
        .header(HOST, address)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .body(Full::new(Bytes::from(body.to_string())));
    request.ok()
}
