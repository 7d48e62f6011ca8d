//! Moments, lengths of time and the tick in which a limit counts.

use crate::EXACT;

/// A moment: microseconds since the Unix epoch, below [`EXACT`] (the year 2255).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// A length of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// How long until a claim would be admitted.
///
/// The order is that of time: `None` is the shortest, `Forever` the longest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// It is admitted now.
    #[default]
    None,
    /// It is admitted after exactly this long, not a tick earlier, if nobody else spends meanwhile. Never zero.
    For(Span),
    /// It asks for more than the limit ever holds.
    Forever,
}

/// The unit in which a limit counts time, chosen by its period alone: fine enough to be exact, coarse enough that
/// `amount × period` stays an exact integer everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tick {
    /// Periods up to a minute.
    Micro,
    /// Periods up to an hour.
    Milli,
    /// Everything longer.
    Second,
}

impl Timestamp {
    /// The last moment that can be told.
    pub const MAX: Timestamp = Timestamp(EXACT - 1);

    /// A moment from microseconds since the epoch; what lies past [`Timestamp::MAX`] becomes it.
    pub const fn from_micros(micros: u64) -> Timestamp {
        Timestamp(if micros < EXACT { micros } else { EXACT - 1 })
    }

    /// A moment from whole seconds since the epoch.
    pub const fn from_secs(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This moment and `span` later, at most [`Timestamp::MAX`].
    #[must_use]
    pub const fn after(self, span: Span) -> Timestamp {
        Timestamp::from_micros(self.0.saturating_add(span.0))
    }

    /// This moment and `span` earlier, at least the epoch.
    #[must_use]
    pub const fn before(self, span: Span) -> Timestamp {
        Timestamp(self.0.saturating_sub(span.0))
    }

    /// The time from `earlier` to this moment; none if `earlier` is later.
    pub const fn since(self, earlier: Timestamp) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
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

    /// The span in seconds, rounded up: what a client is told to wait.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }
}

impl Wait {
    /// The span, where there is one to wait for.
    pub const fn span(self) -> Option<Span> {
        match self {
            Wait::For(span) => Some(span),
            Wait::None | Wait::Forever => None,
        }
    }
}

impl Tick {
    /// The tick of a limit with this period.
    pub const fn of(period: Span) -> Tick {
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

    /// Microseconds in one tick.
    pub const fn micros(self) -> u64 {
        match self {
            Tick::Micro => 1,
            Tick::Milli => 1_000,
            Tick::Second => 1_000_000,
        }
    }

    /// The tick that a moment lies in.
    pub const fn at(self, moment: Timestamp) -> u64 {
        // A division by a constant in each arm, which compiles to a multiplication.
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

    /// The time from `now` to the first microsecond of a tick, which may lie past [`Timestamp::MAX`]; none if it is over.
    pub const fn until(self, now: Timestamp, tick: u64) -> Span {
        Span(tick.saturating_mul(self.micros()).saturating_sub(now.0))
    }

    /// The length of so many ticks.
    pub const fn span(self, ticks: u64) -> Span {
        Span(ticks.saturating_mul(self.micros()))
    }
}
