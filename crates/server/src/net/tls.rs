//! TLS for listeners: the handshake, and certificates that are replaced while the server runs.
//!
//! The current configuration is one value, swapped whole: a handshake uses the one that it began with, and connections that are
//! established go on as they are.

mod load;
pub(crate) mod sans;
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

use super::{Closing, Stream};
use crate::health::Health;
pub(crate) use load::TlsError;
use load::{Contents, Digest};

/// Where a listener's certificates are. All files are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The chain, the server's own certificate first.
    pub(crate) cert: PathBuf,
    /// Its private key.
    pub(crate) key: PathBuf,
    /// Who signs clients' certificates. With it every client must show one.
    pub(crate) client_ca: Option<PathBuf>,
    /// If there are any, a client's certificate must have one of these names: DNS names, URIs, IP or e-mail addresses.
    pub(crate) client_sans: Vec<String>,
}

/// TLS as a listener speaks it.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    alpn: Vec<Vec<u8>>,
    current: ArcSwap<ServerConfig>,
    /// What was found when the files were last looked at: their digest, or what kept them from being read.
    seen: Mutex<Result<Digest, String>>,
}

/// What became of a look at the files.
#[derive(Debug)]
pub(crate) enum Reload {
    /// They are as they were.
    Same,
    /// New ones are in force.
    Renewed,
    /// They changed and can't be used. The last good ones stay.
    Refused(TlsError),
}

/// How long a client may take for its handshake. One that takes longer keeps a connection that it has not paid for.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often the files are looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(3);
/// The part of the server that is degraded when new certificates can't be used.
const PART: &str = "tls";

impl Tls {
    /// TLS with what is in the files now, and these protocols inside it, the preferred first.
    pub(crate) fn load(files: TlsFiles, alpn: &[&[u8]]) -> Result<Tls, TlsError> {
        let alpn: Vec<Vec<u8>> = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let contents = Contents::read(&files)?;
        let config = contents.config(&files, &alpn)?;
        let seen = Mutex::new(Ok(contents.digest()));
        Ok(Tls { files, alpn, current: ArcSwap::from_pointee(config), seen })
    }

    /// The handshake with a client that has just connected.
    pub(crate) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = TlsAcceptor::from(self.current.load_full()).accept(stream);
        match tokio::time::timeout(HANDSHAKE, handshake).await {
            Ok(shaken) => shaken,
            Err(_) => {
                let late = format!("the TLS handshake took longer than {} s", HANDSHAKE.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, late))
            }
        }
    }

    /// The same for a connection of either kind. One that has TLS already stays as it is.
    pub(crate) async fn secure(&self, stream: Stream) -> io::Result<Stream> {
        Ok(match stream {
            Stream::Tcp(stream) => Stream::TlsTcp(Box::new(self.accept(stream).await?)),
            Stream::Unix(stream) => Stream::TlsUnix(Box::new(self.accept(stream).await?)),
            secure @ (Stream::TlsTcp(_) | Stream::TlsUnix(_)) => secure,
        })
    }

    /// Looks at the files, and takes new ones if they are good. Reads files: not for a thread that answers.
    pub(crate) fn reload_if_changed(&self) -> Reload {
        let contents = Contents::read(&self.files);
        let found = contents.as_ref().map(Contents::digest).map_err(TlsError::to_string);
        {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if *seen == found {
                return Reload::Same;
            }
            *seen = found;
        }
        match contents.and_then(|contents| contents.config(&self.files, &self.alpn)) {
            Ok(config) => {
                self.current.store(Arc::new(config));
                Reload::Renewed
            }
            Err(error) => Reload::Refused(error),
        }
    }

    /// Follows the files until the server is about to stop.
    pub(crate) async fn follow(self: Arc<Self>, every: Duration, health: Arc<Health>, mut closing: Closing) {
        let mut refused = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = closing.begun() => return,
            }
            let tls = Arc::clone(&self);
            let Ok(reload) = tokio::task::spawn_blocking(move || tls.reload_if_changed()).await else {
                continue;
            };
            match reload {
                Reload::Same => {}
                Reload::Renewed => {
                    info!(cert = %self.files.cert.display(), "certificates renewed");
                    // Another listener's files may be the ones that are refused.
                    if std::mem::take(&mut refused) {
                        health.restore(PART);
                    }
                }
                Reload::Refused(error) => {
                    warn!(%error, "new certificates can't be used: the last good ones stay");
                    refused = true;
                    health.degrade(PART, format!("the last good certificates are in use: {error}"));
                }
            }
        }
    }
}
