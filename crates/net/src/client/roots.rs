//! The CAs that certificates of receivers must be signed by.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Where systems have their CAs, in one file.
const SYSTEM_CAS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// The largest file of certificates.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The configuration of connections to a server whose certificate is signed by a CA of the file, or else of the system.
///
/// # Errors
/// Which file can't be used, and why.
pub(super) fn config(ca: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let system = || SYSTEM_CAS.iter().map(Path::new).find(|path| path.exists());
    let file = ca.or_else(system).ok_or("this system has no list of CAs: set `ca`")?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        // A system has CAs that can't be used; they are not needed.
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err(format!("{}: there is no CA that can be used", file.display()));
    }
    // Explicit, since the process may have no default provider.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let at = |error: String| format!("{}: {error}", file.display());
    let mut bytes = Vec::new();
    let read = |file: File| -> io::Result<usize> { file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes) };
    File::open(file).and_then(read).map_err(|error| at(error.to_string()))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(at(format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20)));
    }
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    certificates.map_err(|error| at(error.to_string()))
}
