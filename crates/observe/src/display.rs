//! Limits, periods and values of keys as text, in the notation of the rule files.

use std::fmt::Write as _;

use tollgate::{Algorithm, Limit, Span};
use tollgate_core::calendar::CalendarUnit;
use tollgate_core::key::Value;
use tollgate_core::{KeySecret, Period};

/// Writes a value of a key, masked if there is a secret.
pub(crate) fn value(text: &mut String, value: Value<'_>, secret: Option<KeySecret>) {
    // Writing to a String can't fail.
    let _ = match (value, secret) {
        (Value::Absent, _) => Ok(()),
        (Value::Text(value), Some(secret)) => write!(text, "{}", secret.mask(value)),
        (value, Some(secret)) => write!(text, "#{:032x}", secret.digest(value)),
        (Value::Text(value), None) => {
            text.push_str(value);
            Ok(())
        }
        (value, None) => write!(text, "{value}"),
    };
}

/// `100/minute, token bucket with a burst of 200`.
pub fn limit(limit: &Limit) -> String {
    let amount = limit.amount();
    let rate = || format!("{amount}/{}", period(limit.period()));
    match limit.algorithm() {
        Algorithm::Bucket { burst, paced } => {
            let name = if paced { "leaky bucket" } else { "token bucket" };
            format!("{}, {name} with a burst of {burst}", rate())
        }
        Algorithm::FixedWindow => format!("{}, fixed window", rate()),
        Algorithm::SlidingWindow { sub_windows: 1 } => format!("{}, sliding window", rate()),
        Algorithm::SlidingWindow { sub_windows } => format!("{}, sliding window in {sub_windows} parts", rate()),
        Algorithm::SlidingLog => format!("{}, sliding log", rate()),
        Algorithm::Concurrency => format!("{amount} concurrent, held for {} at most", duration(limit.period().span())),
    }
}

/// `minute`, `30s`, `month from day 17 in Europe/Berlin`.
pub fn period(period: &Period) -> String {
    let Some(calendar) = period.as_calendar() else { return span(period.span()) };
    let unit = match calendar.unit() {
        CalendarUnit::Month { from_day } if from_day != 1 => format!("month from day {from_day}"),
        unit => unit.name().to_owned(),
    };
    format!("{unit} in {}", calendar.zone())
}

/// `minute`, `30s`: a duration in the notation of a period.
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
    let (one, unit, duration) =
        UNITS.into_iter().find(|(_, _, duration)| micros.is_multiple_of(*duration)).unwrap_or(UNITS[5]);
    match micros / duration {
        1 => one.to_owned(),
        number => format!("{number}{unit}"),
    }
}

/// A duration as a number and a unit.
fn duration(of: Span) -> String {
    let text = span(of);
    if text.starts_with(|first: char| first.is_ascii_digit()) { text } else { format!("1 {text}") }
}
