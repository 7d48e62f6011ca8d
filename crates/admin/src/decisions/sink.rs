//! Sinks of the decision log.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tollgate::{Span, Timestamp};
use tollgate_control::{Db, DbError, DecisionBounds, DecisionDb, DecisionFilter, DecisionRow};

use super::files::{FilesConfig, LogFiles};
use super::{DecisionLine, DecisionLookup, DecisionsConfig, QueuedLine};

/// The destination of lines.
#[derive(Debug)]
pub enum DecisionSink {
    /// The store of record, shared by all servers; with SQLite a file next to it.
    Control { db: DecisionDb, origin: u64 },
    /// Files of this server.
    Files(Arc<LogFiles>),
    /// Standard output. The last lines are also in memory.
    Stdout(StdoutWriter),
    /// Memory: the last lines.
    Memory,
}

/// Why lines could not be written or read.
#[derive(Debug, PartialEq, Eq)]
pub enum LogError {
    /// A retry may succeed.
    Retry(String),
    /// A retry can't succeed.
    Permanent(String),
}

/// A thread that writes to standard output, which may block.
#[derive(Debug)]
pub struct StdoutWriter {
    batches: SyncSender<LineBatch>,
    /// The batch in flight: its lines, and the result.
    in_flight: AsyncMutex<Option<(usize, oneshot::Receiver<io::Result<()>>)>>,
}

/// Lines, and the receiver of the result.
type LineBatch = (Vec<Arc<QueuedLine>>, oneshot::Sender<io::Result<()>>);

/// Time limit of a write before standard output counts as stuck.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
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

    /// LogFiles in a directory.
    ///
    /// # Errors
    /// A message for operators, if the directory can't be used.
    pub fn files(config: FilesConfig) -> Result<DecisionSink, String> {
        let directory = config.directory.clone();
        let files = LogFiles::open(config).map_err(|error| {
            let remedy = "choose another with --decision-log-dir, or use `--decision-log off`";
            format!("the decision log can't be written to {}: {error}; {remedy}", directory.display())
        })?;
        Ok(DecisionSink::Files(Arc::new(files)))
    }

    /// Standard output, or another writer in tests.
    ///
    /// # Errors
    /// If the thread can't be started.
    pub fn output(to: impl Write + Send + 'static) -> Result<DecisionSink, String> {
        let output = StdoutWriter::start(to).map_err(|error| format!("no thread for the decision log: {error}"))?;
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
    pub(super) async fn write(&self, batch: &[Arc<QueuedLine>]) -> Result<usize, LogError> {
        match self {
            DecisionSink::Control { db, origin } => {
                let rows: Vec<_> = batch.iter().map(|line| line.row()).collect();
                db.add(*origin, &rows).await?;
            }
            DecisionSink::Files(files) => {
                let (files, batch) = (files.clone(), batch.to_vec());
                let directory = files.directory().to_owned();
                blocking(move || files.append(batch.iter().map(|line| line.text.as_str())))
                    .await
                    .map_err(|error| LogError::Retry(format!("{}: {error}", directory.display())))?;
            }
            DecisionSink::Stdout(output) => return output.write(batch).await,
            DecisionSink::Memory => {}
        }
        Ok(batch.len())
    }

    /// Finds written lines, approximately newest first.
    pub(super) async fn find(&self, lookup: &DecisionLookup) -> Result<Vec<String>, LogError> {
        match self {
            DecisionSink::Control { db, .. } => {
                let caller = without_nul(&lookup.filter.caller);
                Ok(db.find(&DecisionFilter { caller, ..lookup.filter.clone() }, lookup.max).await?)
            }
            DecisionSink::Files(files) => {
                let (files, lookup) = (files.clone(), lookup.clone());
                let found = blocking(move || find_in_files(&files, &lookup)).await;
                found.map_err(|error| LogError::Retry(error.to_string()))
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
                let files = files.clone();
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
            document: self.text.clone(),
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

impl StdoutWriter {
    fn start(mut to: impl Write + Send + 'static) -> io::Result<StdoutWriter> {
        let (batches, waiting) = mpsc::sync_channel::<LineBatch>(1);
        thread::Builder::new().name("decisions".to_owned()).spawn(move || {
            for (batch, done) in waiting {
                let mut text = String::new();
                for line in batch {
                    text.push_str(&line.text);
                    text.push('\n');
                }
                // The receiver may be gone.
                let _ = done.send(to.write_all(text.as_bytes()).and_then(|()| to.flush()));
            }
        })?;
        Ok(StdoutWriter { batches, in_flight: AsyncMutex::default() })
    }

    async fn write(&self, batch: &[Arc<QueuedLine>]) -> Result<usize, LogError> {
        let mut in_flight = self.in_flight.lock().await;
        let (lines, mut done) = match in_flight.take() {
            Some(before) => before,
            None => {
                let (done, written) = oneshot::channel();
                match self.batches.try_send((batch.to_vec(), done)) {
                    Ok(()) => (batch.len(), written),
                    Err(TrySendError::Full(_)) => return Err(LogError::Retry(STUCK.to_owned())),
                    Err(TrySendError::Disconnected(_)) => return Err(LogError::Permanent(GONE.to_owned())),
                }
            }
        };
        match tokio::time::timeout(WRITE_TIMEOUT, &mut done).await {
            Ok(Ok(Ok(()))) => Ok(lines),
            Ok(Ok(Err(error))) => Err(LogError::Permanent(format!("standard output can't be written: {error}"))),
            Ok(Err(_)) => Err(LogError::Permanent(GONE.to_owned())),
            Err(_) => {
                *in_flight = Some((lines, done));
                Err(LogError::Retry(STUCK.to_owned()))
            }
        }
    }
}

const STUCK: &str = "standard output is blocked";
const GONE: &str = "the thread that writes to standard output is gone";

impl From<DbError> for LogError {
    fn from(error: DbError) -> LogError {
        match error {
            DbError::Invalid(error) => LogError::Permanent(error),
            other => LogError::Retry(other.to_string()),
        }
    }
}
