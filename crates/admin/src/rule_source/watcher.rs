//! When to reload: when a rule file or the layer changed, on request, and at intervals.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use super::RuleReloader;

/// Wakes the watcher.
#[derive(Clone, Debug)]
pub struct Waker(SyncSender<Wake>);

/// A reason to reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// Something changed.
    Changed,
    /// A requested reload, even of unchanged files.
    Forced,
    /// Stop watching.
    Stop,
}

/// Wake-ups that can wait; any more add nothing.
const MAX_WAITING: usize = 64;
/// A file may be written in several steps: reload once there was no change for this long,
const QUIET_PERIOD: Duration = Duration::from_millis(30);
/// but wait at most this many times.
const MAX_QUIET_PERIODS: usize = 10;
/// Parent directories of the rules that are watched.
const MAX_PARENTS: usize = 16;

impl Waker {
    /// Requests a reload, even of unchanged files.
    pub fn force(&self) {
        let _ = self.0.try_send(Wake::Forced);
    }

    /// Requests a reload if something changed.
    pub(super) fn changed(&self) {
        let _ = self.0.try_send(Wake::Changed);
    }

    /// Stops the watcher.
    pub fn stop(&self) {
        let _ = self.0.send(Wake::Stop);
    }
}

/// Runs reloads on a dedicated thread, where reading and compiling block nobody.
pub fn watch(mut reloader: RuleReloader, poll: Duration) -> io::Result<(Waker, JoinHandle<()>)> {
    let (wakes, inbox) = sync_channel(MAX_WAITING);
    let waker = Waker(wakes.clone());
    reloader.source.layer.set_waker(waker.clone());
    // The layer may have been replaced before there was a waker.
    if !Arc::ptr_eq(&reloader.source.layer.current(), &reloader.state.layer) {
        waker.changed();
    }
    let mut watcher = FileWatcher::open(&reloader.source.paths, wakes);
    let thread = std::thread::Builder::new().name("rules".to_owned()).spawn(move || {
        while let Some(forced) = next(&inbox, poll) {
            // A replaced directory is not watched yet. Watch it before the reload, so that no change is missed.
            watcher.watch_all();
            reloader.reload(forced);
        }
    })?;
    Ok((waker, thread))
}

/// Waits for a wake-up, or for the poll interval; `None` to stop. Returns whether the reload is forced.
fn next(inbox: &Receiver<Wake>, poll: Duration) -> Option<bool> {
    let mut forced = match inbox.recv_timeout(poll) {
        Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
        Ok(wake) => wake == Wake::Forced,
        Err(RecvTimeoutError::Timeout) => return Some(false),
    };
    for _ in 0..MAX_QUIET_PERIODS {
        match inbox.recv_timeout(QUIET_PERIOD) {
            Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
            Ok(wake) => forced |= wake == Wake::Forced,
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    Some(forced)
}

/// The file system watcher.
struct FileWatcher {
    watcher: Option<RecommendedWatcher>,
    watched: Vec<PathBuf>,
}

impl FileWatcher {
    /// Watches the paths and their parents: any of them may be a symbolic link that changes. Where watching is not possible
    /// there is polling.
    fn open(paths: &[PathBuf], wakes: SyncSender<Wake>) -> FileWatcher {
        let paths: Vec<PathBuf> = paths.iter().filter_map(|path| std::path::absolute(path).ok()).collect();
        let watched = paths.iter().flat_map(|path| path.ancestors().take(MAX_PARENTS)).map(Path::to_owned).collect();
        let on_event = move |event: notify::Result<notify::Event>| {
            let concerns =
                |changed: &PathBuf| paths.iter().any(|path| path.starts_with(changed) || changed.starts_with(path));
            // Read accesses are not changes, and come from this process.
            if event.is_ok_and(|event| !event.kind.is_access() && event.paths.iter().any(concerns)) {
                let _ = wakes.try_send(Wake::Changed);
            }
        };
        let watcher = notify::recommended_watcher(on_event)
            .inspect_err(|error| tracing::warn!(%error, "rule files can't be watched; changes are found by polling"))
            .ok();
        let mut watcher = FileWatcher { watcher, watched };
        watcher.watch_all();
        watcher
    }

    fn watch_all(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        for path in &self.watched {
            // Watching a path twice has no effect; a missing path is found by polling when it is back.
            let _ = watcher.watch(path, RecursiveMode::NonRecursive);
        }
    }
}
