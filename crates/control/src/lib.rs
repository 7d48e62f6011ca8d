//! The store of record: the operators' decisions, in one SQLite file or in PostgreSQL.
//!
//! Everything is a [`StoredRecord`]: a [`RecordName`] (kind, domain, name), a JSON document that this crate does not interpret, and
//! the generation of the write that stored it. A [`WriteBatch`] is one transaction: the next generation, the records, their entries in
//! the audit log, and the answer that is stored under an idempotency key. Generations commit in order, so a follower that reads past
//! the last generation that it has seen ([`Db::for_each_since`], [`Db::read_since`]) misses nothing. A deleted record stays for a while
//! without its document, so that followers see the deletion.
//!
//! No operation waits forever: a database that is down, frozen or unreachable is [`DbError::Unavailable`] within a bounded time, and
//! is used again when it is back.

mod audit;
mod connection;
mod db;
mod decisions;
mod disk;
mod error;
mod follow;
#[cfg(feature = "postgres")]
mod listen;
mod location;
mod migrate;
mod model;
mod open;
mod packed;
mod pool;
mod records;
mod schema;
mod servers;
mod sink;
mod statement;
mod sweep;
mod write;

pub use audit::{AuditEntry, AuditFilter, MAX_AUDIT_ENTRIES};
pub use connection::OPERATION_TIMEOUT;
pub use db::Db;
pub use decisions::{
    DecisionBounds, DecisionDb, DecisionFilter, DecisionRow, DecisionSweep, MAX_DECISION_BATCH, MAX_DECISION_RESULTS,
    MAX_DECISIONS_DELETED,
};
pub use error::{DbError, WriteError};
pub use location::DbLocation;
pub use model::{
    Change, FeedPosition, IdempotencyKey, Precondition, RecordName, StoredRecord, WriteBatch, WriteOutcome,
};
pub use open::{MAX_CONNECTIONS, MAX_READERS};
pub use records::{MAX_LISTED_RECORDS, RecordFilter};
pub use servers::{MAX_SERVER_BYTES, MAX_SERVERS, SERVER_TTL, ServerRow};
pub use sink::RecordSink;
pub use sweep::{DELETED_RETENTION, ONCE_RETENTION, SweepReport};
pub use write::{
    BULK_TIMEOUT, MAX_ACTION_BYTES, MAX_ANSWER_BYTES, MAX_CHANGES, MAX_DOCUMENT_BYTES, MAX_NAME_BYTES,
    MAX_REASON_BYTES, MAX_WRITE_BYTES,
};
