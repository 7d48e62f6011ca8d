//! What happened.

use tollgate_core::Timestamp;
use tollgate_records::RecordKind;

use crate::Db;
use crate::error::{DbError, Fault};
use crate::model::Name;
use crate::statement::{Row, Statement};

/// Entries of a page.
pub const MOST_AUDITED: usize = 1_000;

/// What one change of a write did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its place in the log. Later entries have higher ones; some numbers are missing.
    pub id: u64,
    /// The write that it was part of.
    pub generation: u64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: String,
    /// From where.
    pub from: String,
    /// What it was called: `quota.put`.
    pub action: String,
    /// Which record.
    pub name: Name,
    /// The document before; none if there was none.
    pub before: Option<String>,
    /// The document after; none if it was deleted.
    pub after: Option<String>,
    /// Why.
    pub reason: String,
}

/// Which entries are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// What this one did.
    pub by: Option<String>,
    /// About records of this kind.
    pub kind: Option<RecordKind>,
    /// Of this domain.
    pub domain: Option<String>,
    /// Of this name.
    pub name: Option<String>,
    /// At this moment or later.
    pub since: Option<Timestamp>,
    /// Before this moment.
    pub until: Option<Timestamp>,
}

impl Db {
    /// Entries past an id, the oldest first, at most `most` ([`MOST_AUDITED`] if that is less). Entries appear in the order of
    /// their ids: who asks for what is past the last one it saw misses none.
    pub async fn audit(&self, filter: &AuditFilter, after: u64, most: usize) -> Result<Vec<AuditEntry>, DbError> {
        let mut statement = filtered(filter);
        statement.and(" AND id > ? ORDER BY id", [after.into()]);
        self.entries(statement, most).await
    }

    /// The last entries, or those before an id, the newest first.
    pub async fn audit_back(
        &self,
        filter: &AuditFilter,
        before: Option<u64>,
        most: usize,
    ) -> Result<Vec<AuditEntry>, DbError> {
        let mut statement = filtered(filter);
        if let Some(before) = before {
            statement.and(" AND id < ?", [before.into()]);
        }
        statement.and(" ORDER BY id DESC", []);
        self.entries(statement, most).await
    }

    async fn entries(&self, mut statement: Statement<'_>, most: usize) -> Result<Vec<AuditEntry>, DbError> {
        statement.and(" LIMIT ?", [(most.min(MOST_AUDITED) as u64).into()]);
        let mut entries = Vec::new();
        self.select(&statement, |row| {
            entries.extend(entry(row)?);
            Ok(())
        })
        .await?;
        Ok(entries)
    }
}

fn filtered(filter: &AuditFilter) -> Statement<'_> {
    let mut statement = Statement::new("SELECT ");
    statement.and("id, generation, at, who, address, action, kind, domain, name, before, after, reason FROM audit", []);
    // So that all that follows begins with AND.
    statement.and(" WHERE id > 0", []);
    if let Some(by) = &filter.by {
        statement.and(" AND who = ?", [by.into()]);
    }
    if let Some(kind) = filter.kind {
        statement.and(" AND kind = ?", [kind.into()]);
    }
    if let Some(domain) = &filter.domain {
        statement.and(" AND domain = ?", [domain.into()]);
    }
    if let Some(name) = &filter.name {
        statement.and(" AND name = ?", [name.into()]);
    }
    if let Some(since) = filter.since {
        statement.and(" AND at >= ?", [since.into()]);
    }
    if let Some(until) = filter.until {
        statement.and(" AND at < ?", [until.into()]);
    }
    statement
}

/// An entry as it was read. None if its kind is one that only a newer Tollgate knows.
fn entry(row: Row<'_>) -> Result<Option<AuditEntry>, Fault> {
    let Some(kind) = RecordKind::parse(row.text(6)?) else { return Ok(None) };
    Ok(Some(AuditEntry {
        id: row.number(0)?,
        generation: row.number(1)?,
        at: row.moment(2)?,
        by: row.text(3)?.to_owned(),
        from: row.text(4)?.to_owned(),
        action: row.text(5)?.to_owned(),
        name: Name::new(kind, row.text(7)?, row.text(8)?),
        before: row.maybe(9)?.map(str::to_owned),
        after: row.maybe(10)?.map(str::to_owned),
        reason: row.text(11)?.to_owned(),
    }))
}
