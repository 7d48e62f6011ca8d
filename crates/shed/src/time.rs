//! Time as the shedders see it.

use std::time::Duration;

/// A moment of a clock that is never set, in nanoseconds since any moment before.
///
/// Whoever calls a shedder reads the clock. A moment that lies before one that a shedder has seen is harmless: it counts
/// as no time passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(u64);

impl Monotonic {
    /// From nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Monotonic {
        Monotonic(nanos)
    }

    /// In nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The nanoseconds since another moment; none if that is later.
    pub const fn nanos_since(self, earlier: Monotonic) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment so much later. Saturates.
    #[must_use]
    pub const fn after(self, time: Duration) -> Monotonic {
        Monotonic(self.0.saturating_add(nanos(time)))
    }
}

/// The nanoseconds of a duration. Saturates after 584 years.
pub(crate) const fn nanos(time: Duration) -> u64 {
    let nanos = time.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}
