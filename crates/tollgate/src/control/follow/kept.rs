//! What was heard last, kept in a directory for a start without the server: a snapshot, and behind it what changed since.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::control::lines::SNAPSHOT_FILE;

/// The file.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    /// How long it is, as far as it is known to be good. `None`: nothing can be added.
    length: Option<u64>,
    /// Lines that wait.
    waiting: Vec<u8>,
    /// How many were added.
    added: u64,
}

/// So many lines are added before a new snapshot is taken.
const MOST_ADDED: u64 = 100_000;
/// So many bytes may wait for the end of what they belong to.
const MOST_WAITING: usize = 64 << 20;
/// Who calls this service is nobody else's business.
const PRIVATE: u32 = 0o600;

impl Kept {
    pub(super) fn new(directory: PathBuf) -> Kept {
        Kept { path: directory.join(SNAPSHOT_FILE), length: None, waiting: Vec::new(), added: 0 }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A snapshot of this length was written; `None` if it could not be.
    pub(super) fn begins(&mut self, length: Option<u64>) {
        (self.length, self.added) = (length, 0);
        self.waiting.clear();
    }

    /// A line that was heard.
    pub(super) fn add(&mut self, line: &[u8]) {
        if self.length.is_some() && self.waiting.len() + line.len() < MOST_WAITING {
            self.waiting.extend_from_slice(line);
            self.added += 1;
        } else {
            // Half of what was heard is worse than all of what was heard before.
            self.begins(None);
        }
    }

    /// Writes what waits. `false`: it is time for a new snapshot.
    pub(super) async fn write(&mut self) -> Result<bool, String> {
        let Some(length) = self.length else { return Ok(true) };
        let (path, lines) = (self.path.clone(), std::mem::take(&mut self.waiting));
        let more = lines.len() as u64;
        let written = tokio::task::spawn_blocking(move || {
            let mut file = OpenOptions::new().append(true).open(path)?;
            file.set_len(length)?;
            file.write_all(&lines)
        });
        match written.await.map_err(io::Error::other).and_then(|written| written) {
            Ok(()) => {
                self.length = Some(length + more);
                Ok(self.added < MOST_ADDED)
            }
            Err(error) => {
                self.begins(None);
                Err(format!("{} can't be written: {error}", self.path.display()))
            }
        }
    }
}

/// A new file beside the one that is to be replaced.
pub(super) fn begin(path: &Path) -> io::Result<(File, PathBuf)> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    // Another process may keep its snapshot in the same place.
    let temporary = path.with_extension(format!("{:016x}.new", fastrand::u64(..)));
    let file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(&temporary)?;
    Ok((file, temporary))
}

/// Puts it in the place of the old one. How long it is.
pub(super) fn end(file: &File, temporary: &Path, path: &Path) -> io::Result<u64> {
    let put = file.sync_all().and_then(|()| file.metadata()).and_then(|data| {
        fs::rename(temporary, path)?;
        Ok(data.len())
    });
    if put.is_err() {
        let _ = fs::remove_file(temporary);
    }
    put
}
