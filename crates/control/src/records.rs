//! Reading records: one, or a page.

use tollgate_records::RecordKind;

use crate::db::Db;
use crate::error::{DbError, Fault};
use crate::model::{RecordName, StoredRecord};
use crate::statement::{Row, Statement};

/// Records in a page.
pub const MAX_LISTED_RECORDS: usize = 1_000;

/// The columns that [`read_stored`] reads, in this order.
pub(crate) const STORED_COLUMNS: &str =
    "kind, domain, name, generation, document, created_at, updated_at, updated_by, reason";

/// Which records to list or count. Deleted ones never match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFilter {
    /// Of this kind.
    pub kind: RecordKind,
    /// Of this domain.
    pub domain: Option<String>,
    /// With this name.
    pub name: Option<String>,
    /// With a name that begins with this text.
    pub prefix: Option<String>,
    /// With this text as a member of the document: `("tier", "pro")`. The member's name consists of `a-z`, `0-9` and `_`.
    pub member: Option<(String, String)>,
    /// With a member of the document that is a text before this one, by its bytes: `("expires_at", "2025")`.
    pub before: Option<(String, String)>,
    /// With a member of the document of this name.
    pub has: Option<String>,
}

impl RecordFilter {
    /// Matches all records of a kind.
    pub fn new(kind: RecordKind) -> RecordFilter {
        RecordFilter { kind, domain: None, name: None, prefix: None, member: None, before: None, has: None }
    }
}

impl Db {
    /// A record, if it exists and is not deleted.
    pub async fn get(&self, name: &RecordName) -> Result<Option<StoredRecord>, DbError> {
        Ok(self.get_with_deleted(name).await?.filter(|stored| stored.document.is_some()))
    }

    /// A record, also if it is deleted: its last write is known for [a while](crate::DELETED_RETENTION).
    pub async fn get_with_deleted(&self, name: &RecordName) -> Result<Option<StoredRecord>, DbError> {
        let mut found = None;
        let mut statement = Statement::new("SELECT ");
        statement.push(STORED_COLUMNS, []).push(
            " FROM records WHERE kind = ? AND domain = ? AND name = ?",
            [name.kind.into(), (&name.domain).into(), (&name.name).into()],
        );
        self.select(&statement, |row| {
            found = read_stored(row)?;
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// A page of records, ordered by domain and name: those after `after`, the last one of the page before; at most `max` and at
    /// most [`MAX_LISTED_RECORDS`].
    pub async fn list(
        &self,
        filter: &RecordFilter,
        after: Option<&RecordName>,
        max: usize,
    ) -> Result<Vec<StoredRecord>, DbError> {
        let max = max.min(MAX_LISTED_RECORDS);
        let terms = FilterTerms::new(filter, self.is_postgres())?;
        let mut statement = self.select_records(STORED_COLUMNS, filter, &terms);
        if let Some(after) = after {
            statement.push(" AND (domain, name) > (?, ?)", [(&after.domain).into(), (&after.name).into()]);
        }
        statement.push(" ORDER BY domain, name LIMIT ?", [(max as u64).into()]);
        let mut page = Vec::new();
        self.select(&statement, |row| {
            page.extend(read_stored(row)?);
            Ok(())
        })
        .await?;
        Ok(page)
    }

    /// How many records match.
    pub async fn count(&self, filter: &RecordFilter) -> Result<u64, DbError> {
        let terms = FilterTerms::new(filter, self.is_postgres())?;
        let mut count = 0;
        self.select(&self.select_records("count(*)", filter, &terms), |row| {
            count = row.number(0)?;
            Ok(())
        })
        .await?;
        Ok(count)
    }

    fn select_records<'a>(&self, columns: &str, filter: &'a RecordFilter, terms: &'a FilterTerms) -> Statement<'a> {
        let mut statement = Statement::new("SELECT ");
        statement.push(columns, []);
        statement.push(" FROM records WHERE kind = ? AND document IS NOT NULL", [filter.kind.into()]);
        if let Some(domain) = &filter.domain {
            statement.push(" AND domain = ?", [domain.into()]);
        }
        if let Some(name) = &filter.name {
            statement.push(" AND name = ?", [name.into()]);
        }
        if let Some(prefix) = &filter.prefix {
            statement.push(" AND name >= ?", [prefix.into()]);
        }
        if let Some(end) = &terms.end {
            statement.push(" AND name < ?", [end.into()]);
        }
        if let (Some(member), Some((_, text))) = (&terms.member, &filter.member) {
            let equals = match self.is_postgres() {
                true => " AND document::jsonb -> ? = to_jsonb(?::text)",
                false => " AND json_extract(document, ?) = ?",
            };
            statement.push(equals, [member.into(), text.into()]);
            if self.is_postgres() && member == "tier" {
                // There is an index on its first 64 characters.
                statement.push(" AND left(document::jsonb ->> 'tier', 64) = left(?, 64)", [text.into()]);
            }
        }
        if let (Some(member), Some((_, text))) = (&terms.before, &filter.before) {
            let is_before = match self.is_postgres() {
                true => " AND (document::jsonb ->> ?) COLLATE \"C\" < ?",
                false => " AND json_extract(document, ?) < ?",
            };
            statement.push(is_before, [member.into(), text.into()]);
        }
        if let Some(member) = &terms.has {
            let exists = match self.is_postgres() {
                true => " AND document::jsonb -> ? IS NOT NULL",
                false => " AND json_extract(document, ?) IS NOT NULL",
            };
            statement.push(exists, [member.into()]);
        }
        statement
    }
}

/// Values that a statement needs for a filter.
struct FilterTerms {
    /// The first name past those with the prefix, if there is one.
    end: Option<String>,
    /// The members, as the database addresses them.
    member: Option<String>,
    before: Option<String>,
    has: Option<String>,
}

impl FilterTerms {
    fn new(filter: &RecordFilter, postgres: bool) -> Result<FilterTerms, DbError> {
        let path = |member: Option<&String>| match member {
            Some(member) if member.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_')) => {
                Ok(Some(if postgres { member.clone() } else { format!("$.{member}") }))
            }
            Some(member) => Err(DbError::Invalid(format!("{member:?} is not the name of a member"))),
            None => Ok(None),
        };
        let end = filter.prefix.as_deref().and_then(prefix_end);
        let first = |condition: &'_ Option<(String, String)>| condition.as_ref().map(|(member, _)| member.clone());
        let (member, before) = (first(&filter.member), first(&filter.before));
        Ok(FilterTerms {
            end,
            member: path(member.as_ref())?,
            before: path(before.as_ref())?,
            has: path(filter.has.as_ref())?,
        })
    }
}

/// The first text, by its bytes, past all that begin with the prefix. The bytes of UTF-8 sort as the characters do.
fn prefix_end(prefix: &str) -> Option<String> {
    let mut rest = prefix.to_owned();
    while let Some(last) = rest.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            rest.push(next);
            return Some(rest);
        }
    }
    None
}

/// The record in a row. None if only a newer Tollgate knows its kind.
pub(crate) fn read_stored(row: Row<'_>) -> Result<Option<StoredRecord>, Fault> {
    let Some(kind) = RecordKind::parse(row.text(0)?) else { return Ok(None) };
    Ok(Some(StoredRecord {
        name: RecordName::new(kind, row.text(1)?, row.text(2)?),
        generation: row.number(3)?,
        document: row.optional_text(4)?.map(str::to_owned),
        created_at: row.timestamp(5)?,
        updated_at: row.timestamp(6)?,
        updated_by: row.text(7)?.to_owned(),
        reason: row.text(8)?.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::prefix_end;

    #[test]
    fn the_end_of_a_prefix_is_past_all_that_begin_with_it() {
        assert_eq!(prefix_end("ab").as_deref(), Some("ac"));
        assert_eq!(prefix_end("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(prefix_end("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!(prefix_end("\u{10ffff}"), None);
        assert_eq!(prefix_end(""), None);
    }
}
