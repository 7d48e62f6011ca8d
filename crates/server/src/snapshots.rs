//! When the memory store's snapshot is written and read, and where it lies.
//!
//! The file is replaced whole: it is written under another name, synced, and renamed. So a crash at any moment leaves the last
//! one or the one before. A file that can't be used is set aside for whoever wants to look, and never keeps the server from
//! starting.

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tollgate::{Clock, Limiter, MemoryConfig, MemoryStore, Span, SystemClock, Timestamp};
use tollgate_store::{Restored, SnapshotError, SnapshotStats};
use tracing::{debug, info, warn};

use crate::counters::Counters;
use crate::health::Health;
use crate::net::Closing;
use crate::observe::metrics::SnapshotMetrics;

/// Where the snapshot lies.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    folder: PathBuf,
}

/// Where it is told how snapshots go.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: SnapshotMetrics,
}

/// What has counters in memory to take snapshots of.
pub(crate) trait InMemory: Send + Sync + 'static {
    type Clock: Clock;

    /// The counters; none if they are kept elsewhere.
    fn memory(&self) -> Option<&MemoryStore<Self::Clock>>;
}

/// What was found at the start.
#[derive(Debug)]
pub(crate) enum LoadOutcome {
    /// No snapshot: the first start, or the data directory is new.
    Fresh,
    /// The counters of the last run.
    Restored(Restored),
    /// A file that can't be used.
    SetAside {
        reason: String,
        /// Its new name, unless it could not be renamed.
        kept_as: Option<PathBuf>,
    },
}

const NAME: &str = "counters.snapshot";
const UNFINISHED: &str = "counters.snapshot.new";
const SET_ASIDE: &str = "counters.snapshot.damaged-";
/// How many files that can't be used are kept.
const MOST_SET_ASIDE: usize = 3;
/// The part of the time that may be spent saving: one in so many.
const SHARE: u32 = 10;
/// The longest between two snapshots, in intervals: also where the clock was set forward while one was written.
const MOST_INTERVALS: u32 = 30;
/// The part of the server that is degraded when snapshots can't be written.
const PART: &str = "snapshots";

impl Snapshots {
    /// The snapshot in a data directory.
    pub(crate) fn within(folder: &Path) -> Snapshots {
        Snapshots { folder: folder.to_owned() }
    }

    /// Where the snapshot is.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// The same as [`Snapshots::save`] of whatever has counters in memory; nothing if they are elsewhere.
    pub(crate) fn save_of(&self, kept: &impl InMemory) -> io::Result<SnapshotStats> {
        kept.memory().map_or_else(|| Ok(SnapshotStats::default()), |store| self.save(store))
    }

    /// Replaces the snapshot with one of the store as it is. What fails leaves the last one as it was.
    pub(crate) fn save<C: Clock>(&self, store: &MemoryStore<C>) -> io::Result<SnapshotStats> {
        let unfinished = self.folder.join(UNFINISHED);
        let saved = self.write(&unfinished, store);
        if saved.is_err() {
            // Half a snapshot on a full disk helps nobody.
            let _ = fs::remove_file(&unfinished);
        }
        saved
    }

    fn write<C: Clock>(&self, unfinished: &Path, store: &MemoryStore<C>) -> io::Result<SnapshotStats> {
        // What a crash left there may be readable by others, and the snapshot has the secret of the store's keys in it.
        match fs::remove_file(unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished)?;
        let stats = store.snapshot(&mut file)?;
        file.sync_all()?;
        drop(file);
        fs::rename(unfinished, self.path())?;
        File::open(&self.folder)?.sync_all()?;
        Ok(stats)
    }

    /// A store with the counters of the last run, as far as there are any.
    pub(crate) fn load(&self, config: MemoryConfig, health: &Health) -> MemoryStore {
        let (store, outcome) = self.load_with(config, SystemClock::default);
        match outcome {
            LoadOutcome::Fresh => {}
            LoadOutcome::Restored(Restored { snapshot, stale, dropped, .. }) => {
                info!(counters = snapshot.counters, once = snapshot.once, stale, dropped, "counters restored");
            }
            LoadOutcome::SetAside { reason, kept_as } => {
                let kept_as = kept_as.map(|path| format!("; it was set aside as {}", path.display()));
                let told = format!(
                    "the snapshot of the counters can't be used, they started afresh: {reason}{}",
                    kept_as.unwrap_or_default()
                );
                warn!("{told}");
                // Until the next one is written.
                health.degrade(PART, told);
            }
        }
        store
    }

    /// The same on a clock of the caller's.
    pub(crate) fn load_with<C: Clock>(
        &self,
        config: MemoryConfig,
        clock: impl Fn() -> C,
    ) -> (MemoryStore<C>, LoadOutcome) {
        let read = File::open(self.path()).map_err(SnapshotError::Io);
        match read.and_then(|mut file| config.restore_with(&mut file, clock())) {
            Ok((store, restored)) => (store, LoadOutcome::Restored(restored)),
            Err(SnapshotError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                (config.build_with(clock()), LoadOutcome::Fresh)
            }
            Err(error) => {
                let store = config.build_with(clock());
                let outcome = self.set_aside(&error, store.clock());
                (store, outcome)
            }
        }
    }

    fn set_aside(&self, error: &SnapshotError, clock: &impl Clock) -> LoadOutcome {
        let seconds = clock.now().as_micros() / 1_000_000;
        let name = self.folder.join(format!("{SET_ASIDE}{seconds}"));
        let (path, reason) = (self.path(), error.to_string());
        let kept_as = match fs::rename(&path, &name) {
            Ok(()) => Some(name),
            Err(error) => {
                warn!(path = %path.display(), %error, "a file that can't be used could not be set aside");
                None
            }
        };
        if let Err(error) = self.forget_oldest() {
            debug!(%error, "files that were set aside could not be removed");
        }
        LoadOutcome::SetAside { reason, kept_as }
    }

    /// Removes all but the newest of those that were set aside.
    fn forget_oldest(&self) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let seconds = name.to_str().and_then(|name| name.strip_prefix(SET_ASIDE)?.parse::<u64>().ok());
            found.extend(seconds.map(|seconds| (seconds, entry.path())));
        }
        found.sort_unstable();
        found.iter().rev().skip(MOST_SET_ASIDE).try_for_each(|(_, path)| fs::remove_file(path))
    }

    /// Saves every interval, if anything changed, until the server is about to stop. The last snapshot is for the one who stops
    /// it to save, when all is answered: this ends only when no other is being written.
    pub(crate) async fn keep<K: InMemory>(
        self,
        kept: Arc<K>,
        interval: Duration,
        watched: Watched,
        mut closing: Closing,
    ) {
        let mut saved = None;
        let mut pause = interval;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = closing.begun() => return,
            }
            let Some(store) = kept.memory() else { return };
            let changes = store.changes();
            if saved == Some(changes) {
                pause = interval;
                continue;
            }
            let begun = store.clock().now();
            let done = {
                let (snapshots, kept) = (self.clone(), Arc::clone(&kept));
                tokio::task::spawn_blocking(move || snapshots.save_of(&*kept)).await
            };
            let took = store.clock().now().since(begun);
            let done = done.unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
            saved = done.is_ok().then_some(changes);
            self.tell(done, begun, took, &watched);
            pause = pause_after(took, interval);
        }
    }

    /// Says how it went: a failure once, until it is over.
    fn tell(&self, done: io::Result<SnapshotStats>, begun: Timestamp, took: Span, watched: &Watched) {
        let Watched { health, metrics } = watched;
        let was_failing = health.conditions().iter().any(|(part, _)| *part == PART);
        let path = self.path();
        match done {
            Ok(SnapshotStats { counters, bytes, .. }) => {
                metrics.written(begun, took, bytes);
                debug!(counters, bytes, micros = took.as_micros(), "snapshot of the counters saved");
                if was_failing {
                    info!(path = %path.display(), "snapshots of the counters are saved again");
                    health.restore(PART);
                }
            }
            Err(error) => {
                metrics.failed();
                if !was_failing {
                    warn!(path = %path.display(), %error, "the counters can't be saved: a restart would forget them");
                }
                health.degrade(PART, format!("{} can't be written: {error}", path.display()));
            }
        }
    }
}

impl InMemory for Limiter<Counters> {
    type Clock = SystemClock;

    fn memory(&self) -> Option<&MemoryStore> {
        self.store().memory()
    }
}

/// How long to wait after a snapshot that took so long: an interval, or as much as keeps saving to its share of the time.
fn pause_after(took: Span, interval: Duration) -> Duration {
    let rest = Duration::from_micros(took.as_micros()).saturating_mul(SHARE - 1);
    rest.clamp(interval, interval.saturating_mul(MOST_INTERVALS))
}
