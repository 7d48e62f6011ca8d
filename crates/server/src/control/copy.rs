//! This server's own copy of what operators decided: a snapshot, and behind it what changed since. It is what the server starts from
//! while the store of record is away, and what it hands out then.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tollgate::control::lines::{self, Alive, Head, Line};
use tollgate_control::{Db, Point};

use super::Control;
use super::feed::{MOST_BYTES, MOST_LINES};
use super::stream::{self, Chunk, Snapshot, Tokens, WAITING, written};
use crate::data_dir::{Replaced, replace_as};
use crate::net::Closing;

/// The copy: where it is, and what is to be added to it.
#[derive(Debug)]
pub(crate) struct Copy {
    path: PathBuf,
    waiting: Mutex<Waiting>,
    called: Notify,
}

/// What has come into force and is not in the file yet.
#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<(u64, Bytes)>,
    bytes: usize,
    up_to: u64,
    /// The file is to be written anew: it is not known what is in it, or it would be too much to add.
    anew: bool,
}

/// What is known of the file.
#[derive(Debug)]
struct Written {
    /// As of which write.
    at: u64,
    /// How long it is. What is behind that is of no use.
    length: u64,
    /// How many records were added.
    added: usize,
}

/// So many changes are added before the file is written anew.
const MOST_ADDED: usize = 100_000;
/// How long to wait after the file could not be written: to try means to read all of the store of record.
const TRY_AGAIN: Duration = Duration::from_secs(15);
/// The part of health that is about the copy.
const PART: &str = "control-copy";

impl Copy {
    pub(crate) fn new(path: &Path) -> Copy {
        let waiting = Waiting { anew: true, ..Waiting::default() };
        Copy { path: path.to_owned(), waiting: Mutex::new(waiting), called: Notify::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// These came into force.
    pub(super) fn add(&self, lines: &[(u64, Bytes)], up_to: u64) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.lines.extend_from_slice(lines);
        waiting.bytes += lines.iter().map(|(_, line)| line.len()).sum::<usize>();
        waiting.up_to = up_to;
        if waiting.lines.len() > MOST_LINES || waiting.bytes > MOST_BYTES {
            *waiting = Waiting { anew: true, ..Waiting::default() };
        }
        drop(waiting);
        self.called.notify_one();
    }

    /// The store of record answers: what could not be written before can be.
    pub(super) fn begin(&self) {
        if self.waiting.lock().unwrap_or_else(PoisonError::into_inner).anew {
            self.called.notify_one();
        }
    }

    /// All is another.
    pub(super) fn begin_again(&self) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Waiting { anew: true, ..Waiting::default() };
        self.called.notify_one();
    }

    /// Writes what waits: behind what is there, or all of it anew.
    async fn keep(self: &Arc<Copy>, db: &Db, file: Option<Written>) -> Result<Option<Written>, String> {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        match file {
            Some(file) if !waiting.anew && file.added + waiting.lines.len() <= MOST_ADDED => {
                let path = self.path.clone();
                let added = tokio::task::spawn_blocking(move || add(&path, file, &waiting));
                added.await.map_err(|error| error.to_string())?.map(Some)
            }
            _ => {
                let (at, length) = write_all(db, &self.path, Replaced::Own, Tokens::Told, None).await?;
                Ok(Some(Written { at: at.generation, length, added: 0 }))
            }
        }
    }
}

impl Control {
    /// Keeps the copy until the server is about to stop. Nobody waits for it.
    pub(crate) async fn keep_copy(self: Arc<Control>, mut closing: Closing) {
        let (Some(db), Some(copy)) = (self.db.clone(), self.copy.clone()) else { return };
        let mut file = None;
        loop {
            tokio::select! {
                () = copy.called.notified() => {}
                () = closing.begun() => return,
            }
            while let Err(why) = copy.keep(&db, file.take()).await.map(|kept| file = kept) {
                tracing::warn!("this server's copy of the store of record is old: {why}");
                self.health.degrade(PART, format!("this server's copy of the store of record is old: {why}"));
                copy.begin_again();
                tokio::select! {
                    () = tokio::time::sleep(TRY_AGAIN) => {}
                    () = closing.begun() => return,
                }
            }
            self.health.restore(PART);
        }
    }
}

/// Adds lines behind what is in the file. What can't be added whole is taken away again.
fn add(path: &Path, file: Written, waiting: &Waiting) -> Result<Written, String> {
    let told = |error: io::Error| format!("{} can't be written: {error}", path.display());
    let new = waiting.lines.iter().filter(|(generation, _)| *generation > file.at);
    let mut bytes: Vec<u8> = new.flat_map(|(_, line)| line.iter().copied()).collect();
    if waiting.up_to <= file.at {
        return Ok(file);
    }
    bytes.extend_from_slice(&written(&Alive { alive: waiting.up_to }));
    let mut open = OpenOptions::new().append(true).open(path).map_err(told)?;
    open.set_len(file.length).map_err(told)?;
    if let Err(error) = open.write_all(&bytes).and_then(|()| open.sync_data()) {
        let _ = open.set_len(file.length);
        return Err(told(error));
    }
    let length = file.length + bytes.len() as u64;
    Ok(Written { at: waiting.up_to, length, added: file.added + waiting.lines.len() })
}

/// Writes all that the database says to a file, whole or not at all. As of when, and how long it is.
pub(super) async fn write_all(
    db: &Db,
    path: &Path,
    replaced: Replaced,
    tokens: Tokens,
    files: Option<Bytes>,
) -> Result<(Point, u64), String> {
    let (out, chunks) = mpsc::channel(WAITING);
    let target = path.to_owned();
    let writing = tokio::task::spawn_blocking(move || write_chunks(&target, replaced, chunks));
    let sent = stream::send(db, tokens, files, out).await;
    let written = writing.await.map_err(|error| error.to_string())?;
    // A database that went away leaves a file that is cut short, and is the reason.
    let at = sent.map_err(|error| error.to_string())?;
    let length = written.map_err(|error| format!("{} can't be written: {error}", path.display()))?;
    at.map(|at| (at, length)).ok_or_else(|| format!("{} is written too slowly", path.display()))
}

fn write_chunks(path: &Path, replaced: Replaced, mut chunks: mpsc::Receiver<Chunk>) -> io::Result<u64> {
    let mut length = 0;
    replace_as(path, replaced, |file| {
        while let Some(chunk) = chunks.blocking_recv() {
            file.write_all(&chunk.bytes)?;
            length += chunk.bytes.len() as u64;
            if chunk.last {
                return Ok(());
            }
        }
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it was cut short"))
    })?;
    Ok(length)
}

/// The copy, as it is handed out: as far as it is whole, and without tokens.
struct Handed {
    input: BufReader<io::Take<File>>,
    snapshot: Snapshot,
    as_of: u64,
    begun: bool,
    /// The snapshot is whole; what follows was added.
    ended: bool,
}

/// Sends what the copy says. `false`: there is none, or nobody wants it any more.
pub(super) async fn send_copy(path: &Path, files: Option<Bytes>, out: mpsc::Sender<Chunk>) -> bool {
    let path = path.to_owned();
    let snapshot = Snapshot::new(Tokens::LeftOut, files, out);
    let opened = tokio::task::spawn_blocking(move || {
        let file = File::open(path).ok()?;
        let length = file.metadata().ok()?.len();
        // What is added from now on, the watch tells.
        Some(Handed { input: BufReader::new(file.take(length)), snapshot, as_of: 0, begun: false, ended: false })
    });
    let Ok(Some(mut handed)) = opened.await else { return false };
    loop {
        let read = tokio::task::spawn_blocking(move || handed.read().map(|more| (handed, more)));
        let Ok(Some((next, more))) = read.await else { return false };
        handed = next;
        if !more {
            handed.snapshot.as_of(handed.as_of);
            return handed.snapshot.end().await;
        }
        if !handed.snapshot.send(false).await {
            return false;
        }
    }
}

impl Handed {
    /// Reads on until there is a chunk. Whether there may be more; `None` if it is no copy.
    fn read(&mut self) -> Option<bool> {
        let mut line = Vec::new();
        while !self.snapshot.has_enough() {
            line.clear();
            self.input.by_ref().take(lines::LONGEST as u64).read_until(b'\n', &mut line).ok()?;
            let parsed = lines::parse(&line).ok().filter(|_| line.ends_with(b"\n"));
            match (parsed, self.begun) {
                (Some(Line::Head(head)), false) if head.format == lines::FORMAT => self.begin(&head),
                (Some(Line::Record(_)), true) => self.snapshot.record(&line),
                (Some(Line::Alive(alive)), true) => self.as_of = self.as_of.max(alive.alive),
                (Some(Line::End(_)), true) => self.ended = true,
                (Some(_), true) => {}
                // The end, or what was not added whole.
                (None, true) if self.ended => return Some(false),
                _ => return None,
            }
        }
        Some(true)
    }

    fn begin(&mut self, head: &Head) {
        (self.begun, self.as_of) = (true, head.as_of);
        self.snapshot.head(head);
    }
}
