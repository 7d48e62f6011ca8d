//! Sends checks, or requests through a gateway, one after the other on a connection.

use std::sync::Arc;
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

/// What the traffic is sent to, by its address.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// The HTTP listener of a server: checks.
    Checks(Arc<str>),
    /// A gateway: the requests themselves.
    Gateway(Arc<str>),
}

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
pub(super) async fn send(mut connection: HttpConnection, target: Target, mut requests: mpsc::Receiver<DemoRequest>) {
    while let Some(request) = requests.recv().await {
        let Some(request) = target.http_request(&request) else { return };
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

impl Target {
    pub(super) fn address(&self) -> &str {
        match self {
            Target::Checks(address) | Target::Gateway(address) => address,
        }
    }

    fn http_request(&self, request: &DemoRequest) -> Option<Request<Full<Bytes>>> {
        let DemoRequest { caller, plan, endpoint, is_test } = request;
        let request = match self {
            Target::Checks(address) => {
                let attributes = json!({"api_key": caller, "plan": plan, "endpoint": endpoint});
                let body = json!({"domain": DOMAIN, "attributes": attributes});
                Request::post(CHECK)
                    .header(HOST, &**address)
                    .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                    .body(Full::new(Bytes::from(body.to_string())))
            }
            Target::Gateway(address) => {
                let (method, path) = endpoint.split_once(' ')?;
                Request::builder()
                    .method(method)
                    .uri(path)
                    .header(HOST, &**address)
                    .header("X-Api-Key", caller)
                    .header("X-Plan", *plan)
                    .header("X-Mode", if *is_test { "test" } else { "live" })
                    .body(Full::default())
            }
        };
        request.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_gets_the_request_and_a_server_a_check_of_it() {
        let request = DemoRequest { caller: "ada".to_owned(), plan: "pro", endpoint: "POST /orders", is_test: true };
        let sent = Target::Gateway("127.0.0.1:1".into()).http_request(&request).unwrap();
        assert_eq!((sent.method().as_str(), sent.uri().path()), ("POST", "/orders"));
        assert!(sent.headers()["x-api-key"] == "ada" && sent.headers()["x-mode"] == "test");
        let sent = Target::Checks("127.0.0.1:1".into()).http_request(&request).unwrap();
        assert_eq!((sent.method().as_str(), sent.uri().path()), ("POST", CHECK));
    }
}
