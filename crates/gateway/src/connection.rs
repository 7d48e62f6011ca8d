//! One client's connection: HTTP/1.1 or HTTP/2, by its first bytes.

mod http1;
mod http2_stream;
mod http2_taking;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncReadExt;
use tollgate_net::workers::{ConnectionFuture, Wire};
use tollgate_net::{Closing, Slot, Stream};

use crate::activity::{ConnectionState, End, OpenRequest, Watch};
use crate::client::Client;
use crate::field_marks::FieldMarks;
use crate::gateway::Gateway;
use crate::incoming_body::IncomingBody;
use http2_stream::Http2Stream;
use http2_taking::{OfferedBody, StreamExecutor};

/// How a client announces HTTP/2.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The time from the start of a connection to its first bytes.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest head of a request over HTTP/2, in bytes.
const MAX_HEAD_BYTES: u32 = 64 * 1024;
/// What a stream of HTTP/2 buffers of its response.
const MAX_BUFFER_BYTES: usize = 128 * 1024;
/// The requests of an HTTP/2 connection at the same time.
const MAX_STREAMS: u32 = 100;
/// Bounds against floods of resets (CVE-2023-44487 and the like).
const MAX_PENDING_RESETS: usize = 20;
const MAX_ERROR_RESETS: usize = 1_024;
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves a connection until it ends, is idle for too long, or the server stops.
async fn serve(gateway: Arc<Gateway>, mut stream: Stream, mut closing: Closing, slot: Arc<Slot>) {
    let client = Arc::new(Client::of(&stream));
    let first = tokio::select! {
        first = tokio::time::timeout(FIRST_BYTES_TIMEOUT, first_bytes(&mut stream)) => first,
        () = closing.begun() => return,
    };
    let Ok(Some(first)) = first else { return };
    match first {
        // Boxed, so that an idle connection of HTTP/1.1 takes less memory.
        FirstBytes::Http2 => Box::pin(serve_http2(gateway, stream, client, closing, slot)).await,
        FirstBytes::Http1(bytes) => http1::serve(gateway, &bytes, stream, client, closing, slot).await,
    }
}

impl Wire for Gateway {
    fn serve(self: Arc<Self>, stream: Stream, closing: Closing, slot: Arc<Slot>) -> ConnectionFuture {
        Box::pin(serve(self, stream, closing, slot))
    }
}

/// What a client began to send.
enum FirstBytes {
    Http2,
    Http1(Vec<u8>),
}

/// Reads as much as distinguishes the protocols. `None` if the connection ends.
async fn first_bytes(stream: &mut Stream) -> Option<FirstBytes> {
    let (mut bytes, mut length) = ([0; PREFACE.len()], 0);
    loop {
        let read = stream.read(&mut bytes[length..]).await.ok().filter(|read| *read > 0)?;
        length += read;
        let received = &bytes[..length];
        if !PREFACE.starts_with(received) {
            return Some(FirstBytes::Http1(received.to_vec()));
        }
        if length == PREFACE.len() {
            return Some(FirstBytes::Http2);
        }
    }
}

async fn serve_http2(
    gateway: Arc<Gateway>,
    stream: Stream,
    client: Arc<Client>,
    mut closing: Closing,
    slot: Arc<Slot>,
) {
    let state = Arc::new(ConnectionState::default());
    let stream = Http2Stream::new(stream, state.clone());
    let mut watch = Watch::new(state.clone(), false);
    let service = service_fn(move |request| {
        let (gateway, client, state, slot) = (gateway.clone(), client.clone(), state.clone(), slot.clone());
        async move { respond(&gateway, &client, &state, &slot, request).await }
    });
    let mut connection = pin!(
        http2::Builder::new(StreamExecutor)
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD_BYTES)
            .max_send_buf_size(MAX_BUFFER_BYTES)
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_local_error_reset_streams(MAX_ERROR_RESETS)
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service)
    );
    let mut stopping = false;
    loop {
        tokio::select! {
            biased;
            () = closing.begun(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            // A connection that fails is the client's problem.
            _ = connection.as_mut() => break,
            end = watch.next() => match end {
                End::Idle => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                End::SlowHead | End::SlowReader => break,
            },
        }
    }
}

async fn respond(
    gateway: &Arc<Gateway>,
    client: &Arc<Client>,
    state: &Arc<ConnectionState>,
    slot: &Arc<Slot>,
    request: Request<Incoming>,
) -> Result<Response<OfferedBody>, Infallible> {
    let open = OpenRequest::begin(state.clone(), slot.clone());
    let (parts, body) = request.into_parts();
    let marks = FieldMarks::of(&parts.headers);
    let mut response = gateway.respond((parts, marks), IncomingBody::Http2(body), client, state).await;
    response.body_mut().set_open_request(open);
    Ok(response.map(OfferedBody::new))
}
