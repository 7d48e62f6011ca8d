//! What a server on a shared store needs if that store is unavailable after a restart: the number of servers among which
//! limits are divided, and what is left of them. A file in the data directory, replaced atomically.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tollgate_admin::data_dir;
use tollgate_net::Closing;
use tollgate_store::{Level, SavedGuard, SharedStore};
use tollgate_telemetry::Health;

/// The file in a data directory.
#[derive(Clone, Debug)]
pub(crate) struct OutageState {
    path: PathBuf,
}

const NAME: &str = "outage.state";
/// The longest file that is read, in bytes. The store bounds what it saves to less.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The component whose health is degraded while the file can't be written.
const COMPONENT: &str = "outage_state";

impl OutageState {
    pub(crate) fn in_directory(directory: &Path) -> OutageState {
        OutageState { path: directory.join(NAME) }
    }

    /// The state of the previous run. A damaged file is reported, and replaced at the next opportunity.
    pub(crate) fn load(&self) -> Option<SavedGuard> {
        let mut bytes = Vec::new();
        let read = File::open(&self.path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
        let saved = match read {
            Ok(_) => SavedGuard::from_bytes(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => Err(error.to_string()),
        };
        match saved {
            Ok(saved) => {
                tracing::debug!(
                    replicas = saved.replicas(),
                    counters = saved.readings(),
                    "state for an outage restored"
                );
                Some(saved)
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the state for an outage of the store can't be used");
                None
            }
        }
    }

    /// Replaces the file with the current state.
    pub(crate) fn save(&self, store: &dyn SharedStore) -> io::Result<()> {
        let bytes = store.save().to_bytes();
        data_dir::replace(&self.path, |file| file.write_all(&bytes))
    }

    /// Saves every interval, if the number of servers has changed or the store is not available as a whole, until
    /// shutdown. Whoever stops the server saves the last state.
    pub(crate) async fn save_periodically(
        self,
        store: Arc<dyn SharedStore>,
        interval: Duration,
        health: Arc<Health>,
        mut closing: Closing,
    ) {
        let mut saved_replicas = None;
        let mut is_failing = false;
        loop {
            let status = store.status().guard;
            if status.level != Level::Normal || saved_replicas != Some(status.replicas) {
                let (state, source) = (self.clone(), Arc::clone(&store));
                let done = tokio::task::spawn_blocking(move || state.save(&*source)).await;
                let done = done.unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
                saved_replicas = done.is_ok().then_some(status.replicas);
                is_failing = self.report(done, is_failing, &health);
            }
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = closing.begun() => return,
            }
        }
    }

    /// Reports a result, and returns whether it is a failure. Repeated failures are logged once.
    fn report(&self, done: io::Result<()>, was_failing: bool, health: &Health) -> bool {
        let path = self.path.display();
        match &done {
            Ok(()) => health.restore(COMPONENT),
            Err(error) => {
                if !was_failing {
                    tracing::warn!(%path, %error, "saving the state for an outage of the store failed");
                }
                health.degrade(COMPONENT, data_dir::write_problem(&self.path, error));
            }
        }
        done.is_err()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_is_missing_or_damaged_restores_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let state = OutageState::in_directory(directory.path());
        assert!(state.load().is_none());
        for bytes in [&b""[..], b"TGguard1", b"something else entirely", &[0; 4_096]] {
            fs::write(&state.path, bytes).unwrap();
            assert!(state.load().is_none(), "{bytes:?}");
        }
    }
}
