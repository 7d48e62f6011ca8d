//! Connections that became WebSockets: bytes are copied in both directions.

use std::sync::Arc;
use std::time::Duration;

use http::response::Parts;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::Notify;

use crate::activity::ConnectionState;
use crate::answers::Answer;
use crate::exchange::Exchange;
use crate::model::RouteConfig;
use crate::response_body::ResponseBody;

/// The largest part that is copied at once.
const BUFFER_BYTES: usize = 16 * 1024;

type Stream = TokioIo<Upgraded>;

/// Answers with the upstream's 101. What follows on the connection is copied until either side closes it, or nothing comes
/// for too long. What the request holds is settled then.
pub(crate) fn begin(
    state: &Arc<ConnectionState>,
    head: Parts,
    body: Incoming,
    client: Option<OnUpgrade>,
    mut exchange: Exchange,
    route: &RouteConfig,
) -> Result<Response<ResponseBody>, Answer> {
    let Some(client) = client else {
        exchange.fail();
        let detail = "The upstream changed the protocol, which the request did not ask for.";
        return Err(Answer::problem(StatusCode::BAD_GATEWAY, "upstream_broken", detail));
    };
    let mut response = Response::from_parts(head, body);
    let upstream = hyper::upgrade::on(&mut response);
    let idle = route.timeouts.response_idle;
    state.upgrade(Box::pin(async move {
        let _exchange = exchange;
        if let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) {
            copy_both(TokioIo::new(client), TokioIo::new(upstream), idle).await;
        }
    }));
    Ok(response.map(|_| ResponseBody::own(bytes::Bytes::new())))
}

async fn copy_both(client: Stream, upstream: Stream, idle: Duration) {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_upstream, to_upstream) = tokio::io::split(upstream);
    let moved = Notify::new();
    let quiet = async { while tokio::time::timeout(idle, moved.notified()).await.is_ok() {} };
    let copies = async { tokio::join!(copy(from_client, to_upstream, &moved), copy(from_upstream, to_client, &moved)) };
    tokio::select! {
        _ = copies => {}
        () = quiet => {}
    }
}

/// Copies until the end, which is passed on.
async fn copy(mut from: ReadHalf<Stream>, mut to: WriteHalf<Stream>, moved: &Notify) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        moved.notify_one();
        if to.write_all(&buffer[..read]).await.is_err() || to.flush().await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
