//! The notation of traces: durations, times, units and readings.

use std::fmt;

use tollgate_core::{Span, Timestamp, Wait};

use super::ExpectedReading;

const UNITS: [(&str, u64); 6] =
    [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// A duration: `90s`, `1m30s`, `1s500ms`, `0`.
pub(super) fn span(word: &str) -> Result<Span, String> {
    let wrong = || format!("\"{word}\" is not a length of time; write for instance 1m30s, 250ms or 0");
    if word == "0" {
        return Ok(Span::ZERO);
    }
    let mut micros = 0u64;
    let mut rest = word;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len()));
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let term = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor)).ok_or_else(wrong)?;
        micros = micros.checked_add(term).ok_or_else(wrong)?;
        rest = after;
    }
    Ok(Span::from_micros(micros))
}

/// A time: a duration after the case's origin (before it, with a minus), or a date and time with its offset.
pub(super) fn moment(word: &str, origin: Timestamp) -> Result<Timestamp, String> {
    if word.contains('T') {
        return date(word);
    }
    match word.strip_prefix('-') {
        None => Ok(origin.after(span(word)?)),
        Some(before) => Ok(Timestamp::from_micros(origin.as_micros().saturating_sub(span(before)?.as_micros()))),
    }
}

/// A date and time with its offset, `2026-03-29T01:59:59+01:00`.
pub(super) fn date(word: &str) -> Result<Timestamp, String> {
    let instant: jiff::Timestamp =
        word.parse().map_err(|error| format!("\"{word}\" is not a date and time: {error}"))?;
    let micros = u64::try_from(instant.as_microsecond()).map_err(|_| format!("\"{word}\" is before 1970"))?;
    Ok(Timestamp::from_micros(micros))
}

/// A number of units; `max` is the largest possible number.
pub(super) fn units(word: &str) -> Result<u64, String> {
    match word {
        "max" => Ok(u64::MAX),
        _ => word.parse().map_err(|_| format!("\"{word}\" is not a number of units")),
    }
}

/// A duration in the notation of traces.
struct TraceSpan(Span);

impl fmt::Display for TraceSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0.as_micros();
        if left == 0 {
            return f.write_str("0");
        }
        for (name, micros) in UNITS {
            if left >= micros {
                write!(f, "{}{name}", left / micros)?;
                left %= micros;
            }
        }
        Ok(())
    }
}

impl fmt::Display for ExpectedReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.admits { "ok" } else { "no" };
        write!(f, "{word} took {} left {}", self.took, self.left)?;
        match self.wait {
            Wait::None => {}
            Wait::For(span) => write!(f, " wait {}", TraceSpan(span))?,
            Wait::Forever => f.write_str(" wait forever")?,
        }
        if let Some(reset) = self.reset {
            write!(f, " reset {}", TraceSpan(reset))?;
        }
        if self.delay != Span::ZERO {
            write!(f, " delay {}", TraceSpan(self.delay))?;
        }
        Ok(())
    }
}
