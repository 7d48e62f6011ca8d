//! Traces: a span for each check and each settlement that is sampled, sent by OTLP to a collector.
//!
//! Spans are made with OpenTelemetry's own tracer, not through log events: what is traced does not depend on what is logged, and
//! with tracing off a check pays for one branch.

mod export;
mod parent;

use std::sync::Arc;

use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer as _, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span};
use tollgate::{Decision, Ending};

use super::metrics::TraceMetrics;
pub(crate) use export::TraceGuard;

/// Where spans go, and how many of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OtlpSettings {
    /// The collector: `http://HOST:PORT`.
    pub(crate) endpoint: String,
    /// The share of checks that are traced where the caller has not decided: from 0 to 1.
    pub(crate) ratio: f64,
    /// The name under which spans are found.
    pub(crate) service_name: String,
}

/// Makes spans, or does not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracer(Option<Arc<SdkTracer>>);

/// The span of a check that is traced. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct CheckSpan(Span);

/// The span of a receipt that is settled.
#[derive(Debug)]
pub(crate) struct SettleSpan(Span);

impl Tracer {
    /// Traces nothing.
    pub(crate) fn off() -> Tracer {
        Tracer(None)
    }

    /// Traces, and sends spans as long as the guard lives.
    ///
    /// # Errors
    /// If the settings can't be meant, or there can't be another thread. A collector that does not answer is no error.
    pub(crate) fn start(settings: &OtlpSettings, metrics: &TraceMetrics) -> Result<(Tracer, TraceGuard), String> {
        if !(0.0..=1.0).contains(&settings.ratio) {
            return Err(format!("a share of {} can't be traced: write a number from 0 to 1", settings.ratio));
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

    /// The span of a check, if this one is traced. `traceparent` gives the caller's header of that name (W3C Trace Context): the
    /// span becomes a child of the caller's, and the caller has decided whether there is one.
    pub(crate) fn check_span<'h>(
        &self,
        wire: &'static str,
        traceparent: impl FnOnce() -> Option<&'h str>,
    ) -> Option<CheckSpan> {
        self.span("tollgate.check", wire, traceparent).map(CheckSpan)
    }

    /// The same for a receipt that is to be settled.
    pub(crate) fn settle_span<'h>(
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
        let parent = match traceparent().and_then(parent::read) {
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
    /// The check was decided, with the store at this level if not all of it answered. What rules say is told, nothing of what the
    /// caller said.
    pub(crate) fn decided(mut self, decision: &Decision, level: Option<&'static str>) {
        let span = &mut self.0;
        span.set_attribute(KeyValue::new("tollgate.domain", decision.domain().name().to_owned()));
        span.set_attribute(KeyValue::new("tollgate.allowed", decision.allowed()));
        span.set_attribute(KeyValue::new("tollgate.source", decision.source().name()));
        if let Some(level) = level {
            span.set_attribute(KeyValue::new("tollgate.level", level));
        }
        if let Some(denied_by) = decision.denied_by() {
            span.set_attribute(KeyValue::new("tollgate.rule", denied_by.rule.name().to_owned()));
        }
    }

    /// The check could not be decided as it was.
    pub(crate) fn failed(mut self) {
        self.0.set_status(Status::error("bad request"));
    }
}

impl SettleSpan {
    /// It was told how the request stands; whether the store has it.
    pub(crate) fn settled(mut self, ending: Ending, is_stored: bool) {
        self.0.set_attribute(KeyValue::new("tollgate.outcome", ending.name()));
        self.0.set_attribute(KeyValue::new("tollgate.stored", is_stored));
    }

    /// It was not settled.
    pub(crate) fn failed(mut self, why: &'static str) {
        self.0.set_status(Status::error(why));
    }
}

#[cfg(test)]
mod tests;
