//! A client's connection as hyper reads it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate_net::Stream;

use super::PREFACE;
use crate::activity::ConnectionState;

/// A stream whose preface was read before, and is given back to hyper.
pub(super) struct Http2Stream {
    stream: Stream,
    /// How much of the preface was given back.
    given_back: usize,
    state: Arc<ConnectionState>,
}

impl Http2Stream {
    pub(super) fn new(stream: Stream, state: Arc<ConnectionState>) -> Http2Stream {
        Http2Stream { stream, given_back: 0, state }
    }

    /// Notes whether the client reads.
    fn note<T>(&self, written: Poll<T>) -> Poll<T> {
        self.state.set_blocked(written.is_pending());
        written
    }
}

impl AsyncRead for Http2Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = &PREFACE[this.given_back..];
        if !before.is_empty() {
            let count = before.len().min(buffer.remaining());
            buffer.put_slice(&before[..count]);
            this.given_back += count;
            return Poll::Ready(Ok(()));
        }
        let filled = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        this.state.received(buffer.filled().len() - filled);
        read
    }
}

impl AsyncWrite for Http2Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.note(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.note(flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
