//! The small texts of rule files: `100/minute`, `60s`, `10%`, `1.5x`.
//!
//! Each is parsed exactly, in integers, or rejected with a remedy.

mod guess;

use tollgate_core::calendar::{Calendar, CalendarUnit};
use tollgate_core::{Limit, LimitError, Period, Span};

use crate::problem::{TextFault, quoted};

/// The text of a `limit`.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitText {
    /// `unlimited`
    Unlimited,
    /// `20 concurrent`
    Concurrent(u64),
    /// `100/minute`, `5/5m`, `1000/month from day 17 in Europe/Berlin`
    Rate {
        /// Units in a period.
        amount: u64,
        /// The period.
        period: Period,
    },
}

/// The text of a `burst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burst {
    /// `200`
    Units(u64),
    /// `1.5x`: 15 tenths of the amount.
    Multiple {
        /// The numerator.
        parts: u64,
        /// The denominator; at least 1.
        whole: u64,
    },
}

/// The maximum length of a text, in bytes. Zones have the longest names.
const MAX_TEXT_BYTES: usize = 120;

/// The maximum number of decimals of a multiple.
const MULTIPLE_DECIMALS: u32 = 4;

/// The maximum number of decimals of a percentage.
const PERCENT_DECIMALS: u32 = 2;

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Parses a limit. The remedy for another spelling of a limit is the limit.
pub fn limit(text: &str) -> Result<LimitText, TextFault> {
    let text = text.trim();
    if text.len() > MAX_TEXT_BYTES {
        return Err(not_a_limit(text));
    }
    parse(text).map_err(|fault| guess::explain(text, fault))
}

/// Parses a limit of bounded length.
fn parse(text: &str) -> Result<LimitText, TextFault> {
    if text.eq_ignore_ascii_case("unlimited") {
        return Ok(LimitText::Unlimited);
    }
    if let Some((amount, period)) = text.split_once('/') {
        return Ok(LimitText::Rate { amount: amount_of(amount, text)?, period: self::period(period, text)? });
    }
    match text.split_whitespace().collect::<Vec<_>>().as_slice() {
        [amount, word] if word.eq_ignore_ascii_case("concurrent") => {
            Ok(LimitText::Concurrent(amount_of(amount, text)?))
        }
        [amount] if number(amount).is_ok() => {
            Err(TextFault::new(format!("{} has no period", quoted(text)), format!("write {amount}/minute")))
        }
        _ => Err(not_a_limit(text)),
    }
}

/// Parses a duration: a whole number and a unit up to weeks.
pub fn duration(text: &str) -> Result<Span, TextFault> {
    let text = text.trim();
    let fault =
        || TextFault::new(format!("{} is not a length of time", quoted(text)), "write for instance 60s, 5m or 2h");
    if text.len() > MAX_TEXT_BYTES {
        return Err(fault());
    }
    let (count, unit) = counted(text);
    if unit.is_empty() && number(count).is_ok() {
        return Err(TextFault::new(format!("{} has no unit", quoted(text)), format!("write {count}s for seconds")));
    }
    match (number(count), unit_micros(unit)) {
        (Ok(count), Some(micros)) => count.checked_mul(micros).map(Span::from_micros).ok_or_else(fault),
        _ => Err(fault()),
    }
}

/// Parses a percentage from 0 to 100 as basis points.
pub fn percent(text: &str) -> Result<u16, TextFault> {
    let fault = |remedy: String| TextFault::new(format!("{} is not a share", quoted(text)), remedy);
    let usual = || fault("write a percentage from 0% to 100%, with at most two decimals, for instance 10%".to_owned());
    let Some(share) = text.trim().strip_suffix('%') else {
        return Err(match number(text.trim()) {
            Ok(share @ 0..=100) => fault(format!("write {share}%")),
            _ => usual(),
        });
    };
    let (parts, whole) = decimal(share.trim(), PERCENT_DECIMALS).ok_or_else(usual)?;
    match parts.checked_mul(100) {
        // With at most two decimals, `whole` divides 100.
        Some(parts) if parts / whole <= 10_000 => u16::try_from(parts / whole).map_err(|_| usual()),
        _ => Err(usual()),
    }
}

/// Parses a burst: a number of units, or a multiple of the amount.
pub fn burst(text: &str) -> Result<Burst, TextFault> {
    let text = text.trim();
    let fault = || {
        let remedy = "write a number of at least 1, or a multiple of the amount such as 2x or 1.5x";
        TextFault::new(format!("{} is not a burst", quoted(text)), remedy)
    };
    match text.strip_suffix(['x', 'X']) {
        None => number(text).ok().filter(|units| *units > 0).map(Burst::Units),
        Some(multiple) => decimal(multiple.trim(), MULTIPLE_DECIMALS)
            .filter(|(parts, _)| *parts > 0)
            .map(|(parts, whole)| Burst::Multiple { parts, whole }),
    }
    .ok_or_else(fault)
}

/// Parses a whole number. `_` may separate its digits.
pub fn number(text: &str) -> Result<u64, TextFault> {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let well_formed = text.len() <= MAX_TEXT_BYTES
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if digits == 0 || !well_formed {
        return Err(TextFault::new(
            format!("{} is not a whole number", quoted(text)),
            "write digits, for instance 1000",
        ));
    }
    text.replace('_', "").parse().map_err(|_| TextFault::new(format!("{text} is too large"), "write a smaller number"))
}

/// The error for a limit that cannot be counted exactly, with a remedy.
pub fn limit_fault(error: &LimitError) -> TextFault {
    match error {
        LimitError::TooShort => TextFault::new("the period is too short", "write 1ms or longer"),
        LimitError::TooLarge { max: 0 } => TextFault::new("the period is too long", "write a shorter one, in days"),
        LimitError::TooLarge { max: most } => TextFault::new(
            "the limit is too large to be counted exactly over this period",
            format!("write at most {most} for the amount and the burst, or a shorter period"),
        ),
        LimitError::TooManyEntries => TextFault::new(
            "the limit is too large for a counter that keeps an entry for each unit",
            format!("write at most {}, or another algorithm", Limit::MAX_ENTRIES),
        ),
        LimitError::SubWindows => TextFault::new(
            "the period can't be parted so",
            format!("write 1 to {} sub_windows that divide the period evenly", Limit::MAX_SUB_WINDOWS),
        ),
        LimitError::NotForCalendars => TextFault::new(
            "only fixed_window, and sliding_window without sub_windows, can follow a calendar",
            "write `algorithm: fixed_window`, or a period without `in` and `from day`",
        ),
    }
}

impl Burst {
    /// The burst for this amount, rounded down; at least 1 unless the amount is 0.
    pub fn for_amount(self, amount: u64) -> u64 {
        match self {
            Burst::Units(units) => units,
            Burst::Multiple { parts, whole } => {
                let burst = u128::from(amount) * u128::from(parts) / u128::from(whole.max(1));
                u64::try_from(burst).unwrap_or(u64::MAX).max(amount.min(1))
            }
        }
    }
}

fn amount_of(amount: &str, limit: &str) -> Result<u64, TextFault> {
    number(amount.trim()).map_err(|fault| {
        let remedy = "write a whole number before it, for instance 100/minute; 0 blocks, `unlimited` is a word";
        TextFault::new(format!("{} is not a limit: {}", quoted(limit), fault.message), remedy)
    })
}

/// The part after the `/`.
fn period(text: &str, limit: &str) -> Result<Period, TextFault> {
    let lower = text.to_ascii_lowercase();
    // A zone is shown as written.
    let zone = text.split_whitespace().last().unwrap_or_default();
    match lower.split_whitespace().collect::<Vec<_>>().as_slice() {
        [length] => fixed(counted(length), limit),
        [count, unit] if number(count).is_ok() => fixed((count, unit), limit),
        [unit, "in", _] => calendar(unit, None, zone, limit),
        [unit, "from", "day", day] => calendar(unit, Some(day), "UTC", limit),
        [unit, "from", "day", day, "in", _] => calendar(unit, Some(day), zone, limit),
        _ => Err(not_a_limit(limit)),
    }
}

/// A period of fixed length, aligned to the epoch.
fn fixed((count, unit): (&str, &str), limit: &str) -> Result<Period, TextFault> {
    let micros = match (unit, count) {
        ("month" | "months", "") => 30 * DAY,
        ("year" | "years", "") => 365 * DAY,
        ("month" | "months" | "year" | "years", _) => {
            let message = format!("{} counts months or years, which differ in length", quoted(limit));
            return Err(TextFault::new(message, "write the period in days, for instance 90d"));
        }
        (unit, count) => {
            let micros = unit_micros(unit).ok_or_else(|| not_a_limit(limit))?;
            let count = if count.is_empty() { 1 } else { number(count).map_err(|_| not_a_limit(limit))? };
            count.checked_mul(micros).ok_or_else(|| not_a_limit(limit))?
        }
    };
    Period::fixed(Span::from_micros(micros)).map_err(|error| limit_fault(&error))
}

/// A calendar period in a zone.
fn calendar(unit: &str, from_day: Option<&str>, zone: &str, limit: &str) -> Result<Period, TextFault> {
    let day = match from_day.map(|day| day.parse::<u8>()) {
        None => None,
        Some(Ok(day @ 1..=31)) => Some(day),
        Some(_) => {
            let message = format!("{} does not name a day of the month", quoted(limit));
            return Err(TextFault::new(message, "write a day from 1 to 31, for instance 1000/month from day 17"));
        }
    };
    let unit = match (unit, day) {
        ("day" | "d", None) => CalendarUnit::Day,
        ("week" | "w", None) => CalendarUnit::Week,
        ("month", day) => CalendarUnit::Month { from_day: day.unwrap_or(1) },
        ("year", None) => CalendarUnit::Year,
        (_, Some(_)) => {
            let message = format!("only a month begins on a day, not {}", quoted(limit));
            return Err(TextFault::new(message, "write for instance 1000/month from day 17"));
        }
        (_, None) => {
            let message = format!("only a day, week, month or year has a zone, not {}", quoted(limit));
            return Err(TextFault::new(
                message,
                "leave out `in ZONE`, or write for instance 1000/day in Europe/Berlin",
            ));
        }
    };
    let calendar = Calendar::new(unit, zone).ok_or_else(|| {
        let message = format!("there is no zone {}", quoted(zone));
        TextFault::new(message, "write a name of the IANA time zone database, for instance Europe/Berlin or UTC")
    })?;
    Ok(Period::calendar(calendar))
}

/// Splits a count from the unit after it.
fn counted(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (count, unit) = text.split_at(end);
    (count, unit.trim())
}

fn unit_micros(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "ms" | "millisecond" | "milliseconds" => MILLISECOND,
        "s" | "sec" | "second" | "seconds" => SECOND,
        "m" | "min" | "minute" | "minutes" => MINUTE,
        "h" | "hour" | "hours" => HOUR,
        "d" | "day" | "days" => DAY,
        "w" | "week" | "weeks" => 7 * DAY,
        _ => return None,
    })
}

/// A number with at most this many decimals, as a fraction of a power of ten.
fn decimal(text: &str, decimals: u32) -> Option<(u64, u64)> {
    let (integer, fraction) = text.split_once('.').unwrap_or((text, ""));
    let places = u32::try_from(fraction.len()).ok().filter(|places| *places <= decimals)?;
    if text.ends_with('.') || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole = 10_u64.pow(places);
    let fraction = if places == 0 { 0 } else { fraction.parse().ok()? };
    let parts = number(integer).ok()?.checked_mul(whole)?.checked_add(fraction)?;
    Some((parts, whole))
}

fn not_a_limit(text: &str) -> TextFault {
    let remedy = "write N/second, N/30s, N/5m, N/hour, N/day, N/month in Europe/Berlin, N/month from day 17, \
                  `N concurrent` or `unlimited`";
    TextFault::new(format!("{} is not a limit", quoted(text)), remedy)
}

#[cfg(test)]
mod tests;
