//! Writes a request: its head, and its body as it comes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method};
use http_body::{Body as _, Frame};

use super::head::{self, RequestLength};
use crate::forwarded_body::{BodyError, ForwardedBody};
use crate::http1::{MessageWriter, number};
use crate::upstream::sender::RequestHead;
use crate::upstream::stream::ServerStream;

/// A request that is being written.
pub(super) struct Upload {
    writer: MessageWriter,
    /// `None` if all of it was read.
    body: Option<ForwardedBody>,
    length: RequestLength,
    /// Whether the server may have got anything.
    has_begun: bool,
}

/// Why the rest of a request is not written.
#[derive(Debug)]
pub(super) enum UploadError {
    Connection(io::Error),
    /// The client's part of it.
    Body(BodyError),
}

impl Upload {
    /// A request, with room for its head.
    pub(super) fn new(head: &RequestHead, body: ForwardedBody, buffer: Vec<u8>) -> Upload {
        let length = request_length(head, &body);
        let mut writer = MessageWriter::new(buffer);
        head::write(head, length, writer.buffer());
        let body = match body {
            ForwardedBody::Whole(bytes) => {
                writer.data(bytes.unwrap_or_default());
                None
            }
            frames => Some(frames),
        };
        Upload { writer, body, length, has_begun: false }
    }

    /// Writes as much as is possible. It is ready when everything was written.
    pub(super) fn poll(
        &mut self,
        stream: &mut ServerStream,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), UploadError>> {
        // The first part of a body mostly came with the head: then both are written at once.
        if !self.has_begun && !self.writer.has_part() {
            match self.poll_part(context) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
        loop {
            let written = self.writer.poll_write(stream, context, &mut self.has_begun);
            ready!(written).map_err(UploadError::Connection)?;
            let is_read = match &self.body {
                None => true,
                Some(_) => match self.poll_part(context) {
                    Poll::Ready(read) => {
                        read?;
                        continue;
                    }
                    Poll::Pending => false,
                },
            };
            ready!(self.writer.poll_flush(stream, context)).map_err(UploadError::Connection)?;
            return if is_read { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
    }

    /// Reads the next part of the body.
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Ok(())) };
        match ready!(Pin::new(&mut *body).poll_frame(context)) {
            Some(Ok(frame)) => self.encode(frame)?,
            Some(Err(error)) => return Poll::Ready(Err(UploadError::Body(error))),
            None => self.finish(None)?,
        }
        Poll::Ready(Ok(()))
    }

    fn encode(&mut self, frame: Frame<Bytes>) -> Result<(), UploadError> {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => return self.finish(frame.into_trailers().ok()),
        };
        match &mut self.length {
            RequestLength::Chunked => self.writer.chunk(data, false),
            RequestLength::Known(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(UploadError::Body(BodyError::WrongLength))?;
                self.writer.data(data);
            }
            RequestLength::None => {}
        }
        Ok(())
    }

    /// The body has ended.
    fn finish(&mut self, trailers: Option<HeaderMap>) -> Result<(), UploadError> {
        self.body = None;
        match self.length {
            RequestLength::Known(1..) => return Err(UploadError::Body(BodyError::WrongLength)),
            RequestLength::Known(0) | RequestLength::None => {}
            RequestLength::Chunked => self.writer.last_chunk(trailers.as_ref()),
        }
        Ok(())
    }

    /// The body, if the server got nothing of the request.
    pub(super) fn unsent(self) -> Option<ForwardedBody> {
        if self.has_begun {
            return None;
        }
        let part = self.writer.into_part();
        match self.body {
            Some(mut body) => {
                body.put_back(part);
                Some(body)
            }
            None => Some(ForwardedBody::whole(part)),
        }
    }

    /// Its room, for another request.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.writer.into_buffer()
    }
}

/// How the server knows the end of the body.
fn request_length(head: &RequestHead, body: &ForwardedBody) -> RequestLength {
    let stated = head.headers.get(CONTENT_LENGTH).and_then(|value| number(value.as_bytes()));
    match body {
        ForwardedBody::Whole(Some(bytes)) => RequestLength::Known(bytes.len() as u64),
        // Servers expect a length of methods that mostly have a body.
        ForwardedBody::Whole(None) => {
            let has_length = stated.is_some() || matches!(head.method, Method::POST | Method::PUT | Method::PATCH);
            if has_length { RequestLength::Known(0) } else { RequestLength::None }
        }
        ForwardedBody::Trailing(_) | ForwardedBody::Streamed(_) | ForwardedBody::Lent(_) => {
            stated.map_or(RequestLength::Chunked, RequestLength::Known)
        }
    }
}
