//! `tollgate why`: why a caller was limited, with the decisions around that time.

mod time_range;

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use tollgate::{Clock as _, Span, SystemClock, Timestamp};
use tollgate_records::Rfc3339;

use super::client::{AdminClient, ApiRequest};
use super::path::ApiPath;
use super::server::ServerArgs;
use super::show::{self, Columns, TextTable};
use super::{CommandError, CommandResult, write_stdout};
use time_range::TimeRange;

/// Why a caller was limited.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate why user_7\n  \
    tollgate why user_7 --at 14:32:17\n  \
    tollgate why user_7 --at 2026-11-16T14:32:17Z --rule per-user --last 20\n  \
    tollgate why user_7 --json | jq -r .why\n\n\
    A time of day is in this machine's time zone: today, or yesterday if it is still in the future.")]
pub(crate) struct Why {
    /// The caller: the value of the domain's entity
    #[arg(value_name = "CALLER")]
    caller: String,
    /// When: 14:32:17, or a time such as 2026-11-16T14:32:17Z; by default the last denial
    #[arg(long, value_name = "WHEN")]
    at: Option<String>,
    /// Only of this domain
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Only by this rule
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// The number of decisions to show around it; 5 by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    last: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
}

/// The default of `--last`.
const DEFAULT_DECISIONS: u64 = 5;
/// Decisions of a request.
const PAGE_SIZE: &str = "1000";
/// How long after the time a denial may be. Before it, any retained denial may be the nearest.
const MAX_AFTER: Span = Span::from_secs(3_600);

const COLUMNS: Columns = &[
    ("", |item| if item["this"] == true { ">".to_owned() } else { String::new() }),
    ("AT", |item| to_the_millisecond(&item["at"])),
    ("VERDICT", |item| show::text(&item["verdict"])),
    ("RULE", |item| show::text(&item["rule"])),
    ("USED", |item| {
        let limit = &item["limits"][0];
        match (limit["used"].as_u64(), limit["burst"].as_u64().or(limit["limit"].as_u64())) {
            (Some(used), Some(quota)) if item["rule"].is_string() => format!("{used} of {quota}"),
            _ => "-".to_owned(),
        }
    }),
    ("COST", |item| show::text(&item["cost"])),
    ("SERVER", |item| show::text(&item["server"])),
];

impl Why {
    pub(crate) fn run(&self) -> ExitCode {
        super::run(&self.server, |client| self.explain(client))
    }

    fn explain(&self, client: &AdminClient) -> CommandResult {
        let range = match &self.at {
            Some(text) => Some(time_range::parse(text, SystemClock::default().now()).map_err(CommandError::Usage)?),
            None => None,
        };
        let (entries, log) = self.entries(client, range)?;
        let Some(nearest) = nearest(&entries, range) else { return self.print_nothing(client, &log) };
        let shown = self.neighbours(&entries, nearest);
        if client.json {
            let shown = if self.last.is_some() { shown } else { nearest..nearest + 1 };
            return write_stdout(entries[shown].iter().map(|entry| format!("{entry}\n")).collect::<String>());
        }
        let mut rows = entries[shown.clone()].to_vec();
        rows[nearest - shown.start]["this"] = true.into();
        let why = entries[nearest]["why"].as_str().unwrap_or("the server gave no reason");
        let (at, why) = (to_the_millisecond(&entries[nearest]["at"]), show::clean(why));
        write_stdout(format!("{at}: {why}\n\n{}", TextTable::new(COLUMNS).lines(&rows)))
    }

    /// The decisions around a time, the oldest first, and the settings of the log.
    fn entries(&self, client: &AdminClient, range: Option<TimeRange>) -> Result<(Vec<Value>, Value), CommandError> {
        let Some(TimeRange { to, .. }) = range else { return self.decisions(client, None, None) };
        let (mut entries, log) = self.decisions(client, None, Some(to))?;
        entries.extend(self.decisions(client, Some(to), Some(to.after(MAX_AFTER)))?.0);
        Ok((entries, log))
    }

    fn decisions(
        &self,
        client: &AdminClient,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<(Vec<Value>, Value), CommandError> {
        let text = |at: Option<Timestamp>| at.map(|at| Rfc3339(at).to_string());
        let path = ApiPath::new(&["admin", "v1", "decisions"])
            .with("caller", Some(&self.caller))
            .with("domain", self.domain.as_deref())
            .with("rule", self.rule.as_deref())
            .with("from", text(from))
            .with("to", text(to))
            .with("limit", Some(PAGE_SIZE));
        let mut response = client.send(ApiRequest::get(path))?.value()?;
        match (response["decisions"].take(), response["log"].take()) {
            (Value::Array(mut decisions), log) => {
                decisions.reverse();
                Ok((decisions, log))
            }
            _ => {
                let message = "the response has no decisions; is --server the admin listener of a Tollgate?";
                Err(CommandError::Unavailable(message.to_owned()))
            }
        }
    }

    /// The decisions to show around one.
    fn neighbours(&self, entries: &[Value], nearest: usize) -> std::ops::Range<usize> {
        let count = usize::try_from(self.last.unwrap_or(DEFAULT_DECISIONS)).unwrap_or(usize::MAX).min(entries.len());
        // Half of them before it, if there are enough.
        let begin = nearest.saturating_sub(count / 2).min(entries.len() - count);
        begin..begin + count
    }

    fn print_nothing(&self, client: &AdminClient, log: &Value) -> CommandResult {
        if client.json {
            return Ok(());
        }
        let percent = |share: &Value| format!("{} %", (share.as_f64().unwrap_or(0.0) * 1e4).round() / 1e2);
        let at = self.at.as_deref().map(|at| format!(" at {}", show::clean(at))).unwrap_or_default();
        let rule = self.rule.as_deref().map(|rule| format!(" by {}", show::clean(rule))).unwrap_or_default();
        let retention = match log["keep_seconds"].as_f64().map(|seconds| seconds / 3_600.0) {
            Some(hours) => format!("{} h", (hours * 10.0).round() / 10.0),
            None => "a while".to_owned(),
        };
        write_stdout(format!(
            "no decision is logged for {}{at}{rule}: the log retains {retention}, with all denials, {} of other decisions, and all decisions of {} of callers\n",
            show::clean(&self.caller),
            percent(&log["sample"]),
            percent(&log["callers"]),
        ))
    }
}

/// The denial nearest to a time, or the last one; else a shadow denial; else any decision.
fn nearest(entries: &[Value], range: Option<TimeRange>) -> Option<usize> {
    const ORDER: [&[&str]; 2] = [&["deny", "blocked"], &["shadow"]];
    let rank = |entry: &Value| {
        let verdict = entry["verdict"].as_str().unwrap_or_default();
        ORDER.iter().position(|verdicts| verdicts.contains(&verdict)).unwrap_or(ORDER.len())
    };
    let distance = |index: usize, entry: &Value| match (range, entry["at"].as_str().and_then(|at| at.parse().ok())) {
        (Some(range), Some(Rfc3339(at))) => range.distance(at).as_micros(),
        // The last one.
        _ => (entries.len() - index) as u64,
    };
    let indexed = entries.iter().enumerate();
    indexed.min_by_key(|(index, entry)| (rank(entry), distance(*index, entry))).map(|(index, _)| index)
}

/// `2026-11-16 14:32:17.123Z`
fn to_the_millisecond(value: &Value) -> String {
    let Some(rest) = value.as_str().and_then(|at| at.strip_suffix('Z')) else { return show::text(value) };
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let fraction: String = fraction.chars().chain("000".chars()).take(3).collect();
    format!("{}.{fraction}Z", whole.replacen('T', " ", 1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_nearest_denial_comes_first() {
        let entries = [
            json!({"at": "2026-11-16T14:00:00Z", "verdict": "deny"}),
            json!({"at": "2026-11-16T14:32:10Z", "verdict": "deny"}),
            json!({"at": "2026-11-16T14:32:17.9Z", "verdict": "allow"}),
            json!({"at": "2026-11-16T14:32:20Z", "verdict": "blocked"}),
            json!({"at": "2026-11-16T14:40:00Z", "verdict": "shadow"}),
        ];
        let now = "2026-11-16T20:00:00Z".parse::<Rfc3339>().unwrap().0;
        let at = |text: &str| nearest(&entries, Some(time_range::parse(text, now).unwrap()));
        assert_eq!(at("2026-11-16T14:32:17Z"), Some(3));
        assert_eq!(at("2026-11-16T14:32:11Z"), Some(1));
        assert_eq!(at("2026-11-16T09:00:00Z"), Some(0));
        assert_eq!(at("2026-11-16T14:50:00Z"), Some(3));
        assert_eq!(nearest(&entries, None), Some(3));
        assert_eq!(nearest(&entries[2..3], None), Some(0));
        assert_eq!(nearest(&entries[4..], Some(time_range::parse("2026-11-16T14:32:17Z", now).unwrap())), Some(0));
        assert_eq!(nearest(&[], None), None);
    }

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(to_the_millisecond(&json!("2026-11-16T14:32:17.123456Z")), "2026-11-16 14:32:17.123Z");
        assert_eq!(to_the_millisecond(&json!("2026-11-16T14:32:17Z")), "2026-11-16 14:32:17.000Z");
    }
}
