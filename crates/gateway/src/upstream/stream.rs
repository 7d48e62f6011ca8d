//! Connections to servers, of all kinds behind one type.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use rustls::ClientConnection;
use socket2::{SockRef, Socket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A connection to a server.
pub(crate) enum ServerStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    TlsTcp(Box<TlsStream<TcpStream>>),
    TlsUnix(Box<TlsStream<UnixStream>>),
}

/// Reads that bring only what is for the session, after which a connection is not used again.
const MAX_SILENT_READS: usize = 16;

impl ServerStream {
    /// Whether the server has neither closed the connection nor sent anything that was not read. It is a system call, so it
    /// sees what the runtime has not seen yet.
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let peeked = match self {
            ServerStream::Tcp(stream) => SockRef::from(&*stream).peek(&mut byte),
            ServerStream::Unix(stream) => SockRef::from(&*stream).peek(&mut byte),
            ServerStream::TlsTcp(stream) => {
                let (stream, session) = stream.get_mut();
                return is_silent(&SockRef::from(&*stream), session);
            }
            ServerStream::TlsUnix(stream) => {
                let (stream, session) = stream.get_mut();
                return is_silent(&SockRef::from(&*stream), session);
            }
        };
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// The same, as far as the runtime and the TLS session know. It makes no system call.
    pub(super) fn seems_quiet(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        match self {
            ServerStream::Tcp(stream) => stream.poll_read_ready(&mut context).is_pending(),
            ServerStream::Unix(stream) => stream.poll_read_ready(&mut context).is_pending(),
            ServerStream::TlsTcp(stream) => {
                let (stream, session) = stream.get_mut();
                stream.poll_read_ready(&mut context).is_pending() && has_nothing(session)
            }
            ServerStream::TlsUnix(stream) => {
                let (stream, session) = stream.get_mut();
                stream.poll_read_ready(&mut context).is_pending() && has_nothing(session)
            }
        }
    }
}

/// Whether there is nothing to read of a TLS connection. What is only for the session, such as tickets and new keys, servers
/// may send at any time: it is processed.
fn is_silent(mut socket: &Socket, session: &mut ClientConnection) -> bool {
    for _ in 0..MAX_SILENT_READS {
        if !has_nothing(session) {
            return false;
        }
        match session.read_tls(&mut socket) {
            Ok(1..) => {}
            Ok(0) => return false,
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    false
}

/// Whether a session has no text that was not read, no end and no error.
fn has_nothing(session: &mut ClientConnection) -> bool {
    session.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed())
}

/// Calls a method on the inner stream.
macro_rules! each {
    ($stream:expr, $method:ident($($argument:expr),*)) => {
        match $stream {
            ServerStream::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            ServerStream::Unix(stream) => Pin::new(stream).$method($($argument),*),
            ServerStream::TlsTcp(stream) => Pin::new(stream).$method($($argument),*),
            ServerStream::TlsUnix(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for ServerStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), poll_read(cx, buffer))
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests;
