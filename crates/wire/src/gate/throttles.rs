//! Throttles: limits that come with the request.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tollgate::{LimitError, Reading, Source, Throttle, Throttler};

use super::{Gate, InFlight};
use tollgate_store::Counters;

/// Throttles that arrived together on one connection.
///
/// In memory they are settled one after the other and count as one check in flight. If the store waits, they are
/// settled together, and each is a check in flight. In both cases they are counted when the batch ends: a pipeline
/// brings more of them than counters shared by all cores could take one by one.
#[derive(Debug)]
pub struct ThrottleBatch<'g> {
    gate: &'g Gate,
    /// `None` if there are too many in flight: the batch is decided without the store then.
    in_flight: Option<InFlight<'g>>,
    /// Throttles that were submitted to a store that waits, in order.
    pending: Vec<PendingThrottle<'g>>,
    allowed: u64,
    denied: u64,
    source: Source,
}

/// The largest number of throttles of a connection that wait for the store together.
pub(crate) const MAX_PENDING_THROTTLES: usize = 64;

/// A throttle on a store that waits.
enum PendingThrottle<'g> {
    Waiting(Pin<Box<dyn Future<Output = Reading> + Send>>, InFlight<'g>),
    Done(Reading),
}

/// The result of a throttle.
#[derive(Clone, Copy, Debug)]
pub struct ThrottleResult {
    /// Whether the caller may pass.
    pub passes: bool,
    pub reading: Reading,
}

impl Gate {
    /// A throttler for a connection, with counters in this key space.
    pub fn throttler(&self, space: &str) -> Throttler<Counters> {
        Throttler::new(self.limiter.clone(), space)
    }

    /// A batch for what a connection has read at once.
    pub fn batch(&self) -> ThrottleBatch<'_> {
        let in_flight = if self.waits { None } else { self.admit() };
        ThrottleBatch { gate: self, in_flight, pending: Vec::new(), allowed: 0, denied: 0, source: Source::Store }
    }
}

impl ThrottleBatch<'_> {
    /// Whether throttles are settled together ([`ThrottleBatch::submit`]), or one by one ([`ThrottleBatch::throttle`]).
    pub fn waits(&self) -> bool {
        self.gate.waits
    }

    /// Submits a throttle without waiting for its result; at most [`MAX_PENDING_THROTTLES`] at a time.
    pub fn submit(
        &mut self,
        throttler: &mut Throttler<Counters>,
        key: &[u8],
        throttle: &Throttle,
        units: u64,
    ) -> Result<(), LimitError> {
        self.pending.push(match self.gate.admit() {
            Some(in_flight) => {
                PendingThrottle::Waiting(Box::pin(throttler.take_detached(key, throttle, units)?), in_flight)
            }
            None => PendingThrottle::Done(throttler.shed(key, throttle, units)?),
        });
        Ok(())
    }

    /// The results of all submitted throttles, in order.
    pub async fn results(&mut self) -> Vec<ThrottleResult> {
        let mut pending = std::mem::take(&mut self.pending);
        // All are polled, the first time in order: so they reach the store in order, and none waits for another.
        poll_fn(|context| {
            let mut waiting = false;
            for one in &mut pending {
                waiting |= one.poll(context).is_pending();
            }
            if waiting { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        let result = |one| match one {
            PendingThrottle::Done(reading) => Some(self.count_result(reading)),
            PendingThrottle::Waiting(..) => None,
        };
        pending.into_iter().filter_map(result).collect()
    }

    /// Takes the units of a key, all or none, on a store that never waits.
    pub async fn throttle(
        &mut self,
        throttler: &mut Throttler<Counters>,
        key: &[u8],
        throttle: &Throttle,
        units: u64,
    ) -> Result<ThrottleResult, LimitError> {
        let reading = match self.in_flight {
            Some(_) => throttler.take(key, throttle, units).await?,
            None => throttler.shed(key, throttle, units)?,
        };
        Ok(self.count_result(reading))
    }

    fn count_result(&mut self, reading: Reading) -> ThrottleResult {
        if reading.source != self.source {
            self.count();
            self.source = reading.source;
        }
        *if reading.admits { &mut self.allowed } else { &mut self.denied } += 1;
        ThrottleResult { passes: reading.admits || self.gate.shadow, reading }
    }

    /// Counts an invalid throttle.
    pub fn count_refused(&self) {
        self.gate.metrics.refused_request();
    }

    fn count(&mut self) {
        let (passed, refused) = (std::mem::take(&mut self.allowed), std::mem::take(&mut self.denied));
        for (allowed, count) in [(true, passed), (false, refused)] {
            if count > 0 {
                self.gate.metrics.decided_many(allowed, self.source, count);
            }
        }
        if let (Some(observer), 1..) = (&self.gate.observer, passed + refused) {
            observer.count_throttles(passed, refused, self.source);
        }
    }
}

impl PendingThrottle<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let PendingThrottle::Waiting(taking, _in_flight) = self else { return Poll::Ready(()) };
        taking.as_mut().poll(context).map(|reading| *self = PendingThrottle::Done(reading))
    }
}

impl std::fmt::Debug for PendingThrottle<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PendingThrottle::Waiting(..) => "Waiting",
            PendingThrottle::Done(_) => "Done",
        })
    }
}

impl Drop for ThrottleBatch<'_> {
    fn drop(&mut self) {
        self.count();
    }
}
