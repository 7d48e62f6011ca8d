//! Calendar periods: days, weeks, months and years as people in a zone count them.

use jiff::{Timestamp as Instant, civil::Date, tz::TimeZone};

/// A calendar period in a zone. Its boundaries are whole seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: TimeZone,
}

/// What a calendar period is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From this day of the month, 1 to 31, to the same of the next; in a shorter month from its last day.
    Month {
        /// The day on which the month begins.
        from_day: u8,
    },
    /// From the first of January.
    Year,
}

/// One period: from `start` up to but not including `end`, in seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Its first second.
    pub start: u64,
    /// The first second of the next one.
    pub end: u64,
}

impl Calendar {
    /// A calendar period in a zone of the bundled database, for instance `Europe/Berlin`. `None` if there is no such zone.
    pub fn new(unit: CalendarUnit, zone: &str) -> Option<Calendar> {
        let zone = TimeZone::get(zone).ok()?;
        zone.iana_name()?;
        Some(Calendar { unit, zone })
    }

    /// What the period is made of.
    pub fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// The zone's name.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// An upper bound on the period's length in seconds, whatever the zone's clocks do.
    pub fn longest(&self) -> u64 {
        const DAY: u64 = 86_400;
        match self.unit {
            CalendarUnit::Day => 2 * DAY,
            CalendarUnit::Week => 8 * DAY,
            CalendarUnit::Month { .. } => 32 * DAY,
            CalendarUnit::Year => 367 * DAY,
        }
    }

    /// The period that a second lies in.
    pub fn around(&self, second: u64) -> Bounds {
        let Some(mut first) = self.first_day(second) else {
            return Bounds { start: 0, end: second.saturating_add(self.longest()) };
        };
        let mut start = self.midnight(first);
        // A zone that sets its clock back across midnight shows yesterday's date again after today has begun: the period
        // that began first has already ended then.
        loop {
            let Some(next) = self.next_day(first) else {
                return Bounds { start, end: second.saturating_add(self.longest()) };
            };
            let end = self.midnight(next);
            if second < end {
                return Bounds { start, end };
            }
            (first, start) = (next, end);
        }
    }

    /// The boundaries around a second: the starts of its period, of the two before it and of the four after it. For those who have
    /// to decide by a clock that is near ours and can't ask a calendar.
    pub fn bounds(&self, second: u64) -> [u64; 7] {
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

    /// The second at which a local day begins: after the gap where clocks skip midnight, the earlier one where they repeat it.
    fn midnight(&self, day: Date) -> u64 {
        day.to_zoned(self.zone.clone()).map_or(0, |zoned| u64::try_from(zoned.timestamp().as_second()).unwrap_or(0))
    }
}

/// The given day of the month that begins on `first`, or that month's last.
fn on_day(first: Date, day: u8) -> Date {
    let day = i8::try_from(day).unwrap_or(i8::MAX).clamp(1, first.days_in_month());
    first.with().day(day).build().unwrap_or(first)
}
