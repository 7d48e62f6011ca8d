//! TLS to upstreams. Certificates are files, read again when they change: connections that are open stay as they are.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use ring::digest;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio_rustls::TlsConnector;

use super::other;
use super::stream::ServerStream;
use crate::model::{ServerAddress, UpstreamProtocol, UpstreamTls};

/// How connections to an upstream are secured.
pub(super) struct ClientTls {
    files: UpstreamTls,
    protocol: UpstreamProtocol,
    current: ArcSwap<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    /// The result of the last look at the files: their digest, or the error.
    last_look: Mutex<Result<Digest, String>>,
}

/// The content of the files.
struct Contents {
    ca: PathBuf,
    authorities: Vec<u8>,
    /// The chain and the key.
    own: Option<(Vec<u8>, Vec<u8>)>,
}

type Digest = [u8; digest::SHA256_OUTPUT_LEN];

/// Where systems have their CAs, in one file.
const SYSTEM_CAS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// The largest file of certificates.
const MAX_FILE_BYTES: u64 = 4 << 20;

impl ClientTls {
    /// # Errors
    /// Which file can't be used, and why.
    pub(super) fn load(files: &UpstreamTls, protocol: UpstreamProtocol) -> Result<ClientTls, String> {
        let contents = Contents::read(files)?;
        let config = contents.config(files, protocol)?;
        let name = |name: &String| ServerName::try_from(name.clone()).map_err(|error| format!("{name}: {error}"));
        let server_name = files.server_name.as_ref().map(name).transpose()?;
        let last_look = Mutex::new(Ok(contents.digest()));
        Ok(ClientTls { files: files.clone(), protocol, current: ArcSwap::from_pointee(config), server_name, last_look })
    }

    /// Reads the files, and uses them from the next connection on if they have changed. Returns whether they have. It blocks.
    ///
    /// # Errors
    /// Once for each change that can't be used: what was used before stays in use.
    pub(super) fn reload_if_changed(&self) -> Result<bool, String> {
        let contents = Contents::read(&self.files);
        let look = contents.as_ref().map(Contents::digest).map_err(String::clone);
        {
            let mut last = self.last_look.lock().unwrap_or_else(PoisonError::into_inner);
            if *last == look {
                return Ok(false);
            }
            *last = look;
        }
        let config = contents.and_then(|contents| contents.config(&self.files, self.protocol))?;
        self.current.store(Arc::new(config));
        Ok(true)
    }

    /// Performs the handshake. Returns whether HTTP/2 was selected.
    pub(super) async fn connect(
        &self,
        address: &ServerAddress,
        stream: ServerStream,
    ) -> io::Result<(ServerStream, bool)> {
        let name = match (&self.server_name, address) {
            (Some(name), _) => name.clone(),
            (None, ServerAddress::Name { host, .. }) => ServerName::try_from(host.clone()).map_err(other)?,
            (None, ServerAddress::Socket(address)) => ServerName::IpAddress(address.ip().into()),
            (None, ServerAddress::Unix(_)) => return Err(other("a Unix socket has no name: set tls.server_name")),
        };
        let connector = TlsConnector::from(self.current.load_full());
        let is_http2 = |session: &ClientConnection| session.alpn_protocol() == Some(b"h2");
        match stream {
            ServerStream::Tcp(stream) => {
                let stream = connector.connect(name, stream).await?;
                let is_http2 = is_http2(stream.get_ref().1);
                Ok((ServerStream::TlsTcp(Box::new(stream)), is_http2))
            }
            ServerStream::Unix(stream) => {
                let stream = connector.connect(name, stream).await?;
                let is_http2 = is_http2(stream.get_ref().1);
                Ok((ServerStream::TlsUnix(Box::new(stream)), is_http2))
            }
            ServerStream::TlsTcp(_) | ServerStream::TlsUnix(_) => Err(other("the connection is secured already")),
        }
    }
}

impl Contents {
    fn read(files: &UpstreamTls) -> Result<Contents, String> {
        let ca = ca_file(files)?.to_owned();
        let authorities = read(&ca)?;
        let own = files.certificate.as_ref().map(|(chain, key)| Ok::<_, String>((read(chain)?, read(key)?)));
        Ok(Contents { ca, authorities, own: own.transpose()? })
    }

    fn digest(&self) -> Digest {
        let mut context = digest::Context::new(&digest::SHA256);
        let own = self.own.iter().flat_map(|(chain, key)| [chain, key]);
        for part in std::iter::once(&self.authorities).chain(own) {
            context.update(&part.len().to_be_bytes());
            context.update(part);
        }
        let mut digest = [0; digest::SHA256_OUTPUT_LEN];
        digest.copy_from_slice(context.finish().as_ref());
        digest
    }

    fn config(&self, files: &UpstreamTls, protocol: UpstreamProtocol) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca, &self.authorities)? {
            // A system has CAs that can't be used; they are not needed.
            let _ = roots.add(certificate);
        }
        if roots.is_empty() {
            return Err("there is no CA that can be used".to_owned());
        }
        // Explicit, since the process may have no default provider.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?.with_root_certificates(roots);
        let mut config = match files.certificate.as_ref().zip(self.own.as_ref()) {
            None => config.with_no_client_auth(),
            Some(((chain_file, key_file), (chain, key))) => {
                let private =
                    PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("{}: {error}", key_file.display()))?;
                let chain = certificates(chain_file, chain)?;
                let at = |error: rustls::Error| format!("{}: {error}", chain_file.display());
                config.with_client_auth_cert(chain, private).map_err(at)?
            }
        };
        config.alpn_protocols = match protocol {
            UpstreamProtocol::Http1 => vec![b"http/1.1".to_vec()],
            UpstreamProtocol::Http2 => vec![b"h2".to_vec()],
            UpstreamProtocol::Negotiated => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        Ok(config)
    }
}

fn ca_file(tls: &UpstreamTls) -> Result<&Path, String> {
    if let Some(file) = &tls.ca {
        return Ok(file);
    }
    let found = SYSTEM_CAS.iter().map(Path::new).find(|path| path.exists());
    found.ok_or_else(|| "this system has no list of CAs: set tls.ca".to_owned())
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let at = |error: io::Error| format!("{}: {error}", file.display());
    let mut bytes = Vec::new();
    File::open(file).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)).map_err(at)?;
    match bytes.len() as u64 > MAX_FILE_BYTES {
        true => Err(format!("{}: the file is larger than {} MiB", file.display(), MAX_FILE_BYTES >> 20)),
        false => Ok(bytes),
    }
}

fn certificates(file: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let at = |error: String| format!("{}: {error}", file.display());
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let certificates = certificates.map_err(|error| at(error.to_string()))?;
    if certificates.is_empty() { Err(at("there is no certificate in it".to_owned())) } else { Ok(certificates) }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}
