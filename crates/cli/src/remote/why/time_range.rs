//! Times as people write them: `14:32:17` is today, in this machine's time zone.

use std::path::Path;

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use tollgate::{Span, Timestamp};
use tollgate_records::Rfc3339;

/// A time with its precision: `14:32` is a whole minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeRange {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

/// The variable of the time zone, the machine's own, and the directory of all.
const ZONE_VARIABLE: &str = "TZ";
const LOCAL_ZONE: &str = "/etc/localtime";
const ZONE_DIRECTORY: &str = "/usr/share/zoneinfo";

impl TimeRange {
    /// The distance to another time.
    pub(super) fn distance(self, at: Timestamp) -> Span {
        if at < self.from { self.from.since(at) } else { at.since(self.to) }
    }
}

/// Parses a time in this machine's time zone.
pub(super) fn parse(text: &str, now: Timestamp) -> Result<TimeRange, String> {
    parse_in(text, now, &zone())
}

fn parse_in(text: &str, now: Timestamp, zone: &TimeZone) -> Result<TimeRange, String> {
    let error = || format!("--at {text}: write a time of day such as 14:32:17, or a time such as 2026-11-16T14:32:17Z");
    let precision = precision(text);
    let range = |from: Timestamp| TimeRange { from, to: from.after(precision) };
    if let Ok(Rfc3339(at)) = text.parse() {
        return Ok(range(at));
    }
    let timestamp = |local: DateTime| {
        let at = local.to_zoned(zone.clone()).ok()?.timestamp().as_microsecond();
        u64::try_from(at).ok().map(Timestamp::from_micros)
    };
    if let Some(time) = text.parse::<Time>().ok().filter(|_| text.contains(':') && !text.contains('-')) {
        let micros = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let today = jiff::Timestamp::from_microsecond(micros).map_err(|_| error())?.to_zoned(zone.clone()).date();
        let at = timestamp(today.to_datetime(time)).ok_or_else(error)?;
        if at <= now {
            return Ok(range(at));
        }
        let yesterday = today.yesterday().map_err(|_| error())?;
        return timestamp(yesterday.to_datetime(time)).map(range).ok_or_else(error);
    }
    let local = text.parse::<DateTime>().ok().filter(|_| text.contains(':'));
    local.and_then(timestamp).map(range).ok_or_else(error)
}

/// The precision of a text: a minute, a second, or a microsecond with a fraction.
fn precision(text: &str) -> Span {
    match (text.contains('.'), text.rsplit(['T', 't', ' ']).next().map(|time| time.matches(':').count())) {
        (true, _) => Span::from_micros(1),
        (false, Some(1)) => Span::from_secs(60),
        (false, _) => Span::from_secs(1),
    }
}

/// This machine's time zone; UTC if it has none.
fn zone() -> TimeZone {
    let named = std::env::var(ZONE_VARIABLE).ok();
    match named.as_deref().map(|name| name.strip_prefix(':').unwrap_or(name)) {
        Some("") => TimeZone::UTC,
        Some(name) => TimeZone::get(name).or_else(|_| TimeZone::posix(name)).unwrap_or(TimeZone::UTC),
        None => zone_of_file(Path::new(LOCAL_ZONE)).unwrap_or(TimeZone::UTC),
    }
}

/// The time zone of a file or of a link to one.
fn zone_of_file(path: &Path) -> Option<TimeZone> {
    let link = std::fs::canonicalize(path).ok();
    let name = link.as_deref().and_then(|link| link.strip_prefix(ZONE_DIRECTORY).ok()?.to_str());
    if let Some(zone) = name.and_then(|name| TimeZone::get(name).ok()) {
        return Some(zone);
    }
    TimeZone::tzif("local", &std::fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_today_or_yesterday() {
        let now = "2026-11-16T15:00:00Z".parse::<Rfc3339>().unwrap().0;
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let parsed = |text: &str| {
            parse_in(text, now, &berlin)
                .map(|range| (Rfc3339(range.from).to_string(), range.to.since(range.from).as_micros()))
        };
        let rows = [
            ("14:32:17", "2026-11-16T13:32:17Z", 1_000_000),
            ("14:32:17.5", "2026-11-16T13:32:17.5Z", 1),
            ("14:32", "2026-11-16T13:32:00Z", 60_000_000),
            ("16:00:00", "2026-11-16T15:00:00Z", 1_000_000),
            ("16:00:01", "2026-11-15T15:00:01Z", 1_000_000),
            ("00:00:00", "2026-11-15T23:00:00Z", 1_000_000),
            ("2026-11-16T14:32:17Z", "2026-11-16T14:32:17Z", 1_000_000),
            ("2026-11-16T14:32:17.25+01:00", "2026-11-16T13:32:17.25Z", 1),
            ("2026-11-01 14:32:17", "2026-11-01T13:32:17Z", 1_000_000),
            ("2026-07-01T14:32", "2026-07-01T12:32:00Z", 60_000_000),
        ];
        for (text, at, length) in rows {
            assert_eq!(parsed(text), Ok((at.to_owned(), length)), "{text}");
        }
        for text in ["", "noon", "14", "25:00", "14:32:61", "2026-11-16", "yesterday 14:32"] {
            assert!(parsed(text).is_err(), "{text}: {:?}", parsed(text));
        }
    }

    #[test]
    fn a_machine_has_a_zone_or_utc() {
        let home = tempfile::TempDir::new().unwrap();
        assert!(zone_of_file(&home.path().join("none")).is_none());
        std::fs::write(home.path().join("odd"), "no zone").unwrap();
        assert!(zone_of_file(&home.path().join("odd")).is_none());
    }
}
