//! Limits that come with the request, on their way to the limiter.

use tollgate::{LimitError, Reading, Source, Throttle, Throttler};

use super::{Counters, Flight, Gate};

/// Throttles that arrived together on one connection.
///
/// They are settled one after the other, so together they are one check in flight; and they are counted together when the
/// batch ends, since a pipeline brings more of them than counters shared by all cores could take one by one.
#[derive(Debug)]
pub(crate) struct Batch<'g> {
    gate: &'g Gate,
    /// `None` if there are too many in flight: then the batch is decided without the store.
    flight: Option<Flight<'g>>,
    allowed: u64,
    denied: u64,
    source: Source,
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
        Batch { gate: self, flight: self.admit(), allowed: 0, denied: 0, source: Source::Store }
    }
}

impl Batch<'_> {
    /// Takes the units of a key, or nothing.
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
        if reading.source != self.source {
            self.count();
            self.source = reading.source;
        }
        *if reading.admits { &mut self.allowed } else { &mut self.denied } += 1;
        Ok(Throttled { passes: reading.admits || self.gate.shadow, reading })
    }

    /// Counts a throttle that could not be decided as it was.
    pub(crate) fn refused_request(&self) {
        self.gate.metrics.refused_request();
    }

    fn count(&mut self) {
        for (allowed, count) in [(true, &mut self.allowed), (false, &mut self.denied)] {
            match std::mem::take(count) {
                0 => {}
                count => self.gate.metrics.decided_many(allowed, self.source, count),
            }
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.count();
    }
}
