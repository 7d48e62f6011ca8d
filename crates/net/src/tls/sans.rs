//! Client certificates that must have one of a list of names.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::der;

/// A subject alternative name. CAs restrict the kinds differently, so an e-mail address never matches a host name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum San {
    /// Lowercase.
    Dns(String),
    Uri(String),
    Ip(IpAddr),
    Email(String),
}

/// Checks a certificate with another verifier, then its names. It runs within the handshake, so that the client gets an alert.
#[derive(Debug)]
pub(super) struct SanVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    allowed: Vec<San>,
}

impl San {
    /// Parses a name from a setting: an IP address, a URI, an e-mail address, or else a DNS name.
    pub fn parse(text: &str) -> San {
        if let Ok(address) = text.parse() {
            San::Ip(address)
        } else if text.contains(':') {
            San::Uri(text.to_owned())
        } else if text.contains('@') {
            San::Email(text.to_owned())
        } else {
            San::Dns(text.to_ascii_lowercase())
        }
    }

    /// The names of a certificate; `None` if it can't be parsed.
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Option<Vec<San>> {
        let names = der::subject_alt_names(certificate)?;
        Some(names.into_iter().filter_map(|(tag, bytes)| San::from_general_name(tag, bytes)).collect())
    }

    /// A name by its tag in `GeneralName` (RFC 5280). `None` for other kinds, and for texts that are not ASCII.
    fn from_general_name(tag: u8, bytes: &[u8]) -> Option<San> {
        let text = || std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii());
        match tag {
            0x81 => text().map(|address| San::Email(address.to_owned())),
            0x82 => text().map(|name| San::Dns(name.to_ascii_lowercase())),
            0x86 => text().map(|uri| San::Uri(uri.to_owned())),
            0x87 => {
                let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
                v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok().map(San::Ip)
            }
            _ => None,
        }
    }
}

impl SanVerifier {
    pub(super) fn new(inner: Arc<dyn ClientCertVerifier>, allowed: &[String]) -> SanVerifier {
        SanVerifier { inner, allowed: allowed.iter().map(|text| San::parse(text)).collect() }
    }

    fn is_allowed(&self, certificate: &CertificateDer<'_>) -> Result<bool, Error> {
        let names =
            San::from_certificate(certificate).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        Ok(names.iter().any(|name| self.allowed.contains(name)))
    }
}

impl ClientCertVerifier for SanVerifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        if self.is_allowed(end_entity)? {
            Ok(verified)
        } else {
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
