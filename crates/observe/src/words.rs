//! Periods as people read them, in the words of the rule files.

use tollgate::Span;
use tollgate_core::Period;
use tollgate_core::calendar::CalendarUnit;

/// `minute`, `30s`, `month from day 17 in Europe/Berlin`.
pub fn period(period: &Period) -> String {
    let Some(calendar) = period.as_calendar() else { return span(period.span()) };
    let unit = match calendar.unit() {
        CalendarUnit::Day => "day".to_owned(),
        CalendarUnit::Week => "week".to_owned(),
        CalendarUnit::Month { from_day: 1 } => "month".to_owned(),
        CalendarUnit::Month { from_day } => format!("month from day {from_day}"),
        CalendarUnit::Year => "year".to_owned(),
    };
    format!("{unit} in {}", calendar.zone())
}

/// `minute`, `30s`: a length of time as a period is written.
pub fn span(span: Span) -> String {
    const UNITS: [(&str, &str, u64); 6] = [
        ("day", "d", 86_400_000_000),
        ("hour", "h", 3_600_000_000),
        ("minute", "m", 60_000_000),
        ("second", "s", 1_000_000),
        ("1ms", "ms", 1_000),
        ("1us", "us", 1),
    ];
    let micros = span.as_micros();
    let (one, unit, length) =
        UNITS.into_iter().find(|(_, _, length)| micros.is_multiple_of(*length)).unwrap_or(UNITS[5]);
    match micros / length {
        1 => one.to_owned(),
        number => format!("{number}{unit}"),
    }
}
