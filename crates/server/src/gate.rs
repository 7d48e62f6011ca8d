//! The way from a wire to the limiter: bounded, counted, and never a failure of its own.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use prometheus_client::metrics::gauge::Gauge;
use tollgate::told::Beside;
use tollgate::{Decision, Ending, Limiter, Receipt, Replay, Request, RequestError, SettleError, Settled, Span};
use tollgate_observe::Observer;
use tollgate_store::guarded::Level;

use crate::counters::Counters;
use crate::observe::Masked;
use crate::observe::metrics::WireMetrics;
use crate::observe::trace::Tracer;

pub(crate) mod patience;
#[cfg(test)]
mod tests;
mod throttles;

pub(crate) use throttles::{Batch, MOST_TOGETHER, Throttled};

/// A wire's access to the limiter.
#[derive(Debug)]
pub(crate) struct Gate {
    limiter: Arc<Limiter<Counters>>,
    /// Whether a check may have to wait. What does not is polled once, and is no part of a wire's own futures.
    waits: bool,
    /// Every refusal is told and nothing is refused.
    shadow: bool,
    /// The most checks that wait for the store at a time. Those past it are decided without it.
    most_in_flight: usize,
    metrics: WireMetrics,
    /// Sees what the limiter's own witness does not: throttles.
    observer: Option<Arc<Observer>>,
    /// The wire's name in traces, and who makes them.
    traced_as: &'static str,
    tracer: Tracer,
}

/// Why a receipt was not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSettled {
    /// There are too many checks in flight. It may be tried again.
    TooBusy,
    /// It can't be.
    Refused(SettleError),
}

/// W3C Trace Context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A check in flight, which ends when this is dropped.
#[derive(Debug)]
struct Flight<'g>(&'g Gauge);

impl Gate {
    pub(crate) fn new(
        limiter: Arc<Limiter<Counters>>,
        shadow: bool,
        most_in_flight: usize,
        metrics: WireMetrics,
    ) -> Gate {
        let waits = limiter.store().wait();
        Gate { limiter, waits, shadow, most_in_flight, metrics, observer: None, traced_as: "", tracer: Tracer::off() }
    }

    /// With somebody who is told of throttles.
    pub(crate) fn seen_by(self, observer: Arc<Observer>) -> Gate {
        Gate { observer: Some(observer), ..self }
    }

    /// With traces of its checks.
    pub(crate) fn traced(self, traced_as: &'static str, tracer: Tracer) -> Gate {
        Gate { traced_as, tracer, ..self }
    }

    /// Whether a check may have to wait. If not, its future is ready at the first poll (`tollgate::now`).
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Decides a request for one who waits no longer than `patience`. The headers that it came with may have a trace in them
    /// that the check belongs to.
    pub(crate) async fn check(
        &self,
        request: &Request<'_>,
        headers: &HeaderMap,
        patience: Option<Span>,
    ) -> Result<Decision, RequestError> {
        let span = self.tracer.check_span(self.traced_as, || traceparent(headers));
        let decided = match self.admit() {
            Some(_flight) => self.limiter.check_within(request, patience).await,
            None => self.limiter.shed(request),
        };
        if let Ok(decision) = &decided {
            self.count(request, decision);
        }
        match (span, &decided) {
            (None, _) => {}
            (Some(span), Ok(decision)) if decision.replay() != Replay::Conflict => span.decided(decision, self.level()),
            (Some(span), _) => span.failed(),
        }
        decided
    }

    fn count(&self, request: &Request<'_>, decision: &Decision) {
        let metrics = &self.metrics;
        if decision.replay() == Replay::Conflict {
            // Nothing was decided.
            metrics.conflicts.inc();
            return;
        }
        if matches!(decision.replay(), Replay::Again { .. }) {
            metrics.replays.inc();
        }
        metrics.decided(decision.allowed(), decision.source());
        let (signals, not_held) = (decision.signals().count(), decision.not_held());
        if signals > 0 {
            metrics.soft_limits_passed.inc_by(signals as u64);
        }
        if not_held > 0 {
            metrics.not_held.inc_by(not_held.into());
        }
        if !decision.allowed() {
            log_refusal(request, decision);
        }
    }

    /// Tells how a request stands for which there is a receipt. It counts as a check in flight; where there are too many it is not
    /// settled, and whoever asked has to know.
    pub(crate) async fn settle(
        &self,
        receipt: &Receipt,
        ending: Ending,
        cost: Option<u64>,
        headers: &HeaderMap,
        patience: Option<Span>,
    ) -> Result<Settled, NotSettled> {
        let span = self.tracer.settle_span(self.traced_as, || traceparent(headers));
        let settled = match self.admit() {
            Some(_flight) => {
                let settled = self.limiter.settle_receipt(receipt, ending, cost, patience).await;
                settled.map_err(NotSettled::Refused)
            }
            None => Err(NotSettled::TooBusy),
        };
        match (span, &settled) {
            (None, _) => {}
            (Some(span), Ok(settled)) => span.settled(ending, settled.is_stored()),
            (Some(span), Err(why)) => span.failed(why.name()),
        }
        settled
    }

    /// Whether the caller may pass: what was decided, unless refusals are only told.
    pub(crate) fn passes(&self, decision: &Decision) -> bool {
        decision.allowed() || self.shadow
    }

    /// What an answer says that the decision does not.
    pub(crate) fn beside(&self, decision: &Decision) -> Beside<'static> {
        Beside { passes: self.passes(decision), level: self.level(), receipt: None }
    }

    /// How much of the store answers, where that is not all of it.
    pub(crate) fn level(&self) -> Option<&'static str> {
        if !self.waits {
            return None;
        }
        let level = self.limiter.store().shared()?.level();
        (level != Level::Normal).then(|| level.name())
    }

    /// The limiter, for what is not a check.
    pub(crate) fn limiter(&self) -> &Limiter<Counters> {
        &self.limiter
    }

    /// What this wire counts.
    pub(crate) fn metrics(&self) -> &WireMetrics {
        &self.metrics
    }

    fn admit(&self) -> Option<Flight<'_>> {
        let flight = Flight(self.metrics.in_flight());
        let before = flight.0.inc();
        usize::try_from(before).is_ok_and(|before| before < self.most_in_flight).then_some(flight)
    }
}

impl NotSettled {
    /// As metrics and programs call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            NotSettled::TooBusy => "too_busy",
            NotSettled::Refused(SettleError::AlreadySettled) => "already_settled",
            NotSettled::Refused(SettleError::Pending) => "pending",
            NotSettled::Refused(SettleError::CostOfRunning | SettleError::CostTooLarge) => "bad_cost",
        }
    }
}

/// The trace that a request belongs to.
fn traceparent(headers: &HeaderMap) -> Option<&str> {
    headers.get(TRACEPARENT)?.to_str().ok()
}

/// A refusal, for those who look for one: who, by the first value that the request has, and by which rule.
fn log_refusal(request: &Request<'_>, decision: &Decision) {
    let first = || request.descriptors.iter().find_map(|descriptor| descriptor.entries.first());
    tracing::debug!(
        domain = decision.domain().name(),
        rule = decision.denied_by().map(|outcome| outcome.rule.name()),
        attribute = first().map(|(name, _)| *name),
        value = %Masked(first().map_or("", |(_, value)| value)),
        "refused"
    );
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
