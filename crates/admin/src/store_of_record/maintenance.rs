//! Periodic maintenance: snapshots for other servers, and removal of old and expired records.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use tollgate::{Span, Timestamp};
use tollgate_control::{Db, FeedPosition};
use tollgate_records::lines::{self, ControlLine, SnapshotHead};

use super::ControlPlane;
use super::load::snapshot_in;
use super::local_copy::write_all;
use super::stream::TokenInclusion;
use crate::data_dir::FileAccess;
use tollgate_net::Closing;

/// How often a snapshot is written for other servers.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(60);
/// How often old records are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3_600);
/// Partial snapshots of crashed servers are removed after this time: no write takes longer.
const LEFTOVER_AGE: Span = Span::from_secs(3_600);
/// The maximal length of a snapshot's head.
const MAX_HEAD_BYTES: u64 = 4_096;

/// The health component of these snapshots.
const COMPONENT: &str = "control-snapshots";

/// The last snapshot that was written or found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WrittenSnapshot {
    at: FeedPosition,
    files: Option<Bytes>,
}

impl ControlPlane {
    /// Runs maintenance until the server is about to stop.
    pub async fn run_maintenance(self: Arc<ControlPlane>, snapshots: Option<PathBuf>, mut closing: Closing) {
        let Some(db) = self.db.clone() else { return };
        let (mut last_written, mut sweep) = (None, tokio::time::interval(SWEEP_INTERVAL));
        let mut snapshot = tokio::time::interval(SNAPSHOT_INTERVAL);
        let writer = fastrand::u64(..);
        loop {
            tokio::select! {
                _ = snapshot.tick() => {
                    let Some(directory) = snapshots.as_ref().filter(|_| self.unconfirmed().is_none()) else { continue };
                    match self.snapshot(&db, directory, writer, &mut last_written).await {
                        Ok(()) => self.health.restore(COMPONENT),
                        Err(why) => {
                            tracing::warn!("no snapshot was written for other servers: {why}");
                            self.health.degrade(COMPONENT, format!("no snapshot was written for other servers: {why}"));
                        }
                    }
                }
                _ = sweep.tick() => {
                    if let Err(error) = db.sweep(self.now()).await {
                        tracing::debug!(%error, "old records could not be removed");
                    }
                    match self.sweep_expired().await {
                        Ok(0) => {}
                        Ok(deleted) => tracing::info!(deleted, "deleted expired blocks, switches and emergencies"),
                        Err(why) => tracing::debug!(?why, "expired records could not be deleted"),
                    }
                }
                () = closing.begun() => return,
            }
        }
    }

    /// Writes a snapshot, unless a current one exists.
    async fn snapshot(
        &self,
        db: &Db,
        directory: &Path,
        writer: u64,
        last_written: &mut Option<WrittenSnapshot>,
    ) -> Result<(), String> {
        let now = WrittenSnapshot { at: self.feed.at(), files: self.files() };
        if last_written.as_ref() == Some(&now) {
            return Ok(());
        }
        let (path, at, clock) = (snapshot_in(directory), now.at.clone(), self.now());
        let looked = tokio::task::spawn_blocking(move || {
            remove_leftovers(&path, clock);
            (is_current(&path, &at), path)
        });
        let (is_current, path) = looked.await.map_err(|error| error.to_string())?;
        let same_files = last_written.as_ref().is_none_or(|last_written| last_written.files == now.files);
        if !(is_current && same_files) {
            write_all(db, &now.at, &path, FileAccess::Shared(writer), TokenInclusion::Omitted, now.files.clone())
                .await?;
        }
        *last_written = Some(now);
        Ok(())
    }
}

/// Whether the file is a snapshot that is as new.
fn is_current(path: &Path, at: &FeedPosition) -> bool {
    let mut line = Vec::new();
    let read =
        fs::File::open(path).and_then(|file| BufReader::new(file.take(MAX_HEAD_BYTES)).read_until(b'\n', &mut line));
    let head = read.ok().and_then(|_| lines::parse(&line).ok());
    matches!(head, Some(ControlLine::Head(SnapshotHead { identity, as_of, .. })) if identity == at.identity && as_of >= at.generation)
}

/// Removes partial snapshots of crashed servers.
fn remove_leftovers(path: &Path, now: Timestamp) {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return;
    };
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let left = entry.file_name();
        let is_left = left.to_str().is_some_and(|left| left.starts_with(name) && left.ends_with(".new"));
        let written = entry.metadata().and_then(|data| data.modified()).ok();
        let since = written.and_then(|written| written.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let written = Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX));
        if is_left && written.after(LEFTOVER_AGE) < now {
            let _ = fs::remove_file(entry.path());
        }
    }
}
