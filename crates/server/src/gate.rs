//! The way from a wire to the limiter: bounded, counted, and never a failure of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate::{Decision, Explanation, Limiter, MemoryStore, Request, RequestError};

use crate::observe::metrics::WireMetrics;

mod throttles;

pub(crate) use throttles::{Batch, Throttled};

/// Where this server keeps its counters.
pub(crate) type Counters = MemoryStore;

/// A wire's access to the limiter.
#[derive(Debug)]
pub(crate) struct Gate {
    limiter: Arc<Limiter<Counters>>,
    /// Every refusal is told and nothing is refused.
    shadow: bool,
    /// The most checks that wait for the store at a time. Those past it are decided without it.
    most_in_flight: usize,
    in_flight: AtomicUsize,
    metrics: WireMetrics,
}

/// A check in flight, which ends when this is dropped.
#[derive(Debug)]
struct Flight<'g>(&'g AtomicUsize);

impl Gate {
    pub(crate) fn new(
        limiter: Arc<Limiter<Counters>>,
        shadow: bool,
        most_in_flight: usize,
        metrics: WireMetrics,
    ) -> Gate {
        Gate { limiter, shadow, most_in_flight, in_flight: AtomicUsize::new(0), metrics }
    }

    /// Decides a request.
    pub(crate) async fn check(&self, request: &Request<'_>) -> Result<Decision, RequestError> {
        let decided = match self.admit() {
            Some(_flight) => self.limiter.check(request).await,
            None => self.limiter.shed(request),
        };
        match &decided {
            Ok(decision) => self.metrics.decided(decision.allowed(), decision.source()),
            Err(_) => self.metrics.refused_request(),
        }
        decided
    }

    /// Whether the caller may pass: what was decided, unless refusals are only told.
    pub(crate) fn passes(&self, decision: &Decision) -> bool {
        decision.allowed() || self.shadow
    }

    /// What every rule makes of a request. Consumes nothing.
    pub(crate) async fn explain(&self, request: &Request<'_>) -> Result<Explanation, RequestError> {
        self.limiter.explain(request).await
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
        let flight = Flight(&self.in_flight);
        (self.in_flight.fetch_add(1, Ordering::Relaxed) < self.most_in_flight).then_some(flight)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
