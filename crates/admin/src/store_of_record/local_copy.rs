//! This server's copy of the store of record: a snapshot, followed by later changes. The server starts from it, and serves it, while
//! the store of record is unavailable.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tollgate_control::{Db, FeedPosition};
use tollgate_records::lines::{self, ControlLine, Heartbeat, SnapshotHead};

use super::ControlPlane;
use super::feed::{MAX_BYTES, MAX_LINES};
use super::stream::{self, Chunk, MAX_WAITING_CHUNKS, RecordLine, Snapshot, TokenInclusion, encode_line};
use crate::data_dir::{FileAccess, replace_as, write_problem};
use tollgate_net::Closing;

/// The copy, and the lines to append to it.
#[derive(Debug)]
pub(super) struct LocalCopy {
    path: PathBuf,
    pending: Mutex<PendingLines>,
    wake: Notify,
}

/// Changes in force that are not in the file yet.
#[derive(Debug, Default)]
struct PendingLines {
    lines: Vec<RecordLine>,
    bytes: usize,
    up_to: u64,
    /// Whether the file must be rewritten: its content is unknown, or there is too much to append.
    is_rewrite: bool,
}

/// The state of the file.
#[derive(Debug)]
struct CopyFile {
    /// The generation of its content.
    at: u64,
    /// Its length. Anything behind is invalid.
    length: u64,
    /// Appended records.
    added: usize,
}

/// Changes that are appended before the file is rewritten.
const MAX_APPENDED: usize = 100_000;
/// Delay after a failed write: a retry reads all of the store of record.
const RETRY_DELAY: Duration = Duration::from_secs(15);
/// The health component of the copy.
const COMPONENT: &str = "control-copy";

impl LocalCopy {
    pub(super) fn new(path: &Path) -> LocalCopy {
        let pending = PendingLines { is_rewrite: true, ..PendingLines::default() };
        LocalCopy { path: path.to_owned(), pending: Mutex::new(pending), wake: Notify::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends lines that came into force.
    pub(super) fn add(&self, lines: &[RecordLine], up_to: u64) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.lines.extend_from_slice(lines);
        pending.bytes += lines.iter().map(|line| line.bytes.len()).sum::<usize>();
        pending.up_to = up_to;
        if pending.lines.len() > MAX_LINES || pending.bytes > MAX_BYTES {
            *pending = PendingLines { is_rewrite: true, ..PendingLines::default() };
        }
        drop(pending);
        self.wake.notify_one();
    }

    /// The store of record is available: a pending rewrite can start.
    pub(super) fn resume(&self) {
        if self.pending.lock().unwrap_or_else(PoisonError::into_inner).is_rewrite {
            self.wake.notify_one();
        }
    }

    /// Schedules a rewrite.
    pub(super) fn reset(&self) {
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner) =
            PendingLines { is_rewrite: true, ..PendingLines::default() };
        self.wake.notify_one();
    }

    /// Writes pending lines: appends them, or rewrites the file.
    async fn flush(
        self: &Arc<LocalCopy>,
        db: &Db,
        known: &FeedPosition,
        file: Option<CopyFile>,
    ) -> Result<Option<CopyFile>, String> {
        let pending = std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        match file {
            Some(file) if !pending.is_rewrite && file.added + pending.lines.len() <= MAX_APPENDED => {
                let path = self.path.clone();
                let added = tokio::task::spawn_blocking(move || add(&path, file, &pending));
                added.await.map_err(|error| error.to_string())?.map(Some)
            }
            _ => {
                let (at, length) =
                    write_all(db, known, &self.path, FileAccess::Own, TokenInclusion::Included, None).await?;
                Ok(Some(CopyFile { at: at.generation, length, added: 0 }))
            }
        }
    }
}

impl ControlPlane {
    /// Maintains the copy until the server is about to stop.
    pub async fn run_copy(self: Arc<ControlPlane>, mut closing: Closing) {
        let (Some(db), Some(copy)) = (self.db.clone(), self.copy.clone()) else { return };
        let mut file = None;
        loop {
            tokio::select! {
                () = copy.wake.notified() => {}
                () = closing.begun() => return,
            }
            while let Err(why) = copy.flush(&db, &self.feed.at(), file.take()).await.map(|flushed| file = flushed) {
                tracing::warn!("this server's copy of the store of record is outdated: {why}");
                self.health.degrade(COMPONENT, format!("this server's copy of the store of record is outdated: {why}"));
                copy.reset();
                tokio::select! {
                    () = tokio::time::sleep(RETRY_DELAY) => {}
                    () = closing.begun() => return,
                }
            }
            self.health.restore(COMPONENT);
        }
    }
}

/// Appends lines to the file. A partial append is undone.
fn add(path: &Path, file: CopyFile, pending: &PendingLines) -> Result<CopyFile, String> {
    let failed = |error: io::Error| write_problem(path, &error);
    let new = pending.lines.iter().filter(|line| line.generation > file.at);
    let mut bytes: Vec<u8> = new.flat_map(|line| line.bytes.iter().copied()).collect();
    if pending.up_to <= file.at {
        return Ok(file);
    }
    bytes.extend_from_slice(&encode_line(&Heartbeat { generation: pending.up_to }));
    let mut open = OpenOptions::new().append(true).open(path).map_err(failed)?;
    open.set_len(file.length).map_err(failed)?;
    if let Err(error) = open.write_all(&bytes).and_then(|()| open.sync_data()) {
        let _ = open.set_len(file.length);
        return Err(failed(error));
    }
    let length = file.length + bytes.len() as u64;
    Ok(CopyFile { at: pending.up_to, length, added: file.added + pending.lines.len() })
}

/// Writes a snapshot of the database to a file, atomically, if it is the known one. Returns its point and length.
pub(super) async fn write_all(
    db: &Db,
    known: &FeedPosition,
    path: &Path,
    replaced: FileAccess,
    tokens: TokenInclusion,
    files: Option<Bytes>,
) -> Result<(FeedPosition, u64), String> {
    let (out, chunks) = mpsc::channel(MAX_WAITING_CHUNKS);
    let target = path.to_owned();
    let writing = tokio::task::spawn_blocking(move || write_chunks(&target, replaced, chunks));
    let sent = stream::send(db, known, tokens, files, out).await;
    let encode_line = writing.await.map_err(|error| error.to_string())?;
    // A failing database leaves a truncated snapshot, and is the reason.
    let at = sent.map_err(|error| error.to_string())?;
    let length = encode_line.map_err(|error| write_problem(path, &error))?;
    at.map(|at| (at, length)).ok_or_else(|| format!("{} is written too slowly", path.display()))
}

fn write_chunks(path: &Path, replaced: FileAccess, mut chunks: mpsc::Receiver<Chunk>) -> io::Result<u64> {
    let mut length = 0;
    replace_as(path, replaced, |file| {
        while let Some(chunk) = chunks.blocking_recv() {
            file.write_all(&chunk.bytes)?;
            length += chunk.bytes.len() as u64;
            if chunk.last {
                return Ok(());
            }
        }
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the snapshot was truncated"))
    })?;
    Ok(length)
}

/// Reads the complete part of the copy, without tokens.
struct CopyReader {
    input: BufReader<io::Take<File>>,
    snapshot: Snapshot,
    as_of: u64,
    begun: bool,
    /// Whether the snapshot is complete; appended lines follow.
    ended: bool,
}

/// Sends the copy, and lines above it. `false`: there is none, or the receiver is gone.
pub(super) async fn send_copy(path: &Path, files: Option<Bytes>, above: Vec<Bytes>, out: mpsc::Sender<Chunk>) -> bool {
    let path = path.to_owned();
    let snapshot = Snapshot::new(TokenInclusion::Omitted, files, out);
    let opened = tokio::task::spawn_blocking(move || {
        let file = File::open(path).ok()?;
        let length = file.metadata().ok()?.len();
        // Later changes come with the watch.
        Some(CopyReader { input: BufReader::new(file.take(length)), snapshot, as_of: 0, begun: false, ended: false })
    });
    let Ok(Some(mut reader)) = opened.await else { return false };
    loop {
        let read = tokio::task::spawn_blocking(move || reader.read().map(|more| (reader, more)));
        let Ok(Some((next, more))) = read.await else { return false };
        reader = next;
        if !more {
            above.iter().for_each(|line| reader.snapshot.record(line));
            reader.snapshot.as_of(reader.as_of);
            return reader.snapshot.end().await;
        }
        if !reader.snapshot.send(false).await {
            return false;
        }
    }
}

impl CopyReader {
    /// Reads until a chunk is full. Returns whether there may be more; `None` if the file is not a copy.
    fn read(&mut self) -> Option<bool> {
        let mut line = Vec::new();
        while !self.snapshot.is_chunk_full() {
            line.clear();
            self.input.by_ref().take(lines::MAX_LINE_BYTES as u64).read_until(b'\n', &mut line).ok()?;
            let parsed = lines::parse(&line).ok().filter(|_| line.ends_with(b"\n"));
            match (parsed, self.begun) {
                (Some(ControlLine::Head(head)), false) if head.format == lines::FORMAT_VERSION => self.begin(&head),
                (Some(ControlLine::Record(_)), true) => self.snapshot.record(&line),
                (Some(ControlLine::Heartbeat(heartbeat)), true) => self.as_of = self.as_of.max(heartbeat.generation),
                (Some(ControlLine::End(_)), true) => self.ended = true,
                (Some(_), true) => {}
                // The end, or a partial append.
                (None, true) if self.ended => return Some(false),
                _ => return None,
            }
        }
        Some(true)
    }

    fn begin(&mut self, head: &SnapshotHead) {
        (self.begun, self.as_of) = (true, head.as_of);
        self.snapshot.head(head);
    }
}
