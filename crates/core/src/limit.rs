//! What a counter is held to: an amount, a period and the algorithm between them.

use std::fmt;
use std::sync::Arc;

use crate::EXACT;
use crate::calendar::Calendar;
use crate::time::{Span, Tick, Timestamp};

/// An amount in a period. Only valid ones exist: every product that an algorithm forms is below [`EXACT`].
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    amount: u64,
    period: Period,
    algorithm: Algorithm,
}

/// How a limit counts. Token bucket, GCRA and leaky bucket are one arithmetic; only what is told to the caller differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A level that a unit raises by `period` and a tick lowers by `amount`.
    Bucket {
        /// The most units that it holds.
        burst: u64,
        /// Leaky bucket: admitted requests are told to wait so that they leave evenly spaced.
        paced: bool,
    },
    /// A count for each aligned period.
    FixedWindow,
    /// A count that moves with time, the oldest part weighted by how much of it still matters.
    SlidingWindow {
        /// In how many parts the period is counted, 1 to [`Limit::MOST_SUB_WINDOWS`].
        sub_windows: u16,
    },
    /// Every entry, exactly.
    SlidingLog,
    /// Holds that are released, or expire after the period.
    Concurrency,
}

/// The length over which a limit counts, in its own ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Period {
    tick: Tick,
    ticks: u64,
    calendar: Option<Arc<Calendar>>,
}

/// Why a limit can't be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// The period is shorter than [`Period::SHORTEST`].
    TooShort,
    /// `max(amount, burst) × period` is not an exact integer in every store.
    TooLarge {
        /// The most that this period allows.
        most: u64,
    },
    /// A log or a set of holds keeps an entry for each unit.
    TooManyEntries,
    /// Sub-windows must be 1 to [`Limit::MOST_SUB_WINDOWS`] and divide the period.
    SubWindows,
    /// Only the windows can follow a calendar.
    NotForCalendars,
}

impl Limit {
    /// The largest amount of an algorithm that keeps an entry for each unit.
    pub const MOST_ENTRIES: u64 = 10_000;
    /// The most parts that a sliding window is counted in.
    pub const MOST_SUB_WINDOWS: u16 = 60;

    /// A limit, if it can be counted exactly.
    pub fn new(amount: u64, period: Period, algorithm: Algorithm) -> Result<Limit, LimitError> {
        let most = period.most();
        match algorithm {
            Algorithm::Bucket { burst, .. } if amount.max(burst) > most => return Err(LimitError::TooLarge { most }),
            Algorithm::SlidingLog | Algorithm::Concurrency if amount > Self::MOST_ENTRIES => {
                return Err(LimitError::TooManyEntries);
            }
            Algorithm::Concurrency => {}
            _ if amount > most => return Err(LimitError::TooLarge { most }),
            Algorithm::SlidingWindow { sub_windows } => {
                let parts = u64::from(sub_windows);
                if parts == 0 || sub_windows > Self::MOST_SUB_WINDOWS || !period.ticks.is_multiple_of(parts) {
                    return Err(LimitError::SubWindows);
                }
            }
            _ => {}
        }
        let follows = matches!(algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow { sub_windows: 1 });
        if period.calendar.is_some() && !follows {
            return Err(LimitError::NotForCalendars);
        }
        // A quota of nothing holds nothing, whatever burst was asked for.
        let algorithm = match algorithm {
            Algorithm::Bucket { paced, .. } if amount == 0 => Algorithm::Bucket { burst: 0, paced },
            other => other,
        };
        Ok(Limit { amount, period, algorithm })
    }

    /// Units in a period, or holds at a time.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Over which it counts; for concurrency, how long a hold lasts.
    pub fn period(&self) -> &Period {
        &self.period
    }

    /// How it counts.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The most units that one claim can ever take.
    pub fn quota(&self) -> u64 {
        match self.algorithm {
            Algorithm::Bucket { burst, .. } => burst,
            _ => self.amount,
        }
    }

    /// The same limit with another amount, a bucket's burst in proportion (rounded up); amounts past what can be counted
    /// become the most that can.
    #[must_use]
    pub fn with_amount(&self, amount: u64) -> Limit {
        let most = match self.algorithm {
            Algorithm::SlidingLog | Algorithm::Concurrency => Self::MOST_ENTRIES,
            _ => self.period.most(),
        };
        let algorithm = match self.algorithm {
            Algorithm::Bucket { paced, .. } if self.amount == 0 => Algorithm::Bucket { burst: amount.min(most), paced },
            Algorithm::Bucket { burst, paced } => {
                let burst = match burst.checked_mul(amount) {
                    // The long division is several times as slow, and on the path of callers with limits of their own.
                    Some(share) => share.div_ceil(self.amount),
                    None => {
                        let share = u128::from(burst) * u128::from(amount);
                        u64::try_from(share.div_ceil(u128::from(self.amount))).unwrap_or(most)
                    }
                };
                Algorithm::Bucket { burst: burst.min(most), paced }
            }
            other => other,
        };
        Limit { amount: amount.min(most), period: self.period.clone(), algorithm }
    }
}

impl Period {
    /// The shortest period: below it clocks and networks decide more than the limit does.
    pub const SHORTEST: Span = Span::from_micros(1_000);

    /// A fixed length, rounded down to its ticks.
    pub fn fixed(length: Span) -> Result<Period, LimitError> {
        if length < Self::SHORTEST {
            return Err(LimitError::TooShort);
        }
        let tick = Tick::of(length);
        let ticks = length.as_micros() / tick.micros();
        if ticks >= EXACT {
            return Err(LimitError::TooLarge { most: 0 });
        }
        Ok(Period { tick, ticks, calendar: None })
    }

    /// A calendar period.
    pub fn calendar(calendar: Calendar) -> Period {
        Period { tick: Tick::Second, ticks: calendar.longest(), calendar: Some(Arc::new(calendar)) }
    }

    /// The unit in which it counts.
    pub fn tick(&self) -> Tick {
        self.tick
    }

    /// Its length; an upper bound for a calendar period.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Its length; an upper bound for a calendar period.
    pub fn span(&self) -> Span {
        self.tick.span(self.ticks)
    }

    /// The calendar, where it follows one.
    pub fn as_calendar(&self) -> Option<&Calendar> {
        self.calendar.as_deref()
    }

    /// The largest count whose product with the period is exact: where counts saturate.
    pub fn most(&self) -> u64 {
        (EXACT - 1) / self.ticks
    }

    /// The aligned period that a moment lies in: its first moment, and that of the next.
    pub fn bounds(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        let (start, end) = self.around(self.tick.at(now));
        (self.tick.start(start), self.tick.start(end))
    }

    /// The aligned period that a tick lies in: its first tick and that of the next.
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
            LimitError::TooLarge { most } => {
                write!(f, "too large to count exactly over this period; the amount and the burst may be at most {most}")
            }
            LimitError::TooManyEntries => {
                write!(
                    f,
                    "this algorithm keeps an entry for each unit; the amount may be at most {}",
                    Limit::MOST_ENTRIES
                )
            }
            LimitError::SubWindows => {
                write!(f, "sub_windows must be 1 to {} and divide the period evenly", Limit::MOST_SUB_WINDOWS)
            }
            LimitError::NotForCalendars => {
                write!(f, "calendar periods are for fixed_window and sliding_window without sub_windows")
            }
        }
    }
}

impl std::error::Error for LimitError {}
