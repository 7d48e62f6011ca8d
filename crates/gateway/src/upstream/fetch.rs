//! One request on a connection of its own: health checks, and documents that the gateway itself needs.

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::Upstream;
use super::connect::{self, Connected};
use crate::forwarded_body::ForwardedBody;
use crate::model::{ServerAddress, Timeouts};

/// A response, read whole.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// Gets a path from a server. At most `max` bytes of its body are read.
///
/// # Errors
/// The reason, for logs.
pub(crate) async fn get(
    upstream: &Upstream,
    address: &ServerAddress,
    path: &str,
    timeouts: &Timeouts,
    max: usize,
) -> Result<Fetched, String> {
    let fetched = async {
        let connected = connect::connect(upstream, address, timeouts).await.map_err(|error| error.to_string())?;
        let request = request(address, path, matches!(connected, Connected::Http2(..)), upstream.config.tls.is_some())?;
        let (response, driver) = match connected {
            Connected::Http1(mut sender, connection) => {
                let driver = tokio::spawn(async { _ = connection.await });
                (sender.send_request(request).await, driver)
            }
            Connected::Http2(mut sender, connection) => {
                let driver = tokio::spawn(async { _ = connection.await });
                (sender.send_request(request).await, driver)
            }
        };
        let read = match response {
            Ok(response) => {
                let status = response.status();
                read(response.into_body(), max).await.map(|body| Fetched { status, body })
            }
            Err(error) => Err(error.to_string()),
        };
        driver.abort();
        read
    };
    let late = |_| Err(format!("there was no response within {:?}", timeouts.response));
    tokio::time::timeout(timeouts.response, fetched).await.unwrap_or_else(late)
}

fn request(
    address: &ServerAddress,
    path: &str,
    is_http2: bool,
    is_tls: bool,
) -> Result<Request<ForwardedBody>, String> {
    let host = match address {
        ServerAddress::Unix(_) => "localhost".to_owned(),
        address => address.to_string(),
    };
    let scheme = if is_tls { "https" } else { "http" };
    let uri = if is_http2 { format!("{scheme}://{host}{path}") } else { path.to_owned() };
    let mut request = Request::new(ForwardedBody::Whole(None));
    *request.method_mut() = Method::GET;
    *request.uri_mut() = uri.parse().map_err(|error| format!("{uri}: {error}"))?;
    if !is_http2 {
        let host = HeaderValue::from_str(&host).map_err(|error| format!("{host}: {error}"))?;
        request.headers_mut().insert(header::HOST, host);
    }
    request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static("tollgate"));
    Ok(request)
}

async fn read(mut body: Incoming, max: usize) -> Result<Bytes, String> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > max {
                return Err(format!("the response is longer than {max} bytes"));
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes.freeze())
}
