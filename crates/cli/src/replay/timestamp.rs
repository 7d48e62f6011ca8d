//! Times of recorded requests, rounded to the nearest microsecond.
//!
//! Both formats are parsed digit by digit: a float has a precision of a quarter of a microsecond for current times, and would
//! round twice.

use jiff::civil::Date;
use jiff::tz::Offset;
use tollgate::Timestamp;

/// Decimals of a second.
const DECIMALS: i64 = 6;
/// Digits of the latest timestamp, in microseconds.
const MAX_DIGITS: i64 = 16;

/// Unix seconds as a JSON number: `1700000000.25`, `1.7e9`. `None` before 1970 and after [`Timestamp::MAX`].
pub(super) fn from_seconds(number: &str) -> Option<Timestamp> {
    let (negative, number) = match number.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, number),
    };
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, self::exponent(exponent)),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let leading = whole.bytes().chain(fraction.bytes()).take_while(|digit| *digit == b'0').count();
    let mut digits =
        whole.bytes().chain(fraction.bytes()).skip(leading).map(|digit| u64::from(digit - b'0')).peekable();
    if digits.peek().is_none() {
        return Some(Timestamp::default());
    }
    // The position of the last microsecond digit, counted from the first digit that is not 0.
    let end = (whole.len() as i64 - leading as i64).saturating_add(exponent).saturating_add(DECIMALS);
    let micros = match end {
        ..0 => 0,
        0..=MAX_DIGITS => {
            let exact = (0..end).fold(0, |micros, _| micros * 10 + digits.next().unwrap_or(0));
            exact + u64::from(digits.next().is_some_and(|next| next >= 5))
        }
        _ => return None,
    };
    if negative && micros > 0 { None } else { checked(micros) }
}

/// A date and time of RFC 3339: `2023-11-14T22:13:20.5+01:00`.
pub(super) fn from_rfc3339(text: &str) -> Option<Timestamp> {
    let text = text.as_bytes();
    let (date_time, rest) = text.split_at_checked("2023-11-14T22:13:20".len())?;
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T' | b't' | b' ', h1, h2, b':', n1, n2, b':', s1, s2] =
        date_time
    else {
        return None;
    };
    let date = Date::new(
        i16::try_from(number(&[y1, y2, y3, y4])?).ok()?,
        i8::try_from(number(&[m1, m2])?).ok()?,
        i8::try_from(number(&[d1, d2])?).ok()?,
    );
    let (hour, minute, second) = (number(&[h1, h2])?, number(&[n1, n2])?, number(&[s1, s2])?);
    // A leap second is the first second of the next minute, as in Unix time.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction, offset) = match rest {
        [b'.', rest @ ..] => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return None;
            }
            rest.split_at(digits)
        }
        _ => rest.split_at(0),
    };
    let midnight = Offset::UTC.to_timestamp(date.ok()?.at(0, 0, 0, 0)).ok()?.as_second();
    let seconds = midnight + hour * 3600 + minute * 60 + second - self::offset(offset)?;
    let micros = seconds * 1_000_000 + rounded(fraction);
    checked(u64::try_from(micros).ok()?)
}

/// The time of an access log: `14/Nov/2023:22:13:20 +0100`.
pub(super) fn from_log_time(text: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (date_time, offset) = text.split_once(' ')?;
    let (date, time) = date_time.split_once(':')?;
    let mut date = date.split('/');
    let (day, month, year) = (date.next()?, date.next()?, date.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let (hours, minutes) = offset.split_at_checked(3)?;
    from_rfc3339(&format!("{year}-{month:02}-{day}T{time}{hours}:{minutes}"))
}

/// The offset from UTC, in seconds.
fn offset(text: &[u8]) -> Option<i64> {
    let &[sign, h1, h2, b':', m1, m2] = text else {
        return matches!(text, b"Z" | b"z").then_some(0);
    };
    let (hours, minutes) = (number(&[h1, h2])?, number(&[m1, m2])?);
    let seconds = hours * 3600 + minutes * 60;
    match sign {
        _ if hours > 23 || minutes > 59 => None,
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

/// A fraction of a second in microseconds: at most 1,000,000.
fn rounded(digits: &[u8]) -> i64 {
    let digit = |place: i64| digits.get(place as usize).map_or(0, |digit| i64::from(digit - b'0'));
    let exact = (0..DECIMALS).fold(0, |micros, place| micros * 10 + digit(place));
    exact + i64::from(digit(DECIMALS) >= 5)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, digit| match digit {
        b'0'..=b'9' => Some(number * 10 + i64::from(digit - b'0')),
        _ => None,
    })
}

/// An exponent that overflows counts as infinite.
fn exponent(text: &str) -> i64 {
    let infinite = if text.starts_with('-') { i64::MIN } else { i64::MAX };
    text.parse().unwrap_or(infinite)
}

/// A timestamp within its range. Later times are errors and not clamped, unlike those of a clock.
fn checked(micros: u64) -> Option<Timestamp> {
    (micros <= Timestamp::MAX.as_micros()).then(|| Timestamp::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of a text and its microseconds.
    fn check(read: fn(&str) -> Option<Timestamp>, rows: &[(&str, Option<u64>)]) {
        for (text, expected) in rows {
            assert_eq!(read(text).map(Timestamp::as_micros), *expected, "{text}");
        }
    }

    #[test]
    fn seconds_are_rounded_to_the_nearest_microsecond() {
        check(
            from_seconds,
            &[
                ("0", Some(0)),
                ("-0", Some(0)),
                ("-0.0000001", Some(0)),
                ("-0.000001", None),
                ("-1", None),
                ("1", Some(1_000_000)),
                ("0.1", Some(100_000)),
                ("0.0000004", Some(0)),
                ("0.0000005", Some(1)),
                ("0.00000049999999999999999999999", Some(0)),
                ("0.0000000500", Some(0)),
                ("0.9999994", Some(999_999)),
                ("0.9999995", Some(1_000_000)),
                ("1700000000.0000005", Some(1_700_000_000_000_001)),
                ("1700000000.00000049999", Some(1_700_000_000_000_000)),
                ("1700000000.1234565", Some(1_700_000_000_123_457)),
                ("1700000000.9999999", Some(1_700_000_001_000_000)),
                ("1.7e9", Some(1_700_000_000_000_000)),
                ("1.7E+9", Some(1_700_000_000_000_000)),
                ("17000000000000005e-7", Some(1_700_000_000_000_001)),
                ("5e-7", Some(1)),
                ("4.9e-7", Some(0)),
                ("5e-8", Some(0)),
                ("0e99999999999999999999", Some(0)),
                ("1e-99999999999999999999", Some(0)),
                ("1e99999999999999999999", None),
                ("1e10", None),
                ("9007199254.740991", Some((1 << 53) - 1)),
                ("9007199254.7409914", Some((1 << 53) - 1)),
                ("9007199254.7409915", None),
                ("99999999999999999999999999", None),
            ],
        );
    }

    #[test]
    fn rfc_3339_is_rounded_to_the_nearest_microsecond() {
        const NOON: u64 = 1_700_000_000_000_000;
        check(
            from_rfc3339,
            &[
                ("1970-01-01T00:00:00Z", Some(0)),
                ("2023-11-14T22:13:20Z", Some(NOON)),
                ("2023-11-14t22:13:20z", Some(NOON)),
                ("2023-11-14 22:13:20Z", Some(NOON)),
                ("2023-11-14T23:13:20+01:00", Some(NOON)),
                ("2023-11-14T16:43:20-05:30", Some(NOON)),
                ("2023-11-14T22:13:20-00:00", Some(NOON)),
                ("2023-11-14T22:13:20.5Z", Some(NOON + 500_000)),
                ("2023-11-14T22:13:20.0000005Z", Some(NOON + 1)),
                ("2023-11-14T22:13:20.00000049999999999Z", Some(NOON)),
                ("2023-11-14T22:13:20.9999995+00:00", Some(NOON + 1_000_000)),
                ("2024-02-29T00:00:00Z", Some(1_709_164_800_000_000)),
                ("2016-12-31T23:59:60Z", Some(1_483_228_800_000_000)),
                ("1969-12-31T23:59:59.9999995Z", Some(0)),
                ("1970-01-01T00:00:00+00:01", None),
                ("1969-12-31T23:59:59Z", None),
                ("2255-06-05T23:47:34.740991Z", Some((1 << 53) - 1)),
                ("2255-06-05T23:47:34.7409915Z", None),
                ("2023-02-29T00:00:00Z", None),
                ("2023-13-01T00:00:00Z", None),
                ("2023-11-14T24:00:00Z", None),
                ("2023-11-14T22:60:00Z", None),
                ("2023-11-14T22:13:61Z", None),
                ("2023-11-14T22:13:20", None),
                ("2023-11-14T22:13:20.Z", None),
                ("2023-11-14T22:13:20+0100", None),
                ("2023-11-14T22:13:20+24:00", None),
                ("2023-11-14T22:13Z", None),
                ("2023-11-14", None),
                ("+023-11-14T22:13:20Z", None),
                ("2023-11-14T22:13:20Z ", None),
                ("yesterday", None),
                ("", None),
                ("２０２３-11-14T22:13:20Z", None),
            ],
        );
    }

    #[test]
    fn times_of_access_logs() {
        let second = 1_700_000_000_000_000;
        check(
            from_log_time,
            &[
                ("14/Nov/2023:22:13:20 +0000", Some(second)),
                ("14/Nov/2023:23:13:20 +0100", Some(second)),
                ("14/Nov/2023:14:13:20 -0800", Some(second)),
                ("14/Nov/2023:22:13:20", None),
                ("14/Nov/2023:22:13:20 +00", None),
                ("14/Nov/2023:22:13:20 ü", None),
                ("31/Feb/2023:22:13:20 +0000", None),
                ("14/11/2023:22:13:20 +0000", None),
                ("", None),
            ],
        );
    }
}
