//! Connections that became WebSockets: bytes are copied in both directions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{Response, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;

use crate::activity::ConnectionState;
use crate::answers::Answer;
use crate::exchange::Exchange;
use crate::model::RouteConfig;
use crate::response_body::ResponseBody;
use crate::upstream::UpstreamBody;

/// The largest part that is copied at once.
const BUFFER_BYTES: usize = 16 * 1024;

/// Answers with the upstream's 101. What follows on the connection is copied until either side closes it, or nothing comes
/// for too long. What the request holds is settled then.
pub(crate) fn begin(
    state: &Arc<ConnectionState>,
    head: Parts,
    body: UpstreamBody,
    is_websocket: bool,
    mut exchange: Exchange,
    route: &RouteConfig,
) -> Result<Response<ResponseBody>, Answer> {
    let Some(upstream) = body.into_upgraded().filter(|_| is_websocket) else {
        exchange.fail();
        let detail = "The upstream changed the protocol, which the request did not ask for.";
        return Err(Answer::problem(StatusCode::BAD_GATEWAY, "upstream_broken", detail));
    };
    let idle = route.timeouts.response_idle;
    state.upgrade(Box::new(move |client, read| {
        Box::pin(async move {
            let _exchange = exchange;
            copy_both((client, read), (upstream.stream, upstream.read), idle).await;
        })
    }));
    Ok(Response::from_parts(head, ResponseBody::own(Bytes::new())))
}

/// Copies between two streams, of which some bytes were read already.
async fn copy_both<C, U>((client, from_client): (C, Bytes), (upstream, from_upstream): (U, Bytes), idle: Duration)
where
    C: AsyncRead + AsyncWrite,
    U: AsyncRead + AsyncWrite,
{
    let (client, to_client) = tokio::io::split(client);
    let (upstream, to_upstream) = tokio::io::split(upstream);
    let (from_client, from_upstream) = (from_client.chain(client), from_upstream.chain(upstream));
    let moved = Notify::new();
    let quiet = async { while tokio::time::timeout(idle, moved.notified()).await.is_ok() {} };
    let copies = async { tokio::join!(copy(from_client, to_upstream, &moved), copy(from_upstream, to_client, &moved)) };
    tokio::select! {
        _ = copies => {}
        () = quiet => {}
    }
}

/// Copies until the end, which is passed on.
async fn copy(from: impl AsyncRead, to: impl AsyncWrite, moved: &Notify) {
    let (mut from, mut to) = (std::pin::pin!(from), std::pin::pin!(to));
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        moved.notify_one();
        if to.write_all(&buffer[..read]).await.is_err() || to.flush().await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
