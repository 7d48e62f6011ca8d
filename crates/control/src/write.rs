//! Writing records: one transaction, all or nothing.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tollgate_core::Timestamp;
use tollgate_records::RecordKind;

use crate::connection::OPERATION_TIMEOUT;
use crate::db::{Db, TransactionKind};
use crate::error::{DbError, Fault, WriteError};
use crate::model::{
    Change, FeedPosition, IdempotencyKey, Precondition, RecordName, StoredRecord, WriteBatch, WriteOutcome,
};
use crate::pool::PooledConnection;
use crate::records::{STORED_COLUMNS, read_stored};
use crate::statement::{Row, Statement};
use crate::sweep::ONCE_RETENTION;

/// How long a write of many changes may take.
pub const BULK_TIMEOUT: Duration = Duration::from_secs(30);
/// Changes of one write.
pub const MAX_CHANGES: usize = 1_000;
/// Bytes of a domain, of a name, of who writes, of an address, of an idempotency key and of its digest.
pub const MAX_NAME_BYTES: usize = 512;
/// Bytes of a document.
pub const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
/// Bytes of an action's name.
pub const MAX_ACTION_BYTES: usize = 64;
/// Bytes of a reason.
pub const MAX_REASON_BYTES: usize = 4_096;
/// Bytes of the answer that is stored under an idempotency key.
pub const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// Bytes of all documents of a write.
pub const MAX_WRITE_BYTES: usize = 32 * 1024 * 1024;

/// Rows that one statement reads or writes. Most statements then have the same text, and are cached.
const ROWS_PER_STATEMENT: usize = 100;

impl Db {
    /// Writes all changes or none.
    ///
    /// A write that loses its connection during the commit is [`WriteError::Unavailable`] too, and the text says that it may have been
    /// written. Under an idempotency key it can be sent again.
    pub async fn write(&self, write: &WriteBatch) -> Result<WriteOutcome, WriteError> {
        check_batch(write).map_err(WriteError::Invalid)?;
        let timeout = if write.changes.len() > ROWS_PER_STATEMENT { BULK_TIMEOUT } else { OPERATION_TIMEOUT };
        let mut committing = false;
        match self.with_timeout(timeout, self.try_write(write, &mut committing)).await {
            Ok(Ok(outcome)) => {
                if let WriteOutcome::Committed { generation, .. } = outcome {
                    self.announce(generation);
                }
                Ok(outcome)
            }
            Ok(Err(refused)) => Err(refused),
            Err(DbError::Unavailable(what)) if committing => {
                Err(WriteError::Unavailable(format!("{what}; whether it was written is not known")))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn try_write(
        &self,
        write: &WriteBatch,
        committing: &mut bool,
    ) -> Result<Result<WriteOutcome, WriteError>, Fault> {
        let mut connection = self.begin(self.writer(), TransactionKind::Write).await?;
        let next = self.next_generation(&mut connection).await?;
        let generation = next.generation;
        let replay = match &write.once {
            Some(once) => find_replay(&mut connection, once, write).await?,
            None => None,
        };
        let last = generation - 1;
        let is_other = |known: &FeedPosition| !FeedPosition { generation: last, ..next.clone() }.continues(known);
        // The records before the write; or the result, if nothing is to be written.
        let checked = match replay {
            Some(replay) => Err(replay),
            None if write.since.is_some_and(|since| since != last) || write.known.as_ref().is_some_and(is_other) => {
                Err(Err(WriteError::Stale { current: last }))
            }
            None => check_preconditions(&mut connection, &write.changes).await?.map_err(Err),
        };
        let before = match checked {
            Ok(before) => before,
            Err(result) => {
                connection.script("ROLLBACK").await?;
                connection.release();
                return Ok(result);
            }
        };
        if !write.is_note {
            put_records(&mut connection, write, generation, &before).await?;
        }
        put_audit_entries(&mut connection, write, generation, &before).await?;
        if let Some(once) = &write.once {
            put_idempotency_key(&mut connection, once, write, generation).await?;
        }
        *committing = true;
        connection.script("COMMIT").await?;
        connection.release();
        Ok(Ok(WriteOutcome::Committed { generation, before }))
    }

    /// The result of an earlier write under this idempotency key; none if the key is new.
    pub async fn find_replay(&self, once: &IdempotencyKey, now: Timestamp) -> Result<Option<WriteOutcome>, WriteError> {
        let mut replay = None;
        let statement = select_key(once, now);
        self.select(&statement, |row| {
            replay = Some(read_replay(row, once)?);
            Ok(())
        })
        .await?;
        replay.transpose()
    }

    /// Deletes an idempotency key: its write had no effect or was undone, and may be sent again.
    pub async fn delete_idempotency_key(&self, key: &str) -> Result<(), DbError> {
        self.with_timeout(OPERATION_TIMEOUT, async {
            let mut connection = self.begin(self.writer(), TransactionKind::Write).await?;
            let mut statement = Statement::new("DELETE FROM once WHERE key = ");
            statement.push("?", [key.into()]);
            connection.run(&statement).await?;
            connection.script("COMMIT").await?;
            connection.release();
            Ok(())
        })
        .await
    }

    /// Locks the one row that all writers lock, and takes the next generation. Other servers are notified by the commit.
    async fn next_generation(&self, connection: &mut PooledConnection<'_>) -> Result<FeedPosition, Fault> {
        let sql = match self.is_postgres() {
            true => {
                "UPDATE control SET generation = generation + 1 \
                 RETURNING generation, identity, pg_notify('tollgate_control', generation::text)::text"
            }
            false => "UPDATE control SET generation = generation + 1 RETURNING generation, identity",
        };
        let mut next = None;
        connection
            .each(&Statement::new(sql), |row| {
                next = Some(FeedPosition { generation: row.number(0)?, identity: row.text(1)?.to_owned() });
                Ok(())
            })
            .await?;
        next.ok_or_else(|| Fault::Corrupt("the table `control` has no row".to_owned()))
    }
}

/// The result of an earlier write under the idempotency key, if there was one.
async fn find_replay(
    connection: &mut PooledConnection<'_>,
    once: &IdempotencyKey,
    write: &WriteBatch,
) -> Result<Option<Result<WriteOutcome, WriteError>>, Fault> {
    let mut replay = None;
    connection
        .each(&select_key(once, write.at), |row| {
            replay = Some(read_replay(row, once)?);
            Ok(())
        })
        .await?;
    Ok(replay)
}

fn select_key(once: &IdempotencyKey, now: Timestamp) -> Statement<'_> {
    let mut statement = Statement::new("SELECT digest, generation, answer FROM once WHERE key = ");
    statement.push("? AND at > ?", [(&once.key).into(), now.before(ONCE_RETENTION).into()]);
    statement
}

fn read_replay(row: Row<'_>, once: &IdempotencyKey) -> Result<Result<WriteOutcome, WriteError>, Fault> {
    Ok(match row.text(0)? == once.digest {
        true => Ok(WriteOutcome::Replayed { generation: row.number(1)?, answer: row.text(2)?.to_owned() }),
        false => Err(WriteError::OnceConflict),
    })
}

/// The records before the changes, if all preconditions hold.
async fn check_preconditions(
    connection: &mut PooledConnection<'_>,
    changes: &[Change],
) -> Result<Result<Vec<Option<StoredRecord>>, WriteError>, Fault> {
    let mut found: HashMap<RecordName, StoredRecord> = HashMap::new();
    for changes in changes.chunks(ROWS_PER_STATEMENT) {
        let mut statement = Statement::new("WITH named (k, d, n) AS (VALUES ");
        statement.push_rows(
            changes.iter().map(|Change { name, .. }| [name.kind.into(), (&name.domain).into(), (&name.name).into()]),
        );
        // With CROSS JOIN in this order. Otherwise SQLite may scan all records.
        statement.push(") SELECT ", []).push(STORED_COLUMNS, []);
        statement.push(
            " FROM named CROSS JOIN records WHERE kind = k AND domain = d AND name = n AND document IS NOT NULL",
            [],
        );
        statement.set_cached(is_usual_count(changes));
        connection
            .each(&statement, |row| {
                found.extend(read_stored(row)?.map(|stored| (stored.name.clone(), stored)));
                Ok(())
            })
            .await?;
    }
    let mut before = Vec::with_capacity(changes.len());
    for change in changes {
        let stored = found.remove(&change.name);
        let current = stored.as_ref().map(|stored| stored.generation);
        let holds = match change.expect {
            Precondition::Any => true,
            Precondition::Absent => current.is_none(),
            Precondition::Present => current.is_some(),
            Precondition::Generation(generation) => current == Some(generation),
        };
        if !holds {
            return Ok(Err(WriteError::PreconditionFailed { name: change.name.clone(), current }));
        }
        before.push(stored);
    }
    Ok(Ok(before))
}

async fn put_records(
    connection: &mut PooledConnection<'_>,
    write: &WriteBatch,
    generation: u64,
    before: &[Option<StoredRecord>],
) -> Result<(), Fault> {
    let with_before = write.changes.iter().zip(before);
    // A record that does not exist need not be deleted, and some kinds are only in the audit log.
    let is_put = |change: &Change, before: &Option<StoredRecord>| {
        change.name.kind.is_stored() && (change.document.is_some() || before.is_some())
    };
    let changes: Vec<_> = with_before.filter(|(change, before)| is_put(change, before)).collect();
    for changes in changes.chunks(ROWS_PER_STATEMENT) {
        let mut statement = Statement::new("INSERT INTO records (");
        statement.push(STORED_COLUMNS, []).push(") VALUES ", []);
        statement.push_rows(changes.iter().map(|(change, before)| {
            let created_at = before.as_ref().map_or(write.at, |before| before.created_at);
            [
                change.name.kind.into(),
                (&change.name.domain).into(),
                (&change.name.name).into(),
                generation.into(),
                change.document.as_deref().into(),
                created_at.into(),
                write.at.into(),
                (&write.by).into(),
                (&change.reason).into(),
            ]
        }));
        statement.push(
            " ON CONFLICT (kind, domain, name) DO UPDATE SET generation = excluded.generation, document = excluded.document, \
             created_at = excluded.created_at, updated_at = excluded.updated_at, updated_by = excluded.updated_by, \
             reason = excluded.reason",
            [],
        );
        statement.set_cached(is_usual_count(changes));
        connection.run(&statement).await?;
    }
    Ok(())
}

async fn put_audit_entries(
    connection: &mut PooledConnection<'_>,
    write: &WriteBatch,
    generation: u64,
    before: &[Option<StoredRecord>],
) -> Result<(), Fault> {
    let with_before = write.changes.iter().zip(before);
    let changes: Vec<_> = with_before
        .map(|(change, before)| {
            let before = before.as_ref().and_then(|before| before.document.as_deref());
            let [before, after] =
                [before, change.document.as_deref()].map(|document| redact(change.name.kind, document));
            (change, before, after)
        })
        .collect();
    for changes in changes.chunks(ROWS_PER_STATEMENT) {
        let mut statement = Statement::new("INSERT INTO audit (");
        statement.push("generation, at, who, address, action, kind, domain, name, before, after, reason) VALUES ", []);
        statement.push_rows(changes.iter().map(|(change, before, after)| {
            [
                generation.into(),
                write.at.into(),
                (&write.by).into(),
                (&write.from).into(),
                (&change.action).into(),
                change.name.kind.into(),
                (&change.name.domain).into(),
                (&change.name.name).into(),
                before.as_deref().into(),
                after.as_deref().into(),
                (&change.reason).into(),
            ]
        }));
        statement.set_cached(is_usual_count(changes));
        connection.run(&statement).await?;
    }
    Ok(())
}

/// A document for the audit log: that of a token without the hashes of its secrets, which readers of the log must not see.
fn redact(kind: RecordKind, document: Option<&str>) -> Option<Cow<'_, str>> {
    const HASHES: [&str; 2] = ["hash", "old_hash"];
    let text = document?;
    if kind != RecordKind::Token {
        return Some(Cow::Borrowed(text));
    }
    let Ok(serde_json::Value::Object(mut members)) = serde_json::from_str(text) else {
        return Some(Cow::Borrowed("{}"));
    };
    members.retain(|name, _| !HASHES.contains(&name.as_str()));
    Some(Cow::Owned(serde_json::Value::Object(members).to_string()))
}

async fn put_idempotency_key(
    connection: &mut PooledConnection<'_>,
    once: &IdempotencyKey,
    write: &WriteBatch,
    generation: u64,
) -> Result<(), Fault> {
    let mut statement = Statement::new("INSERT INTO once (key, digest, answer, generation, at) VALUES ");
    statement.push_rows([[
        (&once.key).into(),
        (&once.digest).into(),
        (&once.answer).into(),
        generation.into(),
        write.at.into(),
    ]]);
    // An existing key has expired: otherwise the write was a replay.
    statement.push(
        " ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, answer = excluded.answer, \
         generation = excluded.generation, at = excluded.at",
        [],
    );
    connection.run(&statement).await.map(drop)
}

/// Whether statements often have this number of rows.
fn is_usual_count<T>(rows: &[T]) -> bool {
    matches!(rows.len(), 1 | ROWS_PER_STATEMENT)
}

/// Checks that a write is within the bounds.
fn check_batch(write: &WriteBatch) -> Result<(), String> {
    if write.changes.is_empty() {
        return Err("a write has at least one change".to_owned());
    }
    if write.changes.len() > MAX_CHANGES {
        return Err(format!("a write has at most {MAX_CHANGES} changes, not {}", write.changes.len()));
    }
    check_text("who writes", &write.by, MAX_NAME_BYTES)?;
    check_text("the address", &write.from, MAX_NAME_BYTES)?;
    if let Some(once) = &write.once {
        check_text("the idempotency key", &once.key, MAX_NAME_BYTES)?;
        check_text("the digest", &once.digest, MAX_NAME_BYTES)?;
        check_text("the answer", &once.answer, MAX_ANSWER_BYTES)?;
    }
    let mut names = HashSet::with_capacity(write.changes.len());
    let mut documents = 0;
    for change in &write.changes {
        check_change(change).map_err(|what| format!("{}: {what}", truncate_name(&change.name)))?;
        if !names.insert(&change.name) {
            return Err(format!("{} occurs twice: a write changes a record once", change.name));
        }
        documents += change.document.as_ref().map_or(0, String::len);
    }
    if documents > MAX_WRITE_BYTES {
        return Err(format!("the documents of a write are at most {MAX_WRITE_BYTES} bytes together, not {documents}"));
    }
    Ok(())
}

fn check_change(change: &Change) -> Result<(), String> {
    if change.name.kind == RecordKind::Unknown {
        return Err("records of an unknown kind can't be written".to_owned());
    }
    check_text("the domain", &change.name.domain, MAX_NAME_BYTES)?;
    check_text("the name", &change.name.name, MAX_NAME_BYTES)?;
    check_text("the action", &change.action, MAX_ACTION_BYTES)?;
    check_text("the reason", &change.reason, MAX_REASON_BYTES)?;
    let Some(document) = &change.document else { return Ok(()) };
    check_text("the document", document, MAX_DOCUMENT_BYTES)?;
    // PostgreSQL can't read it as JSON, and its views would fail.
    if document.contains("\\u0000") {
        return Err("the document has a NUL character".to_owned());
    }
    match serde_json::from_str::<serde_json::Value>(document) {
        Ok(serde_json::Value::Object(_)) => Ok(()),
        Ok(_) => Err("the document is not a JSON object".to_owned()),
        Err(error) => Err(format!("the document is not JSON: {error}")),
    }
}

fn check_text(what: &str, text: &str, max: usize) -> Result<(), String> {
    if text.len() > max {
        return Err(format!("{what} has {} bytes, more than {max}", text.len()));
    }
    match text.contains('\0') {
        true => Err(format!("{what} has a NUL character")),
        false => Ok(()),
    }
}

/// A name for an error, truncated to the longest valid length.
fn truncate_name(name: &RecordName) -> String {
    name.to_string().chars().take(MAX_NAME_BYTES).collect()
}
