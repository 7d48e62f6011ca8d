//! `tollgate why`: why a caller was limited, in a sentence, with what was decided around it.

mod moment;

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use tollgate::control::Moment;
use tollgate::{Clock as _, Span, SystemClock, Timestamp};

use super::client::{Call, Remote};
use super::path::Path;
use super::server::ServerArgs;
use super::show::{self, Columns, Table};
use super::{Done, Failure, say};
use moment::Around;

/// Why a caller was limited.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate why user_7\n  \
    tollgate why user_7 --at 14:32:17\n  \
    tollgate why user_7 --at 2026-11-16T14:32:17Z --rule per-user --last 20\n  \
    tollgate why user_7 --json | jq -r .why\n\n\
    A time of day is that of this machine's zone, today, or yesterday if it is still to come today.")]
pub(in crate::cli) struct Why {
    /// The caller: the value of the domain's entity
    #[arg(value_name = "CALLER")]
    caller: String,
    /// When: 14:32:17, or a moment such as 2026-11-16T14:32:17Z; by default the last refusal
    #[arg(long, value_name = "WHEN")]
    at: Option<String>,
    /// Of this domain
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// By this rule
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// So many decisions around it are shown, 5 by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    last: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Decisions that are shown if nobody says how many.
const USUAL: u64 = 5;
/// The most that are asked for.
const MOST: &str = "1000";
/// How long after a moment the nearest refusal is looked for. The one before it may be as old as what is kept.
const AFTER: Span = Span::from_secs(3_600);

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
    pub(in crate::cli) fn run(&self) -> ExitCode {
        super::run(&self.server, |remote| self.tell(remote))
    }

    fn tell(&self, remote: &Remote) -> Done {
        let around = match &self.at {
            Some(text) => Some(moment::read(text, SystemClock::default().now()).map_err(Failure::Usage)?),
            None => None,
        };
        let (known, log) = self.known(remote, around)?;
        let Some(this) = nearest(&known, around) else { return self.nothing(remote, &log) };
        let shown = self.around(&known, this);
        if remote.json {
            let shown = if self.last.is_some() { shown } else { this..this + 1 };
            return say(known[shown].iter().map(|entry| format!("{entry}\n")).collect::<String>());
        }
        let mut rows = known[shown.clone()].to_vec();
        rows[this - shown.start]["this"] = true.into();
        let why = known[this]["why"].as_str().unwrap_or("the server does not say why");
        let (at, why) = (to_the_millisecond(&known[this]["at"]), show::clean(why));
        say(format!("{at}: {why}\n\n{}", Table::new(COLUMNS).lines(&rows)))
    }

    /// What is known around a moment, the oldest first; and of the log itself.
    fn known(&self, remote: &Remote, around: Option<Around>) -> Result<(Vec<Value>, Value), Failure> {
        let Some(Around { to, .. }) = around else { return self.decisions(remote, None, None) };
        let (mut known, log) = self.decisions(remote, None, Some(to))?;
        known.extend(self.decisions(remote, Some(to), Some(to.after(AFTER)))?.0);
        Ok((known, log))
    }

    fn decisions(
        &self,
        remote: &Remote,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<(Vec<Value>, Value), Failure> {
        let moment = |at: Option<Timestamp>| at.map(|at| Moment(at).to_string());
        let path = Path::of(&["admin", "v1", "decisions"])
            .with("caller", Some(&self.caller))
            .with("domain", self.domain.as_deref())
            .with("rule", self.rule.as_deref())
            .with("from", moment(from))
            .with("to", moment(to))
            .with("limit", Some(MOST));
        let mut answer = remote.ask(Call::get(path))?.value()?;
        match (answer["decisions"].take(), answer["log"].take()) {
            (Value::Array(mut decisions), log) => {
                decisions.reverse();
                Ok((decisions, log))
            }
            _ => {
                let what = "the server did not answer with decisions; is --server the admin listener of a Tollgate?";
                Err(Failure::Away(what.to_owned()))
            }
        }
    }

    /// Those around one.
    fn around(&self, known: &[Value], this: usize) -> std::ops::Range<usize> {
        let most = usize::try_from(self.last.unwrap_or(USUAL)).unwrap_or(usize::MAX).min(known.len());
        // As many before it as after it, where there are as many.
        let begin = this.saturating_sub(most / 2).min(known.len() - most);
        begin..begin + most
    }

    fn nothing(&self, remote: &Remote, log: &Value) -> Done {
        if remote.json {
            return Ok(());
        }
        let percent = |share: &Value| format!("{} %", (share.as_f64().unwrap_or(0.0) * 1e4).round() / 1e2);
        let at = self.at.as_deref().map(|at| format!(" at {}", show::clean(at))).unwrap_or_default();
        let rule = self.rule.as_deref().map(|rule| format!(" by {}", show::clean(rule))).unwrap_or_default();
        let kept = match log["keep_seconds"].as_f64().map(|seconds| seconds / 3_600.0) {
            Some(hours) => format!("{} h", (hours * 10.0).round() / 10.0),
            None => "a while".to_owned(),
        };
        say(format!(
            "nothing is known of {}{at}{rule}: decisions are kept for {kept}, refusals all, others {}, and all about {} of callers\n",
            show::clean(&self.caller),
            percent(&log["sample"]),
            percent(&log["callers"]),
        ))
    }
}

/// The refusal nearest a moment, or the last one; else what would have been one; else any decision.
fn nearest(known: &[Value], around: Option<Around>) -> Option<usize> {
    const ORDER: [&[&str]; 2] = [&["deny", "blocked"], &["shadow"]];
    let rank = |entry: &Value| {
        let verdict = entry["verdict"].as_str().unwrap_or_default();
        ORDER.iter().position(|verdicts| verdicts.contains(&verdict)).unwrap_or(ORDER.len())
    };
    let distance = |place: usize, entry: &Value| match (around, entry["at"].as_str().and_then(|at| at.parse().ok())) {
        (Some(around), Some(Moment(at))) => around.distance(at).as_micros(),
        // The last one.
        _ => (known.len() - place) as u64,
    };
    let places = known.iter().enumerate();
    places.min_by_key(|(place, entry)| (rank(entry), distance(*place, entry))).map(|(place, _)| place)
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
    fn the_nearest_refusal_goes_before_whatever_else_was_decided() {
        let known = [
            json!({"at": "2026-11-16T14:00:00Z", "verdict": "deny"}),
            json!({"at": "2026-11-16T14:32:10Z", "verdict": "deny"}),
            json!({"at": "2026-11-16T14:32:17.9Z", "verdict": "allow"}),
            json!({"at": "2026-11-16T14:32:20Z", "verdict": "blocked"}),
            json!({"at": "2026-11-16T14:40:00Z", "verdict": "shadow"}),
        ];
        let now = "2026-11-16T20:00:00Z".parse::<Moment>().unwrap().0;
        let at = |text: &str| nearest(&known, Some(moment::read(text, now).unwrap()));
        assert_eq!(at("2026-11-16T14:32:17Z"), Some(3));
        assert_eq!(at("2026-11-16T14:32:11Z"), Some(1));
        assert_eq!(at("2026-11-16T09:00:00Z"), Some(0));
        assert_eq!(at("2026-11-16T14:50:00Z"), Some(3));
        assert_eq!(nearest(&known, None), Some(3));
        assert_eq!(nearest(&known[2..3], None), Some(0));
        assert_eq!(nearest(&known[4..], Some(moment::read("2026-11-16T14:32:17Z", now).unwrap())), Some(0));
        assert_eq!(nearest(&[], None), None);
    }

    #[test]
    fn moments_are_told_to_the_millisecond() {
        assert_eq!(to_the_millisecond(&json!("2026-11-16T14:32:17.123456Z")), "2026-11-16 14:32:17.123Z");
        assert_eq!(to_the_millisecond(&json!("2026-11-16T14:32:17Z")), "2026-11-16 14:32:17.000Z");
    }
}
