//! Connections of all kinds behind one type.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use crate::recorded::Recorded;

/// An accepted connection.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    TlsTcp(Box<TlsStream<Recorded<TcpStream>>>),
    TlsUnix(Box<TlsStream<Recorded<UnixStream>>>),
}

impl Stream {
    /// The client's address; `None` for a Unix socket, or a connection that is closed.
    pub fn peer_address(&self) -> Option<IpAddr> {
        self.tcp()?.peer_addr().ok().map(|peer| peer.ip().to_canonical())
    }

    /// The address of this machine that the client connected to; `None` for a Unix socket, or a connection that is closed.
    pub fn local_address(&self) -> Option<IpAddr> {
        self.tcp()?.local_addr().ok().map(|local| local.ip().to_canonical())
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Stream::Tcp(stream) => Some(stream),
            Stream::TlsTcp(stream) => Some(stream.get_ref().0.get_ref()),
            Stream::Unix(_) | Stream::TlsUnix(_) => None,
        }
    }

    pub fn is_unix(&self) -> bool {
        matches!(self, Stream::Unix(_) | Stream::TlsUnix(_))
    }

    /// The client's certificate, verified in the handshake.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        let chain = match self {
            Stream::Tcp(_) | Stream::Unix(_) => None,
            Stream::TlsTcp(stream) => stream.get_ref().1.peer_certificates(),
            Stream::TlsUnix(stream) => stream.get_ref().1.peer_certificates(),
        };
        chain.and_then(<[_]>::first)
    }

    /// What the handshake shows of the client's program: its JA4 fingerprint.
    pub fn tls_fingerprint(&self) -> Option<&str> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => None,
            Stream::TlsTcp(stream) => stream.get_ref().0.fingerprint(),
            Stream::TlsUnix(stream) => stream.get_ref().0.fingerprint(),
        }
    }
}

/// Calls a method on the inner stream.
macro_rules! each {
    ($stream:expr, $method:ident($($argument:expr),*)) => {
        match $stream {
            Stream::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            Stream::Unix(stream) => Pin::new(stream).$method($($argument),*),
            Stream::TlsTcp(stream) => Pin::new(stream).$method($($argument),*),
            Stream::TlsUnix(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
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
        match self {
            Stream::Tcp(stream) => stream.is_write_vectored(),
            Stream::Unix(stream) => stream.is_write_vectored(),
            Stream::TlsTcp(stream) => stream.is_write_vectored(),
            Stream::TlsUnix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), poll_shutdown(cx))
    }
}
