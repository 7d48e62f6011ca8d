//! All that the store of record says, as lines: to a file, or to whoever asks, as fast as they take it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;
use tollgate::control::lines::{self, Alive, End, Head, TokenLine};
use tollgate_control::{Db, DbError, Kind, Point, Reader, Record};

use super::load::record;

/// A part of a snapshot.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) bytes: Bytes,
    /// Whether the snapshot is whole with it.
    pub(crate) last: bool,
}

/// So many bytes go at once,
pub(super) const CHUNK: usize = 64 << 10;
/// and so many chunks may wait.
pub(crate) const WAITING: usize = 4;
/// How long somebody may take none. The database keeps what a snapshot is of for as long.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Whether tokens are told: to this server itself, and to nobody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tokens {
    Told,
    LeftOut,
}

/// A snapshot that is being written.
pub(super) struct Snapshot {
    tokens: Tokens,
    /// The line of the rule files, if they are to be told.
    files: Option<Bytes>,
    chunk: BytesMut,
    records: u64,
    out: mpsc::Sender<Chunk>,
}

/// Sends all that the database says. `None`: nobody wants it any more, or they take it too slowly.
pub(super) async fn send(
    db: &Db,
    tokens: Tokens,
    files: Option<Bytes>,
    out: mpsc::Sender<Chunk>,
) -> Result<Option<Point>, DbError> {
    let mut snapshot = Snapshot::new(tokens, files, out);
    let at = db.read(None, false, &mut snapshot).await?;
    let whole = at.is_some() && snapshot.end().await;
    Ok(at.filter(|_| whole))
}

impl Snapshot {
    pub(super) fn new(tokens: Tokens, files: Option<Bytes>, out: mpsc::Sender<Chunk>) -> Snapshot {
        Snapshot { tokens, files, chunk: BytesMut::with_capacity(CHUNK), records: 0, out }
    }

    /// Begins.
    pub(super) fn head(&mut self, head: &Head) {
        self.chunk.extend_from_slice(&written(head));
        if let Some(files) = self.files.take() {
            self.chunk.extend_from_slice(&files);
        }
    }

    /// A line that is a record.
    pub(super) fn record(&mut self, line: &[u8]) {
        self.chunk.extend_from_slice(line);
        self.records += 1;
    }

    /// What is in it is as of this generation, whatever its head says.
    pub(super) fn as_of(&mut self, generation: u64) {
        self.chunk.extend_from_slice(&written(&Alive { alive: generation }));
    }

    /// Ends. `false`: nobody wants it any more.
    pub(super) async fn end(&mut self) -> bool {
        self.chunk.extend_from_slice(&written(&End { records: self.records }));
        self.send(true).await
    }

    pub(super) fn has_enough(&self) -> bool {
        self.chunk.len() >= CHUNK
    }

    pub(super) async fn send(&mut self, last: bool) -> bool {
        let bytes = self.chunk.split().freeze();
        tokio::time::timeout(PATIENCE, self.out.send(Chunk { bytes, last })).await.is_ok_and(|sent| sent.is_ok())
    }
}

impl Reader for Snapshot {
    fn begin(&mut self, at: &Point) {
        self.head(&Head { format: lines::FORMAT, of: at.of.clone(), as_of: at.generation });
    }

    fn take(&mut self, row: Record<'_>) {
        match (row.kind, self.tokens) {
            (Kind::Token, Tokens::LeftOut) => {}
            (Kind::Token, Tokens::Told) => {
                let line = line(&row).unwrap_or_default();
                self.chunk.extend_from_slice(&line);
            }
            _ => {
                if let Some(line) = line(&row) {
                    self.record(&line);
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.has_enough()
    }

    async fn rest(&mut self) -> bool {
        // Others get their turn, also where there is room at once.
        tokio::task::yield_now().await;
        self.send(false).await
    }
}

/// A record as a line; none of a kind that nobody decides by.
pub(super) fn line(row: &Record<'_>) -> Option<Vec<u8>> {
    Some(match row.kind {
        Kind::Token => written(&TokenLine { token: row.name.to_owned(), document: row.document.map(str::to_owned) }),
        _ => written(&record(row)?),
    })
}

/// A line.
pub(crate) fn written(line: &impl serde::Serialize) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    // Texts and numbers always have a form in JSON, and there is always room.
    let _ = lines::write(&mut out, line);
    out
}
