//! `/v1/ratelimit/authorize`: for proxies that ask with the original request's headers (nginx `auth_request`, Caddy
//! `forward_auth`, Traefik).
//!
//! A proxy takes every answer that it does not know for a failure. So whatever is missing in what it sends, the answer is 200, counted,
//! or a refusal by the rules.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Response};
use http_body_util::Full;
use smallvec::SmallVec;
use tollgate::told::{self, Detail};
use tollgate::{Decision, Descriptor, ReceiptWish, Replay, Request, RequestError, now};

use super::Wire;
use super::settings::{AttributeSource, AuthorizeAttribute, AuthorizeSettings};
use crate::wire::instructions::Instructions;

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static METHODS: [HeaderName; 2] =
    [HeaderName::from_static("x-original-method"), HeaderName::from_static("x-forwarded-method")];
static URIS: [HeaderName; 2] = [HeaderName::from_static("x-original-uri"), HeaderName::from_static("x-forwarded-uri")];

/// Attributes by name.
type Values<'h> = SmallVec<[(&'h str, Cow<'h, str>); 8]>;
/// Those of them that rules may look at.
type Entries<'v> = SmallVec<[(&'v str, &'v str); 8]>;

/// Decides the request that headers describe.
///
/// Nobody's patience is heard of: the headers are those of somebody who only wants to pass.
pub(super) async fn answer(wire: &Wire, headers: &HeaderMap) -> Response<Full<Bytes>> {
    if wire.gate.waits() {
        // Boxed, so that the future of a request is as small as if no store made wait.
        return Box::pin(wait(wire, headers)).await;
    }
    let values = wire.authorize.values(headers);
    let (entries, instructions) = wire.sifted(&values);
    let descriptors = [Descriptor::new(&entries)];
    let request = instructions.applied_to(wire.request(&descriptors, headers));
    tell(wire, &request, now(wire.decide(&request, headers)))
}

/// The same on a store that makes wait.
async fn wait(wire: &Wire, headers: &HeaderMap) -> Response<Full<Bytes>> {
    let values = wire.authorize.values(headers);
    let (entries, instructions) = wire.sifted(&values);
    let descriptors = [Descriptor::new(&entries)];
    let request = instructions.applied_to(wire.request(&descriptors, headers));
    tell(wire, &request, Some(wire.decide(&request, headers).await))
}

fn tell(wire: &Wire, request: &Request<'_>, decided: Option<Result<Decision, RequestError>>) -> Response<Full<Bytes>> {
    match decided {
        Some(Ok(decision)) => {
            if decision.outcomes().next().is_none() && decision.unlimited().next().is_none() {
                wire.gate.metrics().authorize_unmatched.inc();
            }
            told::answer(&wire.told, request, &decision, wire.gate.beside(&decision), Detail::Bare)
        }
        Some(Err(_)) | None => {
            wire.gate.metrics().authorize_unmatched.inc();
            Response::new(Full::default())
        }
    }
}

impl Wire {
    /// Attributes and instructions. What can't be followed is as good as not sent, and counted.
    fn sifted<'v>(&self, values: &'v Values<'_>) -> (Entries<'v>, Instructions<'v>) {
        let (mut entries, mut instructions) = (Entries::new(), Instructions::default());
        for (name, value) in values {
            match instructions.take(name, value) {
                Ok(true) => {}
                Ok(false) if entries.len() == Request::MOST_ENTRIES => {}
                // A value that is too long to be decided must not be a way past the limits.
                Ok(false) => entries.push((*name, told::beginning(value, Request::LONGEST_TEXT))),
                Err(_) => {
                    self.gate.metrics().authorize_bad_cost.inc();
                }
            }
        }
        (entries, instructions)
    }

    /// A proxy can't be told that its client's idempotency key has named something else: then the request is one of its own.
    async fn decide(&self, request: &Request<'_>, headers: &HeaderMap) -> Result<Decision, RequestError> {
        match self.gate.check(request, headers, None).await {
            Ok(decision) if decision.replay() == Replay::Conflict => {
                self.gate.metrics().authorize_bad_cost.inc();
                self.gate.check(&Request { once: None, ..*request }, headers, None).await
            }
            decided => decided,
        }
    }

    /// What is asked for the client of a proxy.
    fn request<'r>(&'r self, descriptors: &'r [Descriptor<'r>], headers: &HeaderMap) -> Request<'r> {
        let cost = self.authorize.cost(headers).unwrap_or_else(|| {
            self.gate.metrics().authorize_bad_cost.inc();
            1
        });
        // A proxy that asks once has no use for a receipt.
        let receipt = ReceiptWish::Never;
        Request { domain: self.authorize.domain.as_deref(), descriptors, cost, receipt, ..Request::default() }
    }
}

/// May the request with these headers pass?
///
/// For proxies: nginx `auth_request`, Caddy `forward_auth`, Traefik. Which headers become which attributes is a setting.
#[utoipa::path(
    method(get, head, post), path = "/v1/ratelimit/authorize", operation_id = "authorize",
    responses(
        (status = 200, description = "It passes"),
        (status = 403, body = super::openapi::Refused, content_type = "application/problem+json", description = "The caller or its address is blocked"),
        (status = 429, body = super::openapi::Refused, content_type = "application/problem+json", description = "It does not pass"),
        (status = 503, body = super::openapi::Refused, content_type = "application/problem+json", description = "It can't be counted, and its rules refuse it then"),
    )
)]
pub(super) async fn handle(State(wire): State<Arc<Wire>>, headers: HeaderMap) -> axum::response::Response {
    answer(&wire, &headers).await.map(axum::body::Body::new)
}

impl AuthorizeSettings {
    /// The attributes that the headers have.
    fn values<'h>(&'h self, headers: &'h HeaderMap) -> Values<'h> {
        let value = |one: &'h AuthorizeAttribute| Some((&*one.name, self.value(&one.source, headers)?));
        self.attributes.iter().filter_map(value).collect()
    }

    fn value<'h>(&self, source: &AttributeSource, headers: &'h HeaderMap) -> Option<Cow<'h, str>> {
        match source {
            AttributeSource::Header(name) if *name == FORWARDED_FOR => address(headers, self.trusted_hops),
            AttributeSource::Header(name) => text(headers, name),
            AttributeSource::Method => first(headers, &METHODS),
            AttributeSource::Path => first(headers, &URIS).map(without_query),
            AttributeSource::Endpoint => {
                let (method, path) = (first(headers, &METHODS)?, first(headers, &URIS).map(without_query)?);
                Some(Cow::Owned(format!("{method} {path}")))
            }
        }
    }

    /// What the request costs: 1 where nothing says otherwise, none where what is said is no cost.
    ///
    /// 0 is none either. Most proxies pass on what a client sends, and a look would be a way past the limits.
    fn cost(&self, headers: &HeaderMap) -> Option<u64> {
        let Some(cost) = text(headers, &self.cost_header) else { return Some(1) };
        let is_number = cost.bytes().all(|byte| byte.is_ascii_digit());
        cost.parse().ok().filter(|cost| is_number && *cost > 0)
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Cow<'h, str>> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()))
}

fn first<'h>(headers: &'h HeaderMap, names: &[HeaderName]) -> Option<Cow<'h, str>> {
    names.iter().find_map(|name| text(headers, name))
}

fn without_query(uri: Cow<'_, str>) -> Cow<'_, str> {
    match (uri.find(['?', '#']), uri) {
        (None, uri) => uri,
        (Some(end), Cow::Borrowed(uri)) => Cow::Borrowed(&uri[..end]),
        (Some(end), Cow::Owned(mut uri)) => {
            uri.truncate(end);
            Cow::Owned(uri)
        }
    }
}

/// The caller's address: the rightmost that `X-Forwarded-For` has beside those of trusted proxies. What stands left of it the
/// caller may have written itself. Where there are fewer, all were written by those proxies, and the leftmost is meant.
fn address(headers: &HeaderMap, trusted_hops: usize) -> Option<Cow<'_, str>> {
    let lines = headers.get_all(&FORWARDED_FOR).iter().rev();
    let mut entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let mut found = None;
    for _ in 0..=trusted_hops {
        match entries.find(|entry| !entry.is_empty()) {
            Some(entry) => found = Some(entry),
            None => break,
        }
    }
    let entry = String::from_utf8_lossy(found?);
    // Some write the port too.
    Some(match entry.parse::<SocketAddr>() {
        Ok(with_port) => Cow::Owned(with_port.ip().to_string()),
        Err(_) => entry,
    })
}
