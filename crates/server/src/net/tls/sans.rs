//! Which clients may come: those whose certificates have one of some names.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// A subject alternative name. What a CA lets its users choose differs by kind, so an e-mail address is never taken for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum San {
    /// In lower case.
    Dns(String),
    Uri(String),
    Ip(IpAddr),
    Email(String),
}

/// Asks another verifier, and then for one of the names. In the handshake itself, so that the client is told.
#[derive(Debug)]
pub(super) struct OnlyNamed {
    inner: Arc<dyn ClientCertVerifier>,
    allowed: Vec<San>,
}

impl San {
    /// What an operator means by a text.
    pub(crate) fn meant(text: &str) -> San {
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

    /// Those of a certificate; none if it can't be read.
    pub(crate) fn all_of(certificate: &CertificateDer<'_>) -> Option<Vec<San>> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let names = certificate.subject_alternative_name().ok()?;
        Some(names.iter().flat_map(|names| &names.value.general_names).filter_map(San::of).collect())
    }

    fn of(name: &GeneralName<'_>) -> Option<San> {
        match name {
            GeneralName::DNSName(name) => Some(San::Dns(name.to_ascii_lowercase())),
            GeneralName::URI(uri) => Some(San::Uri((*uri).to_owned())),
            GeneralName::RFC822Name(address) => Some(San::Email((*address).to_owned())),
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok().map(San::Ip)
            }
            _ => None,
        }
    }
}

impl OnlyNamed {
    pub(super) fn new(inner: Arc<dyn ClientCertVerifier>, allowed: &[String]) -> OnlyNamed {
        OnlyNamed { inner, allowed: allowed.iter().map(|text| San::meant(text)).collect() }
    }

    fn is_allowed(&self, certificate: &CertificateDer<'_>) -> Result<bool, Error> {
        let names = San::all_of(certificate).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        Ok(names.iter().any(|name| self.allowed.contains(name)))
    }
}

impl ClientCertVerifier for OnlyNamed {
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
