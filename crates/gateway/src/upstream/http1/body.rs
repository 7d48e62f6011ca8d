//! The bodies of responses. One that was read to its end puts its connection back into the pool.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};

use super::head::ResponseLength;
use super::upload::{Upload, UploadError};
use super::{Http1Connection, MAX_READ_BYTES, UpgradedConnection};
use crate::http1::{ChunkEvent, ChunkReader, READ_BYTES};
use crate::upstream::sender::UpstreamError;
use crate::upstream::server::UpstreamServer;

/// The body of a response, and the connection that it is read from.
pub(crate) struct Http1Body {
    /// `None` when the body has ended.
    connection: Option<Http1Connection>,
    server: Arc<UpstreamServer>,
    /// What is left of the request, if the server answered before it had all of it.
    upload: Option<Box<Upload>>,
    rest: Rest,
    is_persistent: bool,
}

/// What is still to be read.
enum Rest {
    Known(u64),
    Chunks(ChunkReader),
    UntilClose,
    /// Nothing of HTTP.
    Upgraded,
}

type Read = Option<Result<Frame<Bytes>, UpstreamError>>;

impl Http1Body {
    pub(super) fn new(
        connection: Http1Connection,
        server: &Arc<UpstreamServer>,
        upload: Option<Upload>,
        length: ResponseLength,
        is_persistent: bool,
    ) -> Http1Body {
        let rest = match length {
            ResponseLength::Known(length) => Rest::Known(length),
            ResponseLength::Chunked => Rest::Chunks(ChunkReader::Size),
            ResponseLength::Close => Rest::UntilClose,
            ResponseLength::Upgrade => Rest::Upgraded,
        };
        let (connection, server, upload) = (Some(connection), server.clone(), upload.map(Box::new));
        let mut body = Http1Body { connection, server, upload, rest, is_persistent };
        if matches!(body.rest, Rest::Known(0)) {
            body.end();
        }
        body
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.connection.is_none() || matches!(self.rest, Rest::Upgraded)
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.rest {
            Rest::Known(left) => SizeHint::with_exact(left),
            Rest::Upgraded => SizeHint::with_exact(0),
            Rest::Chunks(_) | Rest::UntilClose => SizeHint::new(),
        }
    }

    /// The connection, if it has another protocol from now on.
    pub(crate) fn into_upgraded(self) -> Option<UpgradedConnection> {
        let connection = self.connection.filter(|_| matches!(self.rest, Rest::Upgraded))?;
        Some(connection.into_upgraded())
    }

    /// All of it, if it has been read.
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        let (Rest::Known(length @ 1..), None, Some(connection)) = (&self.rest, &self.upload, &mut self.connection)
        else {
            return None;
        };
        let length = usize::try_from(*length).ok().filter(|length| *length <= connection.input.len())?;
        let whole = connection.input.split_to(length).freeze();
        self.rest = Rest::Known(0);
        self.end();
        Some(whole)
    }

    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Read> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
        if let Some(upload) = &mut self.upload {
            match upload.poll(&mut connection.stream, context) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.upload = None,
                Poll::Ready(Err(UploadError::Body(error))) => return self.fail(UpstreamError::Upload(error)),
                // The server does not want the rest of the request.
                Poll::Ready(Err(UploadError::Connection(_))) => (self.upload, self.is_persistent) = (None, false),
            }
        }
        loop {
            let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
            let room = match self.rest.take(&mut connection.input) {
                Ok(Taken::Frame(frame)) => {
                    if matches!(self.rest, Rest::Known(0) | Rest::Chunks(ChunkReader::End)) {
                        self.end();
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                Ok(Taken::End) => {
                    self.end();
                    return Poll::Ready(None);
                }
                Ok(Taken::Incomplete { room }) => room,
                Err(why) => return self.fail(UpstreamError::Response(why)),
            };
            match connection.poll_read(context, room) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) if matches!(self.rest, Rest::UntilClose) => {
                    self.connection = None;
                    return Poll::Ready(None);
                }
                Poll::Ready(Ok(0)) => {
                    return self.fail(UpstreamError::Connection(io::ErrorKind::UnexpectedEof.into()));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return self.fail(UpstreamError::Connection(error)),
            }
        }
    }

    fn fail(&mut self, error: UpstreamError) -> Poll<Read> {
        self.connection = None;
        Poll::Ready(Some(Err(error)))
    }

    /// The body was read. If the server answered before it had the whole request, its connection is not used again: the next
    /// request would wait for what this client still sends.
    fn end(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if self.is_persistent && self.upload.is_none() && connection.input.is_empty() {
            connection.shrink();
            self.server.pool.put_back(connection);
        }
    }
}

/// What came of a look at what was read.
enum Taken {
    Frame(Frame<Bytes>),
    End,
    /// More has to be read, of which this much is useful.
    Incomplete {
        room: Option<usize>,
    },
}

impl Rest {
    fn take(&mut self, input: &mut BytesMut) -> Result<Taken, &'static str> {
        let room = |left: u64| Some(usize::try_from(left).map_or(MAX_READ_BYTES, |left| left.min(MAX_READ_BYTES)));
        match self {
            Rest::Known(0) | Rest::Upgraded => Ok(Taken::End),
            Rest::Known(left) if input.is_empty() => Ok(Taken::Incomplete { room: room(*left) }),
            Rest::Known(left) => {
                let length = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                *left -= length as u64;
                Ok(Taken::Frame(Frame::data(input.split_to(length).freeze())))
            }
            Rest::Chunks(reader) => Ok(match reader.next(input)? {
                ChunkEvent::Data(data) => Taken::Frame(Frame::data(data)),
                ChunkEvent::Trailers(trailers) => Taken::Frame(Frame::trailers(trailers)),
                ChunkEvent::End => Taken::End,
                ChunkEvent::Incomplete => Taken::Incomplete { room: room(reader.left().max(READ_BYTES as u64)) },
            }),
            Rest::UntilClose if input.is_empty() => Ok(Taken::Incomplete { room: Some(READ_BYTES) }),
            Rest::UntilClose => Ok(Taken::Frame(Frame::data(input.split().freeze()))),
        }
    }
}
