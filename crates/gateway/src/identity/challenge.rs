//! What a 401 says of the credentials that are accepted (RFC 9110 11.6.1).

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use crate::model::{AttributeConfig, AttributeSource, TokenSource};

/// How a client may prove who it is, by attribute.
#[derive(Debug, Default)]
pub(super) struct Challenges(Vec<(String, Vec<Challenge>)>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Challenge {
    /// A token in `Authorization` (RFC 6750).
    Bearer,
    /// A value in another place, which has no registered scheme.
    Other(HeaderValue),
}

impl Challenges {
    pub(super) fn of(attributes: &[AttributeConfig]) -> Challenges {
        let challenges = attributes.iter().map(|attribute| {
            let mut all: Vec<Challenge> = Vec::new();
            for challenge in attribute.sources.iter().filter_map(Challenge::of) {
                if !all.contains(&challenge) {
                    all.push(challenge);
                }
            }
            (attribute.name.clone(), all)
        });
        Challenges(challenges.collect())
    }

    /// For a request without a valid value of an attribute.
    pub(super) fn for_missing(&self, attribute: &str, headers: &HeaderMap) -> Vec<HeaderValue> {
        let own = self.0.iter().filter(|(name, _)| name == attribute).flat_map(|(_, challenges)| challenges);
        let values = own.map(|challenge| match challenge {
            Challenge::Bearer if headers.contains_key(AUTHORIZATION) => {
                HeaderValue::from_static("Bearer error=\"invalid_token\"")
            }
            Challenge::Bearer => HeaderValue::from_static("Bearer"),
            Challenge::Other(value) => value.clone(),
        });
        values.collect()
    }
}

impl Challenge {
    /// `None` for what a client can't send, and for names that have no place in a quoted text.
    fn of(source: &AttributeSource) -> Option<Challenge> {
        let other = |place: &str, name: &str| {
            let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte));
            let text = is_plain.then(|| format!("ApiKey in=\"{place}\", name=\"{name}\""))?;
            HeaderValue::try_from(text).ok().map(Challenge::Other)
        };
        match source {
            AttributeSource::Header(name) => other("header", name.as_str()),
            AttributeSource::Query(name) => other("query", name),
            AttributeSource::Cookie(name) => other("cookie", name),
            AttributeSource::Bearer => Some(Challenge::Bearer),
            AttributeSource::JwtClaim { issuer, .. } => match &issuer.token {
                TokenSource::Bearer => Some(Challenge::Bearer),
                TokenSource::Header(name) => other("header", name.as_str()),
                TokenSource::Cookie(name) => other("cookie", name),
            },
            AttributeSource::PathParameter(_) | AttributeSource::Certificate(_) | AttributeSource::TlsFingerprint => {
                None
            }
        }
    }
}
