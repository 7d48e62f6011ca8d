//! The attributes of a request that its sender says or proves: where they are read, and in which form rules see them.
//!
//! A missing or bad credential is an attribute that is absent, never an error: rules say what anonymous callers get,
//! and a route may require an attribute. Values have the same text as on every other wire, so that one caller is one
//! counter.

mod cookie;
mod credential;
mod header_value;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use smallvec::SmallVec;
use tollgate_core::Timestamp;
use tollgate_rules::attribute_text;

use crate::jwt::{ClaimPath, VerifiedClaims, Verifier};
use crate::model::{AttributeConfig, AttributeSource, CertificateField, IssuerConfig};
use crate::query;

pub use header_value::header_value;

/// Reads the attributes of requests.
#[derive(Debug)]
pub struct Identity {
    attributes: Vec<IdentityAttribute>,
    verifiers: Vec<Arc<Verifier>>,
}

/// What is known of a connection, and so of all of its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFacts {
    pub peer: Option<IpAddr>,
    /// The first subject alternative name of the client's certificate, which the handshake has verified.
    pub certificate_san: Option<String>,
    /// The SHA-256 digest of that certificate, in hexadecimal digits.
    pub certificate_fingerprint: Option<String>,
    /// What the handshake shows of the client's program: its JA4 fingerprint.
    pub tls_fingerprint: Option<String>,
}

/// The attributes of a request that have a value, in the order of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityValues<'r>(SmallVec<[(&'r str, Cow<'r, str>); 8]>);

#[derive(Debug)]
struct IdentityAttribute {
    name: String,
    sources: Vec<IdentitySource>,
}

/// Like [`AttributeSource`], with the verifier and the claim by their indices.
#[derive(Debug)]
enum IdentitySource {
    Header(HeaderName),
    Query(String),
    Cookie(String),
    PathParameter(String),
    Bearer,
    Claim { verifier: usize, claim: usize },
    Certificate(CertificateField),
    TlsFingerprint,
}

/// The claims of a request's tokens, by verifier: each token is verified once, when the first attribute needs it.
type Tokens = SmallVec<[Option<Option<VerifiedClaims>>; 2]>;

/// A request with what else its attributes are read from.
#[derive(Clone, Copy)]
struct Head<'r> {
    parts: &'r Parts,
    parameters: &'r [(&'r str, &'r str)],
    connection: &'r ConnectionFacts,
    now: Timestamp,
}

impl Identity {
    /// Prepares the attributes of a configuration. Verifiers of an earlier one are used again where they fit, with
    /// their keys; the others have no keys yet. See [`Identity::verifiers`].
    pub fn new(attributes: &[AttributeConfig], earlier: &[Arc<Verifier>]) -> Identity {
        let issuers = issuers(attributes);
        let verifiers = issuers.iter().map(|(config, paths)| {
            let same = earlier.iter().find(|verifier| verifier.config() == config && verifier.paths() == paths);
            same.cloned().unwrap_or_else(|| Arc::new(Verifier::new(Arc::clone(config), paths.clone())))
        });
        let verifiers = verifiers.collect();
        let attributes = attributes.iter().map(|attribute| IdentityAttribute {
            name: attribute.name.clone(),
            sources: attribute.sources.iter().filter_map(|source| IdentitySource::new(source, &issuers)).collect(),
        });
        Identity { attributes: attributes.collect(), verifiers }
    }

    /// The verifiers of tokens, one for each issuer. Whoever loads keys sets them here.
    pub fn verifiers(&self) -> &[Arc<Verifier>] {
        &self.verifiers
    }

    /// Reads the attributes of a request. Of each attribute, the first source that has a value counts.
    pub fn read<'r>(
        &'r self,
        parts: &'r Parts,
        parameters: &'r [(&'r str, &'r str)],
        connection: &'r ConnectionFacts,
        now: Timestamp,
    ) -> IdentityValues<'r> {
        let head = Head { parts, parameters, connection, now };
        let mut tokens: Tokens = SmallVec::from_elem(None, self.verifiers.len());
        let values = self.attributes.iter().filter_map(|attribute| {
            let value = attribute.sources.iter().find_map(|source| self.value(source, head, &mut tokens))?;
            Some((&*attribute.name, value))
        });
        IdentityValues(values.collect())
    }

    /// The first of the required attributes that a request does not have: the answer is 401.
    pub fn missing<'n>(&self, require: &'n [String], values: &IdentityValues<'_>) -> Option<&'n str> {
        require.iter().map(String::as_str).find(|name| values.get(name).is_none())
    }

    fn value<'r>(&'r self, source: &'r IdentitySource, head: Head<'r>, tokens: &mut Tokens) -> Option<Cow<'r, str>> {
        match source {
            IdentitySource::Header(name) => text(Cow::Borrowed(head.parts.headers.get(name)?.as_bytes())),
            IdentitySource::Query(name) => text(query::parameter(head.parts.uri.query()?.as_bytes(), name)?),
            IdentitySource::Cookie(name) => text(Cow::Borrowed(cookie::value(&head.parts.headers, name)?)),
            IdentitySource::PathParameter(name) => {
                let (_, value) = head.parameters.iter().find(|(parameter, _)| parameter == name)?;
                text(Cow::Borrowed(value.as_bytes()))
            }
            IdentitySource::Bearer => {
                credential::bearer(&head.parts.headers).map(|token| Cow::Owned(credential::digest(token)))
            }
            IdentitySource::Claim { verifier, claim } => {
                let claims = tokens.get_mut(*verifier)?.get_or_insert_with(|| self.claims(*verifier, head));
                claims.as_ref()?.get(*claim).map(|value| Cow::Owned(value.to_owned()))
            }
            IdentitySource::Certificate(field) => {
                let value = match field {
                    CertificateField::San => &head.connection.certificate_san,
                    CertificateField::Fingerprint => &head.connection.certificate_fingerprint,
                };
                text(Cow::Borrowed(value.as_ref()?.as_bytes()))
            }
            IdentitySource::TlsFingerprint => head.connection.tls_fingerprint.as_deref().map(Cow::Borrowed),
        }
    }

    fn claims(&self, verifier: usize, head: Head<'_>) -> Option<VerifiedClaims> {
        let verifier = self.verifiers.get(verifier)?;
        let token = credential::token(&verifier.config().token, &head.parts.headers)?;
        match verifier.verify(token, head.now) {
            Ok(claims) => Some(claims),
            Err(fault) => {
                tracing::debug!(fault = fault.name(), "a token is not accepted");
                None
            }
        }
    }
}

impl<'r> IdentityValues<'r> {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'r str, &str)> {
        self.0.iter().map(|(name, value)| (*name, &**value))
    }
}

impl IdentitySource {
    fn new(source: &AttributeSource, issuers: &[(Arc<IssuerConfig>, Vec<ClaimPath>)]) -> Option<IdentitySource> {
        Some(match source {
            AttributeSource::Header(name) => IdentitySource::Header(name.clone()),
            AttributeSource::Query(name) => IdentitySource::Query(name.clone()),
            AttributeSource::Cookie(name) => IdentitySource::Cookie(name.clone()),
            AttributeSource::PathParameter(name) => IdentitySource::PathParameter(name.clone()),
            AttributeSource::Bearer => IdentitySource::Bearer,
            AttributeSource::Certificate(field) => IdentitySource::Certificate(*field),
            AttributeSource::TlsFingerprint => IdentitySource::TlsFingerprint,
            AttributeSource::JwtClaim { claim, issuer } => {
                let verifier = issuers.iter().position(|(config, _)| config == issuer)?;
                let path = ClaimPath::new(claim);
                let claim = issuers.get(verifier)?.1.iter().position(|own| *own == path)?;
                IdentitySource::Claim { verifier, claim }
            }
        })
    }
}

/// The issuers of a configuration, each with the claims that attributes read.
fn issuers(attributes: &[AttributeConfig]) -> Vec<(Arc<IssuerConfig>, Vec<ClaimPath>)> {
    let mut issuers: Vec<(Arc<IssuerConfig>, Vec<ClaimPath>)> = Vec::new();
    for source in attributes.iter().flat_map(|attribute| &attribute.sources) {
        let AttributeSource::JwtClaim { claim, issuer } = source else { continue };
        let path = ClaimPath::new(claim);
        match issuers.iter_mut().find(|(config, _)| config == issuer) {
            Some((_, paths)) if paths.contains(&path) => {}
            Some((_, paths)) => paths.push(path),
            None => issuers.push((Arc::clone(issuer), vec![path])),
        }
    }
    issuers
}

/// A value as rules see it. An empty one is none: a client that sends `X-Api-Key:` has no key.
fn text(value: Cow<'_, [u8]>) -> Option<Cow<'_, str>> {
    match value {
        value if value.is_empty() => None,
        Cow::Borrowed(value) => Some(attribute_text::text(value)),
        Cow::Owned(value) => Some(Cow::Owned(attribute_text::text(&value).into_owned())),
    }
}
