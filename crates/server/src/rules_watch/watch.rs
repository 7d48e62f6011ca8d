//! When to look at the rules: when the system says that a file changed, when the layer above them did, when somebody asks, and now
//! and then.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use super::Follower;

/// Wakes the watcher.
#[derive(Clone, Debug)]
pub(crate) struct Waker(SyncSender<Call>);

/// Why to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// Something changed.
    Changed,
    /// Somebody asks, so that even unchanged files are read again.
    Asked,
    /// No more.
    Stop,
}

/// How many calls may wait; one that finds no room says nothing new.
const WAITING: usize = 64;
/// A file may be written in several steps: wait until it is quiet for so long,
const QUIET: Duration = Duration::from_millis(30);
/// but for no more than so many times.
const PATIENCE: usize = 10;
/// How many directories above the rules are watched.
const MOST_ABOVE: usize = 16;

impl Waker {
    /// Looks at the files now, changed or not.
    pub(crate) fn ask(&self) {
        let _ = self.0.try_send(Call::Asked);
    }

    /// Looks whether something changed.
    pub(super) fn changed(&self) {
        let _ = self.0.try_send(Call::Changed);
    }

    /// Ends the watching.
    pub(crate) fn stop(&self) {
        let _ = self.0.send(Call::Stop);
    }
}

/// Follows the files on a thread of its own, where reading and compiling delay nobody.
pub(crate) fn watch(mut follower: Follower, poll: Duration) -> io::Result<(Waker, JoinHandle<()>)> {
    let (calls, inbox) = sync_channel(WAITING);
    let waker = Waker(calls.clone());
    follower.source.layer.wake(waker.clone());
    // The layer may have been replaced since the start, when there was nobody to be woken.
    if !Arc::ptr_eq(&follower.source.layer.current(), &follower.seen.layer) {
        waker.changed();
    }
    let mut eyes = Eyes::open(&follower.source.paths, calls);
    let thread = std::thread::Builder::new().name("rules".to_owned()).spawn(move || {
        while let Some(asked) = next(&inbox, poll) {
            // A directory that was replaced is another one, which nobody watches yet. Before the look, so that what changes
            // after it is told.
            eyes.look_again();
            follower.look(asked);
        }
    })?;
    Ok((waker, thread))
}

/// Waits for a reason to look, or for as long as the poll; `None` to stop. Whether somebody asked.
fn next(inbox: &Receiver<Call>, poll: Duration) -> Option<bool> {
    let mut asked = match inbox.recv_timeout(poll) {
        Ok(Call::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
        Ok(call) => call == Call::Asked,
        Err(RecvTimeoutError::Timeout) => return Some(false),
    };
    for _ in 0..PATIENCE {
        match inbox.recv_timeout(QUIET) {
            Ok(Call::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
            Ok(call) => asked |= call == Call::Asked,
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    Some(asked)
}

/// What the system tells us of.
struct Eyes {
    watcher: Option<RecommendedWatcher>,
    places: Vec<PathBuf>,
}

impl Eyes {
    /// Watches what the paths lead to, and all that is above them: any of it may be a link that is turned to another place.
    /// Where watching is not possible there is the poll.
    fn open(paths: &[PathBuf], calls: SyncSender<Call>) -> Eyes {
        let paths: Vec<PathBuf> = paths.iter().filter_map(|path| std::path::absolute(path).ok()).collect();
        let places = paths.iter().flat_map(|path| path.ancestors().take(MOST_ABOVE)).map(Path::to_owned).collect();
        let told = move |event: notify::Result<notify::Event>| {
            let concerns =
                |place: &PathBuf| paths.iter().any(|path| path.starts_with(place) || place.starts_with(path));
            // Reading files is no change, and is what we do ourselves.
            if event.is_ok_and(|event| !event.kind.is_access() && event.paths.iter().any(concerns)) {
                let _ = calls.try_send(Call::Changed);
            }
        };
        let watcher = notify::recommended_watcher(told)
            .inspect_err(|error| tracing::warn!(%error, "rule files can't be watched; they are looked at now and then"))
            .ok();
        let mut eyes = Eyes { watcher, places };
        eyes.look_again();
        eyes
    }

    fn look_again(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        for place in &self.places {
            // To watch what is watched already changes nothing; what is gone is found by the poll when it is back.
            let _ = watcher.watch(place, RecursiveMode::NonRecursive);
        }
    }
}
