//! Runs as tables and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tollgate_core::Algorithm;

use crate::bound::most_requests_for_a_call;
use crate::goal::{Goal, Judgement};
use crate::outcome::Outcome;
use crate::picture::sparkline;

/// A run, what sets it apart, and what it was to show.
#[derive(Clone, Debug)]
pub struct Run {
    /// What sets it apart from other runs of the report.
    pub label: String,
    /// What happened.
    pub outcome: Outcome,
    /// Its goals.
    pub goals: Vec<Goal>,
    /// The command that repeats it.
    pub command: String,
}

impl Run {
    /// The goals, compared with what happened.
    pub fn judgements(&self) -> Vec<Judgement> {
        self.goals.iter().map(|goal| goal.judge(&self.outcome)).collect()
    }

    /// Whether all was as promised. Goals are not promises.
    pub fn is_correct(&self) -> bool {
        self.outcome.violated == 0
    }
}

const HEADINGS: [&str; 14] = [
    "",
    "requests/s",
    "admitted",
    "of exact",
    "least",
    "most",
    "over",
    "calls/s",
    "ratio",
    "local",
    "p50 ms",
    "p99 ms",
    "fair",
    "goals",
];

/// A line for each run.
pub fn table(runs: &[Run]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(runs.iter().map(row));
    let widths: Vec<usize> = (0..HEADINGS.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match at {
                0 => write!(line, "{cell:width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn row(run: &Run) -> [String; HEADINGS.len()] {
    let outcome = &run.outcome;
    let (missed, all) = (run.judgements().iter().filter(|judged| !judged.is_reached).count(), run.goals.len());
    [
        run.label.clone(),
        rate(outcome.requests as f64 / outcome.seconds()),
        percent(outcome.admitted as f64 / outcome.requests.max(1) as f64),
        percent(outcome.against_exact()),
        outcome.least_window().map_or("-".to_owned(), percent),
        outcome
            .whole_windows()
            .iter()
            .map(|window| window.admitted)
            .max()
            .map_or("-".to_owned(), |most| most.to_string()),
        outcome.excess.to_string(),
        rate(outcome.calls.total() as f64 / outcome.seconds()),
        format!("{:.1}", outcome.ratio()),
        percent(outcome.local as f64 / outcome.requests.max(1) as f64),
        millis(outcome.waits.quantile(0.5)),
        millis(outcome.waits.quantile(0.99)),
        format!("{:.3}", outcome.fairness()),
        match (all, missed) {
            (0, _) => "-".to_owned(),
            (_, 0) => "reached".to_owned(),
            _ => format!("{missed} of {all} missed"),
        },
    ]
}

/// The goals that were missed, and what was not as promised.
pub fn findings(runs: &[Run]) -> String {
    let mut text = String::new();
    for run in runs {
        for judged in run.judgements().iter().filter(|judged| !judged.is_reached) {
            let _ = writeln!(text, "missed: {}: {}", run.label, judged.text);
        }
        if run.is_correct() {
            continue;
        }
        let _ = writeln!(text, "wrong: {}: {} times; repeat with: {}", run.label, run.outcome.violated, run.command);
        for violation in &run.outcome.violations {
            let _ = writeln!(text, "  at {:.6} s: {}", violation.at, violation.what);
        }
    }
    text
}

/// All figures of one run.
pub fn details(run: &Run) -> String {
    let outcome = &run.outcome;
    let (seconds, calls, units) = (outcome.seconds(), &outcome.calls, &outcome.units);
    let per_second = |count: u64| rate(count as f64 / seconds);
    let moments = &outcome.moments;
    let scale = moments.iter().map(|moment| moment.admitted.max(moment.exact)).max().unwrap_or(0);
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:22}  {value}");
    };
    line("scenario", format!("{} (seed {})", outcome.scenario.name, outcome.scenario.seed));
    line(
        "limits",
        outcome.scenario.limits.iter().map(|planned| limit_text(&planned.limit)).collect::<Vec<_>>().join(", "),
    );
    line("servers", format!("{}, {} of the store", outcome.scenario.servers, outcome.scenario.shards));
    line("measured", format!("{seconds} s after {} s", outcome.scenario.warm_up.as_micros() as f64 / 1e6));
    line("requests", format!("{} ({} a second)", outcome.requests, per_second(outcome.requests)));
    line(
        "admitted",
        format!("{} ({} of an exact fleet's {})", outcome.admitted, percent(outcome.against_exact()), outcome.exact),
    );
    if let Some(least) = outcome.least_window() {
        let most = outcome.whole_windows().iter().map(|window| window.admitted).max().unwrap_or(0);
        line("in a window", format!("at least {} of exact, at most {most} units", percent(least)));
    }
    line("past a limit", format!("by {} units, {} times", outcome.excess, outcome.excesses));
    line(
        "without an answer",
        format!("{} requests; {} to servers that were down", outcome.unanswered, outcome.unserved),
    );
    line(
        "calls a second",
        format!(
            "{}: {} not leased, {} rare keys, {} without units, {} ahead, {} back, {} debits",
            per_second(calls.total()),
            per_second(calls.exact),
            per_second(calls.cold),
            per_second(calls.misses),
            per_second(calls.ahead),
            per_second(calls.back),
            per_second(calls.debits),
        ),
    );
    line(
        "requests for a call",
        format!(
            "{:.2}; no scheme without excess has more than {:.2}",
            outcome.ratio(),
            most_requests_for_a_call(&outcome.scenario)
        ),
    );
    line("decided here", percent(outcome.local as f64 / outcome.requests.max(1) as f64));
    line(
        "waited for the store",
        format!(
            "p50 {} ms, p99 {} ms, p99.9 {} ms of {}",
            millis(outcome.waits.quantile(0.5)),
            millis(outcome.waits.quantile(0.99)),
            millis(outcome.waits.quantile(0.999)),
            outcome.waits.len()
        ),
    );
    line("fairness of servers", format!("{:.4} (Jain's index)", outcome.fairness()));
    line(
        "units leased",
        format!(
            "{}: {} spent, {} given back, {} expired, {} lost; {} without an answer, {} of killed servers",
            units.taken, units.spent, units.returned, units.expired, units.lost, units.unanswered, outcome.crashed
        ),
    );
    line(
        "rare keys",
        format!(
            "{} of requests, counted without counters",
            percent(calls.cold as f64 / outcome.requests.max(1) as f64)
        ),
    );
    line("admitted over time", sparkline(moments.iter().map(|moment| moment.admitted), scale));
    line("exact over time", sparkline(moments.iter().map(|moment| moment.exact), scale));
    for judged in run.judgements() {
        line(if judged.is_reached { "goal reached" } else { "goal missed" }, judged.text);
    }
    text
}

/// All figures of all runs.
pub fn json(runs: &[Run]) -> Value {
    json!({ "runs": runs.iter().map(run_json).collect::<Vec<_>>() })
}

fn run_json(run: &Run) -> Value {
    let outcome = &run.outcome;
    let (seconds, calls, units) = (outcome.seconds(), &outcome.calls, &outcome.units);
    let windows = outcome.whole_windows();
    json!({
        "label": run.label,
        "scenario": outcome.scenario.name,
        "seed": outcome.scenario.seed,
        "command": run.command,
        "servers": outcome.scenario.servers,
        "shards": outcome.scenario.shards,
        "limits": outcome.scenario.limits.iter().map(|planned| limit_text(&planned.limit)).collect::<Vec<_>>(),
        "seconds": seconds,
        "requests": outcome.requests,
        "admitted": outcome.admitted,
        "exact": outcome.exact,
        "against_exact": outcome.against_exact(),
        "least_window": outcome.least_window(),
        "most_in_a_window": windows.iter().map(|window| window.admitted).max(),
        "excess": outcome.excess,
        "excesses": outcome.excesses,
        "uncovered": outcome.uncovered,
        "unanswered": outcome.unanswered,
        "unserved": outcome.unserved,
        "local": outcome.local,
        "calls": {
            "total": calls.total(), "exact": calls.exact, "cold": calls.cold, "misses": calls.misses,
            "ahead": calls.ahead, "back": calls.back, "debits": calls.debits, "per_second": calls.total() as f64 / seconds,
        },
        "requests_for_a_call": outcome.ratio(),
        "bound": most_requests_for_a_call(&outcome.scenario),
        "cold_share": calls.cold as f64 / outcome.requests.max(1) as f64,
        "keys_with_counters": outcome.warm_keys,
        "waits_micros": {
            "count": outcome.waits.len(), "p50": outcome.waits.quantile(0.5), "p99": outcome.waits.quantile(0.99),
            "p999": outcome.waits.quantile(0.999),
        },
        "fairness": outcome.fairness(),
        "units": {
            "taken": units.taken, "spent": units.spent, "returned": units.returned, "expired": units.expired,
            "lost": units.lost, "unanswered": units.unanswered, "impossible": units.impossible,
            "held_at_end": outcome.held, "crashed": outcome.crashed,
        },
        "goals": run.judgements().iter().map(|judged| json!({ "reached": judged.is_reached, "text": judged.text })).collect::<Vec<_>>(),
        "violations": outcome.violated,
        "first_violations": outcome.violations.iter().map(|found| json!({ "at": found.at, "what": found.what })).collect::<Vec<_>>(),
    })
}

/// `10000 in 60 s, token_bucket with a burst of 20000`
fn limit_text(limit: &tollgate_core::Limit) -> String {
    let period = limit.period().span().as_micros() as f64 / 1e6;
    let mut text = format!("{} in {period} s, {}", limit.amount(), limit.algorithm().name());
    let _ = match limit.algorithm() {
        Algorithm::Bucket { burst, .. } if burst != limit.amount() => write!(text, " with a burst of {burst}"),
        Algorithm::SlidingWindow { sub_windows } if sub_windows > 1 => write!(text, " of {sub_windows} parts"),
        _ => Ok(()),
    };
    text
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn rate(rate: f64) -> String {
    if rate >= 100.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

fn millis(micros: f64) -> String {
    format!("{:.2}", micros / 1e3)
}
