//! `/v1/ratelimit/authorize`: checks for proxies that send the original request's headers (nginx `auth_request`, Caddy
//! `forward_auth`, Traefik).
//!
//! A proxy treats every unexpected response as a failure. So whatever is missing in its request, the response is 200,
//! counted, or a refusal by the rules.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Response};
use http_body_util::Full;
use smallvec::SmallVec;
use tollgate::{Decision, Descriptor, ReceiptWish, Replay, Request, RequestError, poll_once};
use tollgate_http::response::{self, Detail};

use super::HttpState;
use super::settings::{AttributeSource, AuthorizeAttribute, AuthorizeSettings};
use crate::instructions::Instructions;

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static METHODS: [HeaderName; 2] =
    [HeaderName::from_static("x-original-method"), HeaderName::from_static("x-forwarded-method")];
static URIS: [HeaderName; 2] = [HeaderName::from_static("x-original-uri"), HeaderName::from_static("x-forwarded-uri")];

/// Attributes by name.
type Values<'h> = SmallVec<[(&'h str, Cow<'h, str>); 8]>;
/// The attributes that rules match.
type Entries<'v> = SmallVec<[(&'v str, &'v str); 8]>;

/// Decides the request that headers describe.
///
/// Timeouts in the headers are ignored: the client wrote them, not the proxy.
pub(super) async fn serve(state: &HttpState, headers: &HeaderMap) -> Response<Full<Bytes>> {
    if state.gate.waits() {
        // Boxed, so that the future of a request stays small for stores that never wait.
        return Box::pin(authorize(state, headers)).await;
    }
    poll_once(authorize(state, headers)).unwrap_or_else(|| pass_uncounted(state))
}

async fn authorize(state: &HttpState, headers: &HeaderMap) -> Response<Full<Bytes>> {
    let values = state.authorize.values(headers);
    let (entries, instructions) = state.split_instructions(&values);
    let descriptors = [Descriptor::new(&entries)];
    let request = instructions.apply_to(state.request(&descriptors, headers));
    let Ok(decision) = state.decide(&request, headers).await else { return pass_uncounted(state) };
    if decision.outcomes().next().is_none() && decision.unlimited().next().is_none() {
        state.gate.metrics().authorize_unmatched.inc();
    }
    let context = state.gate.response_context(&decision);
    response::respond(&state.style, &request, &decision, context, Detail::HeadersOnly)
}

/// The response to a request that can't be decided: it passes.
fn pass_uncounted(state: &HttpState) -> Response<Full<Bytes>> {
    state.gate.metrics().authorize_unmatched.inc();
    Response::new(Full::default())
}

impl HttpState {
    /// Splits the values into attributes and instructions. Invalid instructions are ignored, and counted.
    fn split_instructions<'v>(&self, values: &'v Values<'_>) -> (Entries<'v>, Instructions<'v>) {
        let (mut entries, mut instructions) = (Entries::new(), Instructions::default());
        for (name, value) in values {
            match instructions.take(name, value) {
                Ok(true) => {}
                Ok(false) if entries.len() == Request::MAX_ENTRIES => {}
                // A value that is too long must not bypass the limits.
                Ok(false) => entries.push((*name, response::truncate(value, Request::MAX_TEXT_BYTES))),
                Err(_) => {
                    self.gate.metrics().authorize_bad_cost.inc();
                }
            }
        }
        (entries, instructions)
    }

    /// Decides a request. A proxy can't report a conflict of idempotency keys to its client: the request is decided
    /// without its key then.
    async fn decide(&self, request: &Request<'_>, headers: &HeaderMap) -> Result<Decision, RequestError> {
        match self.gate.check(request, headers, None).await {
            Ok(decision) if decision.replay() == Replay::Conflict => {
                self.gate.metrics().authorize_bad_cost.inc();
                self.gate.check(&Request { once: None, ..*request }, headers, None).await
            }
            decided => decided,
        }
    }

    /// The request of a proxy's client.
    fn request<'r>(&'r self, descriptors: &'r [Descriptor<'r>], headers: &HeaderMap) -> Request<'r> {
        let cost = self.authorize.cost(headers).unwrap_or_else(|| {
            self.gate.metrics().authorize_bad_cost.inc();
            1
        });
        // A proxy can't settle a receipt.
        let receipt = ReceiptWish::Never;
        Request { domain: self.authorize.domain.as_deref(), descriptors, cost, receipt, ..Request::default() }
    }
}

/// Check a request by its headers
///
/// For proxies: nginx `auth_request`, Caddy `forward_auth`, Traefik. Settings map headers to attributes.
#[utoipa::path(
    method(get, head, post), path = "/v1/ratelimit/authorize", operation_id = "authorize",
    responses(
        (status = 200, description = "The request passes"),
        (status = 403, body = super::description::Refused, content_type = "application/problem+json", description = "The caller or its address is blocked"),
        (status = 429, body = super::description::Refused, content_type = "application/problem+json", description = "The request is refused"),
        (status = 503, body = super::description::Refused, content_type = "application/problem+json", description = "The request can't be counted, and its rules refuse it in that case"),
    )
)]
pub(super) async fn handle(State(state): State<Arc<HttpState>>, headers: HeaderMap) -> axum::response::Response {
    serve(&state, &headers).await.map(axum::body::Body::new)
}

impl AuthorizeSettings {
    /// The attributes in the headers.
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

    /// The cost of the request: 1 by default, `None` if the header is invalid.
    ///
    /// 0 is invalid: most proxies forward their client's headers, and a peek would bypass the limits.
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

/// The caller's address: the rightmost entry of `X-Forwarded-For` that is not a trusted proxy's. Entries left of it may
/// be forged. If there are fewer entries, trusted proxies wrote all of them, and the leftmost counts.
fn address(headers: &HeaderMap, trusted_hops: usize) -> Option<Cow<'_, str>> {
    let lines = headers.get_all(&FORWARDED_FOR).iter().rev();
    let mut entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let mut address = None;
    for _ in 0..=trusted_hops {
        match entries.find(|entry| !entry.is_empty()) {
            Some(entry) => address = Some(entry),
            None => break,
        }
    }
    let entry = String::from_utf8_lossy(address?);
    // Some entries include the port.
    Some(match entry.parse::<SocketAddr>() {
        Ok(with_port) => Cow::Owned(with_port.ip().to_string()),
        Err(_) => entry,
    })
}
