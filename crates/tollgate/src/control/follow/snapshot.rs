//! Reading snapshots, on a thread of their own: a million records take seconds.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write as _};
use std::path::Path;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::local_copy::{self, LocalCopy};
use crate::control::Controls;
use crate::control::lines::{self, ControlLine, FilesLine, SnapshotHead};

/// The contents of a snapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) head: SnapshotHead,
    pub(super) controls: Controls,
    pub(super) files: Option<FilesLine>,
    /// The error of the first invalid record.
    pub(super) first_error: Option<String>,
}

/// The size of the read buffer.
const BUFFER_BYTES: usize = 1 << 20;
/// How many chunks may wait for the reading thread.
pub(super) const MAX_PENDING_CHUNKS: usize = 4;

/// Reads a snapshot from a file.
pub(super) async fn read_file(path: &Path) -> io::Result<Snapshot> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read(BufReader::with_capacity(BUFFER_BYTES, File::open(path)?)));
    read.await.map_err(io::Error::other)?
}

/// Reads a snapshot from chunks as they arrive, and stores it in the copy, if there is one.
pub(super) async fn read_chunks(chunks: mpsc::Receiver<Bytes>, copy: Option<&mut LocalCopy>) -> io::Result<Snapshot> {
    let path = copy.as_ref().map(|copy| copy.path().to_owned());
    let reading = tokio::task::spawn_blocking(move || {
        // A snapshot that can't be stored is used all the same.
        let mut file = path.as_deref().and_then(|path| local_copy::create_temporary(path).ok());
        let input = ChunkReader {
            chunks,
            current: Bytes::new(),
            copy: file.as_mut().map(|(file, _)| file),
            copy_failed: false,
        };
        let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
        let snapshot = read(&mut input);
        let is_copied = snapshot.is_ok() && !input.get_ref().copy_failed;
        drop(input);
        let length = match (file, path) {
            (Some((file, temporary)), Some(path)) if is_copied => local_copy::replace(&file, &temporary, &path).ok(),
            (Some((_, temporary)), _) => fs::remove_file(temporary).ok().and(None),
            _ => None,
        };
        snapshot.map(|snapshot| (snapshot, length))
    });
    let (snapshot, length) = reading.await.map_err(io::Error::other)??;
    if let Some(copy) = copy {
        copy.reset(length);
    }
    Ok(snapshot)
}

fn read(input: impl io::BufRead) -> io::Result<Snapshot> {
    let (mut controls, mut files, mut first_error) = (Controls::default(), None, None);
    let head = lines::read_snapshot(input, |line| match line {
        ControlLine::Record(record) => {
            if let Err(error) = controls.apply(&record) {
                first_error.get_or_insert(error);
            }
        }
        ControlLine::Files(line) => files = Some(line),
        _ => {}
    })?;
    Ok(Snapshot { head, controls, files, first_error })
}

/// Reads chunks as they arrive, and copies them to a file.
struct ChunkReader<'f> {
    chunks: mpsc::Receiver<Bytes>,
    /// The unread part of the current chunk.
    current: Bytes,
    copy: Option<&'f mut File>,
    copy_failed: bool,
}

impl Read for ChunkReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            let Some(next) = self.chunks.blocking_recv() else { return Ok(0) };
            if let Some(copy) = &mut self.copy {
                self.copy_failed |= copy.write_all(&next).is_err();
            }
            self.current = next;
        }
        let length = buffer.len().min(self.current.len());
        let (data, _) = self.current.split_at(length);
        if let Some(target) = buffer.get_mut(..length) {
            target.copy_from_slice(data);
        }
        bytes::Buf::advance(&mut self.current, length);
        Ok(length)
    }
}
