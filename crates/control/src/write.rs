//! Writing: one transaction, all or nothing.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use tollgate_core::Timestamp;
use tollgate_records::RecordKind;

use crate::error::{DbError, Fault, WriteError};
use crate::model::{Change, Expect, Name, Once, Stored, Write, Written};
use crate::pool::Lent;
use crate::records::{COLUMNS, stored};
use crate::statement::{Row, Statement};
use crate::sweep::KEEP_ONCE;
use crate::{BULK, Begin, Db, OPERATION};

/// Changes of one write.
pub const MOST_CHANGES: usize = 1_000;
/// Bytes of a domain, of a name, of who writes, of an address, of an idempotency key and of its digest.
pub const LONGEST_NAME: usize = 512;
/// Bytes of a document.
pub const LONGEST_DOCUMENT: usize = 256 * 1024;
/// Bytes of an action's name.
pub const LONGEST_ACTION: usize = 64;
/// Bytes of a reason.
pub const LONGEST_REASON: usize = 4_096;
/// Bytes of what is to be answered again under an idempotency key.
pub const LONGEST_ANSWER: usize = 256 * 1024;
/// Bytes of all documents of a write.
pub const LONGEST_WRITE: usize = 32 * 1024 * 1024;

/// Rows that one statement reads or writes: so its text is mostly the same, and the database knows it.
const ROWS: usize = 100;

impl Db {
    /// Writes all changes or none.
    ///
    /// A write that lost its connection at the very end is [`WriteError::Away`] too, and its text says that it may have been
    /// written. Under an idempotency key it can be sent again.
    pub async fn write(&self, write: &Write) -> Result<Written, WriteError> {
        check(write).map_err(WriteError::Invalid)?;
        let limit = if write.changes.len() > ROWS { BULK } else { OPERATION };
        let mut committing = false;
        match self.within(limit, self.try_write(write, &mut committing)).await {
            Ok(Ok(written)) => {
                if let Written::Now { generation, .. } = written {
                    self.0.hear(generation);
                }
                Ok(written)
            }
            Ok(Err(refused)) => Err(refused),
            Err(DbError::Away(what)) if committing => {
                Err(WriteError::Away(format!("{what}; whether it was written is not known")))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn try_write(&self, write: &Write, committing: &mut bool) -> Result<Result<Written, WriteError>, Fault> {
        let mut lent = self.begin(self.writer(), Begin::Write).await?;
        let generation = self.next_generation(&mut lent).await?;
        let settled = match &write.once {
            Some(once) => met_before(&mut lent, once, write).await?,
            None => None,
        };
        let last = generation - 1;
        let settled = match settled {
            Some(settled) => Err(settled),
            None if write.since.is_some_and(|since| since != last) => Err(Err(WriteError::Moved { now: last })),
            None => before(&mut lent, &write.changes).await?.map_err(Err),
        };
        let before = match settled {
            Ok(before) => before,
            Err(settled) => {
                lent.script("ROLLBACK").await?;
                lent.keep();
                return Ok(settled);
            }
        };
        put(&mut lent, write, generation, &before).await?;
        log(&mut lent, write, generation, &before).await?;
        if let Some(once) = &write.once {
            remember(&mut lent, once, write, generation).await?;
        }
        *committing = true;
        lent.script("COMMIT").await?;
        lent.keep();
        Ok(Ok(Written::Now { generation, before }))
    }

    /// What is answered to one who sends a write again under its idempotency key; none if it is the first time.
    pub async fn met(&self, once: &Once, now: Timestamp) -> Result<Option<Written>, WriteError> {
        let mut met = None;
        let statement = of_key(once, now);
        self.select(&statement, |row| {
            met = Some(answered(row, once)?);
            Ok(())
        })
        .await?;
        met.transpose()
    }

    /// Forgets an idempotency key: what was written under it is undone, or was not done, and may be sent again.
    pub async fn forget(&self, key: &str) -> Result<(), DbError> {
        self.within(OPERATION, async {
            let mut lent = self.begin(self.writer(), Begin::Write).await?;
            let mut statement = Statement::new("DELETE FROM once WHERE key = ");
            statement.and("?", [key.into()]);
            lent.run(&statement).await?;
            lent.script("COMMIT").await?;
            lent.keep();
            Ok(())
        })
        .await
    }

    /// Takes the one row that all writers take. Others are told when this is committed, and not if it is not.
    async fn next_generation(&self, lent: &mut Lent<'_>) -> Result<u64, Fault> {
        let sql = match self.is_postgres() {
            true => {
                "UPDATE control SET generation = generation + 1 \
                 RETURNING generation, pg_notify('tollgate_control', generation::text)::text"
            }
            false => "UPDATE control SET generation = generation + 1 RETURNING generation",
        };
        let mut generation = None;
        lent.each(&Statement::new(sql), |row| {
            generation = Some(row.number(0)?);
            Ok(())
        })
        .await?;
        generation.ok_or_else(|| Fault::Damaged("the table `control` has lost its row".to_owned()))
    }
}

/// What is to be answered if the idempotency key was used before.
async fn met_before(
    lent: &mut Lent<'_>,
    once: &Once,
    write: &Write,
) -> Result<Option<Result<Written, WriteError>>, Fault> {
    let mut met = None;
    lent.each(&of_key(once, write.at), |row| {
        met = Some(answered(row, once)?);
        Ok(())
    })
    .await?;
    Ok(met)
}

fn of_key(once: &Once, now: Timestamp) -> Statement<'_> {
    let mut statement = Statement::new("SELECT digest, generation, answer FROM once WHERE key = ");
    statement.and("? AND at > ?", [(&once.key).into(), now.before(KEEP_ONCE).into()]);
    statement
}

fn answered(row: Row<'_>, once: &Once) -> Result<Result<Written, WriteError>, Fault> {
    Ok(match row.text(0)? == once.digest {
        true => Ok(Written::Before { generation: row.number(1)?, answer: row.text(2)?.to_owned() }),
        false => Err(WriteError::OnceConflict),
    })
}

/// What is there now, if it is what was expected.
async fn before(lent: &mut Lent<'_>, changes: &[Change]) -> Result<Result<Vec<Option<Stored>>, WriteError>, Fault> {
    let mut found: HashMap<Name, Stored> = HashMap::new();
    for changes in changes.chunks(ROWS) {
        let mut statement = Statement::new("WITH wanted (k, d, n) AS (VALUES ");
        statement.rows(
            changes.iter().map(|Change { name, .. }| [name.kind.into(), (&name.domain).into(), (&name.name).into()]),
        );
        // In this order, or SQLite may walk through all records.
        statement.and(") SELECT ", []).and(COLUMNS, []);
        statement.and(
            " FROM wanted CROSS JOIN records WHERE kind = k AND domain = d AND name = n AND document IS NOT NULL",
            [],
        );
        statement.seldom(!is_usual(changes));
        lent.each(&statement, |row| {
            found.extend(stored(row)?.map(|stored| (stored.name.clone(), stored)));
            Ok(())
        })
        .await?;
    }
    let mut before = Vec::with_capacity(changes.len());
    for change in changes {
        let stored = found.remove(&change.name);
        let now = stored.as_ref().map(|stored| stored.generation);
        let holds = match change.expect {
            Expect::Anything => true,
            Expect::Absent => now.is_none(),
            Expect::Present => now.is_some(),
            Expect::Generation(generation) => now == Some(generation),
        };
        if !holds {
            return Ok(Err(WriteError::Lost { name: change.name.clone(), now }));
        }
        before.push(stored);
    }
    Ok(Ok(before))
}

async fn put(lent: &mut Lent<'_>, write: &Write, generation: u64, before: &[Option<Stored>]) -> Result<(), Fault> {
    let with_before = write.changes.iter().zip(before);
    // What is not there need not be deleted, and of some there are no records.
    let is_put = |change: &Change, before: &Option<Stored>| {
        change.name.kind.is_stored() && (change.document.is_some() || before.is_some())
    };
    let changes: Vec<_> = with_before.filter(|(change, before)| is_put(change, before)).collect();
    for changes in changes.chunks(ROWS) {
        let mut statement = Statement::new("INSERT INTO records (");
        statement.and(COLUMNS, []).and(") VALUES ", []);
        statement.rows(changes.iter().map(|(change, before)| {
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
        statement.and(
            " ON CONFLICT (kind, domain, name) DO UPDATE SET generation = excluded.generation, document = excluded.document, \
             created_at = excluded.created_at, updated_at = excluded.updated_at, updated_by = excluded.updated_by, \
             reason = excluded.reason",
            [],
        );
        statement.seldom(!is_usual(changes));
        lent.run(&statement).await?;
    }
    Ok(())
}

async fn log(lent: &mut Lent<'_>, write: &Write, generation: u64, before: &[Option<Stored>]) -> Result<(), Fault> {
    let with_before = write.changes.iter().zip(before);
    let changes: Vec<_> = with_before
        .map(|(change, before)| {
            let before = before.as_ref().and_then(|before| before.document.as_deref());
            let [before, after] =
                [before, change.document.as_deref()].map(|document| logged(change.name.kind, document));
            (change, before, after)
        })
        .collect();
    for changes in changes.chunks(ROWS) {
        let mut statement = Statement::new("INSERT INTO audit (");
        statement.and("generation, at, who, address, action, kind, domain, name, before, after, reason) VALUES ", []);
        statement.rows(changes.iter().map(|(change, before, after)| {
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
        statement.seldom(!is_usual(changes));
        lent.run(&statement).await?;
    }
    Ok(())
}

/// A document as the log has it. Of a token what its secret is known by is nobody's business who may read the log.
fn logged(kind: RecordKind, document: Option<&str>) -> Option<Cow<'_, str>> {
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

async fn remember(lent: &mut Lent<'_>, once: &Once, write: &Write, generation: u64) -> Result<(), Fault> {
    let mut statement = Statement::new("INSERT INTO once (key, digest, answer, generation, at) VALUES ");
    statement.rows([[
        (&once.key).into(),
        (&once.digest).into(),
        (&once.answer).into(),
        generation.into(),
        write.at.into(),
    ]]);
    // One that is there is too old to count.
    statement.and(
        " ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, answer = excluded.answer, \
         generation = excluded.generation, at = excluded.at",
        [],
    );
    lent.run(&statement).await.map(drop)
}

/// Whether there are often as many.
fn is_usual<T>(rows: &[T]) -> bool {
    matches!(rows.len(), 1 | ROWS)
}

/// What is wrong with a write, if anything is.
fn check(write: &Write) -> Result<(), String> {
    if write.changes.is_empty() {
        return Err("a write has at least one change".to_owned());
    }
    if write.changes.len() > MOST_CHANGES {
        return Err(format!("a write has at most {MOST_CHANGES} changes, not {}", write.changes.len()));
    }
    fits("who writes", &write.by, LONGEST_NAME)?;
    fits("the address", &write.from, LONGEST_NAME)?;
    if let Some(once) = &write.once {
        fits("the idempotency key", &once.key, LONGEST_NAME)?;
        fits("the digest", &once.digest, LONGEST_NAME)?;
        fits("the answer", &once.answer, LONGEST_ANSWER)?;
    }
    let mut names = HashSet::with_capacity(write.changes.len());
    let mut documents = 0;
    for change in &write.changes {
        check_change(change).map_err(|what| format!("{}: {what}", shown(&change.name)))?;
        if !names.insert(&change.name) {
            return Err(format!("{} is there twice: a write changes a record once", change.name));
        }
        documents += change.document.as_ref().map_or(0, String::len);
    }
    if documents > LONGEST_WRITE {
        return Err(format!("the documents of a write are at most {LONGEST_WRITE} bytes together, not {documents}"));
    }
    Ok(())
}

fn check_change(change: &Change) -> Result<(), String> {
    if change.name.kind == RecordKind::Unknown {
        return Err("records of an unknown kind can't be written".to_owned());
    }
    fits("the domain", &change.name.domain, LONGEST_NAME)?;
    fits("the name", &change.name.name, LONGEST_NAME)?;
    fits("the action", &change.action, LONGEST_ACTION)?;
    fits("the reason", &change.reason, LONGEST_REASON)?;
    let Some(document) = &change.document else { return Ok(()) };
    fits("the document", document, LONGEST_DOCUMENT)?;
    // What PostgreSQL can't read as JSON would spoil the views for all.
    if document.contains("\\u0000") {
        return Err("the document has a NUL character".to_owned());
    }
    match serde_json::from_str::<serde_json::Value>(document) {
        Ok(serde_json::Value::Object(_)) => Ok(()),
        Ok(_) => Err("the document is not a JSON object".to_owned()),
        Err(error) => Err(format!("the document is not JSON: {error}")),
    }
}

fn fits(what: &str, text: &str, longest: usize) -> Result<(), String> {
    if text.len() > longest {
        return Err(format!("{what} has {} bytes, more than {longest}", text.len()));
    }
    match text.contains('\0') {
        true => Err(format!("{what} has a NUL character")),
        false => Ok(()),
    }
}

/// A name in an error, not longer than it may be.
fn shown(name: &Name) -> String {
    name.to_string().chars().take(LONGEST_NAME).collect()
}
