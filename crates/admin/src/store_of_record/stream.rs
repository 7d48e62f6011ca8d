//! Snapshots of the store of record as lines, written to a file or sent to a client at its pace.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;
use tollgate_control::{Db, DbError, FeedPosition, RecordSink};
use tollgate_records::lines::{self, Heartbeat, SnapshotEnd, SnapshotHead, TokenLine};
use tollgate_records::{Record, RecordKind};

/// A chunk of a snapshot.
#[derive(Debug)]
pub struct Chunk {
    pub bytes: Bytes,
    /// Whether it completes the snapshot.
    pub last: bool,
}

/// Bytes of a chunk.
pub(super) const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that wait for a slow reader.
pub const MAX_WAITING_CHUNKS: usize = 4;
/// A reader that takes nothing for this long is dropped: the database holds the snapshot open meanwhile.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether tokens are included: only for this server itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenInclusion {
    Included,
    Omitted,
}

/// A snapshot in progress.
pub(super) struct Snapshot {
    tokens: TokenInclusion,
    /// The line of the rule files, if included.
    files: Option<Bytes>,
    chunk: BytesMut,
    records: u64,
    out: mpsc::Sender<Chunk>,
}

/// The line of a changed record.
#[derive(Clone, Debug)]
pub(super) struct RecordLine {
    /// The generation of the change.
    pub(super) generation: u64,
    /// Lines of tokens are for this server's copy only.
    pub(super) kind: RecordKind,
    pub(super) bytes: Bytes,
}

/// Sends a snapshot of the database. `None`: the reader is gone or too slow.
///
/// # Errors
/// [`DbError::TooOld`] if it is another database than the known one, or was restored from a backup: then the snapshot is not complete.
pub(super) async fn send(
    db: &Db,
    known: &FeedPosition,
    tokens: TokenInclusion,
    files: Option<Bytes>,
    out: mpsc::Sender<Chunk>,
) -> Result<Option<FeedPosition>, DbError> {
    let mut snapshot = Snapshot::new(tokens, files, out);
    let beginning = FeedPosition { generation: 0, ..known.clone() };
    // Nothing is known of a database that was never read.
    let beginning = Some(&beginning).filter(|beginning| !beginning.identity.is_empty());
    let at = db.read_since(beginning, false, &mut snapshot).await?;
    if at.as_ref().is_some_and(|at| at.generation < known.generation) {
        return Err(DbError::TooOld);
    }
    let whole = at.is_some() && snapshot.end().await;
    Ok(at.filter(|_| whole))
}

impl Snapshot {
    pub(super) fn new(tokens: TokenInclusion, files: Option<Bytes>, out: mpsc::Sender<Chunk>) -> Snapshot {
        Snapshot { tokens, files, chunk: BytesMut::with_capacity(CHUNK_BYTES), records: 0, out }
    }

    /// Writes the head.
    pub(super) fn head(&mut self, head: &SnapshotHead) {
        self.chunk.extend_from_slice(&encode_line(head));
        if let Some(files) = self.files.take() {
            self.chunk.extend_from_slice(&files);
        }
    }

    /// Writes a record.
    pub(super) fn record(&mut self, line: &[u8]) {
        self.chunk.extend_from_slice(line);
        self.records += 1;
    }

    /// Sets the generation of the content, whatever the head says.
    pub(super) fn as_of(&mut self, generation: u64) {
        self.chunk.extend_from_slice(&encode_line(&Heartbeat { generation }));
    }

    /// Completes the snapshot. `false`: the reader is gone.
    pub(super) async fn end(&mut self) -> bool {
        self.chunk.extend_from_slice(&encode_line(&SnapshotEnd { records: self.records }));
        self.send(true).await
    }

    pub(super) fn is_chunk_full(&self) -> bool {
        self.chunk.len() >= CHUNK_BYTES
    }

    pub(super) async fn send(&mut self, last: bool) -> bool {
        let bytes = self.chunk.split().freeze();
        tokio::time::timeout(SEND_TIMEOUT, self.out.send(Chunk { bytes, last })).await.is_ok_and(|sent| sent.is_ok())
    }
}

impl RecordSink for Snapshot {
    fn begin(&mut self, at: &FeedPosition) {
        self.head(&SnapshotHead { format: lines::FORMAT_VERSION, identity: at.identity.clone(), as_of: at.generation });
    }

    fn push(&mut self, record: Record<'_>) {
        let is_token = record.kind == RecordKind::Token;
        if is_token && self.tokens == TokenInclusion::Omitted {
            return;
        }
        match encode_record(&record) {
            // The end of a snapshot counts records, and tokens are not among them.
            Some(line) if is_token => self.chunk.extend_from_slice(&line),
            Some(line) => self.record(&line),
            None => {}
        }
    }

    fn is_full(&self) -> bool {
        self.is_chunk_full()
    }

    async fn flush(&mut self) -> bool {
        // Let other tasks run, even if there is room.
        tokio::task::yield_now().await;
        self.send(false).await
    }
}

/// Encodes a record as a line; `None` for kinds that do not affect decisions, and for a document that is not JSON.
fn encode_record(record: &Record<'_>) -> Option<Vec<u8>> {
    let mut line = Vec::with_capacity(256);
    match record.kind {
        RecordKind::Token => {
            let (token, document) = (record.name.as_ref().into(), record.document.as_deref().map(Into::into));
            lines::write(&mut line, &TokenLine { token, document }).ok()?;
        }
        kind if kind.decides() => lines::write(&mut line, record).ok()?,
        _ => return None,
    }
    Some(line)
}

impl RecordLine {
    /// The line of a record; `None` for kinds that do not affect decisions, and for a document that is not JSON.
    pub(super) fn new(record: &Record<'_>) -> Option<RecordLine> {
        let bytes = encode_record(record)?.into();
        Some(RecordLine { generation: record.generation, kind: record.kind, bytes })
    }
}

/// Encodes a line.
pub fn encode_line(line: &impl serde::Serialize) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    // Texts and numbers are always valid JSON, and memory does not fail.
    let _ = lines::write(&mut out, line);
    out
}
