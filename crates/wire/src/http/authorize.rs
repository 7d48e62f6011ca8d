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
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::Full;
use smallvec::SmallVec;
use tollgate::{Descriptor, ReceiptWish, Request, RequestError, poll_once};
use tollgate_http::request_target::PathNormalization;
use tollgate_http::response::{self, Detail};
use tollgate_telemetry::metrics::{Repair, Repairs};

use super::HttpState;
use super::check::undecided;
use super::json_body::cost_of;
use super::settings::{AttributeSource, AuthorizeAttribute, AuthorizeSettings};
use crate::attributes::{as_sent, repaired};
use crate::instructions::Instructions;

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static METHODS: [HeaderName; 2] =
    [HeaderName::from_static("x-original-method"), HeaderName::from_static("x-forwarded-method")];
static URIS: [HeaderName; 2] = [HeaderName::from_static("x-original-uri"), HeaderName::from_static("x-forwarded-uri")];

/// Attributes by name, as rules see them.
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
    let mut repairs = Repairs::default();
    let values = state.values(headers, &mut repairs);
    let (entries, instructions) = state.split_instructions(&values, &mut repairs);
    let descriptors = [Descriptor::new(&entries)];
    let request = instructions.apply_to(state.request(&descriptors, headers, &mut repairs));
    state.count_repairs(repairs);
    let mut decision = state.gate.limiter().decision();
    match state.gate.check(&request, headers, None, &mut decision).await {
        Ok(()) => {}
        Err(RequestError::TooMany { .. } | RequestError::TooLong | RequestError::BadOnce) => {
            return undecided(state, request.domain);
        }
        Err(_) => return pass_uncounted(state),
    }
    if decision.is_unmatched() {
        state.gate.metrics().authorize_unmatched.inc();
    }
    let context = state.gate.response_context(&decision);
    response::respond(&state.style, &request, &decision, context, Detail::HeadersOnly).into_response()
}

/// The response to a request that can't be decided: it passes.
fn pass_uncounted(state: &HttpState) -> Response<Full<Bytes>> {
    state.gate.metrics().authorize_unmatched.inc();
    Response::new(Full::default())
}

impl HttpState {
    /// The attributes in the headers.
    fn values<'h>(&'h self, headers: &'h HeaderMap, repairs: &mut Repairs) -> Values<'h> {
        let settings = &self.authorize;
        let mut values = Values::new();
        for AuthorizeAttribute { name, source } in &settings.attributes {
            let Some(value) = settings.value(source, headers, self.normalization) else { continue };
            values.push((name, usable(name, value, repairs)));
        }
        values
    }

    /// Splits the values into attributes and instructions. Unknown instructions are ignored.
    fn split_instructions<'v>(&self, values: &'v Values<'_>, repairs: &mut Repairs) -> (Entries<'v>, Instructions<'v>) {
        let (mut entries, mut instructions) = (Entries::new(), Instructions::default());
        for (name, value) in values {
            match instructions.take(name, value) {
                Ok(true) => {}
                Ok(false) if entries.len() == Request::MAX_ENTRIES => repairs.add(Repair::TooMany),
                Ok(false) => entries.push((*name, &**value)),
                Err(_) => repairs.add(Repair::BadName),
            }
        }
        if instructions.ignored() > 0 {
            repairs.add(Repair::BadName);
        }
        (entries, instructions)
    }

    /// The request of a proxy's client.
    fn request<'r>(
        &'r self,
        descriptors: &'r [Descriptor<'r>],
        headers: &HeaderMap,
        repairs: &mut Repairs,
    ) -> Request<'r> {
        let cost = self.authorize.cost(headers).unwrap_or_else(|| {
            repairs.add(Repair::BadCost);
            1
        });
        // A proxy can't settle a receipt.
        let receipt = ReceiptWish::Never;
        Request { domain: self.authorize.domain.as_deref(), descriptors, cost, receipt, ..Request::default() }
    }

    fn count_repairs(&self, repairs: Repairs) {
        if repairs.contains(Repair::BadCost) || repairs.contains(Repair::BadName) {
            self.gate.metrics().authorize_bad_cost.inc();
        }
        self.gate.metrics().repaired_all(repairs);
    }
}

/// The value of an attribute as rules see it.
fn usable<'h>(name: &str, value: Cow<'h, [u8]>, repairs: &mut Repairs) -> Cow<'h, str> {
    match value {
        Cow::Borrowed(value) => match as_sent(name, value) {
            Some(text) => Cow::Borrowed(text),
            None => repaired(name, value, repairs),
        },
        Cow::Owned(value) => Cow::Owned(match as_sent(name, &value).is_some() {
            true => String::from_utf8(value).unwrap_or_default(),
            false => repaired(name, &value, repairs).into_owned(),
        }),
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
        (status = 503, body = super::description::Refused, content_type = "application/problem+json", description = "The request can't be counted, and its rules refuse it in that case; or a rule refuses it to protect the service"),
    )
)]
pub(super) async fn handle(State(state): State<Arc<HttpState>>, headers: HeaderMap) -> axum::response::Response {
    serve(&state, &headers).await.map(axum::body::Body::new)
}

impl AuthorizeSettings {
    fn value<'h>(
        &self,
        source: &AttributeSource,
        headers: &'h HeaderMap,
        normalization: PathNormalization,
    ) -> Option<Cow<'h, [u8]>> {
        let method = || first(headers, &METHODS).map(|method| normalization.method(method));
        let path = || first(headers, &URIS).map(|uri| normalization.path(without_query(uri)));
        match source {
            AttributeSource::Header(name) if *name == FORWARDED_FOR => {
                address(headers, self.trusted_hops).map(without_port)
            }
            AttributeSource::Header(name) => value(headers, name).map(Cow::Borrowed),
            AttributeSource::Method => method(),
            AttributeSource::Path => path(),
            AttributeSource::Endpoint => Some(Cow::Owned([&*method()?, b" ", &*path()?].concat())),
        }
    }

    /// The cost of the request: 1 by default, `None` if the header is invalid.
    ///
    /// 0 is invalid: most proxies forward their client's headers, and a peek would bypass the limits.
    fn cost(&self, headers: &HeaderMap) -> Option<u64> {
        let Some(cost) = value(headers, &self.cost_header) else { return Some(1) };
        cost_of(cost).filter(|cost| *cost > 0)
    }
}

fn value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    headers.get(name).map(HeaderValue::as_bytes)
}

fn first<'h>(headers: &'h HeaderMap, names: &[HeaderName]) -> Option<&'h [u8]> {
    names.iter().find_map(|name| value(headers, name))
}

fn without_query(uri: &[u8]) -> &[u8] {
    uri.iter().position(|byte| matches!(byte, b'?' | b'#')).map_or(uri, |end| &uri[..end])
}

/// Some entries include the port.
fn without_port(entry: &[u8]) -> Cow<'_, [u8]> {
    let with_port = str::from_utf8(entry).ok().and_then(|text| text.parse::<SocketAddr>().ok());
    with_port.map_or(Cow::Borrowed(entry), |address| Cow::Owned(address.ip().to_string().into_bytes()))
}

/// The caller's address: the rightmost entry of `X-Forwarded-For` that is not a trusted proxy's. Entries left of it may
/// be forged. If there are fewer entries, trusted proxies wrote all of them, and the leftmost counts.
fn address(headers: &HeaderMap, trusted_hops: usize) -> Option<&[u8]> {
    let lines = headers.get_all(&FORWARDED_FOR).iter().rev();
    let mut entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let mut address = None;
    for _ in 0..=trusted_hops {
        match entries.find(|entry| !entry.is_empty()) {
            Some(entry) => address = Some(entry),
            None => break,
        }
    }
    address
}
