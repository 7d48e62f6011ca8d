//! TLS to upstreams.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::connect::BoxStream;
use super::other;
use crate::model::{ServerAddress, UpstreamProtocol, UpstreamTls};

/// How connections to an upstream are secured.
#[derive(Clone)]
pub(super) struct ClientTls {
    connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
}

/// Where systems have their CAs, in one file.
const SYSTEM_CAS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

impl ClientTls {
    pub(super) fn load(tls: &UpstreamTls, protocol: UpstreamProtocol) -> Result<ClientTls, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca_file(tls)?)? {
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
        let mut config = match &tls.certificate {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let private =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{}: {error}", key.display()))?;
                config.with_client_auth_cert(certificates(chain)?, private).map_err(|error| error.to_string())?
            }
        };
        config.alpn_protocols = match protocol {
            UpstreamProtocol::Http1 => vec![b"http/1.1".to_vec()],
            UpstreamProtocol::Http2 => vec![b"h2".to_vec()],
            UpstreamProtocol::Negotiated => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        let name = |name: &String| ServerName::try_from(name.clone()).map_err(|error| format!("{name}: {error}"));
        let server_name = tls.server_name.as_ref().map(name).transpose()?;
        Ok(ClientTls { connector: TlsConnector::from(Arc::new(config)), server_name })
    }

    /// Performs the handshake. Returns whether HTTP/2 was selected.
    pub(super) async fn connect(&self, address: &ServerAddress, stream: BoxStream) -> io::Result<(BoxStream, bool)> {
        let name = match (&self.server_name, address) {
            (Some(name), _) => name.clone(),
            (None, ServerAddress::Name { host, .. }) => ServerName::try_from(host.clone()).map_err(other)?,
            (None, ServerAddress::Socket(address)) => ServerName::IpAddress(address.ip().into()),
            (None, ServerAddress::Unix(_)) => return Err(other("a Unix socket has no name: set tls.server_name")),
        };
        let stream = self.connector.connect(name, stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((Box::new(stream), is_http2))
    }
}

fn ca_file(tls: &UpstreamTls) -> Result<&Path, String> {
    if let Some(file) = &tls.ca {
        return Ok(file);
    }
    let found = SYSTEM_CAS.iter().map(Path::new).find(|path| path.exists());
    found.ok_or_else(|| "this system has no list of CAs: set tls.ca".to_owned())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let at = |error: String| format!("{}: {error}", file.display());
    let reader = BufReader::new(File::open(file).map_err(|error| at(error.to_string()))?);
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(reader).collect();
    let certificates = certificates.map_err(|error| at(error.to_string()))?;
    if certificates.is_empty() { Err(at("there is no certificate in it".to_owned())) } else { Ok(certificates) }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}
