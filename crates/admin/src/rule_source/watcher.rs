//! When to reload: when a rule file or the layer changed, on request, and at intervals.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tollgate::{Clock as _, Timestamp};

use super::RuleReloader;
use super::source::RuleSource;
use super::writes::{FileWrites, RulePaths};

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
/// Several changes at once are one reload: it begins when there was no event for this long,
const BURST_PERIOD: Duration = Duration::from_millis(30);
/// but waits at most this many times.
const MAX_BURST_PERIODS: usize = 10;
/// Parent directories of the rules that are watched.
pub(super) const MAX_PARENTS: usize = 16;

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
    let mut watcher = FileWatcher::open(&reloader.source, reloader.writes.clone(), wakes);
    let thread = std::thread::Builder::new().name("rules".to_owned()).spawn(move || {
        let mut again = None;
        while let Some(forced) = next(&inbox, timeout(again, reloader.clock.now(), poll)) {
            // A replaced directory is not watched yet. Watch it before the reload, so that no change is missed.
            watcher.watch_all();
            let now = reloader.clock.now();
            again = reloader.reload_at(forced, now);
        }
    })?;
    Ok((waker, thread))
}

/// The time to the next reload, if nothing wakes the watcher before.
fn timeout(again: Option<Timestamp>, now: Timestamp, poll: Duration) -> Duration {
    let until = |again: Timestamp| Duration::from_micros(again.since(now).as_micros());
    again.map_or(poll, |again| poll.min(until(again)))
}

/// Waits for a wake-up, or for the timeout; `None` to stop. Returns whether the reload is forced.
fn next(inbox: &Receiver<Wake>, timeout: Duration) -> Option<bool> {
    let mut forced = match inbox.recv_timeout(timeout) {
        Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
        Ok(wake) => wake == Wake::Forced,
        Err(RecvTimeoutError::Timeout) => return Some(false),
    };
    for _ in 0..MAX_BURST_PERIODS {
        match inbox.recv_timeout(BURST_PERIOD) {
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
    fn open(source: &RuleSource, writes: FileWrites, wakes: SyncSender<Wake>) -> FileWatcher {
        let paths: Vec<PathBuf> = source.paths.iter().filter_map(|path| std::path::absolute(path).ok()).collect();
        let watched = paths.iter().flat_map(|path| path.ancestors().take(MAX_PARENTS)).map(Path::to_owned).collect();
        let rules = RulePaths { paths, options: source.options.clone() };
        let on_event = move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| writes.observe(&event, &rules)) {
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
