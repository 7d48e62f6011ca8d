//! The audit log: what every write changed.

use tollgate_core::Timestamp;
use tollgate_records::RecordKind;

use crate::db::Db;
use crate::error::{DbError, Fault};
use crate::model::RecordName;
use crate::statement::{Row, Statement};

/// Entries in a page of the log.
pub const MAX_AUDIT_ENTRIES: usize = 1_000;

/// One change of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// The position in the log. Later entries have higher ids; some numbers are missing.
    pub id: u64,
    /// The generation of the write.
    pub generation: u64,
    /// The time of the write.
    pub at: Timestamp,
    /// Who wrote.
    pub by: String,
    /// The address of the writer.
    pub from: String,
    /// The action: `quota.put`.
    pub action: String,
    /// The record.
    pub name: RecordName,
    /// The document before; none if the record did not exist.
    pub before: Option<String>,
    /// The document after; none if the record was deleted.
    pub after: Option<String>,
    /// The reason that the writer gave.
    pub reason: String,
}

/// Which entries to return. An empty filter matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// By this writer.
    pub by: Option<String>,
    /// For records of this kind.
    pub kind: Option<RecordKind>,
    /// For records of this domain.
    pub domain: Option<String>,
    /// For records of this name.
    pub name: Option<String>,
    /// At this moment or later.
    pub since: Option<Timestamp>,
    /// Before this moment.
    pub until: Option<Timestamp>,
}

impl Db {
    /// Entries past an id, the oldest first, at most `max` and at most [`MAX_AUDIT_ENTRIES`]. Entries appear in the order of their
    /// ids: a caller that continues after the last id it has seen misses none.
    pub async fn audit(&self, filter: &AuditFilter, after: u64, max: usize) -> Result<Vec<AuditEntry>, DbError> {
        let mut statement = select_entries(filter);
        statement.push(" AND id > ? ORDER BY id", [after.into()]);
        self.entries(statement, max).await
    }

    /// The last entries, or those before an id, the newest first.
    pub async fn audit_descending(
        &self,
        filter: &AuditFilter,
        before: Option<u64>,
        max: usize,
    ) -> Result<Vec<AuditEntry>, DbError> {
        let mut statement = select_entries(filter);
        if let Some(before) = before {
            statement.push(" AND id < ?", [before.into()]);
        }
        statement.push(" ORDER BY id DESC", []);
        self.entries(statement, max).await
    }

    async fn entries(&self, mut statement: Statement<'_>, max: usize) -> Result<Vec<AuditEntry>, DbError> {
        statement.push(" LIMIT ?", [(max.min(MAX_AUDIT_ENTRIES) as u64).into()]);
        let mut entries = Vec::new();
        self.select(&statement, |row| {
            entries.extend(read_entry(row)?);
            Ok(())
        })
        .await?;
        Ok(entries)
    }
}

fn select_entries(filter: &AuditFilter) -> Statement<'_> {
    let mut statement = Statement::new("SELECT ");
    statement
        .push("id, generation, at, who, address, action, kind, domain, name, before, after, reason FROM audit", []);
    // A condition that always holds, so that the others begin with AND.
    statement.push(" WHERE id > 0", []);
    if let Some(by) = &filter.by {
        statement.push(" AND who = ?", [by.into()]);
    }
    if let Some(kind) = filter.kind {
        statement.push(" AND kind = ?", [kind.into()]);
    }
    if let Some(domain) = &filter.domain {
        statement.push(" AND domain = ?", [domain.into()]);
    }
    if let Some(name) = &filter.name {
        statement.push(" AND name = ?", [name.into()]);
    }
    if let Some(since) = filter.since {
        statement.push(" AND at >= ?", [since.into()]);
    }
    if let Some(until) = filter.until {
        statement.push(" AND at < ?", [until.into()]);
    }
    statement
}

/// The entry in a row. None if only a newer Tollgate knows its kind.
fn read_entry(row: Row<'_>) -> Result<Option<AuditEntry>, Fault> {
    let Some(kind) = RecordKind::parse(row.text(6)?) else { return Ok(None) };
    Ok(Some(AuditEntry {
        id: row.number(0)?,
        generation: row.number(1)?,
        at: row.timestamp(2)?,
        by: row.text(3)?.to_owned(),
        from: row.text(4)?.to_owned(),
        action: row.text(5)?.to_owned(),
        name: RecordName::new(kind, row.text(7)?, row.text(8)?),
        before: row.optional_text(9)?.map(str::to_owned),
        after: row.optional_text(10)?.map(str::to_owned),
        reason: row.text(11)?.to_owned(),
    }))
}
