//! HTTP/1.1 to servers, by the task of the request that uses a connection.
//!
//! A connection has no task of its own, so a request passes no channel and wakes nobody on its way, and its head stays where it
//! is until there is a response: it can be sent again without a copy. ADR 0044 has the figures.

mod body;
mod head;
mod upload;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::pool::CountedConnection;
use super::sender::{RequestHead, SendError, UpstreamError};
use super::server::UpstreamServer;
use super::stream::ServerStream;
use crate::forwarded_body::ForwardedBody;
use crate::http1;
pub(crate) use body::Http1Body;
use bytes::{Bytes, BytesMut};
use head::{ResponseHead, parse};
use http::{Response, StatusCode};
use upload::{Upload, UploadError};

/// The largest head of a response, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Responses of a status 1xx before the one that counts.
const MAX_INTERIM: usize = 16;
/// The most that is read at once.
const MAX_READ_BYTES: usize = 64 * 1024;
/// What an unused connection may keep of its buffers.
const MAX_UNUSED_BYTES: usize = 16 * 1024;

/// A connection that one request uses at a time.
pub(crate) struct Http1Connection {
    stream: ServerStream,
    /// What was read and is not used yet.
    input: BytesMut,
    /// Room for what is written.
    output: Vec<u8>,
    /// When it was made, in microseconds of the pool's clock.
    pub(super) born: u64,
    _counted: CountedConnection,
}

/// A connection that has another protocol from now on.
pub(crate) struct UpgradedConnection {
    pub(crate) stream: ServerStream,
    /// The first bytes of that protocol.
    pub(crate) read: Bytes,
}

impl Http1Connection {
    pub(super) fn new(stream: ServerStream, born: u64, counted: CountedConnection) -> Http1Connection {
        Http1Connection { stream, input: BytesMut::new(), output: Vec::new(), born, _counted: counted }
    }

    /// Whether an unused connection can be used: the server has neither closed it nor sent anything on it.
    pub(super) fn is_alive(&mut self) -> bool {
        self.stream.is_quiet()
    }

    /// The same for a connection that has just been used, which the server has probably not closed.
    pub(super) fn seems_alive(&mut self) -> bool {
        self.stream.seems_quiet()
    }

    /// Sends a request, and returns the head of the response. The body of the response has the connection.
    pub(super) async fn send(
        mut self,
        server: &Arc<UpstreamServer>,
        head: &RequestHead,
        body: ForwardedBody,
    ) -> Result<Response<Http1Body>, SendError> {
        let mut upload = Some(Upload::new(head, body, std::mem::take(&mut self.output)));
        let mut interim = 0;
        let exchanged = poll_fn(|context| self.poll_exchange(context, &mut upload, head, &mut interim)).await;
        match exchanged {
            Ok(response) => {
                let ResponseHead { status, headers, is_persistent, length } = response;
                let mut response = Response::new(Http1Body::new(self, server, upload, length, is_persistent));
                (*response.status_mut(), *response.headers_mut()) = (status, headers);
                Ok(response)
            }
            Err(error) => {
                let is_closed = matches!(error, UpstreamError::Connection(_));
                let is_stale = is_closed && interim == 0 && self.input.is_empty();
                let unsent = upload.filter(|_| is_closed).and_then(Upload::unsent);
                Err(SendError { unsent, is_unprocessed: false, is_stale, error })
            }
        }
    }

    /// Writes the request and reads the head of the response, whichever is possible.
    fn poll_exchange(
        &mut self,
        context: &mut Context<'_>,
        upload: &mut Option<Upload>,
        request: &RequestHead,
        interim: &mut usize,
    ) -> Poll<Result<ResponseHead, UpstreamError>> {
        let mut failed = None;
        if let Some(running) = upload {
            match running.poll(&mut self.stream, context) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.output = upload.take().map(Upload::into_buffer).unwrap_or_default(),
                Poll::Ready(Err(UploadError::Body(error))) => return Poll::Ready(Err(UpstreamError::Upload(error))),
                // It may have answered before it closed the connection.
                Poll::Ready(Err(UploadError::Connection(error))) => failed = Some(error),
            }
        }
        loop {
            match parse(&mut self.input, &request.method) {
                Ok(Some(head)) if is_interim(head.status) && *interim < MAX_INTERIM => {
                    *interim += 1;
                    if let Some(client) = &request.interim {
                        client.interim.pass(head.status, head.headers);
                    }
                    continue;
                }
                Ok(Some(head)) if is_interim(head.status) => {
                    return Poll::Ready(Err(UpstreamError::Response("too many responses of a status 1xx")));
                }
                Ok(Some(head)) => return Poll::Ready(Ok(head)),
                Ok(None) if self.input.len() >= MAX_HEAD_BYTES => {
                    return Poll::Ready(Err(UpstreamError::Response("the head of the response is too long")));
                }
                Ok(None) => {}
                Err(why) => return Poll::Ready(Err(UpstreamError::Response(why))),
            }
            let read = match (self.poll_read(context, None), failed.take()) {
                (Poll::Pending, None) => return Poll::Pending,
                (Poll::Pending, Some(error)) => Err(error),
                (Poll::Ready(read), None) => read,
                (Poll::Ready(read), Some(error)) => match read {
                    Ok(1..) => read,
                    _ => Err(error),
                },
            };
            match read {
                Ok(0) => return Poll::Ready(Err(UpstreamError::Connection(io::ErrorKind::UnexpectedEof.into()))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(UpstreamError::Connection(error))),
            }
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>, room: Option<usize>) -> Poll<io::Result<usize>> {
        http1::poll_read(&mut self.stream, context, &mut self.input, room)
    }

    /// Frees what a connection that is not used does not need.
    fn shrink(&mut self) {
        if self.input.capacity() > MAX_UNUSED_BYTES {
            self.input = BytesMut::new();
        }
        if self.output.capacity() > MAX_UNUSED_BYTES {
            self.output = Vec::new();
        }
    }

    /// The stream, and what was read of it.
    fn into_upgraded(self) -> UpgradedConnection {
        UpgradedConnection { stream: self.stream, read: self.input.freeze() }
    }
}

/// Whether another response follows.
fn is_interim(status: StatusCode) -> bool {
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}

#[cfg(test)]
mod tests;
