//! The follower's copy on disk, for a start without the server: a snapshot, then the lines that arrived after it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::control::lines::SNAPSHOT_FILE;

/// The file of the copy, and the lines that are not written to it yet.
#[derive(Debug)]
pub(super) struct LocalCopy {
    path: PathBuf,
    /// The length of the valid part of the file. `None`: nothing can be appended until the next snapshot.
    length: Option<u64>,
    /// Lines that are written when their generation is complete.
    pending: Vec<u8>,
    /// How many lines were added since the snapshot.
    added: u64,
}

/// How many lines may be added before the follower takes a new snapshot.
const MAX_ADDED_LINES: u64 = 100_000;
/// How many bytes may be pending.
const MAX_PENDING_BYTES: usize = 64 << 20;
/// The names of a service's callers are readable by their owner only.
const FILE_MODE: u32 = 0o600;

impl LocalCopy {
    pub(super) fn new(directory: PathBuf) -> LocalCopy {
        LocalCopy { path: directory.join(SNAPSHOT_FILE), length: None, pending: Vec::new(), added: 0 }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Starts over after a snapshot of this length; `None` if it could not be written.
    pub(super) fn reset(&mut self, length: Option<u64>) {
        (self.length, self.added) = (length, 0);
        self.pending.clear();
    }

    /// Adds a line.
    pub(super) fn add(&mut self, line: &[u8]) {
        if self.length.is_some() && self.pending.len() + line.len() < MAX_PENDING_BYTES {
            self.pending.extend_from_slice(line);
            self.added += 1;
        } else {
            // An old complete copy is better than a newer one with gaps.
            self.reset(None);
        }
    }

    /// Writes the pending lines. `false` if a new snapshot should be taken.
    pub(super) async fn flush(&mut self) -> Result<bool, String> {
        let Some(length) = self.length else { return Ok(true) };
        let (path, lines) = (self.path.clone(), std::mem::take(&mut self.pending));
        let more = lines.len() as u64;
        let written = tokio::task::spawn_blocking(move || {
            let mut file = OpenOptions::new().append(true).open(path)?;
            file.set_len(length)?;
            file.write_all(&lines)
        });
        match written.await.map_err(io::Error::other).and_then(|written| written) {
            Ok(()) => {
                self.length = Some(length + more);
                Ok(self.added < MAX_ADDED_LINES)
            }
            Err(error) => {
                self.reset(None);
                Err(format!("{} can't be written: {error}", self.path.display()))
            }
        }
    }
}

/// Creates a temporary file next to the one that it will replace.
pub(super) fn create_temporary(path: &Path) -> io::Result<(File, PathBuf)> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    // Another process may write its copy to the same directory.
    let temporary = path.with_extension(format!("{:016x}.new", fastrand::u64(..)));
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&temporary)?;
    Ok((file, temporary))
}

/// Replaces the file by the temporary one, and returns its length.
pub(super) fn replace(file: &File, temporary: &Path, path: &Path) -> io::Result<u64> {
    let replaced = file.sync_all().and_then(|()| file.metadata()).and_then(|data| {
        fs::rename(temporary, path)?;
        Ok(data.len())
    });
    if replaced.is_err() {
        let _ = fs::remove_file(temporary);
    }
    replaced
}
