//! Following a directory to which servers write snapshots.

use std::path::Path;
use std::time::{Duration, SystemTime};

use tollgate_store::Store;

use super::{Follower, snapshot};

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What tells one file from the next at the same place.
type Mark = (Option<SystemTime>, u64);

impl<S: Store + Send + Sync + 'static> Follower<S> {
    pub(super) async fn follow_directory(&mut self, path: &Path) {
        let mut seen: Option<Mark> = None;
        loop {
            let looked = path.to_owned();
            let mark = tokio::task::spawn_blocking(move || mark(&looked)).await.map_err(std::io::Error::other);
            match mark.and_then(|mark| mark) {
                Ok(mark) if seen == Some(mark) => {}
                Ok(mark) => match snapshot::of_file(path).await {
                    Ok(found) => {
                        seen = Some(mark);
                        self.put_in_force(found).await;
                        let now = self.decider.now();
                        self.status.send_modify(|status| status.connected_since = Some(now));
                    }
                    Err(error) => self.is_bad(path, &error),
                },
                Err(error) => self.is_bad(path, &error),
            }
            self.decider.during(tokio::time::sleep(LOOK)).await;
        }
    }

    fn is_bad(&self, path: &Path, error: &std::io::Error) {
        self.went_wrong(format!("{} can't be read: {error}", path.display()));
    }
}

fn mark(path: &Path) -> std::io::Result<Mark> {
    let data = std::fs::metadata(path)?;
    Ok((data.modified().ok(), data.len()))
}
