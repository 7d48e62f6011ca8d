//! A connection of which the beginning was read already.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate_net::Stream;

/// Reads what was read before, then the connection.
#[derive(Debug)]
pub(in crate::http) struct Rewound {
    before: Bytes,
    stream: Stream,
}

impl Rewound {
    pub(in crate::http) fn new(before: Bytes, stream: Stream) -> Rewound {
        Rewound { before, stream }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut Stream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl AsyncRead for Rewound {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.before.is_empty() {
            return self.stream().poll_read(cx, buffer);
        }
        let length = self.before.len().min(buffer.remaining());
        buffer.put_slice(&self.before[..length]);
        self.before.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
