//! A client's connection as hyper reads it.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate_net::Stream;

use crate::activity::ConnectionState;
use crate::framing::FramingScanner;

/// A stream whose first bytes were read before, and whose requests are scanned.
pub(super) struct ClientStream {
    before: Vec<u8>,
    stream: Stream,
    /// `None` for HTTP/2, which has one framing.
    scanner: Option<FramingScanner>,
    state: Arc<ConnectionState>,
    /// Whether bytes wait until the client reads.
    is_blocked: bool,
    lingering: Option<Box<Lingering>>,
}

/// The end of a connection whose client still sends: what it sends is discarded for a while. Unread bytes would make the
/// end a reset, which may destroy the response before the client has read it.
struct Lingering {
    sleep: Pin<Box<tokio::time::Sleep>>,
    /// The bytes that may still come.
    left: usize,
}

/// How long, and for how many bytes, the end of a connection waits for its client.
const LINGER_TIME: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1 << 20;
/// The bytes that are discarded at once.
const DISCARDED_BYTES: usize = 8 * 1024;

impl ClientStream {
    pub(super) fn http1(before: Vec<u8>, stream: Stream, state: Arc<ConnectionState>) -> ClientStream {
        ClientStream {
            before,
            stream,
            scanner: Some(FramingScanner::default()),
            state,
            is_blocked: false,
            lingering: None,
        }
    }

    /// After the preface, which is given back to hyper.
    pub(super) fn http2(stream: Stream, state: Arc<ConnectionState>) -> ClientStream {
        ClientStream {
            before: super::PREFACE.to_vec(),
            stream,
            scanner: None,
            state,
            is_blocked: false,
            lingering: None,
        }
    }

    /// Notes whether the client reads.
    fn note<T>(&mut self, written: Poll<T>) -> Poll<T> {
        if written.is_pending() != self.is_blocked {
            self.is_blocked = !self.is_blocked;
            self.state.set_blocked(self.is_blocked);
        }
        written
    }

    /// Discards what the client sends, until it ends or for a while.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let new = || Box::new(Lingering { sleep: Box::pin(tokio::time::sleep(LINGER_TIME)), left: LINGER_BYTES });
        let lingering = self.lingering.get_or_insert_with(new);
        let mut bytes = [0; DISCARDED_BYTES];
        while lingering.left > 0 {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Pending => return lingering.sleep.as_mut().poll(context),
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    lingering.left = lingering.left.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(())
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.before.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = self.before.len().min(buffer.remaining());
        buffer.put_slice(&self.before[..count]);
        self.before.drain(..count);
        if self.before.is_empty() {
            self.before = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let filled = buffer.filled().len();
        let read = this.poll_bytes(context, buffer);
        let new = &buffer.filled()[filled..];
        if !new.is_empty() {
            this.state.received(new.len());
            if let Some(scanner) = &mut this.scanner {
                if this.state.is_upgraded() {
                    scanner.stop();
                }
                scanner.read(new);
                if scanner.is_ambiguous() {
                    this.state.set_ambiguous();
                }
            }
        }
        read
    }
}

impl AsyncWrite for ClientStream {
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
        let this = self.get_mut();
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
        }
        match this.scanner.as_ref().is_some_and(FramingScanner::is_within_message) {
            true => this.poll_linger(context).map(Ok),
            false => Poll::Ready(Ok(())),
        }
    }
}
