//! Spans by OpenTelemetry's own tracer, exported by OTLP.

mod export;
mod traceparent;

use std::sync::Arc;

use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer as _, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span};

use super::{CheckOutcome, OtlpSettings};
use crate::metrics::TraceMetrics;
pub use export::TraceGuard;

/// Creates spans; does nothing if tracing is off.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<Arc<SdkTracer>>);

/// The span of a check. It ends when it is dropped.
#[derive(Debug)]
pub struct CheckSpan(Span);

/// The span of a settlement.
#[derive(Debug)]
pub struct SettleSpan(Span);

impl Tracer {
    /// A tracer that does nothing.
    pub fn off() -> Tracer {
        Tracer(None)
    }

    /// Starts to trace. Spans are exported as long as the guard lives.
    ///
    /// # Errors
    /// If the settings are invalid, or the thread can't be started. A collector that does not answer is not an error.
    pub fn start(settings: &OtlpSettings, metrics: &TraceMetrics) -> Result<(Tracer, TraceGuard), String> {
        if !(0.0..=1.0).contains(&settings.ratio) {
            return Err(format!("a sample ratio of {} is invalid: write a number from 0 to 1", settings.ratio));
        }
        let resource = Resource::builder()
            .with_service_name(settings.service_name.clone())
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let (queue, guard) = export::start(&settings.endpoint, &resource, metrics)?;
        let provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.ratio))))
            .with_span_processor(queue)
            .build();
        Ok((Tracer(Some(Arc::new(provider.tracer("tollgate")))), guard))
    }

    /// The span of a check, if it is sampled. `traceparent` returns the caller's header of that name (W3C Trace Context): the span is a
    /// child of the caller's, and the caller's sampling decision applies.
    pub fn check_span<'h>(
        &self,
        wire: &'static str,
        traceparent: impl FnOnce() -> Option<&'h str>,
    ) -> Option<CheckSpan> {
        self.span("tollgate.check", wire, traceparent).map(CheckSpan)
    }

    /// The span of a settlement, if it is sampled.
    pub fn settle_span<'h>(
        &self,
        wire: &'static str,
        traceparent: impl FnOnce() -> Option<&'h str>,
    ) -> Option<SettleSpan> {
        self.span("tollgate.settle", wire, traceparent).map(SettleSpan)
    }

    fn span<'h>(
        &self,
        name: &'static str,
        wire: &'static str,
        traceparent: impl FnOnce() -> Option<&'h str>,
    ) -> Option<Span> {
        let tracer = self.0.as_deref()?;
        let parent = match traceparent().and_then(traceparent::parse) {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        let builder = SpanBuilder::from_name(name).with_kind(SpanKind::Server);
        let mut span = tracer.build_with_context(builder, &parent);
        if !span.is_recording() {
            return None;
        }
        span.set_attribute(KeyValue::new("tollgate.wire", wire));
        Some(span)
    }
}

impl CheckSpan {
    /// Ends the span of a check with its decision.
    pub fn decided(mut self, outcome: &CheckOutcome<'_>) {
        let span = &mut self.0;
        span.set_attribute(KeyValue::new("tollgate.domain", outcome.domain.to_owned()));
        span.set_attribute(KeyValue::new("tollgate.allowed", outcome.allowed));
        span.set_attribute(KeyValue::new("tollgate.source", outcome.source));
        if let Some(level) = outcome.level {
            span.set_attribute(KeyValue::new("tollgate.level", level));
        }
        if let Some(rule) = outcome.denied_by {
            span.set_attribute(KeyValue::new("tollgate.rule", rule.to_owned()));
        }
    }

    /// Ends the span of an invalid check.
    pub fn failed(mut self) {
        self.0.set_status(Status::error("bad request"));
    }
}

impl SettleSpan {
    /// Ends the span of a settlement, with whether the store has it already.
    pub fn settled(mut self, outcome: &'static str, is_stored: bool) {
        self.0.set_attribute(KeyValue::new("tollgate.outcome", outcome));
        self.0.set_attribute(KeyValue::new("tollgate.stored", is_stored));
    }

    /// Ends the span of a settlement that failed.
    pub fn failed(mut self, reason: &'static str) {
        self.0.set_status(Status::error(reason));
    }
}

#[cfg(test)]
mod tests;
