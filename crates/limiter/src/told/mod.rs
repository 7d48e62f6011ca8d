//! What HTTP clients are told of a decision: headers in every dialect, and bodies.

mod answer;
mod blocked;
mod fields;
mod settled;
mod sheet;
mod words;

use std::fmt;

use http::{HeaderName, HeaderValue};
use tollgate_core::Span;

pub use answer::{Beside, Detail, answer};
pub use blocked::{ABNORMAL_USAGE, MARKED, is_marked};
pub use fields::{SIGNAL, later, reset_at, signals};
pub use settled::settled;
pub use words::{beginning, window};

/// The content type of refusals and other problems.
pub static PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

static JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Says that the answer is that of an earlier request with the same idempotency key, or for the same receipt.
static REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// A receipt as its caller carries it.
#[derive(Clone, Copy)]
pub struct Carried<'a> {
    /// The receipt.
    pub text: &'a str,
    /// How long it may be settled.
    pub settle_within: Span,
}

/// Nothing of the receipt: callers' values are in it.
impl fmt::Debug for Carried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carried").field("settle_within", &self.settle_within).finish_non_exhaustive()
    }
}

/// What clients are told of a decision.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// Which response headers there are.
    pub dialects: Dialects,
    /// What is added to `Retry-After`.
    pub jitter: Jitter,
    /// How the values in a refusal's `scope` are written.
    pub scope_values: ScopeValues,
}

/// Which response headers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialects {
    /// `X-RateLimit-Limit`, `-Remaining`, `-Used`, `-Reset`.
    pub x_ratelimit: bool,
    /// `X-RateLimit-Policy`.
    pub policy: bool,
    /// `X-RateLimit-Bucket`.
    pub bucket: bool,
    /// `RateLimit` and `RateLimit-Policy` of the IETF's draft 11.
    pub ratelimit: bool,
    /// `X-RateLimit-Denied-By`.
    pub denied_by: bool,
    /// `X-RateLimit-Signal`: the soft limits that a request went past.
    pub signal: bool,
}

/// What is added to `Retry-After`, so that those who were refused together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Nothing.
    Off,
    /// Up to so many ten-thousandths of the wait, and up to a second at least.
    Of10000(u16),
}

/// How the values in a refusal's `scope` are written. They may be secrets, such as API keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScopeValues {
    /// The first characters of who; what was asked for stays whole.
    #[default]
    Shortened,
    /// As they are.
    Full,
    /// Names alone.
    Hidden,
}

impl Default for Dialects {
    fn default() -> Dialects {
        Dialects { x_ratelimit: true, policy: true, bucket: true, ratelimit: true, denied_by: true, signal: true }
    }
}

impl Default for Jitter {
    fn default() -> Jitter {
        Jitter::Of10000(1_000)
    }
}
