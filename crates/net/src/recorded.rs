//! A connection whose first message is read along while the handshake reads it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::fingerprint::{self, HelloState, MAX_HELLO_BYTES};

/// A connection under TLS, with the fingerprint of its client.
#[derive(Debug)]
pub struct Recorded<S> {
    inner: S,
    hello: Recording,
}

#[derive(Debug)]
enum Recording {
    Running(Vec<u8>),
    Ended(Option<Box<str>>),
}

impl<S> Recorded<S> {
    pub(crate) fn new(inner: S) -> Recorded<S> {
        Recorded { inner, hello: Recording::Running(Vec::new()) }
    }

    pub(crate) fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The JA4 fingerprint of the client, after the handshake. `None` if its first message was too long.
    pub(crate) fn fingerprint(&self) -> Option<&str> {
        match &self.hello {
            Recording::Running(_) => None,
            Recording::Ended(fingerprint) => fingerprint.as_deref(),
        }
    }
}

impl Recording {
    fn add(&mut self, bytes: &[u8]) {
        let Recording::Running(recorded) = self else { return };
        recorded.extend_from_slice(bytes);
        match fingerprint::read(recorded) {
            HelloState::Complete(fingerprint) => *self = Recording::Ended(fingerprint),
            HelloState::Incomplete if recorded.len() > MAX_HELLO_BYTES => *self = Recording::Ended(None),
            HelloState::Incomplete => {}
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Recorded<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let filled = buffer.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(cx, buffer);
        if matches!(this.hello, Recording::Running(_)) {
            this.hello.add(&buffer.filled()[filled..]);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Recorded<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
