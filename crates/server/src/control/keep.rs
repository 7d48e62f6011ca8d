//! What is done now and then beside following: a snapshot for other servers, and forgetting what is old or over.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use tollgate::control::lines::{self, Head, Line};
use tollgate::{Span, Timestamp};
use tollgate_control::{Db, Point};

use super::Control;
use super::copy::write_all;
use super::load::snapshot_in;
use super::stream::Tokens;
use crate::data_dir::Replaced;
use crate::net::Closing;

/// How often a snapshot is written for other servers.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(60);
/// How often what is only kept for a while is looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);
/// What a server that crashed left of a snapshot is removed after so long: none is written for longer.
const LEFT_FOR: Span = Span::from_secs(3_600);
/// The longest head.
const LONGEST_HEAD: u64 = 4_096;

/// A snapshot that is known to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct There {
    at: Point,
    files: Option<Bytes>,
}

impl Control {
    /// Writes snapshots for other servers, and forgets what is old, until the server is about to stop.
    pub(crate) async fn keep(self: Arc<Control>, snapshots: Option<PathBuf>, mut closing: Closing) {
        let Some(db) = self.db.clone() else { return };
        let (mut there, mut sweep) = (None, tokio::time::interval(SWEEP_EVERY));
        let mut snapshot = tokio::time::interval(SNAPSHOT_EVERY);
        let writer = fastrand::u64(..);
        loop {
            tokio::select! {
                _ = snapshot.tick() => {
                    let Some(directory) = &snapshots else { continue };
                    if let Err(why) = self.snapshot(&db, directory, writer, &mut there).await {
                        tracing::warn!("no snapshot was written: {why}");
                    }
                }
                _ = sweep.tick() => {
                    if let Err(error) = db.sweep(self.now()).await {
                        tracing::debug!(%error, "nothing was swept");
                    }
                    match self.sweep_ended().await {
                        Ok(0) => {}
                        Ok(gone) => tracing::info!(gone, "blocks, switches and emergencies that were over are deleted"),
                        Err(why) => tracing::debug!(?why, "what is over could not be deleted"),
                    }
                }
                () = closing.begun() => return,
            }
        }
    }

    /// Writes one, unless it is there or another server was first.
    async fn snapshot(&self, db: &Db, directory: &Path, writer: u64, there: &mut Option<There>) -> Result<(), String> {
        let now = There { at: self.feed.at(), files: self.files() };
        if there.as_ref() == Some(&now) {
            return Ok(());
        }
        let (path, at, clock) = (snapshot_in(directory), now.at.clone(), self.now());
        let looked = tokio::task::spawn_blocking(move || {
            remove_what_was_left(&path, clock);
            (is_there(&path, &at), path)
        });
        let (is_there, path) = looked.await.map_err(|error| error.to_string())?;
        let same_files = there.as_ref().is_none_or(|there| there.files == now.files);
        if !(is_there && same_files) {
            write_all(db, &path, Replaced::Shared(writer), Tokens::LeftOut, now.files.clone()).await?;
        }
        *there = Some(now);
        Ok(())
    }
}

/// Whether there is a snapshot that is as new.
fn is_there(path: &Path, at: &Point) -> bool {
    let mut line = Vec::new();
    let read =
        fs::File::open(path).and_then(|file| BufReader::new(file.take(LONGEST_HEAD)).read_until(b'\n', &mut line));
    let head = read.ok().and_then(|_| lines::parse(&line).ok());
    matches!(head, Some(Line::Head(Head { of, as_of, .. })) if of == at.of && as_of >= at.generation)
}

/// Removes what servers that crashed left of snapshots.
fn remove_what_was_left(path: &Path, now: Timestamp) {
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
        if is_left && written.after(LEFT_FOR) < now {
            let _ = fs::remove_file(entry.path());
        }
    }
}
