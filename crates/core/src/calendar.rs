//! Calendar periods: days, weeks, months and years in a time zone.

use jiff::{Timestamp as Instant, civil::Date, tz::TimeZone};

/// A calendar period in a zone. Its boundaries are whole seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: TimeZone,
}

/// The length of a calendar period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From this day of the month, 1 to 31, to the same day of the next month. A shorter month starts on its last
    /// day.
    Month {
        /// The day on which the month begins.
        from_day: u8,
    },
    /// From the first of January.
    Year,
}

impl CalendarUnit {
    /// The name in rule files and responses, without the first day of a month.
    pub fn name(self) -> &'static str {
        match self {
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month { .. } => "month",
            CalendarUnit::Year => "year",
        }
    }
}

/// One period, from `start` (inclusive) to `end` (exclusive), in seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarPeriod {
    /// The first second.
    pub start: u64,
    /// The first second of the next period.
    pub end: u64,
}

impl Calendar {
    /// A calendar period in a zone of the bundled database, for instance `Europe/Berlin`. `None` if the zone does not
    /// exist.
    pub fn new(unit: CalendarUnit, zone: &str) -> Option<Calendar> {
        let zone = TimeZone::get(zone).ok()?;
        zone.iana_name()?;
        Some(Calendar { unit, zone })
    }

    /// The length of the period.
    pub fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// The name of the zone.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// An upper bound on the period's length in seconds, including clock changes in the zone.
    pub fn max_seconds(&self) -> u64 {
        const DAY: u64 = 86_400;
        match self.unit {
            CalendarUnit::Day => 2 * DAY,
            CalendarUnit::Week => 8 * DAY,
            CalendarUnit::Month { .. } => 32 * DAY,
            CalendarUnit::Year => 367 * DAY,
        }
    }

    /// The period that contains a second.
    pub fn around(&self, second: u64) -> CalendarPeriod {
        let Some(mut first) = self.first_day(second) else {
            return CalendarPeriod { start: 0, end: second.saturating_add(self.max_seconds()) };
        };
        let mut start = self.midnight(first);
        // In a zone that sets its clock back across midnight, yesterday's date appears again after today has begun.
        // The period that began first has already ended then.
        loop {
            let Some(next) = self.next_day(first) else {
                return CalendarPeriod { start, end: second.saturating_add(self.max_seconds()) };
            };
            let end = self.midnight(next);
            if second < end {
                return CalendarPeriod { start, end };
            }
            (first, start) = (next, end);
        }
    }

    /// The period boundaries near a second: the starts of its period, of the two periods before it and of the four
    /// after it. A Lua script, which has no calendar and a slightly different clock, decides by them.
    pub fn boundaries(&self, second: u64) -> [u64; 7] {
        let this = self.around(second);
        let before = self.around(this.start.saturating_sub(1)).start;
        let next = self.around(this.end).end;
        let after_next = self.around(next).end;
        let last = self.around(after_next).end;
        [self.around(before.saturating_sub(1)).start, before, this.start, this.end, next, after_next, last]
    }

    /// The first day of the period that the local date of `second` belongs to.
    fn first_day(&self, second: u64) -> Option<Date> {
        let instant = Instant::from_second(i64::try_from(second).ok()?).ok()?;
        let date = instant.to_zoned(self.zone.clone()).date();
        match self.unit {
            CalendarUnit::Day => Some(date),
            CalendarUnit::Week => {
                let days = i64::from(date.weekday().to_monday_zero_offset());
                date.checked_sub(jiff::Span::new().try_days(days).ok()?).ok()
            }
            CalendarUnit::Month { from_day } => {
                let this = on_day(date.first_of_month(), from_day);
                if this <= date {
                    return Some(this);
                }
                let before = date.first_of_month().checked_sub(jiff::Span::new().months(1)).ok()?;
                Some(on_day(before, from_day))
            }
            CalendarUnit::Year => Some(date.first_of_year()),
        }
    }

    /// The first day of the period after the one that begins on `first`.
    fn next_day(&self, first: Date) -> Option<Date> {
        match self.unit {
            CalendarUnit::Day => first.tomorrow().ok(),
            CalendarUnit::Week => first.checked_add(jiff::Span::new().weeks(1)).ok(),
            CalendarUnit::Month { from_day } => {
                let month = first.first_of_month().checked_add(jiff::Span::new().months(1)).ok()?;
                Some(on_day(month, from_day))
            }
            CalendarUnit::Year => first.checked_add(jiff::Span::new().years(1)).ok(),
        }
    }

    /// The second at which a local day begins. If clocks skip midnight, it is after the gap; if they repeat it, it is
    /// the earlier one.
    fn midnight(&self, day: Date) -> u64 {
        day.to_zoned(self.zone.clone()).map_or(0, |zoned| u64::try_from(zoned.timestamp().as_second()).unwrap_or(0))
    }
}

/// This day of the month that begins on `first`, or the last day of that month.
fn on_day(first: Date, day: u8) -> Date {
    let day = i8::try_from(day).unwrap_or(i8::MAX).clamp(1, first.days_in_month());
    first.with().day(day).build().unwrap_or(first)
}
