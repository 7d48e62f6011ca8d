//! Following a directory to which servers write snapshots.

use std::path::Path;
use std::time::{Duration, SystemTime};

use tollgate_store::Store;

use super::{Follower, snapshot};

/// How often the directory is checked.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Identifies a version of the file: time of modification and length.
type FileVersion = (Option<SystemTime>, u64);

impl<S: Store + Send + Sync + 'static> Follower<S> {
    pub(super) async fn follow_directory(&mut self, path: &Path) {
        let mut installed: Option<FileVersion> = None;
        loop {
            let file = path.to_owned();
            let version = tokio::task::spawn_blocking(move || read_version(&file)).await;
            match version.map_err(std::io::Error::other).and_then(|version| version) {
                Ok(version) if installed == Some(version) => {}
                Ok(version) => match snapshot::read_file(path).await {
                    Ok(snapshot) => {
                        installed = Some(version);
                        self.install(snapshot).await;
                        let now = self.updater.now();
                        self.status.send_modify(|status| status.connected_since = Some(now));
                    }
                    Err(error) => self.report_unreadable(path, &error),
                },
                Err(error) => self.report_unreadable(path, &error),
            }
            self.updater.update_during(tokio::time::sleep(POLL_INTERVAL)).await;
        }
    }

    fn report_unreadable(&self, path: &Path, error: &std::io::Error) {
        self.report_error(format!("{} can't be read: {error}", path.display()));
    }
}

fn read_version(path: &Path) -> std::io::Result<FileVersion> {
    let data = std::fs::metadata(path)?;
    Ok((data.modified().ok(), data.len()))
}
