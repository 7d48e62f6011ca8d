//! A connection on which h2 writes the frames of several responses together.
//!
//! h2 copies the data of a frame into the buffer of frames before it if that is short, and otherwise writes it by itself. On
//! a connection that can write several slices at a time, short is less than 256 bytes, which a response with headers for
//! the client exceeds: every response would be a write of its own, which costs more than its decision. On any other
//! connection, short is less than 1 KiB.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that does not write several slices at a time.
#[derive(Debug)]
pub(super) struct Gathering<S>(pub(super) S);

impl<S: Unpin> Gathering<S> {
    fn inner(self: Pin<&mut Self>) -> Pin<&mut S> {
        Pin::new(&mut self.get_mut().0)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathering<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathering<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.inner().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use tokio::io::DuplexStream;

    use super::*;

    /// Counts writes, and can write slices, as a socket does.
    struct Counted {
        stream: DuplexStream,
        writes: Arc<AtomicUsize>,
    }

    impl AsyncRead for Counted {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_read(cx, buffer)
        }
    }

    impl AsyncWrite for Counted {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut self.stream).poll_write(cx, bytes)
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            slices: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }

    /// The writes of responses to 16 calls that arrived together.
    async fn writes<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(wrap: impl FnOnce(Counted) -> S) -> usize {
        const CALLS: usize = 16;
        let (client, server) = tokio::io::duplex(1 << 20);
        let writes = Arc::new(AtomicUsize::new(0));
        let server = wrap(Counted { stream: server, writes: writes.clone() });
        let serving = tokio::spawn(async move {
            let mut connection = h2::server::handshake(server).await.unwrap();
            let mut calls = Vec::new();
            while calls.len() < CALLS {
                calls.push(connection.accept().await.unwrap().unwrap().1);
            }
            let before = writes.load(Ordering::Relaxed);
            for mut respond in calls {
                let mut stream = respond.send_response(http::Response::new(()), false).unwrap();
                stream.send_data(Bytes::from(vec![b'x'; 600]), true).unwrap();
            }
            while connection.accept().await.is_some() {}
            writes.load(Ordering::Relaxed) - before
        });
        let (mut send, connection) = h2::client::handshake(client).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = || http::Request::post("http://localhost/").body(()).unwrap();
        let responses: Vec<_> = (0..CALLS).map(|_| send.send_request(request(), true).unwrap().0).collect();
        for response in responses {
            let mut body = response.await.unwrap().into_body();
            while let Some(data) = body.data().await {
                assert!(!data.unwrap().is_empty());
            }
        }
        drop(send);
        connection.await.unwrap().unwrap();
        serving.await.unwrap()
    }

    #[tokio::test]
    async fn responses_are_written_together() {
        let (gathered, separate) = (writes(Gathering).await, writes(|stream| stream).await);
        // With what ends the connection.
        assert!(gathered <= 4, "{gathered} writes for 16 responses");
        assert!(separate >= 16, "{separate} writes: the wrapper is no longer needed");
    }
}
