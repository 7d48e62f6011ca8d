//! From files to a configuration, or to a sentence that says what is wrong with which file.
//!
//! No error shows what is in a file: it may be a key.

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
use super::sans::OnlyNamed;

/// What the files hold, before anything is made of it.
pub(super) struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// Tells contents apart without keeping them: the key need not be in memory twice.
pub(super) type Digest = u128;

/// Why there is no TLS with these files.
#[derive(Debug)]
pub(crate) struct TlsError {
    file: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Unreadable(io::Error),
    TooLarge,
    BrokenPem,
    NoCertificate,
    NoKey,
    EncryptedKey,
    /// Does not belong to the certificate in that file.
    OtherKey(PathBuf),
    UnusableKey,
    UnusableCertificate(String),
    NamesWithoutCa,
    Other(String),
}

/// The largest file: a thousand certificates.
const MOST_BYTES: u64 = 4 << 20;

impl Contents {
    pub(super) fn read(files: &TlsFiles) -> Result<Contents, TlsError> {
        Ok(Contents {
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

    /// What rustls makes of it.
    pub(super) fn config(&self, files: &TlsFiles, alpn: &[Vec<u8>]) -> Result<ServerConfig, TlsError> {
        // Given here: the process may have no provider of its own, or another's.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates(&files.cert, &self.cert)?;
        let key = self.key(&files.key)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| Problem::Other(error.to_string()).of(&files.cert))?;
        let verifier = self.verifier(files, provider)?;
        let knows_clients = verifier.is_some();
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| refused(files, &error))?;
        config.alpn_protocols = alpn.to_vec();
        if knows_clients {
            // A session that is resumed would not show the client's certificate again, and that may have expired.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(config)
    }

    fn key(&self, file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| {
            let problem = match error {
                pem::Error::NoItemsFound if memchr::memmem::find(&self.key, b"ENCRYPTED").is_some() => {
                    Problem::EncryptedKey
                }
                pem::Error::NoItemsFound => Problem::NoKey,
                _ => Problem::BrokenPem,
            };
            problem.of(file)
        })
    }

    /// Who looks at clients' certificates, if they must show one.
    fn verifier(
        &self,
        files: &TlsFiles,
        provider: Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
        let (Some(file), Some(text)) = (&files.client_ca, &self.client_ca) else {
            return match files.client_sans.is_empty() {
                true => Ok(None),
                false => Err(Problem::NamesWithoutCa.of(&files.cert)),
            };
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(file, text)? {
            roots.add(certificate).map_err(|error| Problem::UnusableCertificate(error.to_string()).of(file))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| Problem::UnusableCertificate(error.to_string()).of(file))?;
        Ok(Some(match files.client_sans.as_slice() {
            [] => verifier,
            names => Arc::new(OnlyNamed::new(verifier, names)),
        }))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let opened = File::open(file).and_then(|opened| opened.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    match opened {
        Err(error) => Err(Problem::Unreadable(error).of(file)),
        Ok(length) if length as u64 > MOST_BYTES => Err(Problem::TooLarge.of(file)),
        Ok(_) => Ok(bytes),
    }
}

fn certificates(file: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Err(_) => Err(Problem::BrokenPem.of(file)),
        Ok(none) if none.is_empty() => Err(Problem::NoCertificate.of(file)),
        Ok(found) => Ok(found),
    }
}

/// What is wrong with a chain and a key that rustls does not take.
fn refused(files: &TlsFiles, error: &rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => Problem::OtherKey(files.cert.clone()).of(&files.key),
        rustls::Error::InvalidCertificate(_) => Problem::UnusableCertificate(error.to_string()).of(&files.cert),
        // Its text tells what kinds there are, in the words of a library.
        _ => Problem::UnusableKey.of(&files.key),
    }
}

impl Problem {
    fn of(self, file: &Path) -> TlsError {
        TlsError { file: file.to_owned(), problem: self }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        match &self.problem {
            Problem::Unreadable(error) => write!(f, "can't be read: {error}"),
            Problem::TooLarge => {
                write!(f, "is larger than {MOST_BYTES} bytes: it is no PEM file of certificates or keys")
            }
            Problem::BrokenPem => {
                write!(
                    f,
                    "its PEM is broken: each part is base64 between a BEGIN line and an END line of the same name"
                )
            }
            Problem::NoCertificate => {
                write!(f, "has no certificate in it: give a PEM file with at least one BEGIN CERTIFICATE")
            }
            Problem::NoKey => write!(f, "has no private key in it: give a PEM file with a BEGIN PRIVATE KEY"),
            Problem::EncryptedKey => {
                write!(f, "the private key is encrypted: give it without a passphrase (`openssl pkey` writes it so)")
            }
            Problem::OtherKey(cert) => {
                write!(f, "the key does not belong to the first certificate in {}", cert.display())
            }
            Problem::UnusableKey => {
                write!(f, "the key can't be used: give RSA of 2048 bits or more, ECDSA on P-256 or P-384, or Ed25519")
            }
            Problem::UnusableCertificate(error) => write!(f, "a certificate in it can't be used: {error}"),
            Problem::NamesWithoutCa => {
                write!(
                    f,
                    "allowed names of clients are set, but no CA for clients: without it nobody shows a certificate"
                )
            }
            Problem::Other(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}
