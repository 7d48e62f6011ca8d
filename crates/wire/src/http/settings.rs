//! The settings of this wire.

use std::str::FromStr;
use std::time::Duration;

use http::HeaderName;

/// The timeouts of clients.
#[derive(Clone, Copy, Debug)]
pub struct HttpTimeouts {
    /// A connection without a new request for this long is closed, at the latest after twice as long.
    pub idle: Duration,
    /// From a request's head to the end of its body.
    pub body: Duration,
}

/// How `/v1/ratelimit/authorize` maps the headers of a proxy's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizeSettings {
    /// The domain of the rules; optional if there is only one.
    pub domain: Option<String>,
    /// The attributes in order, with their sources.
    pub attributes: Vec<AuthorizeAttribute>,
    /// The header with the cost of a request.
    pub cost_header: HeaderName,
    /// How many proxies behind the first append to `X-Forwarded-For`: this many entries are skipped from the right.
    pub trusted_hops: usize,
}

/// An attribute of a proxied request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizeAttribute {
    pub name: String,
    pub source: AttributeSource,
}

/// The source of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeSource {
    Header(HeaderName),
    /// `:endpoint`: the original request's method and path, `GET /orders`.
    Endpoint,
    /// `:method`.
    Method,
    /// `:path`, without the query.
    Path,
}

impl Default for HttpTimeouts {
    fn default() -> HttpTimeouts {
        HttpTimeouts { idle: Duration::from_secs(60), body: Duration::from_secs(5) }
    }
}

impl AuthorizeSettings {
    /// The default of `attributes`, as text.
    pub const ATTRIBUTES: &str =
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

    /// Parses `api_key=X-Api-Key`, `endpoint=:endpoint`.
    fn from_str(text: &str) -> Result<AuthorizeAttribute, String> {
        let (name, source) = match text.split_once('=') {
            Some((name, source)) if !name.trim().is_empty() => (name.trim(), source.trim()),
            _ => return Err(format!("`{text}` is not an attribute with its source; write api_key=X-Api-Key")),
        };
        let source =
            match source {
                ":endpoint" => AttributeSource::Endpoint,
                ":method" => AttributeSource::Method,
                ":path" => AttributeSource::Path,
                header => AttributeSource::Header(header.parse().map_err(|_| {
                    format!("`{header}` is not a header name; write one, or :endpoint, :method or :path")
                })?),
            };
        Ok(AuthorizeAttribute { name: name.to_owned(), source })
    }
}
