//! Connections to a server over TCP, TLS or a Unix socket.

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

use super::CommandError;
use super::server::ServerArgs;

/// The address of a server.
pub(super) struct ServerAddress {
    transport: Transport,
    /// The value of the header `Host`.
    pub(super) authority: String,
}

enum Transport {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16, name: ServerName<'static>, config: Arc<ClientConfig> },
    Unix(PathBuf),
}

/// A connection.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// The longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// TCP keepalive, to notice a server that has disappeared.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

impl ServerAddress {
    pub(super) fn new(server: &ServerArgs) -> Result<ServerAddress, CommandError> {
        let url = server.url()?;
        let invalid = || {
            // The part before an @ may be a password.
            let shown = if url.contains('@') { "the URL" } else { &*url };
            CommandError::Usage(format!(
                "--server: {shown} is not an address; write http://HOST:PORT, https://HOST:PORT or unix:PATH"
            ))
        };
        if let Some(path) = url.strip_prefix("unix:") {
            let transport = Transport::Unix(PathBuf::from(path));
            return Ok(ServerAddress { transport, authority: "localhost".to_owned() });
        }
        let full = if url.contains("://") { url.clone() } else { format!("http://{url}") };
        let uri: Uri = full.parse().map_err(|_| invalid())?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(invalid)?;
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(invalid());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let transport = match uri.scheme_str() {
            Some("http") => Transport::Tcp { host, port: authority.port_u16().unwrap_or(80) },
            Some("https") => {
                let name = ServerName::try_from(host.clone()).map_err(|_| invalid())?;
                Transport::Tls { host, port: authority.port_u16().unwrap_or(443), name, config: tls_config(server)? }
            }
            _ => return Err(invalid()),
        };
        Ok(ServerAddress { transport, authority: authority.as_str().to_owned() })
    }

    /// Whether requests cross a network without encryption.
    pub(super) fn is_plaintext(&self) -> bool {
        match &self.transport {
            Transport::Tcp { host, .. } => {
                host != "localhost" && !host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            }
            Transport::Tls { .. } | Transport::Unix(_) => false,
        }
    }

    pub(super) async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let connecting = async {
            match &self.transport {
                Transport::Tcp { host, port } => Ok(Box::new(tcp(host, *port).await?) as Box<dyn ByteStream>),
                Transport::Tls { host, port, name, config } => {
                    let stream = tcp(host, *port).await?;
                    let secured = TlsConnector::from(Arc::clone(config)).connect(name.clone(), stream).await?;
                    Ok(Box::new(secured) as Box<dyn ByteStream>)
                }
                Transport::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?) as Box<dyn ByteStream>),
            }
        };
        let timed_out = || io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {CONNECT_TIMEOUT:?}"));
        tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(timed_out()))
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.transport {
            Transport::Tcp { .. } => write!(f, "http://{}", self.authority),
            Transport::Tls { .. } => write!(f, "https://{}", self.authority),
            Transport::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_INTERVAL).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

fn tls_config(server: &ServerArgs) -> Result<Arc<ClientConfig>, CommandError> {
    let usage = |message: String| CommandError::Usage(message);
    let no_ca = || usage("https needs --ca FILE with the CA of the server".to_owned());
    let file = server.ca().ok_or_else(no_ca)?;
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
            let read = read.map_err(|_| usage(format!("{}: contains no readable key", key.display())))?;
            let config = builder.with_client_auth_cert(certificates(cert)?, read);
            config.map_err(|error| usage(format!("{}: {error}", cert.display())))?
        }
        _ => return Err(usage("--cert and --key must be used together".to_owned())),
    };
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, CommandError> {
    let unreadable = |error| CommandError::Usage(format!("{}: certificates can't be read: {error}", file.display()));
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(unreadable)?.collect();
    match certificates.map_err(unreadable)? {
        none if none.is_empty() => Err(CommandError::Usage(format!("{}: contains no certificate", file.display()))),
        certificates => Ok(certificates),
    }
}
