//! Limits that come with the request, on their way to the limiter.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tollgate::{LimitError, Reading, Source, Throttle, Throttler};

use super::{Flight, Gate};
use crate::counters::Counters;

/// Throttles that arrived together on one connection.
///
/// In memory they are settled one after the other, so together they are one check in flight. Where the store makes wait they are
/// asked for together, and each is a check in flight. Either way they are counted together when the batch ends, since a pipeline
/// brings more of them than counters shared by all cores could take one by one.
#[derive(Debug)]
pub(crate) struct Batch<'g> {
    gate: &'g Gate,
    /// `None` if there are too many in flight: then the batch is decided without the store.
    flight: Option<Flight<'g>>,
    /// What was asked of a store that makes wait, in order.
    asked: Vec<Asked<'g>>,
    allowed: u64,
    denied: u64,
    source: Source,
}

/// The most throttles of a connection that a store that makes wait is asked for together.
pub(crate) const MOST_TOGETHER: usize = 64;

/// A throttle on a store that makes wait.
enum Asked<'g> {
    Waiting(Pin<Box<dyn Future<Output = Reading> + Send>>, Flight<'g>),
    Answered(Reading),
}

/// What a throttle was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throttled {
    /// Whether the caller may pass.
    pub(crate) passes: bool,
    pub(crate) reading: Reading,
}

impl Gate {
    /// For a connection that throttles, in a key space of this name.
    pub(crate) fn throttler(&self, space: &str) -> Throttler<Counters> {
        Throttler::new(self.limiter.clone(), space)
    }

    /// For what a connection has read at once.
    pub(crate) fn batch(&self) -> Batch<'_> {
        let flight = if self.waits { None } else { self.admit() };
        Batch { gate: self, flight, asked: Vec::new(), allowed: 0, denied: 0, source: Source::Store }
    }
}

impl Batch<'_> {
    /// Whether throttles are asked for together ([`Batch::ask`]), and not one by one ([`Batch::throttle`]).
    pub(crate) fn waits(&self) -> bool {
        self.gate.waits
    }

    /// Asks for the units of a key, before others are answered; no more than [`MOST_TOGETHER`].
    pub(crate) fn ask(
        &mut self,
        throttler: &mut Throttler<Counters>,
        key: &[u8],
        throttle: &Throttle,
        units: u64,
    ) -> Result<(), LimitError> {
        self.asked.push(match self.gate.admit() {
            Some(flight) => Asked::Waiting(Box::pin(throttler.taking(key, throttle, units)?), flight),
            None => Asked::Answered(throttler.shed(key, throttle, units)?),
        });
        Ok(())
    }

    /// The answers to all that was asked for, in that order.
    pub(crate) async fn answers(&mut self) -> Vec<Throttled> {
        let mut asked = std::mem::take(&mut self.asked);
        // All are polled, and the first time in their order: so they reach the store in it, and none waits for another to go on.
        poll_fn(|context| {
            let mut waiting = false;
            for one in &mut asked {
                waiting |= one.poll(context).is_pending();
            }
            if waiting { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        let answer = |one| match one {
            Asked::Answered(reading) => Some(self.decided(reading)),
            Asked::Waiting(..) => None,
        };
        asked.into_iter().filter_map(answer).collect()
    }

    /// Takes the units of a key, or nothing, on a store that does not make wait.
    pub(crate) async fn throttle(
        &mut self,
        throttler: &mut Throttler<Counters>,
        key: &[u8],
        throttle: &Throttle,
        units: u64,
    ) -> Result<Throttled, LimitError> {
        let reading = match self.flight {
            Some(_) => throttler.take(key, throttle, units).await?,
            None => throttler.shed(key, throttle, units)?,
        };
        Ok(self.decided(reading))
    }

    fn decided(&mut self, reading: Reading) -> Throttled {
        if reading.source != self.source {
            self.count();
            self.source = reading.source;
        }
        *if reading.admits { &mut self.allowed } else { &mut self.denied } += 1;
        Throttled { passes: reading.admits || self.gate.shadow, reading }
    }

    /// Counts a throttle that could not be decided as it was.
    pub(crate) fn refused_request(&self) {
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
            observer.throttled(passed, refused, self.source);
        }
    }
}

impl Asked<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Asked::Waiting(taking, _flight) = self else { return Poll::Ready(()) };
        taking.as_mut().poll(context).map(|reading| *self = Asked::Answered(reading))
    }
}

impl std::fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Asked::Waiting(..) => "Waiting",
            Asked::Answered(_) => "Answered",
        })
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.count();
    }
}
