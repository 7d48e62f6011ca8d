//! A build without the feature `otlp`: there are no spans.

use super::{CheckOutcome, OtlpSettings};
use crate::metrics::TraceMetrics;

/// Creates no spans.
#[derive(Clone, Debug, Default)]
pub struct Tracer;

/// The span of a check. There is none.
#[derive(Debug)]
pub enum CheckSpan {}

/// The span of a settlement. There is none.
#[derive(Debug)]
pub enum SettleSpan {}

/// Exports spans as long as it lives. There is none.
#[derive(Debug)]
pub enum TraceGuard {}

impl Tracer {
    /// A tracer that does nothing.
    pub fn off() -> Tracer {
        Tracer
    }

    /// # Errors
    /// Always.
    pub fn start(_: &OtlpSettings, _: &TraceMetrics) -> Result<(Tracer, TraceGuard), String> {
        Err("otlp_endpoint: this binary was built without traces; remove it, or build with the feature `otlp`"
            .to_owned())
    }

    /// None.
    pub fn check_span<'h>(
        &self,
        _wire: &'static str,
        _traceparent: impl FnOnce() -> Option<&'h str>,
    ) -> Option<CheckSpan> {
        None
    }

    /// None.
    pub fn settle_span<'h>(
        &self,
        _wire: &'static str,
        _traceparent: impl FnOnce() -> Option<&'h str>,
    ) -> Option<SettleSpan> {
        None
    }
}

impl CheckSpan {
    /// Ends the span of a check with its decision.
    pub fn decided(self, _: &CheckOutcome<'_>) {
        match self {}
    }

    /// Ends the span of an invalid check.
    pub fn failed(self) {
        match self {}
    }
}

impl SettleSpan {
    /// Ends the span of a settlement.
    pub fn settled(self, _outcome: &'static str, _is_stored: bool) {
        match self {}
    }

    /// Ends the span of a settlement that failed.
    pub fn failed(self, _reason: &'static str) {
        match self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_otlp_an_endpoint_is_an_error_with_a_remedy() {
        let settings =
            OtlpSettings { endpoint: "http://127.0.0.1:4317".to_owned(), ratio: 1.0, service_name: "t".to_owned() };
        let error = Tracer::start(&settings, &TraceMetrics::default()).unwrap_err();
        assert!(error.contains("remove it") && error.contains("the feature `otlp`"), "{error}");
    }
}
