//! Writes a response: its head, and its body as it comes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::response::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Version};
use http_body::{Body as _, Frame};
use tollgate_net::Stream;

use crate::clock;
use crate::http1::{MessageWriter, number, write_field, write_length};
use crate::response_body::ResponseBody;

/// A response that is being written.
pub(super) struct ResponseWriter {
    writer: MessageWriter,
    /// `None` when it has ended.
    body: Option<ResponseBody>,
    length: BodyLength,
    /// Whether the client reads trailers.
    has_trailers: bool,
    /// Whether the body ended too early. What came of it is still written.
    has_failed: bool,
    /// Whether the client does not read what was written.
    is_blocked: bool,
    is_upgrade: bool,
    is_persistent: bool,
}

/// What of its request matters to a response.
#[derive(Clone, Debug)]
pub(super) struct RequestKind {
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) is_persistent: bool,
    pub(super) has_trailers: bool,
}

/// How the client knows the end of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyLength {
    /// There is none, whatever the head says.
    None,
    Known(u64),
    Chunked,
    /// The connection ends.
    Close,
}

/// Why a response is not written to its end.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The client is gone.
    Connection,
    /// The body failed. What came of it was written.
    Body,
}

impl ResponseWriter {
    /// A response, with a buffer that was used before.
    pub(super) fn new(
        response: Response<ResponseBody>,
        request: &RequestKind,
        mut writer: MessageWriter,
    ) -> ResponseWriter {
        let (head, body) = response.into_parts();
        let length = body_length(&head, &body, request);
        let is_closing = head.headers.get(CONNECTION).is_some_and(|value| value == "close");
        let is_persistent = request.is_persistent && !is_closing && length != BodyLength::Close;
        // The length of the body that a GET would get. A body that passes through is empty here.
        let own_length = body.size_hint().exact().filter(|length| *length > 0);
        write_head(&head, request, length, own_length, is_persistent, writer.buffer());
        let mut response = ResponseWriter {
            writer,
            body: None,
            length,
            has_trailers: request.has_trailers,
            has_failed: false,
            is_blocked: false,
            is_upgrade: head.status == StatusCode::SWITCHING_PROTOCOLS,
            is_persistent,
        };
        match length {
            BodyLength::None | BodyLength::Known(0) => {}
            _ if body.is_end_stream() => response.end(None),
            _ => response.body = Some(body),
        }
        response
    }

    /// Writes as much as is possible. It is ready when everything was written.
    pub(super) fn poll(&mut self, stream: &mut Stream, context: &mut Context<'_>) -> Poll<Result<(), WriteError>> {
        loop {
            // The first part of a body mostly came with the head: then both are written at once.
            let is_waiting = !self.writer.has_part() && self.poll_part(context).is_pending();
            let written = self.writer.poll_write(stream, context, &mut false);
            self.is_blocked = written.is_pending();
            ready!(written).map_err(|_| WriteError::Connection)?;
            if is_waiting || self.body.is_none() {
                ready!(self.writer.poll_flush(stream, context)).map_err(|_| WriteError::Connection)?;
                return match (is_waiting, self.has_failed) {
                    (true, _) => Poll::Pending,
                    (false, true) => Poll::Ready(Err(WriteError::Body)),
                    (false, false) => Poll::Ready(Ok(())),
                };
            }
        }
    }

    /// Reads the next part of the body.
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(body) = &mut self.body else { return Poll::Ready(()) };
        match ready!(Pin::new(&mut *body).poll_frame(context)) {
            Some(Ok(frame)) => {
                let is_last = body.is_end_stream();
                self.encode(frame, is_last);
            }
            Some(Err(_)) => self.fail(),
            None => self.end(None),
        }
        Poll::Ready(())
    }

    fn encode(&mut self, frame: Frame<Bytes>, is_last: bool) {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => return self.end(frame.into_trailers().ok().filter(|_| self.has_trailers).as_ref()),
        };
        match &mut self.length {
            BodyLength::Known(left) => match left.checked_sub(data.len() as u64) {
                Some(rest) => {
                    *left = rest;
                    self.writer.data(data);
                }
                None => return self.fail(),
            },
            BodyLength::Chunked => self.writer.chunk(data, is_last),
            BodyLength::Close => self.writer.data(data),
            BodyLength::None => {}
        }
        if is_last {
            self.body = None;
            self.has_failed = matches!(self.length, BodyLength::Known(1..));
        }
    }

    /// The body has ended.
    fn end(&mut self, trailers: Option<&HeaderMap>) {
        self.body = None;
        match self.length {
            BodyLength::Chunked => self.writer.last_chunk(trailers),
            // It is shorter than the head says.
            BodyLength::Known(1..) => self.has_failed = true,
            BodyLength::None | BodyLength::Known(0) | BodyLength::Close => {}
        }
    }

    fn fail(&mut self) {
        (self.body, self.has_failed) = (None, true);
    }

    /// Whether something waits until the client reads.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Whether the connection has another protocol after it.
    pub(super) fn is_upgrade(&self) -> bool {
        self.is_upgrade
    }

    /// Whether the connection can be used again.
    pub(super) fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// What was written with, for the next response. Buffers of more bytes than `most` are freed.
    pub(super) fn into_writer(self, most: usize) -> MessageWriter {
        let buffer = self.writer.into_buffer();
        MessageWriter::new(if buffer.capacity() > most { Vec::new() } else { buffer })
    }
}

/// How the client knows the end of the body (RFC 9112 6.3).
fn body_length(head: &Parts, body: &ResponseBody, request: &RequestKind) -> BodyLength {
    let has_none = request.method == Method::HEAD
        || head.status.is_informational()
        || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if has_none {
        return BodyLength::None;
    }
    let stated = head.headers.get(CONTENT_LENGTH).and_then(|value| number(value.as_bytes()));
    match stated.or_else(|| body.size_hint().exact()) {
        Some(length) => BodyLength::Known(length),
        None if request.version == Version::HTTP_11 => BodyLength::Chunked,
        None => BodyLength::Close,
    }
}

fn write_head(
    head: &Parts,
    request: &RequestKind,
    length: BodyLength,
    own_length: Option<u64>,
    is_persistent: bool,
    output: &mut Vec<u8>,
) {
    output.extend_from_slice(b"HTTP/1.1 ");
    output.extend_from_slice(head.status.as_str().as_bytes());
    output.push(b' ');
    output.extend_from_slice(head.status.canonical_reason().unwrap_or_default().as_bytes());
    output.extend_from_slice(b"\r\n");
    let is_upgrade = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let has_length = length == BodyLength::None && !is_upgrade && head.status != StatusCode::NO_CONTENT;
    for (name, value) in &head.headers {
        let is_left_out = (*name == CONNECTION && !is_upgrade)
            || *name == TRANSFER_ENCODING
            // Of a response to HEAD, and of 304, it is that of another one.
            || (*name == CONTENT_LENGTH && !has_length);
        if !is_left_out {
            write_field(name, value, output);
        }
    }
    match length {
        BodyLength::Known(length) => write_length(length, output),
        BodyLength::Chunked => output.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        BodyLength::None if has_length && !head.headers.contains_key(CONTENT_LENGTH) => {
            own_length.into_iter().for_each(|length| write_length(length, output));
        }
        BodyLength::None | BodyLength::Close => {}
    }
    match (is_persistent, request.version) {
        _ if is_upgrade => {}
        (false, _) => output.extend_from_slice(b"connection: close\r\n"),
        (true, Version::HTTP_10) => output.extend_from_slice(b"connection: keep-alive\r\n"),
        (true, _) => {}
    }
    if !head.headers.contains_key(DATE) {
        clock::with_date(|date| {
            output.extend_from_slice(b"date: ");
            output.extend_from_slice(date);
            output.extend_from_slice(b"\r\n");
        });
    }
    output.extend_from_slice(b"\r\n");
}
