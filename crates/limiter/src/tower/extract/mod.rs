//! Ready-made extractors: each finds one attribute in the head of a request. They compose by being added one after the other.
//!
//! | | attribute, unless it is [`named`](One::named) otherwise |
//! | --- | --- |
//! | [`header`] | the header's name |
//! | [`client_address`] | `remote_address` |
//! | [`path`] | `path`: that of the route that matched (feature `axum`), else the request's without its query |
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
pub use tollgate_rules::model::Network;
pub use tollgate_rules::problem::Fault;

use super::attributes::{Attributes, Extract};

/// Finds the value of one attribute.
pub trait Find: Send + Sync + 'static {
    /// The value, if the request has one.
    fn find<'r>(&'r self, head: &'r Parts) -> Option<Cow<'r, str>>;
}

/// One attribute: what it is called, and where it is found.
#[derive(Clone, Debug)]
pub struct One<V> {
    name: Cow<'static, str>,
    value: V,
}

impl<V: Find> One<V> {
    /// An attribute of this name.
    pub fn new(name: impl Into<Cow<'static, str>>, value: V) -> One<V> {
        One { name: name.into(), value }
    }

    /// The same by another name: the one that the rules have for it.
    #[must_use]
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> One<V> {
        One { name: name.into(), ..self }
    }
}

impl<V: Find> Extract for One<V> {
    fn extract<'r>(&'r self, head: &'r Parts, attributes: &mut Attributes<'r>) {
        if let Some(value) = self.value.find(head) {
            attributes.add(&*self.name, value);
        }
    }
}

/// The value of a header: of its first line, if it has several. What is not UTF-8 in it becomes `�`.
#[derive(Clone, Debug)]
pub struct Header(HeaderName);

/// The value of a header, under the header's name.
///
/// ```
/// use http::HeaderName;
/// use tollgate::tower::extract;
///
/// let api_key = extract::header(HeaderName::from_static("x-api-key")).named("api_key");
/// # let _ = api_key;
/// ```
pub fn header(name: HeaderName) -> One<Header> {
    One::new(name.as_str().to_owned(), Header(name))
}

impl Find for Header {
    fn find<'r>(&'r self, head: &'r Parts) -> Option<Cow<'r, str>> {
        text(head, &self.0)
    }
}

/// The method of a request.
#[derive(Clone, Copy, Debug)]
pub struct Method;

/// `GET`, `POST`, …, under the name `method`.
pub fn method() -> One<Method> {
    One::new("method", Method)
}

impl Find for Method {
    fn find<'r>(&'r self, head: &'r Parts) -> Option<Cow<'r, str>> {
        Some(Cow::Borrowed(head.method.as_str()))
    }
}

/// The path of a request.
#[derive(Clone, Copy, Debug)]
pub struct Path;

/// The path of the route that matched, as `/orders/{id}`, under the name `path`.
///
/// It takes the feature `axum`, and the layer on a router's routes (`Router::layer`, `Router::route_layer`). Else it is the
/// request's path, without its query.
pub fn path() -> One<Path> {
    One::new("path", Path)
}

impl Find for Path {
    fn find<'r>(&'r self, head: &'r Parts) -> Option<Cow<'r, str>> {
        Some(Cow::Borrowed(matched(head).unwrap_or_else(|| head.uri.path())))
    }
}

/// The method and the path of a request.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint;

/// The method and the [`path`], as `POST /orders/{id}`, under the name `endpoint`.
pub fn endpoint() -> One<Endpoint> {
    One::new("endpoint", Endpoint)
}

impl Find for Endpoint {
    fn find<'r>(&'r self, head: &'r Parts) -> Option<Cow<'r, str>> {
        let path = matched(head).unwrap_or_else(|| head.uri.path());
        Some(Cow::Owned([head.method.as_str(), " ", path].concat()))
    }
}

/// The path of the route that matched.
#[cfg(feature = "axum")]
fn matched(head: &Parts) -> Option<&str> {
    head.extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn matched(_head: &Parts) -> Option<&str> {
    None
}

/// Where callers name a request, so that its repetition is known: as on the server.
static IDEMPOTENCY_KEYS: [HeaderName; 2] =
    [HeaderName::from_static("idempotency-key"), HeaderName::from_static("x-idempotency-key")];

/// The caller's name for a request: `Idempotency-Key` or `X-Idempotency-Key`, with or without the quotes of a structured field. What
/// is no such name (visible ASCII), and where there are several, there is none.
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
    head.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()))
}

#[cfg(test)]
mod tests;
