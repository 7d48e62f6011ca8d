//! Snapshots of the counters in memory.
//!
//! The file is replaced atomically: it is written under another name, synced and renamed. So a crash at any time leaves the new
//! snapshot or the previous one. A damaged file is renamed for inspection and never prevents the server from starting.

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tollgate::{Clock, Limiter, MemoryConfig, MemoryStore, Span, SystemClock, Timestamp};
use tollgate_store::{RestoreReport, SnapshotError, SnapshotStats};
use tracing::{debug, info, warn};

use tollgate_admin::data_dir;
use tollgate_net::Closing;
use tollgate_store::Counters;
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::SnapshotMetrics;

/// The snapshot in a data directory.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    directory: PathBuf,
}

/// Reports the results of snapshots.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotReporter {
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: SnapshotMetrics,
}

/// A source of counters in memory.
pub(crate) trait MemoryCounters: Send + Sync + 'static {
    type Clock: Clock;

    /// The counters; `None` if they are in another store.
    fn memory(&self) -> Option<&MemoryStore<Self::Clock>>;
}

/// The result of loading the snapshot at the start.
#[derive(Debug)]
pub(crate) enum LoadOutcome {
    /// There is no snapshot: the first start, or a new data directory.
    Fresh,
    /// The counters of the previous run.
    Restored(RestoreReport),
    /// The file can't be used.
    Damaged {
        reason: String,
        /// The new name of the file, unless it could not be renamed.
        renamed_to: Option<PathBuf>,
    },
}

const NAME: &str = "counters.snapshot";
const UNFINISHED: &str = "counters.snapshot.new";
const DAMAGED_PREFIX: &str = "counters.snapshot.damaged-";
/// Damaged snapshots that are retained.
const MAX_DAMAGED: usize = 3;
/// The pause after a snapshot, as a multiple of the time it took.
const PAUSE_FACTOR: u32 = 10;
/// The longest pause, in intervals: it also bounds the effect of a clock that was set forward.
const MAX_PAUSE_INTERVALS: u32 = 30;
/// The component whose health is degraded while snapshots can't be written.
const COMPONENT: &str = "snapshots";

impl Snapshots {
    /// The snapshot in a data directory.
    pub(crate) fn in_directory(directory: &Path) -> Snapshots {
        Snapshots { directory: directory.to_owned() }
    }

    /// The path of the snapshot.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// Saves the counters of a source; does nothing if they are not in memory.
    pub(crate) fn save_counters(&self, source: &impl MemoryCounters) -> io::Result<SnapshotStats> {
        source.memory().map_or_else(|| Ok(SnapshotStats::default()), |store| self.save(store))
    }

    /// Replaces the snapshot with the current state of the store. A failure leaves the previous one unchanged.
    pub(crate) fn save<C: Clock>(&self, store: &MemoryStore<C>) -> io::Result<SnapshotStats> {
        let unfinished = self.directory.join(UNFINISHED);
        let saved = self.write(&unfinished, store);
        if saved.is_err() {
            // An incomplete snapshot only takes up space.
            let _ = fs::remove_file(&unfinished);
        }
        saved
    }

    fn write<C: Clock>(&self, unfinished: &Path, store: &MemoryStore<C>) -> io::Result<SnapshotStats> {
        // A file that a crash left may be readable by others, and a snapshot contains the secret of the store's keys.
        match fs::remove_file(unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished)?;
        let stats = store.snapshot(&mut file)?;
        file.sync_all()?;
        drop(file);
        fs::rename(unfinished, self.path())?;
        File::open(&self.directory)?.sync_all()?;
        Ok(stats)
    }

    /// Loads a store with the counters of the previous run, if there are any.
    pub(crate) fn load(&self, config: MemoryConfig, health: &Health) -> MemoryStore {
        let (store, outcome) = self.load_with(config, SystemClock::default);
        match outcome {
            LoadOutcome::Fresh => {}
            LoadOutcome::Restored(RestoreReport { snapshot, stale, dropped, .. }) => {
                info!(counters = snapshot.counters, once = snapshot.once, stale, dropped, "counters restored");
            }
            LoadOutcome::Damaged { reason, renamed_to } => {
                let renamed = renamed_to.map(|path| format!("; it was renamed to {}", path.display()));
                let message = format!(
                    "the snapshot of the counters can't be used, they start from zero: {reason}{}",
                    renamed.unwrap_or_default()
                );
                warn!("{message}");
                // Until the next one is written.
                health.degrade(COMPONENT, message);
            }
        }
        store
    }

    /// Loads a store with another clock.
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
                let outcome = self.rename_damaged(&error, store.clock());
                (store, outcome)
            }
        }
    }

    fn rename_damaged(&self, error: &SnapshotError, clock: &impl Clock) -> LoadOutcome {
        let seconds = clock.now().as_micros() / 1_000_000;
        let name = self.directory.join(format!("{DAMAGED_PREFIX}{seconds}"));
        let (path, reason) = (self.path(), error.to_string());
        let renamed_to = match fs::rename(&path, &name) {
            Ok(()) => Some(name),
            Err(error) => {
                warn!(path = %path.display(), %error, "renaming the damaged snapshot failed");
                None
            }
        };
        if let Err(error) = self.remove_oldest() {
            debug!(%error, "removing old damaged snapshots failed");
        }
        LoadOutcome::Damaged { reason, renamed_to }
    }

    /// Removes all but the newest damaged snapshots.
    fn remove_oldest(&self) -> io::Result<()> {
        let mut damaged = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let seconds = name.to_str().and_then(|name| name.strip_prefix(DAMAGED_PREFIX)?.parse::<u64>().ok());
            damaged.extend(seconds.map(|seconds| (seconds, entry.path())));
        }
        damaged.sort_unstable();
        damaged.iter().rev().skip(MAX_DAMAGED).try_for_each(|(_, path)| fs::remove_file(path))
    }

    /// Saves every interval, if anything changed, until shutdown. Whoever stops the server writes the last snapshot, after the last
    /// response; this task ends only when no snapshot is being written.
    pub(crate) async fn save_periodically<S: MemoryCounters>(
        self,
        source: Arc<S>,
        interval: Duration,
        reporter: SnapshotReporter,
        mut closing: Closing,
    ) {
        let mut saved = None;
        let mut pause = interval;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = closing.begun() => return,
            }
            let Some(store) = source.memory() else { return };
            let changes = store.changes();
            if saved == Some(changes) {
                pause = interval;
                continue;
            }
            let begun = store.clock().now();
            let done = {
                let (snapshots, source) = (self.clone(), Arc::clone(&source));
                tokio::task::spawn_blocking(move || snapshots.save_counters(&*source)).await
            };
            let took = store.clock().now().since(begun);
            let done = done.unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
            saved = done.is_ok().then_some(changes);
            self.report(done, begun, took, &reporter);
            pause = pause_after(took, interval);
        }
    }

    /// Reports a result; repeated failures are logged once.
    fn report(&self, done: io::Result<SnapshotStats>, begun: Timestamp, took: Span, reporter: &SnapshotReporter) {
        let SnapshotReporter { health, metrics } = reporter;
        let was_failing = health.conditions().iter().any(|(component, _)| *component == COMPONENT);
        let path = self.path();
        match done {
            Ok(SnapshotStats { counters, bytes, .. }) => {
                metrics.written(begun, took, bytes);
                debug!(counters, bytes, micros = took.as_micros(), "snapshot of the counters saved");
                if was_failing {
                    info!(path = %path.display(), "saving snapshots of the counters works again");
                    health.restore(COMPONENT);
                }
            }
            Err(error) => {
                metrics.failed();
                if !was_failing {
                    warn!(path = %path.display(), %error, "saving the counters failed: a restart would lose them");
                }
                health.degrade(COMPONENT, data_dir::write_problem(&path, &error));
            }
        }
    }
}

impl MemoryCounters for Limiter<Counters> {
    type Clock = SystemClock;

    fn memory(&self) -> Option<&MemoryStore> {
        self.store().memory()
    }
}

/// The pause after a snapshot: the interval, or longer after a slow snapshot.
fn pause_after(took: Span, interval: Duration) -> Duration {
    let rest = Duration::from_micros(took.as_micros()).saturating_mul(PAUSE_FACTOR - 1);
    rest.clamp(interval, interval.saturating_mul(MAX_PAUSE_INTERVALS))
}
