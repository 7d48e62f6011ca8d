//! Where lines are kept.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tollgate::{Span, Timestamp};
use tollgate_control::{Db, DbError, Decided, DecidedFilter, MOST_FORGOTTEN};

use super::files::{Files, FilesConfig};
use super::{DecisionsConfig, Line, Logged, Wanted};

/// Where lines are kept.
#[derive(Debug)]
pub(crate) enum Sink {
    /// In the store of record, with those of all servers.
    Control { db: Db, origin: u64 },
    /// In files of this server.
    Files(Arc<Files>),
    /// Nowhere: whoever reads standard output keeps them. The last ones are in memory, too.
    Stdout(Output),
    /// The last ones, in memory.
    Memory,
}

/// Why lines were not written, or can't be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotLogged {
    /// They may be later.
    Yet(String),
    /// They never will be.
    Never(String),
}

/// A thread that writes to standard output, since a pipe that nobody reads takes nothing more.
#[derive(Debug)]
pub(crate) struct Output {
    batches: SyncSender<Batch>,
    /// A batch that is on its way: how many lines, and when they are written.
    under_way: AsyncMutex<Option<(usize, oneshot::Receiver<io::Result<()>>)>>,
}

/// Lines, and who is told when they are written.
type Batch = (Vec<Arc<Logged>>, oneshot::Sender<io::Result<()>>);

/// How long standard output may take for a batch before it is called stuck.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);
/// Transactions in a row that forget what is old.
const MOST_PASSES: usize = 4;
/// Lines of a file are not quite in their order.
const OUT_OF_ORDER: Span = Span::from_secs(60);

/// What stands for NUL, which no database takes.
const NUL: char = '\u{fffd}';

impl Sink {
    /// The store of record.
    pub(crate) fn control(db: Db) -> Sink {
        // As far as numbers are exact in either database.
        Sink::Control { db, origin: fastrand::u64(1..1 << 53) }
    }

    /// Files in a directory.
    ///
    /// # Errors
    /// In words, if it can't be used.
    pub(crate) fn files(config: FilesConfig) -> Result<Sink, String> {
        let directory = config.directory.clone();
        let files = Files::open(config).map_err(|error| {
            let remedy = "name another with --decision-log-dir, or write `--decision-log off`";
            format!("the decision log can't be written to {}: {error}; {remedy}", directory.display())
        })?;
        Ok(Sink::Files(Arc::new(files)))
    }

    /// Standard output, or what a test reads.
    ///
    /// # Errors
    /// If there can be no thread.
    pub(crate) fn output(to: impl Write + Send + 'static) -> Result<Sink, String> {
        let output = Output::start(to).map_err(|error| format!("no thread for the decision log: {error}"))?;
        Ok(Sink::Stdout(output))
    }

    /// In a word.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Sink::Control { .. } => "control",
            Sink::Files(_) => "files",
            Sink::Stdout(_) => "stdout",
            Sink::Memory => "memory",
        }
    }

    /// Whether it answers for what was written.
    pub(super) fn keeps(&self) -> bool {
        matches!(self, Sink::Control { .. } | Sink::Files(_))
    }

    /// Writes the next lines, and says how many were written.
    pub(super) async fn write(&self, batch: &[Arc<Logged>]) -> Result<usize, NotLogged> {
        match self {
            Sink::Control { db, origin } => {
                let rows: Vec<_> = batch.iter().map(|line| line.row()).collect();
                db.add_decisions(*origin, &rows).await?;
            }
            Sink::Files(files) => {
                let (files, batch) = (files.clone(), batch.to_vec());
                let directory = files.directory().to_owned();
                blocking(move || files.append(batch.iter().map(|line| line.text.as_str())))
                    .await
                    .map_err(|error| NotLogged::Yet(format!("{}: {error}", directory.display())))?;
            }
            Sink::Stdout(output) => return output.write(batch).await,
            Sink::Memory => {}
        }
        Ok(batch.len())
    }

    /// Lines that were written, about the newest first.
    pub(super) async fn find(&self, wanted: &Wanted) -> Result<Vec<String>, NotLogged> {
        match self {
            Sink::Control { db, .. } => {
                let caller = without_nul(&wanted.filter.caller);
                Ok(db.decisions(&DecidedFilter { caller, ..wanted.filter.clone() }, wanted.most).await?)
            }
            Sink::Files(files) => {
                let (files, wanted) = (files.clone(), wanted.clone());
                let found = blocking(move || found_in(&files, &wanted)).await;
                found.map_err(|error| NotLogged::Yet(error.to_string()))
            }
            Sink::Stdout(_) | Sink::Memory => Ok(Vec::new()),
        }
    }

    /// Forgets what is old, or too much.
    pub(super) async fn forget(&self, config: &DecisionsConfig, now: Timestamp) -> Result<(), String> {
        match self {
            Sink::Control { db, .. } => {
                for _ in 0..MOST_PASSES {
                    let forgotten = db.forget_decisions(now.before(config.keep), config.most_rows).await;
                    if forgotten.map_err(|error| error.to_string())? < MOST_FORGOTTEN {
                        break;
                    }
                }
                Ok(())
            }
            Sink::Files(files) => {
                let files = files.clone();
                blocking(move || files.forget(now)).await.map_err(|error| error.to_string())
            }
            Sink::Stdout(_) | Sink::Memory => Ok(()),
        }
    }
}

impl Logged {
    fn row(&self) -> Decided {
        Decided {
            number: self.number,
            at: self.at,
            domain: without_nul(&self.domain),
            caller: self.caller.as_deref().map(without_nul),
            rule: self.rule.as_deref().map(without_nul),
            // JSON has an escape for it.
            document: self.text.clone(),
        }
    }
}

fn without_nul(text: &str) -> String {
    text.chars().map(|c| if c == '\0' { NUL } else { c }).collect()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

fn found_in(files: &Files, wanted: &Wanted) -> io::Result<Vec<String>> {
    // As it stands in a line; no text in it has a quote that is not escaped.
    let caller = serde_json::to_string(&wanted.filter.caller)?;
    let (mut found, from) = (Vec::new(), wanted.filter.from);
    files.back(&format!("\"caller\":{caller}"), from, |text| {
        // What is torn is no line.
        let Ok(line) = serde_json::from_str::<Line>(text) else { return true };
        if line.is(&wanted.filter) {
            found.push(text.to_owned());
        }
        let is_past = from.is_some_and(|from| line.at.0.after(OUT_OF_ORDER) < from);
        found.len() < wanted.most && !is_past
    })?;
    Ok(found)
}

impl Output {
    fn start(mut to: impl Write + Send + 'static) -> io::Result<Output> {
        let (batches, waiting) = mpsc::sync_channel::<Batch>(1);
        thread::Builder::new().name("decisions".to_owned()).spawn(move || {
            for (batch, done) in waiting {
                let mut text = String::new();
                for line in batch {
                    text.push_str(&line.text);
                    text.push('\n');
                }
                // Nobody may wait for it any more.
                let _ = done.send(to.write_all(text.as_bytes()).and_then(|()| to.flush()));
            }
        })?;
        Ok(Output { batches, under_way: AsyncMutex::default() })
    }

    async fn write(&self, batch: &[Arc<Logged>]) -> Result<usize, NotLogged> {
        let mut under_way = self.under_way.lock().await;
        let (lines, mut done) = match under_way.take() {
            Some(before) => before,
            None => {
                let (done, written) = oneshot::channel();
                match self.batches.try_send((batch.to_vec(), done)) {
                    Ok(()) => (batch.len(), written),
                    Err(TrySendError::Full(_)) => return Err(NotLogged::Yet(STUCK.to_owned())),
                    Err(TrySendError::Disconnected(_)) => return Err(NotLogged::Never(GONE.to_owned())),
                }
            }
        };
        match tokio::time::timeout(TAKEN_WITHIN, &mut done).await {
            Ok(Ok(Ok(()))) => Ok(lines),
            Ok(Ok(Err(error))) => Err(NotLogged::Never(format!("standard output can't be written: {error}"))),
            Ok(Err(_)) => Err(NotLogged::Never(GONE.to_owned())),
            Err(_) => {
                *under_way = Some((lines, done));
                Err(NotLogged::Yet(STUCK.to_owned()))
            }
        }
    }
}

const STUCK: &str = "nobody reads standard output";
const GONE: &str = "the thread that writes to standard output is gone";

impl From<DbError> for NotLogged {
    fn from(error: DbError) -> NotLogged {
        match error {
            DbError::Invalid(what) => NotLogged::Never(what),
            other => NotLogged::Yet(other.to_string()),
        }
    }
}
