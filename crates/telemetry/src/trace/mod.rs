//! Traces: a span for each sampled check and settlement, exported by OTLP.
//!
//! Spans use OpenTelemetry's own tracer and not log events: traces do not depend on the log level, and with tracing off a check
//! costs one branch.

#[cfg(not(feature = "otlp"))]
mod off;
#[cfg(feature = "otlp")]
mod otlp;

#[cfg(not(feature = "otlp"))]
pub use off::{CheckSpan, SettleSpan, TraceGuard, Tracer};
#[cfg(feature = "otlp")]
pub use otlp::{CheckSpan, SettleSpan, TraceGuard, Tracer};

/// The settings of traces.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpSettings {
    /// The collector: `http://HOST:PORT`.
    pub endpoint: String,
    /// The share of checks that are sampled if the caller has not decided, from 0 to 1.
    pub ratio: f64,
    /// The service name of spans.
    pub service_name: String,
}

/// The attributes of a decided check. None of them is a value of the caller.
#[derive(Clone, Copy, Debug)]
pub struct CheckOutcome<'a> {
    /// The domain whose rules decided.
    pub domain: &'a str,
    /// Whether the request was allowed.
    pub allowed: bool,
    /// What the decision is based on.
    pub source: &'static str,
    /// The level of the store, unless it is normal.
    pub level: Option<&'static str>,
    /// The rule that denied the request.
    pub denied_by: Option<&'a str>,
}
