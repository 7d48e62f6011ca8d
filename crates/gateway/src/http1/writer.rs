//! Writes messages: what was encoded, and parts of bodies from where they are.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use tokio::io::AsyncWrite;

use super::fields::write_field;

/// What is still to be written of a message.
#[derive(Debug, Default)]
pub(crate) struct MessageWriter {
    /// Is written first, from `written` on.
    buffer: Vec<u8>,
    written: usize,
    /// A part of the body: is written next.
    part: Bytes,
    /// And then this.
    suffix: &'static [u8],
    /// Whether what was written is still to be flushed.
    is_buffered: bool,
}

impl MessageWriter {
    /// Writes into a buffer that was used before.
    pub(crate) fn new(mut buffer: Vec<u8>) -> MessageWriter {
        buffer.clear();
        MessageWriter { buffer, ..MessageWriter::default() }
    }

    /// Where heads are encoded. Nothing may wait but other heads.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.part.is_empty() && self.suffix.is_empty(), "a part of a body waits");
        &mut self.buffer
    }

    /// A part of a body whose length is known. What was given before has to be written first, but for heads.
    pub(crate) fn data(&mut self, data: Bytes) {
        debug_assert!(self.part.is_empty() && self.suffix.is_empty(), "a part of a body waits");
        self.part = data;
    }

    /// A part of a body in chunks, and the end of the body if it is the last one.
    pub(crate) fn chunk(&mut self, data: Bytes, is_last: bool) {
        match (data.is_empty(), is_last) {
            (true, false) => {}
            (true, true) => self.last_chunk(None),
            (false, _) => {
                write_size(data.len(), self.buffer());
                self.part = data;
                self.suffix = if is_last { &b"\r\n0\r\n\r\n"[..] } else { b"\r\n" };
            }
        }
    }

    /// The end of a body in chunks, with trailers.
    pub(crate) fn last_chunk(&mut self, trailers: Option<&HeaderMap>) {
        let buffer = self.buffer();
        buffer.extend_from_slice(b"0\r\n");
        for (name, value) in trailers.into_iter().flatten() {
            write_field(name, value, buffer);
        }
        buffer.extend_from_slice(b"\r\n");
    }

    /// Whether a part of a body waits.
    pub(crate) fn has_part(&self) -> bool {
        !self.part.is_empty() || !self.suffix.is_empty()
    }

    /// Writes everything. Sets `has_begun` when a byte was written.
    pub(crate) fn poll_write(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        context: &mut Context<'_>,
        has_begun: &mut bool,
    ) -> Poll<io::Result<()>> {
        loop {
            let buffered = self.buffer.get(self.written..).unwrap_or_default();
            let written = match (buffered.is_empty(), self.has_part()) {
                (true, false) => {
                    self.buffer.clear();
                    self.written = 0;
                    return Poll::Ready(Ok(()));
                }
                (false, false) => ready!(Pin::new(&mut *stream).poll_write(context, buffered))?,
                (_, true) => {
                    let slices = [IoSlice::new(buffered), IoSlice::new(&self.part), IoSlice::new(self.suffix)];
                    let first = usize::from(buffered.is_empty());
                    let end = slices.len() - usize::from(self.suffix.is_empty());
                    ready!(Pin::new(&mut *stream).poll_write_vectored(context, &slices[first..end]))?
                }
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            (*has_begun, self.is_buffered) = (true, true);
            self.advance(written);
        }
    }

    pub(crate) fn poll_flush(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_buffered {
            ready!(Pin::new(stream).poll_flush(context))?;
            self.is_buffered = false;
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, bytes: usize) {
        let buffered = bytes.min(self.buffer.len() - self.written);
        self.written += buffered;
        let part = (bytes - buffered).min(self.part.len());
        self.part.advance(part);
        self.suffix = self.suffix.get(bytes - buffered - part..).unwrap_or_default();
    }

    /// The part of a body that waits.
    pub(crate) fn into_part(self) -> Bytes {
        self.part
    }

    /// The buffer, for another message.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}

/// The line before a chunk.
fn write_size(size: usize, output: &mut Vec<u8>) {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    output.extend((0..digits).rev().map(|digit| b"0123456789abcdef"[(size >> (4 * digit)) & 15]));
    output.extend_from_slice(b"\r\n");
}
