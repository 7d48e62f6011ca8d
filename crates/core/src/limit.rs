//! Limits: an amount, a period and an algorithm.

use std::fmt;
use std::sync::Arc;

use crate::EXACT;
use crate::calendar::Calendar;
use crate::time::{Span, Tick, Timestamp};

/// An amount in a period. Only valid limits can be constructed: every product that an algorithm computes is below
/// [`EXACT`].
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    amount: u64,
    period: Period,
    algorithm: Algorithm,
}

/// The counting algorithm of a limit. Token bucket, GCRA and leaky bucket use the same arithmetic and differ only in
/// the answer to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A level that a unit raises by `period` and a tick lowers by `amount`.
    Bucket {
        /// The maximum number of units in the bucket.
        burst: u64,
        /// Leaky bucket: admitted requests are delayed so that they leave evenly spaced.
        paced: bool,
    },
    /// A count for each aligned period.
    FixedWindow,
    /// A count that moves with time. The oldest part is weighted by how much of it still lies in the period.
    SlidingWindow {
        /// The number of parts of the period, 1 to [`Limit::MAX_SUB_WINDOWS`].
        sub_windows: u16,
    },
    /// A timestamp for every request.
    SlidingLog,
    /// Holds that are released or expire after the period.
    Concurrency,
}

/// The length over which a limit counts, in ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Period {
    tick: Tick,
    ticks: u64,
    /// The largest count whose product with `ticks` is exact. Every decision needs it, and divisions are slow.
    max_count: u64,
    calendar: Option<Arc<Calendar>>,
}

/// The reason why a limit is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// The period is shorter than [`Period::MIN`].
    TooShort,
    /// `max(amount, burst) × period` is not an exact integer in every store.
    TooLarge {
        /// The maximum amount for this period.
        max: u64,
    },
    /// A log or a set of holds stores an entry for each unit.
    TooManyEntries,
    /// Sub-windows must be 1 to [`Limit::MAX_SUB_WINDOWS`] and divide the period.
    SubWindows,
    /// Only windows support calendar periods.
    NotForCalendars,
}

impl Algorithm {
    /// The name in rule files. GCRA is another name of the token bucket.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Bucket { paced: false, .. } => "token_bucket",
            Algorithm::Bucket { paced: true, .. } => "leaky_bucket",
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::SlidingWindow { .. } => "sliding_window",
            Algorithm::SlidingLog => "sliding_log",
            Algorithm::Concurrency => "concurrency",
        }
    }
}

impl Limit {
    /// The maximum amount for algorithms that store an entry for each unit.
    pub const MAX_ENTRIES: u64 = 10_000;
    /// The maximum number of parts of a sliding window.
    pub const MAX_SUB_WINDOWS: u16 = 60;

    /// A limit, if it can be counted exactly.
    pub fn new(amount: u64, period: Period, algorithm: Algorithm) -> Result<Limit, LimitError> {
        let max = period.max_count();
        match algorithm {
            Algorithm::Bucket { burst, .. } if amount.max(burst) > max => return Err(LimitError::TooLarge { max }),
            Algorithm::SlidingLog | Algorithm::Concurrency if amount > Self::MAX_ENTRIES => {
                return Err(LimitError::TooManyEntries);
            }
            Algorithm::Concurrency => {}
            _ if amount > max => return Err(LimitError::TooLarge { max }),
            Algorithm::SlidingWindow { sub_windows } => {
                let parts = u64::from(sub_windows);
                if parts == 0 || sub_windows > Self::MAX_SUB_WINDOWS || !period.ticks.is_multiple_of(parts) {
                    return Err(LimitError::SubWindows);
                }
            }
            _ => {}
        }
        let follows = matches!(algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow { sub_windows: 1 });
        if period.calendar.is_some() && !follows {
            return Err(LimitError::NotForCalendars);
        }
        // A quota of 0 has no burst either.
        let algorithm = match algorithm {
            Algorithm::Bucket { paced, .. } if amount == 0 => Algorithm::Bucket { burst: 0, paced },
            other => other,
        };
        Ok(Limit { amount, period, algorithm })
    }

    /// Units in a period, or the number of concurrent holds.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// The period. For concurrency, the lifetime of a hold.
    pub fn period(&self) -> &Period {
        &self.period
    }

    /// The counting algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The maximum number of units that one claim can ever take.
    pub fn quota(&self) -> u64 {
        match self.algorithm {
            Algorithm::Bucket { burst, .. } => burst,
            _ => self.amount,
        }
    }

    /// The time in which the quota is replenished: the period, or for a bucket the time in which its burst refills.
    pub fn refill_time(&self) -> Span {
        let period = self.period.span();
        match self.algorithm {
            Algorithm::Bucket { burst, .. } if burst != self.amount && self.amount > 0 => {
                let micros = u128::from(burst) * u128::from(period.as_micros());
                Span::from_micros(u64::try_from(micros.div_ceil(u128::from(self.amount))).unwrap_or(u64::MAX))
            }
            _ => period,
        }
    }

    /// Whether units of the limit may be taken ahead of the requests that spend them, without ever admitting more than
    /// the limit. A log would count them from the wrong moment, a leaky bucket would reserve departures that pass
    /// unused, holds belong to their claims, and a budget for a calendar period must not lose units with a server.
    pub fn is_leasable(&self) -> bool {
        match self.algorithm {
            Algorithm::FixedWindow | Algorithm::SlidingWindow { .. } => self.period.calendar.is_none(),
            Algorithm::Bucket { paced, .. } => !paced,
            Algorithm::SlidingLog | Algorithm::Concurrency => false,
        }
    }

    /// The time in which units are counted together: a sub-window of a sliding window, otherwise the period.
    pub fn part(&self) -> Span {
        match self.algorithm {
            Algorithm::SlidingWindow { sub_windows } => {
                self.period.tick.span(self.period.ticks / u64::from(sub_windows))
            }
            _ => self.period.span(),
        }
    }

    /// The end of the aligned [part](Self::part) that contains a moment. Not for calendar periods.
    pub fn part_end(&self, moment: Timestamp) -> Timestamp {
        let part = self.part().as_micros();
        Timestamp::from_micros((moment.as_micros() / part + 1).saturating_mul(part))
    }

    /// The same limit with another amount. A bucket's burst changes in proportion (rounded up). An amount that is too
    /// large to count becomes the maximum.
    #[must_use]
    pub fn with_amount(&self, amount: u64) -> Limit {
        let max = match self.algorithm {
            Algorithm::SlidingLog | Algorithm::Concurrency => Self::MAX_ENTRIES,
            _ => self.period.max_count(),
        };
        let algorithm = match self.algorithm {
            Algorithm::Bucket { paced, .. } if self.amount == 0 => Algorithm::Bucket { burst: amount.min(max), paced },
            Algorithm::Bucket { burst, paced } => {
                let burst = match burst.checked_mul(amount) {
                    // The 128-bit division is several times as slow, and callers with their own limits take this
                    // path.
                    Some(share) => share.div_ceil(self.amount),
                    None => {
                        let share = u128::from(burst) * u128::from(amount);
                        u64::try_from(share.div_ceil(u128::from(self.amount))).unwrap_or(max)
                    }
                };
                Algorithm::Bucket { burst: burst.min(max), paced }
            }
            other => other,
        };
        Limit { amount: amount.min(max), period: self.period.clone(), algorithm }
    }
}

impl Limit {
    /// A part of the limit: so many of its `whole` equal parts, rounded down. All parts together are no more than the
    /// limit, and so are their bursts.
    #[must_use]
    pub fn part_of(&self, parts: u16, whole: u16) -> Limit {
        let part = |amount: u64| {
            let part = u128::from(amount) * u128::from(parts.min(whole)) / u128::from(whole.max(1));
            u64::try_from(part).unwrap_or(amount)
        };
        let amount = part(self.amount);
        let algorithm = match self.algorithm {
            Algorithm::Bucket { paced, .. } if amount == 0 => Algorithm::Bucket { burst: 0, paced },
            Algorithm::Bucket { burst, paced } => Algorithm::Bucket { burst: part(burst), paced },
            other => other,
        };
        Limit { amount, period: self.period.clone(), algorithm }
    }
}

impl Period {
    /// The shortest period. Below it, clocks and networks have more influence than the limit.
    pub const MIN: Span = Span::from_micros(1_000);

    /// A period of fixed length, rounded down to whole ticks.
    pub fn fixed(length: Span) -> Result<Period, LimitError> {
        if length < Self::MIN {
            return Err(LimitError::TooShort);
        }
        let tick = Tick::for_period(length);
        let ticks = length.as_micros() / tick.micros();
        if ticks >= EXACT {
            return Err(LimitError::TooLarge { max: 0 });
        }
        Ok(Period::new(tick, ticks, None))
    }

    /// A calendar period.
    pub fn calendar(calendar: Calendar) -> Period {
        Period::new(Tick::Second, calendar.max_seconds(), Some(Arc::new(calendar)))
    }

    fn new(tick: Tick, ticks: u64, calendar: Option<Arc<Calendar>>) -> Period {
        Period { tick, ticks, max_count: (EXACT - 1) / ticks, calendar }
    }

    /// The tick in which the period is counted.
    pub fn tick(&self) -> Tick {
        self.tick
    }

    /// The length in ticks; an upper bound for a calendar period.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// The length; an upper bound for a calendar period.
    pub fn span(&self) -> Span {
        self.tick.span(self.ticks)
    }

    /// The calendar, for a calendar period.
    pub fn as_calendar(&self) -> Option<&Calendar> {
        self.calendar.as_deref()
    }

    /// The largest count whose product with the period is exact. Counts saturate here.
    pub fn max_count(&self) -> u64 {
        self.max_count
    }

    /// The start of the aligned period that contains a moment, and the start of the next one.
    pub fn bounds(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        let (start, end) = self.around(self.tick.at(now));
        (self.tick.start(start), self.tick.start(end))
    }

    /// The first tick of the aligned period that contains a tick, and the first tick of the next one.
    pub(crate) fn around(&self, tick: u64) -> (u64, u64) {
        match &self.calendar {
            None => {
                let start = tick - tick % self.ticks;
                (start, start + self.ticks)
            }
            Some(calendar) => {
                let bounds = calendar.around(tick);
                (bounds.start, bounds.end)
            }
        }
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitError::TooShort => write!(f, "the period is too short; the shortest is 1ms"),
            LimitError::TooLarge { max } => {
                write!(f, "too large to count exactly over this period; the amount and the burst may be at most {max}")
            }
            LimitError::TooManyEntries => {
                write!(
                    f,
                    "this algorithm keeps an entry for each unit; the amount may be at most {}",
                    Limit::MAX_ENTRIES
                )
            }
            LimitError::SubWindows => {
                write!(f, "sub_windows must be 1 to {} and divide the period evenly", Limit::MAX_SUB_WINDOWS)
            }
            LimitError::NotForCalendars => {
                write!(f, "calendar periods are for fixed_window and sliding_window without sub_windows")
            }
        }
    }
}

impl std::error::Error for LimitError {}
