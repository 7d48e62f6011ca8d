//! Every form of every small text.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails may panic")]

use tollgate_core::calendar::CalendarUnit;

use super::*;

/// Amount and period of a rate, in microseconds.
fn rate(text: &str) -> (u64, u64) {
    match limit(text) {
        Ok(LimitText::Rate { amount, period }) if period.as_calendar().is_none() => (amount, period.span().as_micros()),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn rates() {
    let rows = [
        ("100/second", 100, SECOND),
        ("100/minute", 100, MINUTE),
        ("100/hour", 100, HOUR),
        ("100/day", 100, DAY),
        ("100/week", 100, 7 * DAY),
        ("100/month", 100, 30 * DAY),
        ("100/year", 100, 365 * DAY),
        ("100/s", 100, SECOND),
        ("100/m", 100, MINUTE),
        ("100/h", 100, HOUR),
        ("100/d", 100, DAY),
        ("100/w", 100, 7 * DAY),
        ("100/ms", 100, MILLISECOND),
        ("5/30s", 5, 30 * SECOND),
        ("5/5m", 5, 5 * MINUTE),
        ("5/100ms", 5, 100 * MILLISECOND),
        ("5/2h", 5, 2 * HOUR),
        ("5/7d", 5, 7 * DAY),
        ("5/2weeks", 5, 14 * DAY),
        ("5/90 seconds", 5, 90 * SECOND),
        ("1_000_000/Minute", 1_000_000, MINUTE),
        (" 5 / HOUR ", 5, HOUR),
        ("0/day", 0, DAY),
    ];
    for (text, amount, micros) in rows {
        assert_eq!(rate(text), (amount, micros), "{text}");
    }
    assert_eq!(limit("unlimited"), Ok(LimitText::Unlimited));
    assert_eq!(limit("20 concurrent"), Ok(LimitText::Concurrent(20)));
    assert_eq!(limit("1_000  Concurrent"), Ok(LimitText::Concurrent(1_000)));
}

#[test]
fn calendars() {
    let rows = [
        ("9/day in Europe/Berlin", CalendarUnit::Day, "Europe/Berlin"),
        ("9/week in UTC", CalendarUnit::Week, "UTC"),
        ("9/month in America/New_York", CalendarUnit::Month { from_day: 1 }, "America/New_York"),
        ("9/Year in asia/tokyo", CalendarUnit::Year, "Asia/Tokyo"),
        ("9/month from day 17", CalendarUnit::Month { from_day: 17 }, "UTC"),
        ("9/month from day 31 in Europe/Berlin", CalendarUnit::Month { from_day: 31 }, "Europe/Berlin"),
    ];
    for (text, unit, zone) in rows {
        let Ok(LimitText::Rate { amount: 9, period }) = limit(text) else { panic!("{text}: {:?}", limit(text)) };
        let calendar = period.as_calendar().unwrap();
        assert_eq!((calendar.unit(), calendar.zone()), (unit, zone), "{text}");
    }
}

/// The beginning of the error for a text, and a part of its remedy.
fn check<T: std::fmt::Debug>(result: Result<T, TextFault>, message: &str, remedy: &str) {
    let fault = result.unwrap_err();
    assert!(fault.message.starts_with(message), "{fault}");
    assert!(fault.remedy.contains(remedy), "{fault}");
}

#[test]
fn what_is_no_limit() {
    let not_a_limit = "is not a limit";
    let rows = [
        ("", "`` is not a limit", "N/second"),
        ("100", "`100` has no period", "write 100/minute"),
        ("lots", "`lots` is not a limit", "`unlimited`"),
        ("100 per minute", "`100 per minute` is not a limit", "did you mean `100/minute`?"),
        ("-1/s", "`-1/s` is negative", "write 1/s, or 0/s to block everything"),
        ("1.5/s", "`1.5/s` is not a limit: `1.5` is not a whole number", "did you mean `3/2s`?"),
        ("/s", "`/s` is not a limit", "whole number"),
        ("_1/s", "`_1/s` is not a limit", "whole number"),
        ("18446744073709551616/s", "`18446744073709551616/s` is not a limit: 18446744073709551616 is too large", ""),
        ("x concurrent", "`x concurrent` is not a limit", "whole number"),
        ("5/", "`5/` is not a limit", "N/second"),
        ("5/fortnight", "`5/fortnight` is not a limit", "N/second"),
        ("5/5", "`5/5` is not a limit", "did you mean `5/5s`?"),
        ("5/0s", "the period is too short", "1ms"),
        ("5/3months", "`5/3months` counts months or years", "90d"),
        ("5/2 years", "`5/2 years` counts months or years", "days"),
        ("5/99999999999999999d", "`5/99999999999999999d` is not a limit", ""),
        ("5/hour in Europe/Berlin", "only a day, week, month or year has a zone", "leave out"),
        ("5/2d in Europe/Berlin", "only a day, week, month or year has a zone", "leave out"),
        ("5/day in Berlin", "there is no zone `Berlin`", "Europe/Berlin"),
        ("5/day in", "`5/day in` is not a limit", "N/day"),
        ("5/week from day 2", "only a month begins on a day", "month from day 17"),
        ("5/month from day 0", "`5/month from day 0` does not name a day", "1 to 31"),
        ("5/month from day 32", "`5/month from day 32` does not name a day", "1 to 31"),
        ("5/month from day x", "`5/month from day x` does not name a day", "1 to 31"),
    ];
    for (text, message, remedy) in rows {
        check(limit(text), message, remedy);
    }
    let long = format!("5/{}", "s".repeat(MAX_TEXT_BYTES));
    assert!(limit(&long).unwrap_err().message.ends_with(not_a_limit));
}

#[test]
fn durations() {
    for (text, micros) in
        [("60s", 60 * SECOND), ("5m", 5 * MINUTE), ("250ms", 250_000), ("1 hour", HOUR), ("2d", 2 * DAY)]
    {
        assert_eq!(duration(text), Ok(Span::from_micros(micros)), "{text}");
    }
    check(duration("60"), "`60` has no unit", "60s");
    for text in ["", "s", "-1s", "1.5s", "5 lightyears", "99999999999999999999s", "18446744073709551615d"] {
        check(duration(text), &format!("{} is not a length of time", quoted(text)), "60s");
    }
}

#[test]
fn percentages() {
    for (text, parts) in [("0%", 0), ("10%", 1_000), ("0.5%", 50), ("12.34%", 1_234), ("100.00%", 10_000), ("7 %", 700)]
    {
        assert_eq!(percent(text), Ok(parts), "{text}");
    }
    check(percent("10"), "`10` is not a share", "write 10%");
    for text in ["", "%", "-1%", "100.01%", "101%", "1.234%", "1.%", ".5%", "x%", "99999999999999999999%"] {
        check(percent(text), &format!("`{text}` is not a share"), "0% to 100%");
    }
}

#[test]
fn bursts() {
    let rows = [
        ("200", 100, 200),
        ("2x", 100, 200),
        ("1.5x", 7, 10),
        ("0.3333x", 100, 33),
        ("0.1x", 1, 1),
        ("2X", 0, 0),
        ("1_000", 5, 1_000),
        ("18446744073709551615x", 18_446_744_073_709_551_615, u64::MAX),
    ];
    for (text, amount, expected) in rows {
        assert_eq!(burst(text).map(|burst| burst.for_amount(amount)), Ok(expected), "{text}");
    }
    for text in ["", "0", "0x", "0.0x", "x", "-2", "1.5", "2.12345x", "two"] {
        check(burst(text), &format!("`{text}` is not a burst"), "1.5x");
    }
}

#[test]
fn other_spellings_of_limits_are_named() {
    let rows = [
        ("100 per minute", "100/minute"),
        ("100 a minute", "100/minute"),
        ("100 requests every 30 seconds", "100/30 seconds"),
        ("100req/min", "100/min"),
        ("100/per minute", "100/minute"),
        ("100 rpm", "100/minute"),
        ("5rps", "5/second"),
        ("10r/s", "10/s"),
        ("10k/minute", "10000/minute"),
        ("1.5k rpm", "1500/minute"),
        ("2M/day", "2000000/day"),
        ("1,000,000/day", "1000000/day"),
        ("0.5/second", "1/2s"),
        ("0.1/minute", "1/10m"),
        ("2.5/hour", "5/2h"),
        ("0.25/day", "1/4d"),
        ("100/60", "100/60s"),
        ("5/concurrent", "5 concurrent"),
        ("5 concurrent requests", "5 concurrent"),
        ("5 parallel", "5 concurrent"),
        ("none", "unlimited"),
        ("-1", "unlimited"),
    ];
    for (text, expected) in rows {
        check(limit(text), "", &format!("did you mean `{expected}`?"));
        assert!(limit(expected).is_ok(), "{expected}");
    }
    // What could mean several things is not guessed.
    for text in
        ["1,5/minute", "lots/minute", "5/fortnight", "0.5/month", "5m", "k/minute", "1..5/s", "5 per", "9/x y z"]
    {
        let fault = limit(text).unwrap_err();
        assert!(!fault.remedy.contains("did you mean"), "{text}: {fault}");
    }
}
