//! Connections to a server: TCP, TLS, or a Unix socket.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::Failure;
use super::server::ServerArgs;

/// Where a server is, and how it is spoken to.
pub(super) struct Place {
    how: How,
    /// What the server is called in requests.
    pub(super) authority: String,
}

enum How {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16, name: ServerName<'static>, config: Arc<ClientConfig> },
    Unix(PathBuf),
}

/// Bytes in both directions.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// How long a connection may take.
const WITHIN: Duration = Duration::from_secs(10);
/// A connection on which nothing comes is looked after: its other end may be gone without a word.
const QUIET: Duration = Duration::from_secs(30);

impl Place {
    pub(super) fn new(server: &ServerArgs) -> Result<Place, Failure> {
        let url = server.url()?;
        let fault = || {
            // What stands before an @ may be a password.
            let shown = if url.contains('@') { "the address" } else { &*url };
            Failure::Usage(format!(
                "--server: {shown} is no address; write http://HOST:PORT, https://HOST:PORT or unix:PATH"
            ))
        };
        if let Some(path) = url.strip_prefix("unix:") {
            let how = How::Unix(PathBuf::from(path));
            return Ok(Place { how, authority: "localhost".to_owned() });
        }
        let whole = if url.contains("://") { url.clone() } else { format!("http://{url}") };
        let uri: Uri = whole.parse().map_err(|_| fault())?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(fault)?;
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(fault());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let how = match uri.scheme_str() {
            Some("http") => How::Tcp { host, port: authority.port_u16().unwrap_or(80) },
            Some("https") => {
                let name = ServerName::try_from(host.clone()).map_err(|_| fault())?;
                How::Tls { host, port: authority.port_u16().unwrap_or(443), name, config: config(server)? }
            }
            _ => return Err(fault()),
        };
        Ok(Place { how, authority: authority.as_str().to_owned() })
    }

    /// Whether what is sent can be read on its way.
    pub(super) fn is_open(&self) -> bool {
        match &self.how {
            How::Tcp { host, .. } => {
                host != "localhost" && !host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            }
            How::Tls { .. } | How::Unix(_) => false,
        }
    }

    pub(super) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let connecting = async {
            match &self.how {
                How::Tcp { host, port } => Ok(Box::new(tcp(host, *port).await?) as Box<dyn Stream>),
                How::Tls { host, port, name, config } => {
                    let stream = tcp(host, *port).await?;
                    let secured = TlsConnector::from(Arc::clone(config)).connect(name.clone(), stream).await?;
                    Ok(Box::new(secured) as Box<dyn Stream>)
                }
                How::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?) as Box<dyn Stream>),
            }
        };
        let late = || io::Error::new(io::ErrorKind::TimedOut, format!("nobody answered within {WITHIN:?}"));
        tokio::time::timeout(WITHIN, connecting).await.unwrap_or_else(|_| Err(late()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.how {
            How::Tcp { .. } => write!(f, "http://{}", self.authority),
            How::Tls { .. } => write!(f, "https://{}", self.authority),
            How::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    let keepalive = TcpKeepalive::new().with_time(QUIET).with_interval(QUIET);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

fn config(server: &ServerArgs) -> Result<Arc<ClientConfig>, Failure> {
    let usage = |what: String| Failure::Usage(what);
    let needed = || usage("https needs --ca FILE: the certificates that the server is known by".to_owned());
    let file = server.ca().ok_or_else(needed)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&file)? {
        roots.add(certificate).map_err(|error| usage(format!("{}: {error}", file.display())))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| usage(error.to_string()))?
        .with_root_certificates(roots);
    let config = match (&server.cert, &server.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let read = PrivateKeyDer::from_pem_file(key);
            let read = read.map_err(|_| usage(format!("{}: there is no key that can be read", key.display())))?;
            let config = builder.with_client_auth_cert(certificates(cert)?, read);
            config.map_err(|error| usage(format!("{}: {error}", cert.display())))?
        }
        _ => return Err(usage("--cert and --key belong together; write both".to_owned())),
    };
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let unreadable = |error| Failure::Usage(format!("{}: no certificates can be read: {error}", file.display()));
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(unreadable)?.collect();
    match found.map_err(unreadable)? {
        none if none.is_empty() => Err(Failure::Usage(format!("{}: there is no certificate in it", file.display()))),
        found => Ok(found),
    }
}
