//! Builds a TLS configuration from files, with errors that name the file.
//!
//! No error shows the contents of a file: it may be a key.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use siphasher::sip128::{Hasher128, SipHasher13};

use super::TlsFiles;
use super::sans::SanVerifier;

/// The contents of the files.
pub(super) struct FileContents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// A digest of the contents, so that the key is not in memory twice.
pub(super) type Digest = u128;

/// The error for files that can't be used.
#[derive(Debug)]
pub struct TlsError {
    file: PathBuf,
    reason: TlsErrorReason,
}

#[derive(Debug)]
enum TlsErrorReason {
    Unreadable(io::Error),
    TooLarge,
    BrokenPem,
    NoCertificate,
    NoKey,
    EncryptedKey,
    /// The key does not match the certificate in that file.
    KeyMismatch(PathBuf),
    UnusableKey,
    UnusableCertificate(String),
    NamesWithoutCa,
    Other(String),
}

/// The largest file, enough for a thousand certificates.
const MAX_BYTES: u64 = 4 << 20;

impl FileContents {
    pub(super) fn read(files: &TlsFiles) -> Result<FileContents, TlsError> {
        Ok(FileContents {
            cert: read(&files.cert)?,
            key: read(&files.key)?,
            client_ca: files.client_ca.as_deref().map(read).transpose()?,
        })
    }

    pub(super) fn digest(&self) -> Digest {
        let mut hasher = SipHasher13::new();
        for part in [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()].into_iter().flatten() {
            std::hash::Hash::hash(part, &mut hasher);
        }
        hasher.finish128().as_u128()
    }

    /// The configuration for rustls.
    pub(super) fn config(&self, files: &TlsFiles, alpn: &[Vec<u8>]) -> Result<ServerConfig, TlsError> {
        // Explicit, since the process may have no default provider.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates(&files.cert, &self.cert)?;
        let key = self.key(&files.key)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsErrorReason::Other(error.to_string()).in_file(&files.cert))?;
        let verifier = self.verifier(files, provider)?;
        let verifies_clients = verifier.is_some();
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| rejection(files, &error))?;
        config.alpn_protocols = alpn.to_vec();
        if verifies_clients {
            // A resumed session does not present the client's certificate again, which may have expired.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(config)
    }

    fn key(&self, file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| {
            let reason = match error {
                pem::Error::NoItemsFound if memchr::memmem::find(&self.key, b"ENCRYPTED").is_some() => {
                    TlsErrorReason::EncryptedKey
                }
                pem::Error::NoItemsFound => TlsErrorReason::NoKey,
                _ => TlsErrorReason::BrokenPem,
            };
            reason.in_file(file)
        })
    }

    /// The verifier of client certificates, if clients must present one.
    fn verifier(
        &self,
        files: &TlsFiles,
        provider: Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
        let (Some(file), Some(text)) = (&files.client_ca, &self.client_ca) else {
            return match files.client_sans.is_empty() {
                true => Ok(None),
                false => Err(TlsErrorReason::NamesWithoutCa.in_file(&files.cert)),
            };
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(file, text)? {
            roots
                .add(certificate)
                .map_err(|error| TlsErrorReason::UnusableCertificate(error.to_string()).in_file(file))?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = if files.are_clients_optional { builder.allow_unauthenticated() } else { builder };
        let verifier =
            builder.build().map_err(|error| TlsErrorReason::UnusableCertificate(error.to_string()).in_file(file))?;
        Ok(Some(match files.client_sans.as_slice() {
            [] => verifier,
            names => Arc::new(SanVerifier::new(verifier, names)),
        }))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let opened = File::open(file).and_then(|opened| opened.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    match opened {
        Err(error) => Err(TlsErrorReason::Unreadable(error).in_file(file)),
        Ok(length) if length as u64 > MAX_BYTES => Err(TlsErrorReason::TooLarge.in_file(file)),
        Ok(_) => Ok(bytes),
    }
}

fn certificates(file: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match certificates {
        Err(_) => Err(TlsErrorReason::BrokenPem.in_file(file)),
        Ok(none) if none.is_empty() => Err(TlsErrorReason::NoCertificate.in_file(file)),
        Ok(certificates) => Ok(certificates),
    }
}

/// The error for a chain and a key that rustls rejects.
fn rejection(files: &TlsFiles, error: &rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => TlsErrorReason::KeyMismatch(files.cert.clone()).in_file(&files.key),
        rustls::Error::InvalidCertificate(_) => {
            TlsErrorReason::UnusableCertificate(error.to_string()).in_file(&files.cert)
        }
        // The library's own text lists key types in its own terms.
        _ => TlsErrorReason::UnusableKey.in_file(&files.key),
    }
}

impl TlsErrorReason {
    fn in_file(self, file: &Path) -> TlsError {
        TlsError { file: file.to_owned(), reason: self }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        match &self.reason {
            TlsErrorReason::Unreadable(error) => write!(f, "can't be read: {error}"),
            TlsErrorReason::TooLarge => {
                write!(f, "is larger than {MAX_BYTES} bytes: it is not a PEM file of certificates or keys")
            }
            TlsErrorReason::BrokenPem => {
                write!(f, "invalid PEM: each section is base64 between a BEGIN line and an END line of the same name")
            }
            TlsErrorReason::NoCertificate => {
                write!(f, "contains no certificate: use a PEM file with at least one BEGIN CERTIFICATE")
            }
            TlsErrorReason::NoKey => write!(f, "contains no private key: use a PEM file with a BEGIN PRIVATE KEY"),
            TlsErrorReason::EncryptedKey => {
                write!(f, "the private key is encrypted: remove its passphrase (`openssl pkey` does that)")
            }
            TlsErrorReason::KeyMismatch(cert) => {
                write!(f, "the key does not match the first certificate in {}", cert.display())
            }
            TlsErrorReason::UnusableKey => {
                write!(f, "the key can't be used: use RSA with 2048 bits or more, ECDSA on P-256 or P-384, or Ed25519")
            }
            TlsErrorReason::UnusableCertificate(error) => {
                write!(f, "contains a certificate that can't be used: {error}")
            }
            TlsErrorReason::NamesWithoutCa => {
                write!(f, "allowed client names are set without a client CA: clients would not present certificates")
            }
            TlsErrorReason::Other(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            TlsErrorReason::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}
