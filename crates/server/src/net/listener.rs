//! Sockets that connections arrive at. All are bound before any of them answers.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

use super::address::Address;

/// A socket that is bound.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket, which goes with it.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

/// A connection that no runtime has taken up yet.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// How many connections the system keeps for a server that is slow to take them.
const BACKLOG: i32 = 1024;

impl Listener {
    /// Binds an address; `None` where it is off. Must be called in a runtime.
    pub(crate) fn bind(address: &Address) -> io::Result<Option<Listener>> {
        match address {
            Address::Off => Ok(None),
            Address::Tcp { host, port } => bind_tcp(host, *port).map(Some),
            Address::Unix(path) => bind_unix(path).map(Some),
        }
    }

    /// The next connection, out of the hands of this runtime.
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Answers are small and somebody waits for each.
                stream.set_nodelay(true)?;
                Ok(Accepted::Tcp(stream.into_std()?))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok(Accepted::Unix(stream.into_std()?))
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
        // Whoever took the name since owns it; a file that is left over is seen as such at the next start.
        let _ = fs::remove_file(&self.0);
    }
}

/// The first address of a name that can be bound.
fn bind_tcp(host: &str, port: u16) -> io::Result<Listener> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
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
    // A restart must not wait for the connections of the server before.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Binds a path. A socket that nobody listens on any more is replaced.
fn bind_unix(path: &Path) -> io::Result<Listener> {
    let is_socket = |path: &Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket(path) {
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => return Err(io::Error::new(ErrorKind::AddrInUse, "another server listens there")),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            Err(error) => return Err(error),
        }
    }
    let listener = UnixListener::bind(path)?;
    Ok(Listener::Unix(listener, SocketFile(path.to_owned())))
}
