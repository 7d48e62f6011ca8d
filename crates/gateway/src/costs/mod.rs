//! What a request costs: reserved before it is forwarded, and metered while its response passes.

pub mod include_usage;

mod graphql;
mod llm_usage;
mod meter;
mod pointer;
mod sse;
mod stream_elements;
#[cfg(test)]
mod tests;

use std::fmt;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use tollgate_core::EXACT;

use crate::model::{CostConfig, CostSource, SettleSource};

pub use meter::{Meter, MeteredCost};

/// A request that is refused for what it would cost: the answer is 400, with this sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostRefusal {
    pub reason: String,
}

/// The largest body that a cost is read from, in bytes.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// How much of a request's body must be in memory before it is forwarded, in bytes. A body that is longer is forwarded
/// as well; see [`reserve`] for its cost.
pub fn body_bound(costs: &[CostConfig]) -> usize {
    let adds_usage = |cost: &CostConfig| cost.settle == Some(SettleSource::Llm { include_usage: true });
    let reads_body = |cost: &CostConfig| matches!(cost.reserve, CostSource::Json(_) | CostSource::GraphQl(_));
    if costs.iter().any(adds_usage) {
        include_usage::MAX_REWRITTEN_BYTES
    } else if costs.iter().any(reads_body) {
        MAX_BODY_BYTES
    } else {
        0
    }
}

/// Whether the body of a request is necessary for its costs.
pub fn needs_body(costs: &[CostConfig]) -> bool {
    body_bound(costs) > 0
}

/// The units to reserve for a request. `body` is the whole body, or more than [`MAX_BODY_BYTES`] from its beginning.
///
/// # Errors
/// For GraphQL: a query that exceeds its bounds, or can't be measured. A default cost would be a way past the limit.
pub fn reserve(cost: &CostConfig, parts: &Parts, body: Option<&[u8]>) -> Result<u64, CostRefusal> {
    let units = match &cost.reserve {
        CostSource::Number(units) => Some(*units),
        CostSource::Header(name) => number(&parts.headers, name),
        CostSource::Length { bytes } => length(&parts.headers, body).map(|length| length.div_ceil((*bytes).max(1))),
        CostSource::Json(pointer) => {
            body.filter(|body| body.len() <= MAX_BODY_BYTES).and_then(|body| pointer.find(body))
        }
        CostSource::GraphQl(bounds) => graphql::cost(bounds, parts, body)?,
    };
    Ok(units.unwrap_or(cost.otherwise))
}

/// The bytes of a part, if the cost to settle is the length of a body that no header says.
pub fn counted_length(costs: &[CostConfig], headers: &HeaderMap) -> Option<u64> {
    if headers.contains_key(CONTENT_LENGTH) || costs.iter().any(|cost| cost.settle.is_some()) {
        return None;
    }
    costs.iter().find_map(|cost| match cost.reserve {
        CostSource::Length { bytes } => Some(bytes.max(1)),
        _ => None,
    })
}

fn length(headers: &HeaderMap, body: Option<&[u8]>) -> Option<u64> {
    let whole = || body.filter(|body| body.len() <= MAX_BODY_BYTES).map(|body| body.len() as u64);
    number(headers, CONTENT_LENGTH).or_else(whole)
}

/// The number in a header.
fn number(headers: &HeaderMap, name: impl http::header::AsHeaderName) -> Option<u64> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_digits && *number < EXACT)
}

/// Whether a body is of this media type.
fn has_type(headers: &HeaderMap, media_type: &str) -> bool {
    let value = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    value[..end].trim_ascii().eq_ignore_ascii_case(media_type.as_bytes())
}

/// Whether a body is compressed: it passes as it is, and is not read.
fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|value| {
        let coding = value.as_bytes().trim_ascii();
        !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity")
    })
}

impl CostRefusal {
    fn new(reason: impl Into<String>) -> CostRefusal {
        CostRefusal { reason: reason.into() }
    }
}

impl fmt::Display for CostRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.reason)
    }
}

impl std::error::Error for CostRefusal {}
