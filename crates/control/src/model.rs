//! What is kept, and what a write is.

use std::fmt;

use tollgate_core::Timestamp;
use tollgate_records::RecordKind;

/// What names a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// What it is about.
    pub kind: RecordKind,
    /// The domain that it belongs to.
    pub domain: String,
    /// Its name within both.
    pub name: String,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// What names it.
    pub name: Name,
    /// The write that made it what it is.
    pub generation: u64,
    /// A JSON object. None: it is deleted.
    pub document: Option<String>,
    /// When it was written first, or for the first time after it was deleted.
    pub created_at: Timestamp,
    /// When it was written last.
    pub updated_at: Timestamp,
    /// Who wrote it last.
    pub updated_by: String,
    /// Why.
    pub reason: String,
}

/// How far a follower has come. Two that are of different databases can't be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// What tells the database from others.
    pub of: String,
    /// The last write that is known.
    pub generation: u64,
}

/// One transaction: all of it is written, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Who writes.
    pub by: String,
    /// The address that it came from.
    pub from: String,
    /// When.
    pub at: Timestamp,
    /// So that it is written once, however often it is sent.
    pub once: Option<Once>,
    /// Only if nothing at all was written past this generation: for what depends on more records than it changes.
    pub since: Option<u64>,
    /// What is written, each record at most once. At most [`MOST_CHANGES`](crate::MOST_CHANGES).
    pub changes: Vec<Change>,
}

/// What becomes of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub name: Name,
    /// What must be there now.
    pub expect: Expect,
    /// A JSON object. None deletes the record; one that is not there stays so, which the audit log tells all the same.
    pub document: Option<String>,
    /// What the audit log calls it: `quota.put`.
    pub action: String,
    /// Why.
    pub reason: String,
}

/// What a writer takes for granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Anything,
    /// That there is no such record, or a deleted one.
    Absent,
    /// That there is one.
    Present,
    /// That there is one, and that this write made it what it is.
    Generation(u64),
}

/// An idempotency key. It is remembered for [`KEEP_ONCE`](crate::KEEP_ONCE), and is one for all who write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once {
    /// The key, as the writer chose it.
    pub key: String,
    /// What tells this write from another under the same key.
    pub digest: String,
    /// What is to be answered if it is sent again. Nothing here reads it.
    pub answer: String,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is written.
    Now {
        /// Its generation, which is now that of every record in it.
        generation: u64,
        /// What was there before, for each change. None where nothing was, or a deleted record.
        before: Vec<Option<Stored>>,
    },
    /// It was written before, under the same idempotency key.
    Before {
        /// The generation that it got.
        generation: u64,
        /// What it was to be answered with.
        answer: String,
    },
}

impl Name {
    /// A name of these parts.
    pub fn new(kind: RecordKind, domain: impl Into<String>, name: impl Into<String>) -> Name {
        Name { kind, domain: domain.into(), name: name.into() }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.domain, self.name)
    }
}
