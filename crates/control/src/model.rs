//! Records, and writes to them.

use std::fmt;

use tollgate_core::Timestamp;
use tollgate_records::RecordKind;

/// The name of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordName {
    /// The kind of the record.
    pub kind: RecordKind,
    /// The domain that it belongs to.
    pub domain: String,
    /// Unique for the kind and the domain.
    pub name: String,
}

/// A record, with its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// The name.
    pub name: RecordName,
    /// The generation of its last write.
    pub generation: u64,
    /// A JSON object. None if the record is deleted.
    pub document: Option<String>,
    /// When it was first written, or first written after a deletion.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// Who last wrote it.
    pub updated_by: String,
    /// The reason that the last writer gave.
    pub reason: String,
}

/// How far a follower has read. Positions in different databases can't be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedPosition {
    /// The [identity](crate::Db::identity) of the database.
    pub identity: String,
    /// The generation of the last write that was read.
    pub generation: u64,
}

impl FeedPosition {
    /// Whether this position can be reached from an earlier one: it is in the same database, which was not restored from a backup.
    pub fn continues(&self, earlier: &FeedPosition) -> bool {
        self.identity == earlier.identity && self.generation >= earlier.generation
    }
}

/// One transaction: all its changes are written, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBatch {
    /// Who writes.
    pub by: String,
    /// The address of the writer.
    pub from: String,
    /// The time of the write.
    pub at: Timestamp,
    /// With a key it is written once, however often it is sent.
    pub once: Option<IdempotencyKey>,
    /// Written only if this is the generation of the last write: for a write that depends on more records than it changes.
    pub since: Option<u64>,
    /// Written only if the database has reached this position. Otherwise it is another one than the writer knows, or was restored from
    /// a backup.
    pub known: Option<FeedPosition>,
    /// Whether only the audit log is written, about changes that are not made.
    pub is_note: bool,
    /// The changes, at most [`MAX_CHANGES`](crate::MAX_CHANGES), each to another record.
    pub changes: Vec<Change>,
}

/// A change to one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The record.
    pub name: RecordName,
    /// What must hold for the change to be written.
    pub expect: Precondition,
    /// A JSON object. None deletes the record. The audit log has the deletion even if the record does not exist.
    pub document: Option<String>,
    /// The action in the audit log: `quota.put`.
    pub action: String,
    /// The reason in the audit log.
    pub reason: String,
}

/// What a writer requires of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing is required.
    Any,
    /// The record does not exist, or is deleted.
    Absent,
    /// The record exists.
    Present,
    /// The record exists, and this is the generation of its last write.
    Generation(u64),
}

/// An idempotency key, stored for [`ONCE_RETENTION`](crate::ONCE_RETENTION). All writers share one set of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The key, as the writer chose it.
    pub key: String,
    /// Distinguishes this write from another one under the same key.
    pub digest: String,
    /// The answer to a repeated write. It is stored as it is.
    pub answer: String,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The write is committed.
    Committed {
        /// Its generation, which every record in it now has.
        generation: u64,
        /// The record before each change. None if it did not exist, or was deleted.
        before: Vec<Option<StoredRecord>>,
    },
    /// It was committed earlier, under the same idempotency key.
    Replayed {
        /// The generation that it got then.
        generation: u64,
        /// The answer that was stored with it.
        answer: String,
    },
}

impl RecordName {
    /// Joins the parts of a name.
    pub fn new(kind: RecordKind, domain: impl Into<String>, name: impl Into<String>) -> RecordName {
        RecordName { kind, domain: domain.into(), name: name.into() }
    }
}

impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.domain, self.name)
    }
}
