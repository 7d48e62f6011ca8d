//! The access of wires to the limiter: bounded, counted, and without failures of its own.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use prometheus_client::metrics::gauge::Gauge;
use tollgate::{
    Decision, Limiter, Receipt, Replay, Request, RequestError, RequestOutcome, SettleError, SettledReceipt, Source,
    Span, Store as _,
};
use tollgate_http::response::ResponseContext;
use tollgate_observe::Observer;
pub use tollgate_observe::ShedRequest;
use tollgate_store::guarded::Level;

use tollgate_store::Counters;
use tollgate_telemetry::metrics::{Repair, WireMetrics};
use tollgate_telemetry::trace::{CheckOutcome, Tracer};

use crate::unknown_domains::UnknownDomains;
use tollgate_telemetry::Masked;

mod shares;
#[cfg(test)]
mod tests;
mod throttles;
pub(crate) mod timeout;

use shares::{CheckRoom, PolicyBounds};
pub(crate) use throttles::{MAX_PENDING_THROTTLES, ThrottleBatch, ThrottleResult};

/// A wire's access to the limiter.
#[derive(Debug)]
pub struct Gate {
    limiter: Arc<Limiter<Counters>>,
    /// Whether a check may have to wait. If not, its future is polled once, and is not part of the wire's own futures.
    waits: bool,
    /// Shadow mode: refusals are reported, but every request passes.
    shadow: bool,
    /// The largest numbers of checks that wait for the store, by policy. Further ones are decided without it.
    bounds: PolicyBounds,
    metrics: WireMetrics,
    /// Records throttles, which the limiter's witness does not see.
    observer: Option<Arc<Observer>>,
    /// Shared by all wires.
    unknown_domains: Arc<UnknownDomains>,
    /// The wire's name in traces, and their sender.
    wire_name: &'static str,
    tracer: Tracer,
}

/// Why a receipt was not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleFailure {
    /// There are too many checks in flight. The caller may retry.
    TooBusy,
    /// The limiter refused the settlement.
    Refused(SettleError),
}

/// W3C Trace Context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A check in flight, until this is dropped.
#[derive(Debug)]
struct InFlight<'g>(&'g Gauge);

impl Gate {
    pub fn new(limiter: Arc<Limiter<Counters>>, shadow: bool, max_in_flight: usize, metrics: WireMetrics) -> Gate {
        let waits = !limiter.store().never_waits();
        let (unknown_domains, tracer) = (Arc::default(), Tracer::off());
        let bounds = PolicyBounds::new(max_in_flight);
        Gate { limiter, waits, shadow, bounds, metrics, observer: None, unknown_domains, wire_name: "", tracer }
    }

    /// Reports throttles to the observer.
    pub fn with_observer(self, observer: Arc<Observer>) -> Gate {
        Gate { observer: Some(observer), ..self }
    }

    /// Reports checks of domains that have no rules.
    pub fn with_unknown_domains(self, unknown_domains: Arc<UnknownDomains>) -> Gate {
        Gate { unknown_domains, ..self }
    }

    /// Traces checks under this name.
    pub fn with_tracer(self, wire_name: &'static str, tracer: Tracer) -> Gate {
        Gate { wire_name, tracer, ..self }
    }

    /// Whether a check may have to wait. If not, its future is ready at the first poll (`tollgate::poll_once`).
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// The timeout of an HTTP request, from its headers. Not read if checks never wait.
    pub(crate) fn http_timeout(&self, headers: &HeaderMap) -> Option<Span> {
        self.waits.then(|| timeout::from_http(headers)).flatten()
    }

    /// Decides a request within `timeout`, into a new decision of the [limiter](Limiter::decision). The headers of the request may contain the trace context of the check.
    ///
    /// A request whose idempotency key belongs to another one is decided without the key: clients may choose keys, and
    /// a check that fails would be a way past the limits.
    pub async fn check(
        &self,
        request: &Request<'_>,
        headers: &HeaderMap,
        timeout: Option<Span>,
        decision: &mut Decision,
    ) -> Result<(), RequestError> {
        let span = self.tracer.check_span(self.wire_name, || traceparent(headers));
        let mut decided = self.decide(request, timeout, decision).await;
        if decided.is_ok() && decision.replay() == Replay::Conflict {
            self.metrics.conflicts.inc();
            self.metrics.repaired(Repair::KeyConflict);
            // Boxed, so that the future of a check stays small.
            decided = Box::pin(self.decide(&Request { once: None, ..*request }, timeout, decision)).await;
        }
        match &decided {
            Ok(()) => self.count(request, decision),
            Err(RequestError::UnknownDomain) => {
                self.metrics.unknown_domain.inc();
                self.unknown_domains.report(self.wire_name, request.domain.unwrap_or_default());
            }
            Err(_) => {}
        }
        match (span, &decided) {
            (None, _) => {}
            (Some(span), Ok(())) => span.decided(&self.check_outcome(decision)),
            (Some(span), Err(_)) => span.failed(),
        }
        decided
    }

    async fn decide(
        &self,
        request: &Request<'_>,
        timeout: Option<Span>,
        decision: &mut Decision,
    ) -> Result<(), RequestError> {
        let (_in_flight, room) = self.enter();
        let least = match room {
            CheckRoom::All => None,
            CheckRoom::From(least) => Some(least),
            CheckRoom::Full => return self.limiter.shed(request, decision),
        };
        self.limiter.check_important(request, timeout, least, decision).await
    }

    /// Answers a check that can't be decided, by the policies of the rules: whether it passes. It is refused if a rule
    /// that might apply refuses what it can't count. `None` if the domain is not known either.
    #[cold]
    pub fn pass_undecided(&self, domain: Option<&str>) -> bool {
        let allowed = !self.limiter.rules().refuses_undecided(domain);
        self.metrics.repaired(Repair::Undecided);
        self.metrics.decided(allowed, Source::Assumed);
        allowed || self.shadow
    }

    fn check_outcome<'a>(&self, decision: &'a Decision) -> CheckOutcome<'a> {
        CheckOutcome {
            domain: decision.domain().name(),
            allowed: decision.allowed(),
            source: decision.source().name(),
            level: self.level(),
            denied_by: decision.denied_by().map(|outcome| outcome.rule.name()),
        }
    }

    fn count(&self, request: &Request<'_>, decision: &Decision) {
        let metrics = &self.metrics;
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
        if decision.is_unmatched() {
            let domain = decision.domain();
            metrics.unmatched(domain.name(), || request.attribute_names().filter(|name| !domain.knows(name)));
        }
        if decision.is_shed() {
            self.count_shed(decision);
        }
        if decision.bad_costs() > 0 {
            metrics.repaired(Repair::BadCost);
        }
        if decision.dropped_limits() > 0 {
            metrics.repaired(Repair::TooMany);
        }
        if !decision.allowed() {
            log_refusal(request, decision);
        }
    }

    /// Counts a check that was decided without the store, by the most important policy that it met.
    #[cold]
    fn count_shed(&self, decision: &Decision) {
        let policies = decision.outcomes().map(|outcome| outcome.rule.policy());
        if let Some(policy) = policies.max_by_key(|policy| policy.importance()) {
            self.metrics.shed(policy.name());
        }
    }

    /// Logs a request that a shedder of the gateway refused before its limits were checked.
    pub fn log_shed(&self, domain: Option<&str>, shed: ShedRequest<'_>) {
        let Some(observer) = &self.observer else { return };
        let rules = self.limiter.rules();
        let domain = rules.domain(domain).ok();
        observer.record_shed(&ShedRequest { domain, rules_generation: rules.generation(), ..shed });
    }

    /// Settles a receipt. It counts as a check in flight; if there are too many, the receipt is not settled, and the
    /// caller must know.
    pub async fn settle(
        &self,
        receipt: &Receipt,
        outcome: RequestOutcome,
        cost: Option<u64>,
        headers: &HeaderMap,
        timeout: Option<Span>,
    ) -> Result<SettledReceipt, SettleFailure> {
        let span = self.tracer.settle_span(self.wire_name, || traceparent(headers));
        let settled = match self.admit() {
            Some(_in_flight) => {
                let settled = self.limiter.settle_receipt(receipt, outcome, cost, timeout).await;
                settled.map_err(SettleFailure::Refused)
            }
            None => Err(SettleFailure::TooBusy),
        };
        match (span, &settled) {
            (None, _) => {}
            (Some(span), Ok(settled)) => span.settled(outcome.name(), settled.is_stored()),
            (Some(span), Err(why)) => span.failed(why.name()),
        }
        settled
    }

    /// Whether the request passes: the decision, or always in shadow mode.
    pub fn passes(&self, decision: &Decision) -> bool {
        decision.allowed() || self.shadow
    }

    /// What a response needs besides the decision.
    pub fn response_context(&self, decision: &Decision) -> ResponseContext<'static> {
        ResponseContext { passes: self.passes(decision), level: self.level(), receipt: None }
    }

    /// The level of the store, if it is not fully available.
    pub fn level(&self) -> Option<&'static str> {
        if !self.waits {
            return None;
        }
        let level = self.limiter.store().shared()?.level();
        (level != Level::Normal).then(|| level.name())
    }

    /// The limiter, for operations other than checks.
    pub fn limiter(&self) -> &Limiter<Counters> {
        &self.limiter
    }

    /// The checks in flight, as a part of the most that are decided by the store.
    pub fn load(&self) -> f64 {
        let in_flight = self.metrics.in_flight().get().max(0) as f64;
        self.bounds.most().map_or(0.0, |most| in_flight / most as f64)
    }

    /// The metrics of this wire.
    pub fn metrics(&self) -> &WireMetrics {
        &self.metrics
    }

    /// Counts a check as in flight, and says what there is room for.
    fn enter(&self) -> (InFlight<'_>, CheckRoom) {
        let in_flight = InFlight(self.metrics.in_flight());
        let before = in_flight.0.inc();
        (in_flight, usize::try_from(before).map_or(CheckRoom::Full, |before| self.bounds.room(before)))
    }

    /// A check in flight, if the bound allows one whatever its policy is.
    fn admit(&self) -> Option<InFlight<'_>> {
        let (in_flight, room) = self.enter();
        (room != CheckRoom::Full).then_some(in_flight)
    }
}

impl SettleFailure {
    /// The name in metrics and responses.
    pub fn name(self) -> &'static str {
        match self {
            SettleFailure::TooBusy => "too_busy",
            SettleFailure::Refused(SettleError::AlreadySettled) => "already_settled",
            SettleFailure::Refused(SettleError::Pending) => "pending",
            SettleFailure::Refused(SettleError::CostOfRunning | SettleError::CostTooLarge) => "bad_cost",
            SettleFailure::Refused(SettleError::UnknownRegion) => "unknown_region",
        }
    }
}

/// The trace context of a request.
fn traceparent(headers: &HeaderMap) -> Option<&str> {
    headers.get(TRACEPARENT)?.to_str().ok()
}

/// Logs a refusal: the first attribute of the request, masked, and the rule.
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

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
