//! Caps that the simulation compares.

use tollgate_shed::{AdaptiveCap, Admission, Begun, Class, Monotonic, RequestEnd};

/// A limit on requests in flight.
pub(crate) trait Cap {
    /// What is remembered of a request in flight.
    type Begun;

    /// Begins a request, unless it is refused. Times are in nanoseconds.
    fn try_acquire(&mut self, class: Class, now: u64) -> Option<Self::Begun>;

    fn release(&mut self, begun: Self::Begun, now: u64);

    /// The limit, to print it.
    fn limit(&self) -> f64;
}

impl Cap for AdaptiveCap {
    type Begun = Begun;

    fn try_acquire(&mut self, class: Class, now: u64) -> Option<Begun> {
        match AdaptiveCap::try_acquire(self, class, Monotonic::from_nanos(now)) {
            Admission::Admitted(begun) | Admission::WouldRefuse(begun) => Some(begun),
            Admission::Refused => None,
        }
    }

    fn release(&mut self, begun: Begun, now: u64) {
        AdaptiveCap::release(self, begun, Monotonic::from_nanos(now), RequestEnd::Answered);
    }

    fn limit(&self) -> f64 {
        f64::from(self.status().concurrency_limit)
    }
}

/// A limit that never changes: with the best one, what could be reached at all.
pub(crate) struct Fixed {
    pub(crate) limit: u32,
    pub(crate) in_flight: u32,
}

impl Cap for Fixed {
    type Begun = ();

    fn try_acquire(&mut self, _: Class, _: u64) -> Option<()> {
        (self.in_flight < self.limit).then(|| self.in_flight += 1)
    }

    fn release(&mut self, (): (), _: u64) {
        self.in_flight -= 1;
    }

    fn limit(&self) -> f64 {
        f64::from(self.limit)
    }
}
