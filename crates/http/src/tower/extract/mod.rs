//! Extractors: each reads one attribute from the head of a request. Add several to combine them.
//!
//! | | attribute, unless [renamed](Attribute::named) |
//! | --- | --- |
//! | [`header`] | the header's name |
//! | [`client_address`] | `remote_address` |
//! | [`path`] | `path`: that of the matched route (feature `axum`), else the request's, [normalized](crate::request_target) |
//! | [`method`] | `method` |
//! | [`endpoint`] | `endpoint`: the method and the path, `POST /orders/{id}` |
//! | [`bearer_subject`] | `user`: the `sub` of a bearer token, unverified |

mod address;
mod bearer;

use std::borrow::Cow;

use http::HeaderName;
use http::request::Parts;

pub use address::{ClientAddress, PeerAddress, Proxies, client_address};
pub use bearer::{BearerSubject, bearer_subject};
use tollgate_rules::attribute_text::escaped;
pub use tollgate_rules::model::Network;
pub use tollgate_rules::problem::TextFault;

use super::attributes::{Attributes, Extract};
use crate::request_target::PathNormalization;

/// Finds the value of one attribute.
pub trait Find: Send + Sync + 'static {
    /// The value, if the request has one.
    fn find<'r>(&'r self, head: &'r Parts) -> Option<Cow<'r, str>>;
}

/// An attribute: its name, and where its value is found.
#[derive(Clone, Debug)]
pub struct Attribute<V> {
    name: Cow<'static, str>,
    value: V,
}

impl<V: Find> Attribute<V> {
    /// An attribute with this name.
    pub fn new(name: impl Into<Cow<'static, str>>, value: V) -> Attribute<V> {
        Attribute { name: name.into(), value }
    }

    /// Renames the attribute to what the rules call it.
    #[must_use]
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> Attribute<V> {
        Attribute { name: name.into(), ..self }
    }
}

impl<V: Find> Extract for Attribute<V> {
    fn extract<'r>(&'r self, head: &'r Parts, attributes: &mut Attributes<'r>) {
        if let Some(value) = self.value.find(head) {
            attributes.add(&*self.name, value);
        }
    }
}

/// The first value of a header. Bytes that are not UTF-8 are escaped, as on the server: `\xff`.
#[derive(Clone, Debug)]
pub struct HeaderAttribute(HeaderName);

/// The value of a header, under the header's name.
///
/// ```
/// use http::HeaderName;
/// use tollgate_http::tower::extract;
///
/// let api_key = extract::header(HeaderName::from_static("x-api-key")).named("api_key");
/// # let _ = api_key;
/// ```
pub fn header(name: HeaderName) -> Attribute<HeaderAttribute> {
    Attribute::new(name.as_str().to_owned(), HeaderAttribute(name))
}

impl Find for HeaderAttribute {
    fn find<'r>(&'r self, head: &'r Parts) -> Option<Cow<'r, str>> {
        text(head, &self.0)
    }
}

/// The method of a request.
#[derive(Clone, Copy, Debug)]
pub struct MethodAttribute;

/// `GET`, `POST`, …, under the name `method`.
pub fn method() -> Attribute<MethodAttribute> {
    Attribute::new("method", MethodAttribute)
}

impl Find for MethodAttribute {
    fn find<'r>(&'r self, head: &'r Parts) -> Option<Cow<'r, str>> {
        Some(Cow::Borrowed(head.method.as_str()))
    }
}

/// The path of a request.
#[derive(Clone, Copy, Debug)]
pub struct PathAttribute;

/// The path of the matched route, such as `/orders/{id}`, under the name `path`.
///
/// This needs the feature `axum`, and the layer on a router's routes (`Router::layer`, `Router::route_layer`).
/// Otherwise it is the request's path, in [one spelling](crate::request_target): without its query, decoded, without
/// repeated slashes and dot segments.
pub fn path() -> Attribute<PathAttribute> {
    Attribute::new("path", PathAttribute)
}

impl Find for PathAttribute {
    fn find<'r>(&'r self, head: &'r Parts) -> Option<Cow<'r, str>> {
        Some(route(head))
    }
}

/// The method and the path of a request.
#[derive(Clone, Copy, Debug)]
pub struct EndpointAttribute;

/// The method and the [`path`], as `POST /orders/{id}`, under the name `endpoint`.
pub fn endpoint() -> Attribute<EndpointAttribute> {
    Attribute::new("endpoint", EndpointAttribute)
}

impl Find for EndpointAttribute {
    fn find<'r>(&'r self, head: &'r Parts) -> Option<Cow<'r, str>> {
        Some(Cow::Owned([head.method.as_str(), " ", &route(head)].concat()))
    }
}

/// The path of the matched route, or of the request in its one spelling.
fn route(head: &Parts) -> Cow<'_, str> {
    if let Some(matched) = matched(head) {
        return Cow::Borrowed(matched);
    }
    match PathNormalization::default().path(head.uri.path().as_bytes()) {
        Cow::Borrowed(path) => escaped(path),
        Cow::Owned(path) => Cow::Owned(escaped(&path).into_owned()),
    }
}

/// The path of the matched route.
#[cfg(feature = "axum")]
fn matched(head: &Parts) -> Option<&str> {
    head.extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn matched(_head: &Parts) -> Option<&str> {
    None
}

/// The headers of idempotency keys, the same as on the server.
static IDEMPOTENCY_KEYS: [HeaderName; 2] =
    [HeaderName::from_static("idempotency-key"), HeaderName::from_static("x-idempotency-key")];

/// The idempotency key of a request: `Idempotency-Key` or `X-Idempotency-Key`, with or without the quotes of a
/// structured field. `None` if it is not visible ASCII, or if there are several.
pub fn idempotency_key(head: &Parts) -> Option<Cow<'_, str>> {
    let mut keys = IDEMPOTENCY_KEYS.iter().flat_map(|name| head.headers.get_all(name)).map(|value| {
        let text = std::str::from_utf8(value.as_bytes()).ok()?;
        let text = text.strip_prefix('"').map_or(Some(text), |rest| rest.strip_suffix('"'))?;
        let is_visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && !text.trim().is_empty();
        is_visible.then_some(text)
    });
    let first = keys.next()??;
    keys.all(|key| key == Some(first)).then_some(Cow::Borrowed(first))
}

fn text<'h>(head: &'h Parts, name: &HeaderName) -> Option<Cow<'h, str>> {
    head.headers.get(name).map(|value| escaped(value.as_bytes()))
}

#[cfg(test)]
mod tests;
