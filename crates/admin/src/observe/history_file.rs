//! The history of decisions and the events of this server in a file of the data directory, so that they survive a restart.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate::{Span, Timestamp};
use tollgate_net::Closing;
use tollgate_observe::{
    DecisionOutcome, HistoryLine, HistoryPoint, HistoryRange, Quantiles, SavedAxis, SavedRule, SavedRules,
};
use tollgate_telemetry::Health;

use super::Observability;
use super::events::{EventKind, MAX_EVENTS, ServerEvent};
use crate::data_dir::{replace, write_problem};

/// The file.
#[derive(Clone, Debug)]
pub struct HistoryFile {
    path: PathBuf,
}

/// What is restored.
type Restored = (Vec<HistoryLine>, Vec<ServerEvent>, SavedRules);

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct SavedHistory {
    version: u32,
    /// The outcomes that the numbers of a point belong to.
    outcomes: Vec<String>,
    lines: Vec<SavedLine>,
    events: Vec<SavedEvent>,
    /// Absent in files of earlier versions.
    #[serde(default)]
    rules: RuleLines,
}

/// The lines of rules.
#[derive(Debug, Default, Serialize, Deserialize)]
struct RuleLines {
    /// For each range: the beginning of its newest point and its step in microseconds, and the number of points.
    axes: Vec<(u64, u64, usize)>,
    /// Domain, rule, and for each range the points.
    rules: Vec<(String, String, Vec<Vec<RulePoint>>)>,
}

/// Allowed, denied and would-be-denied decisions per second; `null` in a gap.
type RulePoint = Option<[f32; 3]>;

#[derive(Debug, Serialize, Deserialize)]
struct SavedLine {
    /// Microseconds since 1970.
    from: u64,
    /// Microseconds.
    step: u64,
    /// `null` in a gap.
    points: Vec<Option<SavedPoint>>,
}

/// Rates by outcome; median, 99th and 99.9th percentile in nanoseconds, and the number of measurements.
#[derive(Debug, Serialize, Deserialize)]
struct SavedPoint(Vec<f32>, Option<[u64; 4]>);

#[derive(Debug, Serialize, Deserialize)]
struct SavedEvent {
    at: u64,
    kind: EventKind,
    text: String,
}

const NAME: &str = "history.json";
const VERSION: u32 = 1;
/// The longest file that is read. The points and events that are saved have less.
const MAX_HISTORY_BYTES: u64 = 4 << 20;
/// The time between two saves: at most this much is lost in a crash.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);
/// The component whose health is degraded while the file can't be written.
const COMPONENT: &str = "history";

impl HistoryFile {
    pub fn in_directory(directory: &Path) -> HistoryFile {
        HistoryFile { path: directory.join(NAME) }
    }

    /// Restores the history of the previous run. A damaged file is reported, and replaced at the next save.
    pub fn restore(&self, observability: &Observability) {
        match self.read() {
            Ok(saved) => {
                let (lines, events, rules) = saved.unwrap_or_default();
                observability.sampler.history().restore(lines);
                observability.sampler.history().restore_rules(rules);
                observability.sampler.events.restore(events);
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the history of earlier runs can't be read and is ignored");
            }
        }
    }

    /// Replaces the file with the current history.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn save(&self, observability: &Observability) -> io::Result<()> {
        let (lines, rules) = {
            let history = observability.sampler.history();
            (HistoryRange::ALL.map(|range| history.line(range)), history.saved_rules())
        };
        let saved = SavedHistory::new(&lines, observability.sampler.events.all(), rules);
        let text = serde_json::to_vec(&saved)?;
        replace(&self.path, |file| file.write_all(&text))
    }

    /// Saves every minute until shutdown. Whoever stops the server saves the last state.
    pub async fn save_periodically(self, observability: Arc<Observability>, health: Arc<Health>, mut closing: Closing) {
        let mut is_failing = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(SAVE_INTERVAL) => {}
                () = closing.begun() => return,
            }
            let (file, source) = (self.clone(), observability.clone());
            let done = tokio::task::spawn_blocking(move || file.save(&source)).await;
            match done.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
                Ok(()) => {
                    health.restore(COMPONENT);
                    is_failing = false;
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::warn!(path = %self.path.display(), %error, "saving the history failed");
                    }
                    health.degrade(COMPONENT, write_problem(&self.path, &error));
                }
            }
        }
    }

    /// `None` if there is no file.
    fn read(&self) -> Result<Option<Restored>, String> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let mut bytes = Vec::new();
        file.take(MAX_HISTORY_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > MAX_HISTORY_BYTES {
            return Err(format!("it is longer than {MAX_HISTORY_BYTES} bytes"));
        }
        let saved: SavedHistory = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        saved.load().map(Some)
    }
}

impl SavedHistory {
    fn new(lines: &[HistoryLine], events: Vec<ServerEvent>, rules: SavedRules) -> SavedHistory {
        let point = |point: &HistoryPoint| {
            let took = point.took.map(|Quantiles { p50, p99, p999, count }| [p50, p99, p999, count]);
            SavedPoint(point.rates.iter().map(|rate| *rate as f32).collect(), took)
        };
        let lines = lines.iter().map(|line| SavedLine {
            from: line.from.as_micros(),
            step: line.step.as_micros(),
            points: line.points.iter().map(|one| one.as_ref().map(point)).collect(),
        });
        let events =
            events.into_iter().map(|ServerEvent { at, kind, text, .. }| SavedEvent { at: at.as_micros(), kind, text });
        SavedHistory {
            version: VERSION,
            outcomes: outcomes(),
            lines: lines.collect(),
            events: events.collect(),
            rules: RuleLines::new(rules),
        }
    }

    fn load(self) -> Result<Restored, String> {
        if self.version != VERSION || self.outcomes != outcomes() {
            return Err(format!("it is of another version of Tollgate ({})", self.version));
        }
        let lines = self.lines.into_iter().map(SavedLine::load).collect::<Result<Vec<_>, _>>()?;
        let skipped = self.events.len().saturating_sub(MAX_EVENTS);
        let events = self.events.into_iter().skip(skipped);
        let events = events.map(|SavedEvent { at, kind, text }| ServerEvent {
            at: Timestamp::from_micros(at),
            kind,
            text,
            sent: None,
        });
        Ok((lines, events.collect(), self.rules.load()))
    }
}

impl RuleLines {
    fn new(saved: SavedRules) -> RuleLines {
        let axes = saved.axes.iter().map(|axis| (axis.newest.as_micros(), axis.step.as_micros(), axis.points));
        // Four digits are enough for one request in ten minutes, and take half of the space.
        let rounded = |rate: f32| (rate * 10_000.0).round() / 10_000.0;
        let line = |line: Vec<RulePoint>| line.into_iter().map(|point| point.map(|rates| rates.map(rounded))).collect();
        let rules = saved.rules.into_iter();
        let rules = rules.map(|rule| (rule.domain, rule.rule, rule.lines.into_iter().map(line).collect()));
        RuleLines { axes: axes.collect(), rules: rules.collect() }
    }

    fn load(self) -> SavedRules {
        let axes = self.axes.into_iter().map(|(newest, step, points)| SavedAxis {
            newest: Timestamp::from_micros(newest),
            step: Span::from_micros(step),
            points,
        });
        let rules = self.rules.into_iter().map(|(domain, rule, lines)| SavedRule { domain, rule, lines });
        SavedRules { axes: axes.collect(), rules: rules.collect() }
    }
}

impl SavedLine {
    fn load(self) -> Result<HistoryLine, String> {
        let points = self.points.into_iter().map(|point| point.map(SavedPoint::load).transpose());
        Ok(HistoryLine {
            from: Timestamp::from_micros(self.from),
            step: Span::from_micros(self.step),
            points: points.collect::<Result<_, _>>()?,
        })
    }
}

impl SavedPoint {
    fn load(self) -> Result<HistoryPoint, String> {
        let SavedPoint(rates, took) = self;
        let rates: Vec<f64> = rates.into_iter().map(f64::from).collect();
        let rates = rates.try_into().map_err(|_| "a point has another number of outcomes".to_owned())?;
        let took = took.map(|[p50, p99, p999, count]| Quantiles { p50, p99, p999, count });
        Ok(HistoryPoint { rates, took })
    }
}

fn outcomes() -> Vec<String> {
    DecisionOutcome::ALL.into_iter().map(|outcome| outcome.name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const BEGIN: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn sampled(seconds: u64) -> Arc<Observability> {
        let observability = Observability::for_tests_at(BEGIN);
        observability.sampler.events.add(BEGIN, EventKind::Start, "started");
        for second in 1..=seconds {
            observability.observer.decision_latency().record(5_000, 1);
            observability.sampler.history().sample(&observability.observer, BEGIN.after(Span::from_secs(second)));
        }
        observability
    }

    #[test]
    fn a_history_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let file = HistoryFile::in_directory(directory.path());
        file.restore(&Observability::for_tests());
        let before = sampled(700);
        file.save(&before).unwrap();
        assert!(fs::metadata(&file.path).unwrap().len() < MAX_HISTORY_BYTES / 4);
        let after = Observability::for_tests_at(BEGIN.after(Span::from_secs(710)));
        after.sampler.events.add(BEGIN.after(Span::from_secs(710)), EventKind::Start, "started again");
        file.restore(&after);
        for range in HistoryRange::ALL {
            assert_eq!(after.sampler.history().line(range), before.sampler.history().line(range), "{range:?}");
        }
        let events: Vec<_> = after.sampler.events.all().into_iter().map(|event| event.text).collect();
        assert_eq!(events, ["started", "started again"]);
        after.sampler.history().sample(&after.observer, BEGIN.after(Span::from_secs(711)));
        let seconds = after.sampler.history().line(HistoryRange::TenMinutes).points;
        assert_eq!(seconds.iter().filter(|second| second.is_none()).count(), 10);
    }

    #[test]
    fn the_most_rules_fit_into_the_file() {
        let line = |points: usize| vec![Some([123_456.79_f32, 1_234.568, 0.123_4]); points];
        let rule = |number: usize| SavedRule {
            domain: "a-domain-with-a-long-name".to_owned(),
            rule: format!("a-rule-with-a-rather-long-name-{number:04}"),
            lines: vec![line(120), line(120), line(144)],
        };
        let rules = SavedRules { axes: Vec::new(), rules: (0..200).map(rule).collect() };
        let point = HistoryPoint {
            rates: [12_345.678; DecisionOutcome::ALL.len()],
            took: Some(Quantiles { p50: 1_234_567, p99: 12_345_678, p999: 123_456_789, count: 1_234_567 }),
        };
        let lines = HistoryRange::ALL.map(|range| HistoryLine {
            from: BEGIN,
            step: range.step(),
            points: vec![Some(point); range.points()],
        });
        let text = serde_json::to_vec(&SavedHistory::new(&lines, Vec::new(), rules)).unwrap();
        assert!((text.len() as u64) < MAX_HISTORY_BYTES * 9 / 10, "{}", text.len());
    }

    #[test]
    fn a_damaged_file_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let file = HistoryFile::in_directory(directory.path());
        file.save(&sampled(3)).unwrap();
        let text = fs::read_to_string(&file.path).unwrap();
        let long = format!("{text}{}", " ".repeat(MAX_HISTORY_BYTES as usize));
        let broken = [&text[..text.len() / 2], "", "[]", &text.replace("\"version\":1", "\"version\":2"), &long];
        for broken in broken {
            fs::write(&file.path, broken).unwrap();
            assert!(file.read().is_err(), "{}", &broken[..broken.len().min(80)]);
            let observability = Observability::for_tests_at(BEGIN);
            file.restore(&observability);
            assert_eq!(observability.sampler.history().line(HistoryRange::Day).points, []);
        }
        let short = text.replacen("[0.0,0.0,", "[0.0,", 1);
        fs::write(&file.path, short).unwrap();
        assert!(file.read().unwrap_err().contains("outcomes"));
    }
}
