//! One request on a connection of its own: health checks, and documents that the gateway itself needs.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt as _;

use super::body::UpstreamBody;
use super::pool::{self, Reuse};
use super::sender::RequestHead;
use super::{Upstream, UpstreamServer};
use crate::forwarded_body::ForwardedBody;
use crate::model::{ServerAddress, ServerSource, Timeouts};

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
        // With a pool of its own, which ends with it.
        let server = Arc::new(UpstreamServer::new(address.clone(), &upstream.config.connections));
        let lease =
            pool::acquire(upstream, &server, timeouts, Reuse::Never).await.map_err(|error| error.to_string())?;
        let head = head(&host(upstream, address), path, upstream.config.tls.is_some())?;
        let sent = lease.send(&head, ForwardedBody::Whole(None)).await;
        let response = sent.map_err(|error| error.error.to_string())?;
        let status = response.status();
        Ok(Fetched { status, body: read(response.into_body(), max).await? })
    };
    let late = |_| Err(format!("there was no response within {:?}", timeouts.response));
    tokio::time::timeout(timeouts.response, fetched).await.unwrap_or_else(late)
}

/// What a server is called in requests to it: a name that has been looked up stays the name.
fn host(upstream: &Upstream, address: &ServerAddress) -> String {
    match (&upstream.config.servers, address) {
        (ServerSource::Dns { host, port, .. }, _) => format!("{host}:{port}"),
        (_, ServerAddress::Unix(_)) => "localhost".to_owned(),
        (_, address) => address.to_string(),
    }
}

fn head(host: &str, path: &str, is_tls: bool) -> Result<RequestHead, String> {
    let target = path.parse().map_err(|error| format!("{path}: {error}"))?;
    let authority = HeaderValue::from_str(host).map_err(|error| format!("{host}: {error}"))?;
    let headers = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_static("tollgate"))]);
    Ok(RequestHead { method: Method::GET, target, authority, headers, is_tls, interim: None })
}

async fn read(mut body: UpstreamBody, max: usize) -> Result<Bytes, String> {
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
