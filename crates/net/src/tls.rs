//! TLS for listeners: handshakes, and certificates that are reloaded while the server runs.
//!
//! The configuration is one value that is swapped atomically: a handshake uses the one that it began with, and established
//! connections are not affected.

mod der;
mod load;
pub mod sans;
pub mod subject;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};

use super::recorded::Recorded;
use super::{Closing, Stream};
pub use load::TlsError;
use load::{Digest, FileContents};
use tollgate_telemetry::Health;

/// The files of a listener's certificates, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain, the server's own certificate first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CA of client certificates. If set, every client must present one, unless they are optional.
    pub client_ca: Option<PathBuf>,
    /// Whether clients may have no certificate. One that a client presents is verified in any case.
    pub are_clients_optional: bool,
    /// If not empty, a client's certificate must have one of these names: DNS names, URIs, IP or e-mail addresses.
    pub client_sans: Vec<String>,
}

/// TLS of one listener.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    alpn: Vec<Vec<u8>>,
    current: ArcSwap<ServerConfig>,
    /// The result of the last poll of the files: their digest, or the error.
    last_poll: Mutex<Result<Digest, String>>,
}

/// The result of a poll of the files.
#[derive(Debug)]
pub enum Reload {
    /// They have not changed.
    Unchanged,
    /// New certificates are in use.
    Renewed,
    /// They changed and can't be used. The last good ones stay in use.
    Refused(TlsError),
}

/// The longest handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between polls of the files.
pub const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// The component whose health is degraded while new certificates can't be used.
const PART: &str = "tls";

impl Tls {
    /// Loads the files. `alpn` lists the protocols inside TLS, the preferred first.
    pub fn load(files: TlsFiles, alpn: &[&[u8]]) -> Result<Tls, TlsError> {
        let alpn: Vec<Vec<u8>> = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let contents = FileContents::read(&files)?;
        let config = contents.config(&files, &alpn)?;
        let last_poll = Mutex::new(Ok(contents.digest()));
        Ok(Tls { files, alpn, current: ArcSwap::from_pointee(config), last_poll })
    }

    /// Performs the handshake with a new client.
    pub async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = TlsAcceptor::from(self.current.load_full()).accept(stream);
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
            Ok(result) => result,
            Err(_) => {
                let message = format!("the TLS handshake took longer than {} s", HANDSHAKE_TIMEOUT.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            }
        }
    }

    /// Performs the handshake on a connection of either kind. A TLS connection is returned unchanged.
    pub async fn secure(&self, stream: Stream) -> io::Result<Stream> {
        Ok(match stream {
            Stream::Tcp(stream) => Stream::TlsTcp(Box::new(self.accept(Recorded::new(stream)).await?)),
            Stream::Unix(stream) => Stream::TlsUnix(Box::new(self.accept(Recorded::new(stream)).await?)),
            secure @ (Stream::TlsTcp(_) | Stream::TlsUnix(_)) => secure,
        })
    }

    /// Reads the files and uses new certificates if they are valid. It blocks, so it must not run on a worker thread.
    pub fn reload_if_changed(&self) -> Reload {
        let contents = FileContents::read(&self.files);
        let poll = contents.as_ref().map(FileContents::digest).map_err(TlsError::to_string);
        {
            let mut last = self.last_poll.lock().unwrap_or_else(PoisonError::into_inner);
            if *last == poll {
                return Reload::Unchanged;
            }
            *last = poll;
        }
        match contents.and_then(|contents| contents.config(&self.files, &self.alpn)) {
            Ok(config) => {
                self.current.store(Arc::new(config));
                Reload::Renewed
            }
            Err(error) => Reload::Refused(error),
        }
    }

    /// Polls the files until shutdown.
    pub async fn watch(self: Arc<Self>, interval: Duration, health: Arc<Health>, mut closing: Closing) {
        let mut refused = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = closing.begun() => return,
            }
            let tls = Arc::clone(&self);
            let Ok(reload) = tokio::task::spawn_blocking(move || tls.reload_if_changed()).await else {
                continue;
            };
            match reload {
                Reload::Unchanged => {}
                Reload::Renewed => {
                    info!(cert = %self.files.cert.display(), "certificates renewed");
                    // The condition may be that of another listener.
                    if std::mem::take(&mut refused) {
                        health.restore(PART);
                    }
                }
                Reload::Refused(error) => {
                    warn!(%error, "new certificates can't be used: keeping the last good ones");
                    refused = true;
                    health.degrade(PART, format!("the last good certificates are in use: {error}"));
                }
            }
        }
    }
}
