//! When something happened, as people say it: `14:32:17` is today, on this machine's clocks.

use std::path::Path;

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use tollgate::control::Moment;
use tollgate::{Span, Timestamp};

/// A moment, as exactly as it was said: from here to there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Around {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

/// The variable that names a zone, and where the machine's own is.
const ZONE: &str = "TZ";
const LOCAL: &str = "/etc/localtime";
const NAMED: &str = "/usr/share/zoneinfo";

impl Around {
    /// How far away another moment is.
    pub(super) fn distance(self, at: Timestamp) -> Span {
        if at < self.from { self.from.since(at) } else { at.since(self.to) }
    }
}

/// Reads a moment, in this machine's zone.
pub(super) fn read(text: &str, now: Timestamp) -> Result<Around, String> {
    read_in(text, now, &zone())
}

fn read_in(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Around, String> {
    let fault =
        || format!("--at {text}: write a time of day such as 14:32:17, or a moment such as 2026-11-16T14:32:17Z");
    let length = length(text);
    let around = |from: Timestamp| Around { from, to: from.after(length) };
    if let Ok(Moment(at)) = text.parse() {
        return Ok(around(at));
    }
    let there = |local: DateTime| {
        let at = local.to_zoned(zone.clone()).ok()?.timestamp().as_microsecond();
        u64::try_from(at).ok().map(Timestamp::from_micros)
    };
    if let Some(time) = text.parse::<Time>().ok().filter(|_| text.contains(':') && !text.contains('-')) {
        let micros = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let today = jiff::Timestamp::from_microsecond(micros).map_err(|_| fault())?.to_zoned(zone.clone()).date();
        let at = there(today.to_datetime(time)).ok_or_else(fault)?;
        if at <= now {
            return Ok(around(at));
        }
        let yesterday = today.yesterday().map_err(|_| fault())?;
        return there(yesterday.to_datetime(time)).map(around).ok_or_else(fault);
    }
    let local = text.parse::<DateTime>().ok().filter(|_| text.contains(':'));
    local.and_then(there).map(around).ok_or_else(fault)
}

/// How exactly it was said: to the minute, to the second, or with a fraction, which is exact.
fn length(text: &str) -> Span {
    match (text.contains('.'), text.rsplit(['T', 't', ' ']).next().map(|time| time.matches(':').count())) {
        (true, _) => Span::from_micros(1),
        (false, Some(1)) => Span::from_secs(60),
        (false, _) => Span::from_secs(1),
    }
}

/// This machine's zone; UTC if it has none.
fn zone() -> TimeZone {
    let named = std::env::var(ZONE).ok();
    match named.as_deref().map(|name| name.strip_prefix(':').unwrap_or(name)) {
        Some("") => TimeZone::UTC,
        Some(name) => TimeZone::get(name).or_else(|_| TimeZone::posix(name)).unwrap_or(TimeZone::UTC),
        None => local(Path::new(LOCAL)).unwrap_or(TimeZone::UTC),
    }
}

/// The zone of a link to a file of a zone, or of such a file.
fn local(path: &Path) -> Option<TimeZone> {
    let link = std::fs::canonicalize(path).ok();
    let name = link.as_deref().and_then(|link| link.strip_prefix(NAMED).ok()?.to_str());
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
        let now = "2026-11-16T15:00:00Z".parse::<Moment>().unwrap().0;
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let told = |text: &str| {
            read_in(text, now, &berlin)
                .map(|around| (Moment(around.from).to_string(), around.to.since(around.from).as_micros()))
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
            assert_eq!(told(text), Ok((at.to_owned(), length)), "{text}");
        }
        for text in ["", "noon", "14", "25:00", "14:32:61", "2026-11-16", "yesterday 14:32"] {
            assert!(told(text).is_err(), "{text}: {:?}", told(text));
        }
    }

    #[test]
    fn a_machine_has_a_zone_or_utc() {
        let home = tempfile::TempDir::new().unwrap();
        assert!(local(&home.path().join("none")).is_none());
        std::fs::write(home.path().join("odd"), "no zone").unwrap();
        assert!(local(&home.path().join("odd")).is_none());
    }
}
