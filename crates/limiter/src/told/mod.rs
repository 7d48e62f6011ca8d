//! What HTTP clients are told of a decision: headers in every dialect, and bodies.

mod answer;
mod fields;
mod sheet;
mod words;

use http::HeaderValue;

pub use answer::{Beside, Detail, answer};
pub use fields::{SIGNAL, later, reset_at, signals};
pub use words::{beginning, window};

/// The content type of refusals and other problems.
pub static PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

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
