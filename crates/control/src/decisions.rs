//! The decision log of all servers: rows that are written once, read by caller, and deleted after a while.
//!
//! They are no records and have no generations: no follower reads them. In PostgreSQL they are a table of their own. In SQLite they
//! are in a file of their own, next to that of the records: a log that grows, or its disk when it is full, is then no reason that
//! records can't be read or written.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_core::Timestamp;

use crate::connection::OPERATION_TIMEOUT;
use crate::db::{Db, TransactionKind};
use crate::error::{DbError, Fault};
use crate::location::DbLocation;
use crate::pool::Pool;
use crate::schema::Schema;
use crate::statement::Statement;

/// Rows that are written in one transaction.
pub const MAX_DECISION_BATCH: usize = 2_000;
/// Rows in the result of a query.
pub const MAX_DECISION_RESULTS: usize = 1_000;
/// Rows that are deleted in one transaction.
pub const MAX_DECISIONS_DELETED: u64 = 10_000;

/// Rows of one statement. SQLite takes about thirty thousand values.
const ROWS_PER_INSERT: usize = 250;
/// Bytes of documents in the result of a query; the rest is left out.
const MAX_RESULT_BYTES: usize = 16 << 20;

/// Connections that read the log in an SQLite file.
const READERS: usize = 2;
/// The bytes that PostgreSQL needs for a row besides its texts, with those of its indexes.
const ROW_OVERHEAD: u64 = 200;
/// When the log is too large, it shrinks to this share of the bound, in percent.
const SHRINK_TO_PERCENT: u64 = 90;

/// The decision log in a database.
#[derive(Clone, Debug)]
pub struct DecisionDb {
    db: Db,
    /// The SQLite file of the records, where earlier versions had the log. Its rows are read until they are deleted as they expire.
    earlier: Option<EarlierRows>,
}

#[derive(Clone, Debug)]
struct EarlierRows {
    db: Db,
    /// Whether there are none.
    is_empty: Arc<AtomicBool>,
}

/// How much of the log is retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionBounds {
    /// Decisions before this moment are deleted.
    pub before: Timestamp,
    /// The most rows.
    pub rows: u64,
    /// The most bytes.
    pub bytes: u64,
}

/// What was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionSweep {
    /// The number of rows.
    pub deleted: u64,
    /// Whether there is more to delete.
    pub has_more: bool,
}

/// A decision to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionRow {
    /// Unique among the decisions of its server.
    pub number: u64,
    /// The time of the decision.
    pub at: Timestamp,
    /// The domain of the request.
    pub domain: String,
    /// The caller, if the request has one.
    pub caller: Option<String>,
    /// The rule that decided.
    pub rule: Option<String>,
    /// The whole decision, as JSON.
    pub document: String,
}

/// Which decisions to return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionFilter {
    /// For this caller.
    pub caller: String,
    /// In this domain.
    pub domain: Option<String>,
    /// By this rule.
    pub rule: Option<String>,
    /// At this moment or later.
    pub from: Option<Timestamp>,
    /// Before this moment.
    pub to: Option<Timestamp>,
}

impl DecisionDb {
    /// The log that belongs to a store of record. An SQLite file is opened when it is used, and created if it does not exist.
    pub fn of(control: &Db) -> DecisionDb {
        let DbLocation::File(path) = control.location() else {
            return DecisionDb { db: control.clone(), earlier: None };
        };
        let own = own_file(path);
        let readers = Pool::open_file(&own, Schema::Decisions, READERS);
        let writer = Some(Pool::open_file(&own, Schema::Decisions, 1));
        let earlier = EarlierRows { db: control.clone(), is_empty: Arc::default() };
        DecisionDb { db: Db::new(DbLocation::File(own), readers, writer), earlier: Some(earlier) }
    }

    /// Writes decisions of the server with this number, at most [`MAX_DECISION_BATCH`]. Rows that exist already stay as
    /// they are: a batch may be written again if it is unknown whether it was written.
    pub async fn add(&self, origin: u64, decisions: &[DecisionRow]) -> Result<(), DbError> {
        if decisions.len() > MAX_DECISION_BATCH {
            return Err(DbError::Invalid(format!("more than {MAX_DECISION_BATCH} decisions at once")));
        }
        if decisions.is_empty() {
            return Ok(());
        }
        self.db.with_timeout(OPERATION_TIMEOUT, insert(&self.db, origin, decisions)).await
    }

    /// The documents of decisions about one caller, the newest first, at most `max` and at most [`MAX_DECISION_RESULTS`].
    pub async fn find(&self, filter: &DecisionFilter, max: usize) -> Result<Vec<String>, DbError> {
        let mut found = find(&self.db, filter, max).await?;
        if let Some(earlier) = self.earlier.as_ref().filter(|earlier| !earlier.is_empty()) {
            // They are older than all others.
            let missing = max.min(MAX_DECISION_RESULTS).saturating_sub(found.len());
            found.extend(earlier.find(filter, missing).await);
        }
        Ok(found)
    }

    /// Deletes the oldest decisions until the bounds hold, at most [`MAX_DECISIONS_DELETED`] for each of them in one call.
    pub async fn delete_old(&self, bounds: DecisionBounds) -> Result<DecisionSweep, DbError> {
        if let Some(earlier) = self.earlier.as_ref().filter(|earlier| !earlier.is_empty()) {
            earlier.delete_old(bounds).await;
        }
        let excess = self.excess_rows(bounds.bytes).await?;
        let deleted = delete(&self.db, bounds.before, bounds.rows, excess.min(MAX_DECISIONS_DELETED)).await?;
        Ok(DecisionSweep { deleted, has_more: deleted >= MAX_DECISIONS_DELETED })
    }

    /// How many of the oldest rows must go so that the log is smaller than `max` bytes, by their average size.
    async fn excess_rows(&self, max: u64) -> Result<u64, DbError> {
        let bytes = self.bytes().await?;
        if bytes <= max {
            return Ok(0);
        }
        let rows = u128::from(count(&self.db).await?);
        let excess = u128::from(bytes - max / 100 * SHRINK_TO_PERCENT);
        Ok(u64::try_from((rows * excess).div_ceil(u128::from(bytes))).unwrap_or(u64::MAX))
    }

    /// The size of the log: the used pages of its SQLite file, or about what its rows take in PostgreSQL.
    pub async fn bytes(&self) -> Result<u64, DbError> {
        let mut statement = Statement::new("");
        match self.db.is_postgres() {
            true => statement.push(
                "SELECT (count(*) * ? + coalesce(sum(octet_length(document) + 2 * coalesce(octet_length(caller), 0)), 0))::bigint \
                 FROM decisions",
                [ROW_OVERHEAD.into()],
            ),
            false => statement.push(
                "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
                [],
            ),
        };
        number(&self.db, &statement).await
    }
}

impl EarlierRows {
    fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Relaxed)
    }

    /// Those that can be read: the records' file may be unavailable while the log's own is not.
    async fn find(&self, filter: &DecisionFilter, max: usize) -> Vec<String> {
        find(&self.db, filter, max).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "decisions that an earlier version logged could not be read");
            Vec::new()
        })
    }

    async fn delete_old(&self, bounds: DecisionBounds) {
        let left = async {
            delete(&self.db, bounds.before, bounds.rows, 0).await?;
            count(&self.db).await
        };
        match left.await {
            Ok(left) => self.is_empty.store(left == 0, Ordering::Relaxed),
            Err(error) => tracing::debug!(%error, "decisions that an earlier version logged could not be deleted"),
        }
    }
}

/// The file of the log, next to the file of the records: `control-decisions.db`.
fn own_file(records: &Path) -> PathBuf {
    let mut name = records.file_stem().unwrap_or_default().to_owned();
    name.push("-decisions.db");
    records.with_file_name(name)
}

async fn insert(db: &Db, origin: u64, decisions: &[DecisionRow]) -> Result<(), Fault> {
    let mut connection = db.begin(db.writer(), TransactionKind::Write).await?;
    for chunk in decisions.chunks(ROWS_PER_INSERT) {
        let mut statement =
            Statement::new("INSERT INTO decisions (origin, number, at, domain, caller, rule, document) VALUES ");
        statement.push_rows(chunk.iter().map(|row| {
            let (caller, rule) = (row.caller.as_deref(), row.rule.as_deref());
            let (domain, document) = (row.domain.as_str(), row.document.as_str());
            [
                origin.into(),
                row.number.into(),
                row.at.into(),
                domain.into(),
                caller.into(),
                rule.into(),
                document.into(),
            ]
        }));
        statement.push(" ON CONFLICT DO NOTHING", []);
        statement.set_cached(chunk.len() == ROWS_PER_INSERT);
        connection.run(&statement).await?;
    }
    connection.script("COMMIT").await?;
    connection.release();
    Ok(())
}

async fn find(db: &Db, filter: &DecisionFilter, max: usize) -> Result<Vec<String>, DbError> {
    let mut statement = Statement::new("SELECT document FROM decisions WHERE caller = ");
    statement.push("?", [(&filter.caller).into()]);
    if let Some(domain) = &filter.domain {
        statement.push(" AND domain = ?", [domain.into()]);
    }
    if let Some(rule) = &filter.rule {
        statement.push(" AND rule = ?", [rule.into()]);
    }
    if let Some(from) = filter.from {
        statement.push(" AND at >= ?", [from.into()]);
    }
    if let Some(to) = filter.to {
        statement.push(" AND at < ?", [to.into()]);
    }
    let max = max.min(MAX_DECISION_RESULTS) as u64;
    statement.push(" ORDER BY at DESC, origin, number DESC LIMIT ?", [max.into()]);
    let (mut found, mut bytes) = (Vec::new(), 0);
    db.select(&statement, |row| {
        let document = row.text(0)?;
        bytes += document.len();
        if bytes <= MAX_RESULT_BYTES {
            found.push(document.to_owned());
        }
        Ok(())
    })
    .await?;
    Ok(found)
}

/// Deletes decisions before a moment, the oldest of those past `max_rows`, and at least so many of the oldest.
async fn delete(db: &Db, before: Timestamp, max_rows: u64, at_least: u64) -> Result<u64, DbError> {
    let mut last = before;
    let mut past = Statement::new("SELECT at FROM decisions ORDER BY at DESC LIMIT 1 OFFSET ");
    past.push("?", [max_rows.into()]);
    db.select(&past, |row| {
        // This row is the first one too many.
        last = last.max(Timestamp::from_micros(row.number(0)?.saturating_add(1)));
        Ok(())
    })
    .await?;
    db.with_timeout(OPERATION_TIMEOUT, async {
        let mut connection = db.begin(db.writer(), TransactionKind::Write).await?;
        let mut old = Statement::new("DELETE FROM decisions WHERE (origin, number) IN ");
        old.push(
            "(SELECT origin, number FROM decisions WHERE at < ? ORDER BY at LIMIT ?)",
            [last.into(), MAX_DECISIONS_DELETED.into()],
        );
        let mut deleted = connection.run(&old).await?;
        if deleted < at_least {
            let mut oldest = Statement::new("DELETE FROM decisions WHERE (origin, number) IN ");
            let rest = at_least - deleted;
            oldest.push("(SELECT origin, number FROM decisions ORDER BY at LIMIT ?)", [rest.into()]);
            deleted += connection.run(&oldest).await?;
        }
        connection.script("COMMIT").await?;
        connection.release();
        Ok(deleted)
    })
    .await
}

async fn count(db: &Db) -> Result<u64, DbError> {
    number(db, &Statement::new("SELECT count(*) FROM decisions")).await
}

/// The number that a statement selects.
async fn number(db: &Db, statement: &Statement<'_>) -> Result<u64, DbError> {
    let mut number = 0;
    db.select(statement, |row| {
        number = row.number(0)?;
        Ok(())
    })
    .await?;
    Ok(number)
}
