//! What an operator may choose of this wire: plain data.

use std::str::FromStr;
use std::time::Duration;

use http::HeaderName;

/// How long is waited for clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// A connection that brings no request for this long is closed, at the latest after twice as long.
    pub(crate) idle: Duration,
    /// From a request's head to the end of its body.
    pub(crate) body: Duration,
}

/// What `/v1/ratelimit/authorize` makes of the headers that a proxy sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthorizeSettings {
    /// Whose rules; may be missing where there is one domain.
    pub(crate) domain: Option<String>,
    /// The attributes, in their order, and where each comes from.
    pub(crate) attributes: Vec<AuthorizeAttribute>,
    /// The header that says what a request costs.
    pub(crate) cost_header: HeaderName,
    /// How many proxies behind the first have written into `X-Forwarded-For`: so many entries from the right are passed over.
    pub(crate) trusted_hops: usize,
}

/// One attribute of a request that a proxy asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthorizeAttribute {
    pub(crate) name: String,
    pub(crate) source: AttributeSource,
}

/// Where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttributeSource {
    Header(HeaderName),
    /// `:endpoint`: the original request's method and path, `GET /orders`.
    Endpoint,
    /// `:method`.
    Method,
    /// `:path`, without the query.
    Path,
}

impl Default for Times {
    fn default() -> Times {
        Times { idle: Duration::from_secs(60), body: Duration::from_secs(5) }
    }
}

impl AuthorizeSettings {
    /// The default of `attributes`, as it is written.
    pub(crate) const ATTRIBUTES: &str =
        "api_key=X-Api-Key,remote_address=X-Forwarded-For,endpoint=:endpoint,method=:method,path=:path";
}

impl Default for AuthorizeSettings {
    fn default() -> AuthorizeSettings {
        let attributes = Self::ATTRIBUTES.split(',').filter_map(|one| one.parse().ok()).collect();
        let cost_header = HeaderName::from_static("x-ratelimit-cost");
        AuthorizeSettings { domain: None, attributes, cost_header, trusted_hops: 0 }
    }
}

impl FromStr for AuthorizeAttribute {
    type Err = String;

    /// `api_key=X-Api-Key`, `endpoint=:endpoint`.
    fn from_str(text: &str) -> Result<AuthorizeAttribute, String> {
        let (name, source) = match text.split_once('=') {
            Some((name, source)) if !name.trim().is_empty() => (name.trim(), source.trim()),
            _ => return Err(format!("`{text}` is not an attribute and its source; write api_key=X-Api-Key")),
        };
        let source =
            match source {
                ":endpoint" => AttributeSource::Endpoint,
                ":method" => AttributeSource::Method,
                ":path" => AttributeSource::Path,
                header => AttributeSource::Header(header.parse().map_err(|_| {
                    format!("`{header}` is no header's name; write one, or :endpoint, :method or :path")
                })?),
            };
        Ok(AuthorizeAttribute { name: name.to_owned(), source })
    }
}
