//! One client's connection: HTTP/1.1 or HTTP/2, by its first bytes.

mod stream;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::AsyncReadExt;
use tollgate_net::workers::{ConnectionFuture, Wire};
use tollgate_net::{Closing, Slot, Stream};

use crate::activity::{ConnectionState, End, OpenRequest, Watch};
use crate::client::Client;
use crate::gateway::Gateway;
use crate::response_body::ResponseBody;
use stream::ClientStream;

/// How a client announces HTTP/2.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The time from the start of a connection to its first bytes.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest head of a request, in bytes; longer ones get 431.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The most headers; more get 431.
const MAX_HEADERS: usize = 100;
/// The largest part of a request or response that a connection buffers.
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
    let state = Arc::new(ConnectionState::default());
    match first {
        FirstBytes::Http2 => {
            let stream = ClientStream::http2(stream, state.clone());
            // Boxed, so that an idle connection of HTTP/1.1 takes less memory.
            Box::pin(serve_http2(gateway, stream, client, state, closing, slot)).await;
        }
        FirstBytes::Http1(bytes) => {
            serve_http1(gateway, ClientStream::http1(bytes, stream, state.clone()), client, state, closing, slot).await;
        }
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

/// Calls a method of a connection until it ends, or until its bounds or the server end it.
macro_rules! drive {
    ($connection:expr, $closing:expr, $watch:expr) => {{
        let mut stopping = false;
        loop {
            tokio::select! {
                biased;
                // Before the connection, so that the pending response announces that it is the last.
                () = $closing.begun(), if !stopping => {
                    stopping = true;
                    $connection.as_mut().graceful_shutdown();
                }
                // A connection that fails is the client's problem.
                _ = $connection.as_mut() => break,
                end = $watch.next() => match end {
                    End::Idle => {
                        stopping = true;
                        $connection.as_mut().graceful_shutdown();
                    }
                    End::SlowHead | End::SlowReader => break,
                },
            }
        }
    }};
}

async fn serve_http1(
    gateway: Arc<Gateway>,
    stream: ClientStream,
    client: Arc<Client>,
    state: Arc<ConnectionState>,
    mut closing: Closing,
    slot: Arc<Slot>,
) {
    let mut watch = Watch::new(state.clone(), true);
    {
        let service = service_fn(|request| respond(&gateway, &client, &state, &slot, request));
        let mut connection = pin!(
            http1::Builder::new()
                // The watch ends slow and idle connections: a timer for each request would cost more.
                .header_read_timeout(None)
                .max_header_size(MAX_HEAD_BYTES)
                .max_headers(MAX_HEADERS)
                .max_buf_size(MAX_BUFFER_BYTES)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
        );
        drive!(connection, closing, watch);
    }
    // It goes on while the server stops, as every stream does.
    if let Some(tunnel) = state.take_tunnel() {
        tunnel.await;
    }
}

async fn serve_http2(
    gateway: Arc<Gateway>,
    stream: ClientStream,
    client: Arc<Client>,
    state: Arc<ConnectionState>,
    mut closing: Closing,
    slot: Arc<Slot>,
) {
    let mut watch = Watch::new(state.clone(), false);
    let service = service_fn(move |request| {
        let (gateway, client, state, slot) = (gateway.clone(), client.clone(), state.clone(), slot.clone());
        async move { respond(&gateway, &client, &state, &slot, request).await }
    });
    let mut connection = pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD_BYTES as u32)
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_local_error_reset_streams(MAX_ERROR_RESETS)
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service)
    );
    drive!(connection, closing, watch);
}

async fn respond(
    gateway: &Arc<Gateway>,
    client: &Arc<Client>,
    state: &Arc<ConnectionState>,
    slot: &Arc<Slot>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let open = OpenRequest::begin(state.clone(), slot.clone());
    let mut response = gateway.respond(request, client, state).await;
    response.body_mut().set_open_request(open);
    Ok(response)
}
