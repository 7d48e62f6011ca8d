//! A client's connection over HTTP/1.1, in one task with its requests.
//!
//! It is not hyper's, because that takes 20 KiB for an idle connection, hides framings that have two meanings, and reads heads
//! twice with the scanner that finds those. ADR 0044 has the figures.

mod head;
mod response;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, Response, Version};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate_net::{Closing, Slot, Stream};

use crate::activity::{ConnectionState, End, OpenRequest, Watch};
use crate::client::Client;
use crate::gateway::Gateway;
use crate::http1::{self, BodySource, MessageWriter, READ_BYTES};
use crate::incoming_body::IncomingBody;
use crate::response_body::ResponseBody;
use head::{RequestError, RequestHead};
use response::{RequestKind, ResponseWriter, WriteError};

/// The longest head of a request, in bytes; longer ones get 431.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The most fields; more get 431.
const MAX_HEADERS: usize = 100;
/// What is read ahead of a request whose response is not written yet.
const MAX_AHEAD_BYTES: usize = 8 * 1024;
/// The most that is read at once of a body.
const MAX_READ_BYTES: usize = 64 * 1024;
/// What an idle connection may keep of its buffer.
const MAX_IDLE_BYTES: usize = 1024;
/// How long, and for how many bytes, the end of a connection waits for a client that still sends. Unread bytes would make the
/// end a reset, which may destroy the response before the client has read it.
const LINGER_TIME: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1 << 20;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Serves a connection until it ends, is idle for too long, or the server stops.
pub(super) async fn serve(
    gateway: Arc<Gateway>,
    first: &[u8],
    stream: Stream,
    client: Arc<Client>,
    mut closing: Closing,
    slot: Arc<Slot>,
) {
    let state = Arc::new(ConnectionState::default());
    state.received(first.len());
    let mut watch = Watch::new(state.clone(), true);
    let mut connection = Http1Connection {
        stream,
        input: BytesMut::from(first),
        writer: MessageWriter::default(),
        step: ConnectionStep::Head { is_complete: true },
        is_stopping: false,
        owner: Owner { gateway, client, state, slot },
    };
    let end = loop {
        tokio::select! {
            biased;
            // Before the connection, so that the pending response announces that it is the last.
            () = closing.begun(), if !connection.is_stopping => {
                if connection.stop() {
                    return;
                }
            }
            end = poll_fn(|context| connection.poll(context)) => break end,
            end = watch.next() => match end {
                End::Idle if !connection.stop() => {}
                End::SlowHead if connection.refuse_slow_head() => {}
                End::Idle | End::SlowHead | End::SlowReader => return,
            },
        }
    };
    match end {
        ConnectionEnd::Closed => {}
        ConnectionEnd::Finished { linger } => connection.shut_down(linger).await,
        ConnectionEnd::Upgraded(_request) => {
            if let Some(tunnel) = connection.owner.state.take_tunnel() {
                tunnel(connection.stream, connection.input.freeze()).await;
            }
        }
    }
}

/// A connection, and where its request is.
struct Http1Connection {
    stream: Stream,
    /// What was read and is not used yet.
    input: BytesMut,
    /// While no response is written.
    writer: MessageWriter,
    step: ConnectionStep,
    /// Whether the next response is the last.
    is_stopping: bool,
    owner: Owner,
}

/// What the requests of a connection share.
struct Owner {
    gateway: Arc<Gateway>,
    client: Arc<Client>,
    state: Arc<ConnectionState>,
    slot: Arc<Slot>,
}

enum ConnectionStep {
    /// Waits for a head, and whether all of it may have come.
    Head {
        is_complete: bool,
    },
    /// A request is being answered.
    Request(Request),
    /// Its response is being written.
    Response(RequestInProgress, Box<ResponseWriter>),
    End,
}

/// A request without a response.
struct Request {
    response: ResponseFuture,
    progress: RequestInProgress,
}

struct RequestInProgress {
    kind: RequestKind,
    /// Whether the client wants to use the connection again.
    is_client_persistent: bool,
    /// What is left of its body. `None` if nothing was, when it began.
    body: Option<BodySource>,
    expects_continue: bool,
    _open: OpenRequest,
}

type ResponseFuture = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

/// How a connection ends.
enum ConnectionEnd {
    /// The client closed it, or it failed.
    Closed,
    /// The last response was written. `linger`: the client may still send.
    Finished { linger: bool },
    /// It has another protocol from now on. The request is in progress until that ends.
    Upgraded(Box<RequestInProgress>),
}

/// What came of reading while a request is in progress.
enum Read {
    /// The request has a part of its body.
    Fed,
    /// The client is gone.
    Closed,
}

impl Http1Connection {
    /// Ends the connection after the request in progress. Returns whether there is none.
    fn stop(&mut self) -> bool {
        self.is_stopping = true;
        if let ConnectionStep::Request(request) = &mut self.step {
            request.progress.kind.is_persistent = false;
        }
        matches!(self.step, ConnectionStep::Head { .. }) && self.input.is_empty()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ConnectionEnd> {
        loop {
            let end = match &mut self.step {
                ConnectionStep::Head { is_complete: true } => self.take_head(),
                ConnectionStep::Head { is_complete: false } => ready!(self.poll_head(context)),
                ConnectionStep::Request(_) => ready!(self.poll_request(context)),
                ConnectionStep::Response(..) => ready!(self.poll_response(context)),
                ConnectionStep::End => Some(ConnectionEnd::Closed),
            };
            if let Some(end) = end {
                return Poll::Ready(end);
            }
        }
    }

    /// Reads more of a head.
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Option<ConnectionEnd>> {
        let before = self.input.len();
        Poll::Ready(match ready!(self.poll_read(context, None)) {
            Ok(1..) => {
                // A head that comes in many parts is not parsed for each of them.
                let has_line = memchr::memchr(b'\n', &self.input[before..]).is_some();
                self.step = ConnectionStep::Head { is_complete: has_line || self.input.len() >= MAX_HEAD_BYTES };
                None
            }
            Ok(0) | Err(_) => Some(ConnectionEnd::Closed),
        })
    }

    /// Begins with the next request, if its head was read.
    fn take_head(&mut self) -> Option<ConnectionEnd> {
        self.step = match head::parse(&mut self.input) {
            Ok(None) => ConnectionStep::Head { is_complete: false },
            Ok(Some(head)) => self.begin(head),
            Err(error) => self.refuse(error),
        };
        None
    }

    fn begin(&mut self, head: RequestHead) -> ConnectionStep {
        let RequestHead { parts, marks, body, is_persistent, expects_continue, has_trailers } = head;
        let kind = RequestKind {
            method: parts.method.clone(),
            version: parts.version,
            is_persistent: is_persistent && !self.is_stopping,
            has_trailers,
        };
        let (source, body) = match body {
            None => (None, IncomingBody::Whole(Bytes::new())),
            Some(rest) => match rest.take_whole(&mut self.input) {
                Err(_) => return self.refuse(RequestError::Body),
                Ok(Some(whole)) => (None, IncomingBody::Whole(whole)),
                Ok(None) => {
                    let (mut source, body) = BodySource::new(rest);
                    // What came with the head is known before anything is forwarded.
                    source.feed(&mut self.input);
                    (Some(source), IncomingBody::Http1(body))
                }
            },
        };
        let Owner { gateway, client, state, slot } = &self.owner;
        let open = OpenRequest::begin(state.clone(), slot.clone());
        let (gateway, client, state) = (gateway.clone(), client.clone(), state.clone());
        // Boxed, so that a connection without a request takes less memory.
        let response = Box::pin(async move { gateway.respond((parts, marks), body, &client, &state).await });
        let progress = RequestInProgress {
            kind,
            is_client_persistent: is_persistent,
            body: source,
            expects_continue,
            _open: open,
        };
        ConnectionStep::Request(Request { response, progress })
    }

    /// Answers a request whose head does not come. Returns whether there is one; its connection ends with the answer.
    fn refuse_slow_head(&mut self) -> bool {
        let is_waiting = matches!(self.step, ConnectionStep::Head { .. });
        if is_waiting {
            self.is_stopping = true;
            self.step = self.refuse(RequestError::Slow);
        }
        is_waiting
    }

    /// Answers what is no request.
    fn refuse(&mut self, error: RequestError) -> ConnectionStep {
        let Owner { state, slot, .. } = &self.owner;
        let kind =
            RequestKind { method: Method::GET, version: Version::HTTP_11, is_persistent: false, has_trailers: false };
        let open = OpenRequest::begin(state.clone(), slot.clone());
        let progress =
            RequestInProgress { kind, is_client_persistent: true, body: None, expects_continue: false, _open: open };
        self.respond(progress, error.answer().into_response(false))
    }

    fn respond(&mut self, progress: RequestInProgress, response: Response<ResponseBody>) -> ConnectionStep {
        let writer = ResponseWriter::new(response, &progress.kind, std::mem::take(&mut self.writer));
        ConnectionStep::Response(progress, Box::new(writer))
    }

    /// Waits for the response, and reads what the request needs of its body meanwhile.
    fn poll_request(&mut self, context: &mut Context<'_>) -> Poll<Option<ConnectionEnd>> {
        loop {
            let ConnectionStep::Request(request) = &mut self.step else { return Poll::Ready(None) };
            let polled = request.response.as_mut().poll(context);
            self.owner.state.interim.take(self.writer.buffer());
            let Poll::Ready(response) = polled else {
                if let Poll::Ready(Err(_)) = self.poll_write(context) {
                    return Poll::Ready(Some(ConnectionEnd::Closed));
                }
                match ready!(self.poll_input(context)) {
                    Read::Fed => continue,
                    Read::Closed => return Poll::Ready(Some(ConnectionEnd::Closed)),
                }
            };
            if let ConnectionStep::Request(Request { response: _, mut progress }) =
                std::mem::replace(&mut self.step, ConnectionStep::End)
            {
                // A body that nobody reads any more is skipped if it is there; the client may not even send it.
                let is_skipped = |body: &mut BodySource| !body.is_dropped() || body.discard(&mut self.input);
                progress.kind.is_persistent &= progress.body.as_mut().is_none_or(is_skipped);
                self.step = self.respond(progress, response);
            }
            return Poll::Ready(None);
        }
    }

    /// Writes the response, while the request's body may still be read.
    fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<Option<ConnectionEnd>> {
        loop {
            let ConnectionStep::Response(_, writer) = &mut self.step else { return Poll::Ready(None) };
            let written = writer.poll(&mut self.stream, context);
            self.owner.state.set_blocked(writer.is_blocked());
            match written {
                Poll::Ready(Ok(())) => return Poll::Ready(self.finish()),
                Poll::Ready(Err(WriteError::Connection | WriteError::Body)) => {
                    return Poll::Ready(Some(ConnectionEnd::Closed));
                }
                Poll::Pending => match ready!(self.poll_input(context)) {
                    Read::Fed => {}
                    Read::Closed => return Poll::Ready(Some(ConnectionEnd::Closed)),
                },
            }
        }
    }

    /// The response was written.
    fn finish(&mut self) -> Option<ConnectionEnd> {
        let ConnectionStep::Response(mut progress, writer) = std::mem::replace(&mut self.step, ConnectionStep::End)
        else {
            return None;
        };
        if writer.is_upgrade() {
            return Some(ConnectionEnd::Upgraded(Box::new(progress)));
        }
        let is_persistent = writer.is_persistent() && !self.is_stopping;
        let is_read = progress.body.as_mut().is_none_or(|body| body.discard(&mut self.input));
        if !is_persistent || !is_read {
            return Some(ConnectionEnd::Finished { linger: progress.is_client_persistent || !is_read });
        }
        self.writer = writer.into_writer(MAX_IDLE_BYTES);
        if self.input.is_empty() {
            // What it shares with the last request is freed.
            self.input = BytesMut::new();
        }
        self.step = ConnectionStep::Head { is_complete: !self.input.is_empty() };
        None
    }

    /// Reads what a request in progress needs of its body, or sees that the client is gone.
    fn poll_input(&mut self, context: &mut Context<'_>) -> Poll<Read> {
        loop {
            let (ConnectionStep::Request(Request { progress, .. }) | ConnectionStep::Response(progress, _)) =
                &mut self.step
            else {
                return Poll::Ready(Read::Closed);
            };
            let Some(body) = progress.body.as_mut().filter(|body| !body.is_read()) else {
                if self.input.len() >= MAX_AHEAD_BYTES {
                    return Poll::Pending;
                }
                match ready!(self.poll_read(context, None)) {
                    Ok(1..) => continue,
                    Ok(0) | Err(_) => return Poll::Ready(Read::Closed),
                }
            };
            ready!(body.poll_demand(context));
            if body.feed(&mut self.input) {
                return Poll::Ready(Read::Fed);
            }
            let room = body.room(MAX_READ_BYTES);
            if std::mem::take(&mut progress.expects_continue) && matches!(self.step, ConnectionStep::Request(_)) {
                self.writer.buffer().extend_from_slice(CONTINUE);
            }
            if let Poll::Ready(Err(_)) = self.poll_write(context) {
                return Poll::Ready(Read::Closed);
            }
            match ready!(self.poll_read(context, Some(room))) {
                Ok(1..) => {}
                Ok(0) | Err(_) => {
                    if let ConnectionStep::Request(Request { progress, .. }) | ConnectionStep::Response(progress, _) =
                        &mut self.step
                        && let Some(body) = &mut progress.body
                    {
                        body.fail("the client closed the connection before the end of the body");
                    }
                    return Poll::Ready(Read::Fed);
                }
            }
        }
    }

    /// Writes what comes before the response.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.writer.poll_write(&mut self.stream, context, &mut false))?;
        self.writer.poll_flush(&mut self.stream, context)
    }

    fn poll_read(&mut self, context: &mut Context<'_>, room: Option<usize>) -> Poll<io::Result<usize>> {
        let read = ready!(http1::poll_read(&mut self.stream, context, &mut self.input, room))?;
        self.owner.state.received(read);
        Poll::Ready(Ok(read))
    }

    /// Ends the connection in a way that the client gets what was written.
    async fn shut_down(&mut self, linger: bool) {
        if self.stream.shutdown().await.is_err() || !linger {
            return;
        }
        let stream = &mut self.stream;
        let discarded = async {
            let (mut left, mut bytes) = (LINGER_BYTES, vec![0; READ_BYTES]);
            while left > 0
                && let Ok(read @ 1..) = stream.read(&mut bytes).await
            {
                left = left.saturating_sub(read);
            }
        };
        // It is over either way.
        let _ = tokio::time::timeout(LINGER_TIME, discarded).await;
    }
}

#[cfg(test)]
mod tests;
