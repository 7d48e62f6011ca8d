//! Numbers that other parts keep, and are asked for when somebody looks.

use std::sync::OnceLock;

use crate::decisions::LogCounts;

/// Whom to ask. Who is not there yet says nothing.
#[derive(Default)]
pub(super) struct Asked {
    top_denied: Source<Vec<(String, u64)>>,
    log_entries: Source<LogCounts>,
}

type Source<T> = OnceLock<Box<dyn Fn() -> T + Send + Sync>>;

impl Asked {
    pub(super) fn ask_for_top_denied(&self, source: impl Fn() -> Vec<(String, u64)> + Send + Sync + 'static) {
        // A second one would be of the same server.
        let _ = self.top_denied.set(Box::new(source));
    }

    pub(super) fn ask_for_log_entries(&self, source: impl Fn() -> LogCounts + Send + Sync + 'static) {
        let _ = self.log_entries.set(Box::new(source));
    }

    pub(super) fn top_denied(&self) -> Vec<(String, u64)> {
        self.top_denied.get().map(|ask| ask()).unwrap_or_default()
    }

    pub(super) fn log_entries(&self) -> LogCounts {
        self.log_entries.get().map(|ask| ask()).unwrap_or_default()
    }
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").finish_non_exhaustive()
    }
}
