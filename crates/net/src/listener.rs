//! Listening sockets. All are bound before any of them accepts connections.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

use super::address::Address;

/// A bound socket.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket; it is removed with the listener.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

/// An accepted connection that is not registered with a runtime yet.
#[derive(Debug)]
pub enum AcceptedStream {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// Connections that the system queues until they are accepted.
const BACKLOG: i32 = 1024;

impl Listener {
    /// Binds an address; `None` if it is off. Must be called within a runtime.
    pub fn bind(address: &Address) -> io::Result<Option<Listener>> {
        match address {
            Address::Off => Ok(None),
            Address::Tcp { host, port } => bind_tcp(host, *port).map(Some),
            Address::Unix(path) => bind_unix(path).map(Some),
        }
    }

    /// The next connection, detached from this runtime.
    pub async fn accept(&self) -> io::Result<AcceptedStream> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Responses are small and latency counts.
                stream.set_nodelay(true)?;
                Ok(AcceptedStream::Tcp(stream.into_std()?))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok(AcceptedStream::Unix(stream.into_std()?))
            }
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => write!(f, "{address}"),
                Err(_) => write!(f, "(unknown)"),
            },
            Listener::Unix(_, SocketFile(path)) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A file that is left over is recognised at the next start.
        let _ = fs::remove_file(&self.0);
    }
}

/// Binds the first address of a host that can be bound.
fn bind_tcp(host: &str, port: u16) -> io::Result<Listener> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the host name has no address");
    for address in (host, port).to_socket_addrs()? {
        match bind_socket(address) {
            Ok(listener) => return Ok(Listener::Tcp(listener)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn bind_socket(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for the previous server's connections to time out.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Binds a path. A stale socket is replaced.
fn bind_unix(path: &Path) -> io::Result<Listener> {
    let is_socket = |path: &Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket(path) {
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => return Err(io::Error::new(ErrorKind::AddrInUse, "another server listens on this socket")),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            Err(error) => return Err(error),
        }
    }
    let listener = UnixListener::bind(path)?;
    Ok(Listener::Unix(listener, SocketFile(path.to_owned())))
}
