//! The decision log of all servers: rows that are written once, read by caller, and deleted after a while.
//!
//! They are no records and have no generations: no follower reads them, and a writer of records waits no longer than one batch of
//! them takes.

use tollgate_core::Timestamp;

use crate::connection::OPERATION_TIMEOUT;
use crate::db::{Db, TransactionKind};
use crate::error::{DbError, Fault};
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

impl Db {
    /// Writes decisions of the server with this number, at most [`MAX_DECISION_BATCH`]. Rows that exist already stay as
    /// they are: a batch may be written again if it is unknown whether it was written.
    pub async fn add_decisions(&self, origin: u64, decisions: &[DecisionRow]) -> Result<(), DbError> {
        if decisions.len() > MAX_DECISION_BATCH {
            return Err(DbError::Invalid(format!("more than {MAX_DECISION_BATCH} decisions at once")));
        }
        if decisions.is_empty() {
            return Ok(());
        }
        self.with_timeout(OPERATION_TIMEOUT, self.insert_decisions(origin, decisions)).await
    }

    async fn insert_decisions(&self, origin: u64, decisions: &[DecisionRow]) -> Result<(), Fault> {
        let mut connection = self.begin(self.writer(), TransactionKind::Write).await?;
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

    /// The documents of decisions about one caller, the newest first, at most `max` and at most [`MAX_DECISION_RESULTS`].
    pub async fn decisions(&self, filter: &DecisionFilter, max: usize) -> Result<Vec<String>, DbError> {
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
        self.select(&statement, |row| {
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

    /// Deletes decisions before this moment, and the oldest of those past `max` rows; at most [`MAX_DECISIONS_DELETED`] in one call.
    /// Returns how many were deleted: if it is that many, there may be more.
    pub async fn delete_decisions(&self, before: Timestamp, max: u64) -> Result<u64, DbError> {
        let mut last = before;
        let mut past = Statement::new("SELECT at FROM decisions ORDER BY at DESC LIMIT 1 OFFSET ");
        past.push("?", [max.into()]);
        self.select(&past, |row| {
            // This row is the first one too many.
            last = last.max(Timestamp::from_micros(row.number(0)?.saturating_add(1)));
            Ok(())
        })
        .await?;
        self.with_timeout(OPERATION_TIMEOUT, async {
            let mut connection = self.begin(self.writer(), TransactionKind::Write).await?;
            let mut delete = Statement::new("DELETE FROM decisions WHERE (origin, number) IN ");
            delete.push(
                "(SELECT origin, number FROM decisions WHERE at < ? ORDER BY at LIMIT ?)",
                [last.into(), MAX_DECISIONS_DELETED.into()],
            );
            let deleted = connection.run(&delete).await?;
            connection.script("COMMIT").await?;
            connection.release();
            Ok(deleted)
        })
        .await
    }
}
