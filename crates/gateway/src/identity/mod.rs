//! The attributes of a request that its sender says or proves: where they are read, and in which form rules see them.
//!
//! A missing or bad credential is an attribute that is absent, never an error: rules say what anonymous callers get,
//! and a route may require an attribute. Values have the same text as on every other wire, so that one caller is one
//! counter.
//!
//! A request with two different values in one place is refused: if the gateway counted for the one and the upstream
//! served the other, a caller could spend the quota of somebody else.

mod ambiguous;
mod challenge;
mod cookie;
mod credential;
mod header_value;
mod lookalikes;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;
use tollgate_core::Timestamp;
use tollgate_rules::attribute_text;

use crate::field_marks::FieldMarks;
use crate::jwt::{ClaimPath, VerifiedClaims, Verifier};
use crate::model::{AttributeConfig, AttributeSource, CertificateField, IssuerConfig, TokenSource};
use crate::query;
use crate::single::Repeated;
use challenge::Challenges;
use lookalikes::Lookalikes;

pub use ambiguous::AmbiguousSource;
pub use header_value::header_value;

/// Reads the attributes of requests.
#[derive(Debug)]
pub struct Identity {
    attributes: Vec<IdentityAttribute>,
    verifiers: Vec<Arc<Verifier>>,
    lookalikes: Lookalikes,
    challenges: Challenges,
}

/// What is known of a connection, and so of all of its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFacts {
    pub peer: Option<IpAddr>,
    /// The first subject alternative name of the client's certificate, which the handshake has verified.
    pub certificate_san: Option<String>,
    /// The distinguished name of that certificate's subject, as RFC 4514 writes it.
    pub certificate_subject: Option<String>,
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
struct Head<'p, 'r> {
    parts: &'r Parts,
    parameters: &'p [(&'r str, &'r str)],
    connection: &'r ConnectionFacts,
    now: Timestamp,
}

impl Identity {
    /// Prepares the attributes of a configuration. Verifiers of an earlier one are used again where they fit, and the keys of
    /// its sources in any case; those of other sources are not loaded yet. See [`Identity::verifiers`].
    pub fn new(attributes: &[AttributeConfig], earlier: &[Arc<Verifier>]) -> Identity {
        let issuers = issuers(attributes);
        let mut verifiers: Vec<Arc<Verifier>> = Vec::new();
        for (config, paths) in &issuers {
            let known = || earlier.iter().chain(&verifiers);
            let same = known().find(|verifier| verifier.config() == config && verifier.paths() == paths);
            let verifier = same.cloned().unwrap_or_else(|| {
                let source = known().find(|verifier| verifier.config().keys.is_at_same_place(&config.keys));
                let keys = source.map_or_else(Arc::default, |verifier| Arc::clone(verifier.keys()));
                Arc::new(Verifier::with_keys(Arc::clone(config), paths.clone(), keys))
            });
            verifiers.push(verifier);
        }
        let (lookalikes, challenges) = (Lookalikes::of(attributes), Challenges::of(attributes));
        let attributes = attributes.iter().map(|attribute| IdentityAttribute {
            name: attribute.name.clone(),
            sources: attribute.sources.iter().filter_map(|source| IdentitySource::new(source, &issuers)).collect(),
        });
        Identity { attributes: attributes.collect(), verifiers, lookalikes, challenges }
    }

    /// The verifiers of tokens, one for each issuer. Whoever loads keys sets them here.
    pub fn verifiers(&self) -> &[Arc<Verifier>] {
        &self.verifiers
    }

    /// Reads the attributes of a request. Of each attribute, the first source that has a value counts.
    ///
    /// # Errors
    /// If a source that is read has several different values.
    pub fn read<'r>(
        &'r self,
        parts: &'r Parts,
        parameters: &[(&'r str, &'r str)],
        connection: &'r ConnectionFacts,
        now: Timestamp,
    ) -> Result<IdentityValues<'r>, AmbiguousSource> {
        let head = Head { parts, parameters, connection, now };
        let mut tokens: Tokens = SmallVec::from_elem(None, self.verifiers.len());
        let mut values = IdentityValues::default();
        for attribute in &self.attributes {
            for source in &attribute.sources {
                let value = self.value(source, head, &mut tokens);
                if let Some(value) = value.map_err(|Repeated| self.ambiguous(source))? {
                    values.0.push((&*attribute.name, value));
                    break;
                }
            }
        }
        Ok(values)
    }

    /// What `WWW-Authenticate` says to a request without a valid value of an attribute.
    pub(crate) fn challenges(&self, missing: &str, headers: &HeaderMap) -> Vec<HeaderValue> {
        self.challenges.for_missing(missing, headers)
    }

    /// Removes the fields of a request that an application may take for those that attributes are read from.
    pub(crate) fn remove_lookalikes(&self, headers: &mut HeaderMap, marks: FieldMarks) {
        self.lookalikes.remove(headers, marks);
    }

    /// The first of the required attributes that a request does not have: the answer is 401.
    pub fn missing<'n>(&self, require: &'n [String], values: &IdentityValues<'_>) -> Option<&'n str> {
        require.iter().map(String::as_str).find(|name| values.get(name).is_none())
    }

    fn value<'r>(
        &'r self,
        source: &'r IdentitySource,
        head: Head<'_, 'r>,
        tokens: &mut Tokens,
    ) -> Result<Option<Cow<'r, str>>, Repeated> {
        let Parts { headers, uri, .. } = head.parts;
        Ok(match source {
            IdentitySource::Header(name) => borrowed(credential::field(headers, name)?),
            IdentitySource::Query(name) => match uri.query() {
                Some(query) => query::parameter(query.as_bytes(), name)?.and_then(text),
                None => None,
            },
            IdentitySource::Cookie(name) => borrowed(cookie::value(headers, name)?),
            IdentitySource::PathParameter(name) => {
                let found = head.parameters.iter().find(|(parameter, _)| parameter == name);
                borrowed(found.map(|(_, value)| value.as_bytes()))
            }
            IdentitySource::Bearer => credential::bearer(headers)?.map(|token| Cow::Owned(credential::digest(token))),
            IdentitySource::Claim { verifier, claim } => {
                let Some(token) = tokens.get_mut(*verifier) else { return Ok(None) };
                let claims = match token {
                    Some(known) => known,
                    None => token.insert(self.claims(*verifier, head)?),
                };
                claims.as_ref().and_then(|claims| claims.get(*claim)).map(|value| Cow::Owned(value.to_owned()))
            }
            IdentitySource::Certificate(field) => {
                let value = match field {
                    CertificateField::San => &head.connection.certificate_san,
                    CertificateField::Subject => &head.connection.certificate_subject,
                    CertificateField::Fingerprint => &head.connection.certificate_fingerprint,
                };
                borrowed(value.as_ref().map(String::as_bytes))
            }
            IdentitySource::TlsFingerprint => head.connection.tls_fingerprint.as_deref().map(Cow::Borrowed),
        })
    }

    fn claims(&self, verifier: usize, head: Head<'_, '_>) -> Result<Option<VerifiedClaims>, Repeated> {
        let Some(verifier) = self.verifiers.get(verifier) else { return Ok(None) };
        let token = credential::token(&verifier.config().token, &head.parts.headers)?;
        let Some(token) = token else { return Ok(None) };
        Ok(match verifier.verify(token, head.now) {
            Ok(claims) => Some(claims),
            Err(fault) => {
                tracing::debug!(fault = fault.name(), "a token is not accepted");
                None
            }
        })
    }

    /// A source that has several values.
    fn ambiguous(&self, source: &IdentitySource) -> AmbiguousSource {
        match source {
            IdentitySource::Header(name) => AmbiguousSource::header(name),
            IdentitySource::Query(name) => AmbiguousSource::parameter(name),
            IdentitySource::Cookie(name) => AmbiguousSource::cookie(name),
            IdentitySource::Claim { verifier, .. } => match &self.verifiers[*verifier].config().token {
                TokenSource::Bearer => AmbiguousSource::header(&AUTHORIZATION),
                TokenSource::Header(name) => AmbiguousSource::header(name),
                TokenSource::Cookie(name) => AmbiguousSource::cookie(name),
            },
            // Of the others there is one.
            _ => AmbiguousSource::header(&AUTHORIZATION),
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

fn borrowed(value: Option<&[u8]>) -> Option<Cow<'_, str>> {
    text(Cow::Borrowed(value?))
}

/// A value as rules see it. An empty one is none: a client that sends `X-Api-Key:` has no key.
fn text(value: Cow<'_, [u8]>) -> Option<Cow<'_, str>> {
    match value {
        value if value.is_empty() => None,
        Cow::Borrowed(value) => Some(attribute_text::text(value)),
        Cow::Owned(value) => Some(Cow::Owned(attribute_text::text(&value).into_owned())),
    }
}
