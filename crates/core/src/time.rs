//! Timestamps, spans and the tick in which a limit counts.

use crate::EXACT;

/// Microseconds since the Unix epoch, below [`EXACT`] (the year 2255).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// A length of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// The time until a claim would be admitted.
///
/// Ordered by time: `None` is the shortest, `Forever` the longest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Admitted now.
    #[default]
    None,
    /// Admitted after exactly this time and not a tick earlier, if nobody else takes units meanwhile. Never zero.
    For(Span),
    /// Never admitted: the claim requires more than the limit's quota.
    Forever,
}

/// The time unit of a limit. It depends only on the period: fine enough to be exact, coarse enough that `amount ×
/// period` stays an exact integer in every store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tick {
    /// For periods up to a minute.
    Micro,
    /// For periods up to an hour.
    Milli,
    /// For longer periods.
    Second,
}

impl Timestamp {
    /// The last representable moment.
    pub const MAX: Timestamp = Timestamp(EXACT - 1);

    /// From microseconds since the epoch. Saturates at [`Timestamp::MAX`].
    pub const fn from_micros(micros: u64) -> Timestamp {
        Timestamp(if micros < EXACT { micros } else { EXACT - 1 })
    }

    /// From whole seconds since the epoch.
    pub const fn from_secs(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The moment `span` later. Saturates at [`Timestamp::MAX`].
    #[must_use]
    pub const fn after(self, span: Span) -> Timestamp {
        Timestamp::from_micros(self.0.saturating_add(span.0))
    }

    /// The moment `span` earlier. Saturates at the epoch.
    #[must_use]
    pub const fn before(self, span: Span) -> Timestamp {
        Timestamp(self.0.saturating_sub(span.0))
    }

    /// The time from `earlier` to this moment, or zero if `earlier` is later.
    pub const fn since(self, earlier: Timestamp) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// The empty span.
    pub const ZERO: Span = Span(0);

    /// A span of microseconds.
    pub const fn from_micros(micros: u64) -> Span {
        Span(micros)
    }

    /// A span of whole seconds.
    pub const fn from_secs(secs: u64) -> Span {
        Span(secs.saturating_mul(1_000_000))
    }

    /// The span in microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The span in whole seconds, rounded up, as in `Retry-After`.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }
}

impl Wait {
    /// The span of a finite wait.
    pub const fn span(self) -> Option<Span> {
        match self {
            Wait::For(span) => Some(span),
            Wait::None | Wait::Forever => None,
        }
    }
}

impl Tick {
    /// The tick for limits of this period.
    pub const fn for_period(period: Span) -> Tick {
        const MINUTE: u64 = 60_000_000;
        const HOUR: u64 = 60 * MINUTE;
        if period.0 <= MINUTE {
            Tick::Micro
        } else if period.0 <= HOUR {
            Tick::Milli
        } else {
            Tick::Second
        }
    }

    /// The length of a tick in microseconds.
    pub const fn micros(self) -> u64 {
        match self {
            Tick::Micro => 1,
            Tick::Milli => 1_000,
            Tick::Second => 1_000_000,
        }
    }

    /// The tick that contains a moment.
    pub const fn at(self, moment: Timestamp) -> u64 {
        // Each arm divides by a constant, which compiles to a multiplication.
        match self {
            Tick::Micro => moment.0,
            Tick::Milli => moment.0 / 1_000,
            Tick::Second => moment.0 / 1_000_000,
        }
    }

    /// The first microsecond of a tick.
    pub const fn start(self, tick: u64) -> Timestamp {
        Timestamp::from_micros(tick.saturating_mul(self.micros()))
    }

    /// The time from `now` to the first microsecond of a tick, which may lie past [`Timestamp::MAX`]. Zero if that is
    /// in the past.
    pub const fn until(self, now: Timestamp, tick: u64) -> Span {
        Span(tick.saturating_mul(self.micros()).saturating_sub(now.0))
    }

    /// The length of a number of ticks.
    pub const fn span(self, ticks: u64) -> Span {
        Span(ticks.saturating_mul(self.micros()))
    }
}
