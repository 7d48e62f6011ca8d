//! Sinks of the decision log.

use std::io::{self, Write};
use std::sync::Arc;

use tollgate::{Span, Timestamp};
use tollgate_control::{Db, DbError, DecisionBounds, DecisionDb, DecisionFilter, DecisionRow};
use tollgate_events::{FileSink, FilesConfig, LogFiles, Sink, SinkError, StdoutSink};

use super::{DecisionLine, DecisionLookup, DecisionsConfig, QueuedLine};

/// The destination of lines.
#[derive(Debug)]
pub enum DecisionSink {
    /// The store of record, shared by all servers; with SQLite a file next to it.
    Control { db: DecisionDb, origin: u64 },
    /// Files of this server.
    Files(FileSink),
    /// Standard output. The last lines are also in memory.
    Stdout(StdoutSink),
    /// Memory: the last lines.
    Memory,
}

/// Consecutive transactions that remove old lines.
const MAX_PASSES: usize = 4;
/// Lines of a file may be out of order by this much.
const OUT_OF_ORDER: Span = Span::from_secs(60);

/// Replaces NUL, which databases reject.
const NUL_REPLACEMENT: char = '\u{fffd}';

impl DecisionSink {
    /// The store of record.
    pub fn control(db: &Db) -> DecisionSink {
        let db = DecisionDb::of(db);
        // Exact in both databases.
        DecisionSink::Control { db, origin: fastrand::u64(1..1 << 53) }
    }

    /// Files in a directory.
    ///
    /// # Errors
    /// A message for operators, if the directory can't be used.
    pub fn files(config: FilesConfig) -> Result<DecisionSink, String> {
        let directory = config.directory.clone();
        let files = FileSink::open(config).map_err(|error| {
            let remedy = "choose another with --decision-log-dir, or use `--decision-log off`";
            format!("the decision log can't be written to {}: {error}; {remedy}", directory.display())
        })?;
        Ok(DecisionSink::Files(files))
    }

    /// Standard output, or another writer in tests.
    ///
    /// # Errors
    /// If the thread can't be started.
    pub fn output(to: impl Write + Send + 'static) -> Result<DecisionSink, String> {
        let output = StdoutSink::start(to).map_err(|error| format!("no thread for the decision log: {error}"))?;
        Ok(DecisionSink::Stdout(output))
    }

    /// Its name.
    pub(super) fn name(&self) -> &'static str {
        match self {
            DecisionSink::Control { .. } => "control",
            DecisionSink::Files(_) => "files",
            DecisionSink::Stdout(_) => "stdout",
            DecisionSink::Memory => "memory",
        }
    }

    /// Whether written lines can be read back from it.
    pub(super) fn is_persistent(&self) -> bool {
        matches!(self, DecisionSink::Control { .. } | DecisionSink::Files(_))
    }

    /// Writes lines and returns their number.
    pub(super) async fn write(&self, batch: &[Arc<QueuedLine>]) -> Result<usize, SinkError> {
        match self {
            DecisionSink::Control { db, origin } => {
                let rows: Vec<_> = batch.iter().map(|line| line.row()).collect();
                db.add(*origin, &rows).await.map_err(problem)?;
            }
            DecisionSink::Files(files) => return send(files, batch).await,
            DecisionSink::Stdout(output) => return send(output, batch).await,
            DecisionSink::Memory => {}
        }
        Ok(batch.len())
    }

    /// Finds written lines, approximately newest first.
    pub(super) async fn find(&self, lookup: &DecisionLookup) -> Result<Vec<String>, SinkError> {
        match self {
            DecisionSink::Control { db, .. } => {
                let caller = without_nul(&lookup.filter.caller);
                db.find(&DecisionFilter { caller, ..lookup.filter.clone() }, lookup.max).await.map_err(problem)
            }
            DecisionSink::Files(files) => {
                let (files, lookup) = (files.files(), lookup.clone());
                let found = blocking(move || find_in_files(&files, &lookup)).await;
                found.map_err(|error| SinkError::Retry { why: error.to_string(), after: None })
            }
            DecisionSink::Stdout(_) | DecisionSink::Memory => Ok(Vec::new()),
        }
    }

    /// Removes lines that are too old or too many. Returns whether there are more of them.
    pub(super) async fn remove_old(&self, config: &DecisionsConfig, now: Timestamp) -> Result<bool, String> {
        match self {
            DecisionSink::Control { db, .. } => {
                let bounds =
                    DecisionBounds { before: now.before(config.keep), rows: config.max_rows, bytes: config.max_bytes };
                for _ in 0..MAX_PASSES {
                    if !db.delete_old(bounds).await.map_err(|error| error.to_string())?.has_more {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            DecisionSink::Files(files) => {
                let files = files.files();
                blocking(move || files.remove_old(now)).await.map_err(|error| error.to_string())?;
                Ok(false)
            }
            DecisionSink::Stdout(_) | DecisionSink::Memory => Ok(false),
        }
    }
}

impl QueuedLine {
    fn row(&self) -> DecisionRow {
        DecisionRow {
            number: self.number,
            at: self.at,
            domain: without_nul(&self.domain),
            caller: self.caller.as_deref().map(without_nul),
            rule: self.rule.as_deref().map(without_nul),
            // JSON escapes NUL.
            document: self.line.text.to_string(),
        }
    }
}

fn without_nul(text: &str) -> String {
    text.chars().map(|c| if c == '\0' { NUL_REPLACEMENT } else { c }).collect()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

fn find_in_files(files: &LogFiles, lookup: &DecisionLookup) -> io::Result<Vec<String>> {
    // As it appears in a line; all quotes in texts are escaped.
    let caller = serde_json::to_string(&lookup.filter.caller)?;
    let (mut found, from) = (Vec::new(), lookup.filter.from);
    files.find_back(&format!("\"caller\":{caller}"), from, |text| {
        // Skip partial lines.
        let Ok(line) = serde_json::from_str::<DecisionLine>(text) else { return true };
        if line.matches(&lookup.filter) {
            found.push(text.to_owned());
        }
        let is_past = from.is_some_and(|from| line.at.0.after(OUT_OF_ORDER) < from);
        found.len() < lookup.max && !is_past
    })?;
    Ok(found)
}

/// Writes lines to a sink that only writes.
async fn send(sink: &dyn Sink, batch: &[Arc<QueuedLine>]) -> Result<usize, SinkError> {
    let lines: Vec<_> = batch.iter().map(|line| line.line.clone()).collect();
    sink.send(&lines).await
}

/// What an error of the database means for lines.
fn problem(error: DbError) -> SinkError {
    match error {
        DbError::Invalid(error) => SinkError::Permanent(error),
        other => SinkError::Retry { why: other.to_string(), after: None },
    }
}
