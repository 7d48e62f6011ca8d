//! The clock of the gateway.

use std::sync::LazyLock;
use std::time::Duration;

use tollgate_core::Span;
use tollgate_store::{Clock as _, Steady, SystemClock};

static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::default);

/// A moment of a clock that is never set.
pub(crate) fn now() -> Steady {
    CLOCK.steady()
}

/// The moment after this time.
pub(crate) fn after(time: Duration) -> Steady {
    now().after(Span::from_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
}

/// The time that is left until a moment, if there is one.
pub(crate) fn until(moment: Option<Steady>) -> Option<Duration> {
    moment.map(|moment| Duration::from_micros(moment.since(now()).as_micros()))
}

/// Calls `write` with the text of `Date`.
pub(crate) fn with_date<T>(write: impl FnOnce(&[u8]) -> T) -> T {
    tollgate_http::date::with_text(&*CLOCK, write)
}
