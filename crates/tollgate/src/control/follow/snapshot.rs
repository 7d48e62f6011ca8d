//! A snapshot, read on a thread of its own: a million records take seconds.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write as _};
use std::path::Path;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::kept::Kept;
use crate::control::Controls;
use crate::control::lines::{self, ControlLine, FilesLine, SnapshotHead};

/// What a snapshot says.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) head: SnapshotHead,
    pub(super) controls: Controls,
    pub(super) files: Option<FilesLine>,
    /// What is wrong with the first record that makes no sense.
    pub(super) unreadable: Option<String>,
}

/// Bytes that are read at once.
const BUFFER: usize = 1 << 20;
/// Chunks that may wait for the thread.
pub(super) const WAITING: usize = 4;

/// One that is kept.
pub(super) async fn of_file(path: &Path) -> io::Result<Snapshot> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read(BufReader::with_capacity(BUFFER, File::open(path)?)));
    read.await.map_err(io::Error::other)?
}

/// One that is on its way, and is kept if that is wanted.
pub(super) async fn of_chunks(chunks: mpsc::Receiver<Bytes>, kept: Option<&mut Kept>) -> io::Result<Snapshot> {
    let keeping = kept.as_ref().map(|kept| kept.path().to_owned());
    let reading = tokio::task::spawn_blocking(move || {
        // That it can't be kept is no reason not to use it.
        let mut file = keeping.as_deref().and_then(|path| super::kept::begin(path).ok());
        let input = Chunks { chunks, at: Bytes::new(), copy: file.as_mut().map(|(file, _)| file), failed: false };
        let mut input = BufReader::with_capacity(BUFFER, input);
        let taken = read(&mut input);
        let whole = taken.is_ok() && !input.get_ref().failed;
        drop(input);
        let length = match (file, keeping) {
            (Some((file, temporary)), Some(path)) if whole => super::kept::end(&file, &temporary, &path).ok(),
            (Some((_, temporary)), _) => fs::remove_file(temporary).ok().and(None),
            _ => None,
        };
        taken.map(|taken| (taken, length))
    });
    let (taken, length) = reading.await.map_err(io::Error::other)??;
    if let Some(kept) = kept {
        kept.begins(length);
    }
    Ok(taken)
}

fn read(input: impl io::BufRead) -> io::Result<Snapshot> {
    let (mut controls, mut files, mut unreadable) = (Controls::default(), None, None);
    let head = lines::read_snapshot(input, |line| match line {
        ControlLine::Record(record) => {
            if let Err(why) = controls.apply(&record) {
                unreadable.get_or_insert(why);
            }
        }
        ControlLine::Files(line) => files = Some(line),
        _ => {}
    })?;
    Ok(Snapshot { head, controls, files, unreadable })
}

/// Chunks as they come, copied to a file on the way.
struct Chunks<'f> {
    chunks: mpsc::Receiver<Bytes>,
    at: Bytes,
    copy: Option<&'f mut File>,
    failed: bool,
}

impl Read for Chunks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at.is_empty() {
            let Some(next) = self.chunks.blocking_recv() else { return Ok(0) };
            if let Some(copy) = &mut self.copy {
                self.failed |= copy.write_all(&next).is_err();
            }
            self.at = next;
        }
        let length = buffer.len().min(self.at.len());
        let (now, _) = self.at.split_at(length);
        if let Some(room) = buffer.get_mut(..length) {
            room.copy_from_slice(now);
        }
        bytes::Buf::advance(&mut self.at, length);
        Ok(length)
    }
}
