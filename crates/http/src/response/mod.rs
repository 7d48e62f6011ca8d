//! Decisions as HTTP responses: headers in several dialects, and bodies.

mod blocked;
mod display;
mod headers;
mod respond;
mod settled;
mod shed;

use std::fmt;

use http::{HeaderName, HeaderValue};
use tollgate_core::Span;

pub use blocked::{ABNORMAL_USAGE, MARKED, is_marked};
pub use display::{period, truncate, window};
pub use headers::{SIGNAL, reset_at, signals, with_jitter};
pub use respond::{Detail, ResponseContext, respond};
pub use settled::respond_settled;
pub use shed::SHED;

pub use crate::writer::{ConnectionEnd, WrittenResponse};

static JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Marks a response as the replay of an earlier one, for the same idempotency key or receipt.
static REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// A signed receipt for the caller.
#[derive(Clone, Copy)]
pub struct SignedReceipt<'a> {
    /// The signed text.
    pub text: &'a str,
    /// How long the receipt is valid.
    pub settle_within: Span,
}

/// Omits the receipt: it contains callers' values.
impl fmt::Debug for SignedReceipt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedReceipt").field("settle_within", &self.settle_within).finish_non_exhaustive()
    }
}

/// How decisions are rendered as responses.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseStyle {
    /// The enabled response headers.
    pub dialects: Dialects,
    /// The jitter of `Retry-After`.
    pub jitter: Jitter,
    /// How values in the `scope` of a refusal are written.
    pub scope_values: ScopeValues,
}

/// The enabled response headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialects {
    /// `X-RateLimit-Limit`, `-Remaining`, `-Used`, `-Reset`.
    pub x_ratelimit: bool,
    /// `X-RateLimit-Policy`.
    pub policy: bool,
    /// `X-RateLimit-Bucket`.
    pub bucket: bool,
    /// `RateLimit` and `RateLimit-Policy` of IETF draft 11.
    pub ratelimit: bool,
    /// `X-RateLimit-Denied-By`.
    pub denied_by: bool,
    /// `X-RateLimit-Signal`: the soft limits that a request exceeded.
    pub signal: bool,
}

/// The jitter of `Retry-After`: it keeps clients that were refused together from retrying together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// No jitter.
    Off,
    /// Up to this many basis points of the wait, and at least up to one second.
    Bps(u16),
}

/// How values in the `scope` of a refusal are written. They may be secrets, such as API keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScopeValues {
    /// Values that identify the caller are cut to their first characters; others are written in full.
    #[default]
    Shortened,
    /// All values are written in full.
    Full,
    /// Names only.
    Hidden,
}

impl Default for Dialects {
    fn default() -> Dialects {
        Dialects { x_ratelimit: true, policy: true, bucket: true, ratelimit: true, denied_by: true, signal: true }
    }
}

impl Default for Jitter {
    fn default() -> Jitter {
        Jitter::Bps(1_000)
    }
}
