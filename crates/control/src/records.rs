//! Records, read: one, or a page.

use crate::Db;
use crate::error::{DbError, Fault};
use crate::model::{Name, Stored};
use crate::statement::{Row, Statement};
use tollgate_records::RecordKind;

/// Records of a page.
pub const MOST_LISTED: usize = 1_000;

/// The columns of a [`Stored`], in the order in which [`stored`] reads them.
pub(crate) const COLUMNS: &str = "kind, domain, name, generation, document, created_at, updated_at, updated_by, reason";

/// Which records are listed or counted. Deleted ones never are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Of this kind.
    pub kind: RecordKind,
    /// Of this domain.
    pub domain: Option<String>,
    /// With a name that begins like this.
    pub prefix: Option<String>,
    /// With this text as a member of the document: `("tier", "pro")`. The member's name is of `a-z`, `0-9` and `_`.
    pub member: Option<(String, String)>,
    /// With a text as a member of the document that comes before this one, by its bytes: `("expires_at", "2025")`.
    pub before: Option<(String, String)>,
}

impl Filter {
    /// All of a kind.
    pub fn of(kind: RecordKind) -> Filter {
        Filter { kind, domain: None, prefix: None, member: None, before: None }
    }
}

impl Db {
    /// A record, if it is there and not deleted.
    pub async fn get(&self, name: &Name) -> Result<Option<Stored>, DbError> {
        let mut found = None;
        let mut statement = Statement::new("SELECT ");
        statement.and(COLUMNS, []).and(
            " FROM records WHERE kind = ? AND domain = ? AND name = ? AND document IS NOT NULL",
            [name.kind.into(), (&name.domain).into(), (&name.name).into()],
        );
        self.select(&statement, |row| {
            found = stored(row)?;
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// A page of records, ordered by domain and name: those after `after`, which is the last one of the page before, and at most
    /// `most` of them ([`MOST_LISTED`] if that is less).
    pub async fn list(&self, filter: &Filter, after: Option<&Name>, most: usize) -> Result<Vec<Stored>, DbError> {
        let most = most.min(MOST_LISTED);
        let bounds = Bounds::of(filter, self.is_postgres())?;
        let mut statement = self.filtered(COLUMNS, filter, &bounds);
        if let Some(after) = after {
            statement.and(" AND (domain, name) > (?, ?)", [(&after.domain).into(), (&after.name).into()]);
        }
        statement.and(" ORDER BY domain, name LIMIT ?", [(most as u64).into()]);
        let mut page = Vec::new();
        self.select(&statement, |row| {
            page.extend(stored(row)?);
            Ok(())
        })
        .await?;
        Ok(page)
    }

    /// How many records there are.
    pub async fn count(&self, filter: &Filter) -> Result<u64, DbError> {
        let bounds = Bounds::of(filter, self.is_postgres())?;
        let mut count = 0;
        self.select(&self.filtered("count(*)", filter, &bounds), |row| {
            count = row.number(0)?;
            Ok(())
        })
        .await?;
        Ok(count)
    }

    fn filtered<'a>(&self, columns: &str, filter: &'a Filter, bounds: &'a Bounds) -> Statement<'a> {
        let mut statement = Statement::new("SELECT ");
        statement.and(columns, []);
        statement.and(" FROM records WHERE kind = ? AND document IS NOT NULL", [filter.kind.into()]);
        if let Some(domain) = &filter.domain {
            statement.and(" AND domain = ?", [domain.into()]);
        }
        if let Some(prefix) = &filter.prefix {
            statement.and(" AND name >= ?", [prefix.into()]);
        }
        if let Some(end) = &bounds.end {
            statement.and(" AND name < ?", [end.into()]);
        }
        if let (Some(member), Some((_, text))) = (&bounds.member, &filter.member) {
            let equals = match self.is_postgres() {
                true => " AND document::jsonb -> ? = to_jsonb(?::text)",
                false => " AND json_extract(document, ?) = ?",
            };
            statement.and(equals, [member.into(), text.into()]);
            if self.is_postgres() && member == "tier" {
                // There is an index on the beginning of it.
                statement.and(" AND left(document::jsonb ->> 'tier', 64) = left(?, 64)", [text.into()]);
            }
        }
        if let (Some(member), Some((_, text))) = (&bounds.before, &filter.before) {
            let is_before = match self.is_postgres() {
                true => " AND (document::jsonb ->> ?) COLLATE \"C\" < ?",
                false => " AND json_extract(document, ?) < ?",
            };
            statement.and(is_before, [member.into(), text.into()]);
        }
        statement
    }
}

/// What a filter means to a database.
struct Bounds {
    /// The first name past those with the prefix, if there is one.
    end: Option<String>,
    /// The members, as this database finds them.
    member: Option<String>,
    before: Option<String>,
}

impl Bounds {
    fn of(filter: &Filter, postgres: bool) -> Result<Bounds, DbError> {
        let found = |wanted: &Option<(String, String)>| match wanted {
            Some((member, _)) if member.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_')) => {
                Ok(Some(if postgres { member.clone() } else { format!("$.{member}") }))
            }
            Some((member, _)) => Err(DbError::Invalid(format!("{member:?} is not the name of a member"))),
            None => Ok(None),
        };
        let end = filter.prefix.as_deref().and_then(end);
        Ok(Bounds { end, member: found(&filter.member)?, before: found(&filter.before)? })
    }
}

/// The first text, by its bytes, past all that begin like this. UTF-8 keeps the order of characters.
fn end(prefix: &str) -> Option<String> {
    let mut rest = prefix.to_owned();
    while let Some(last) = rest.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            rest.push(next);
            return Some(rest);
        }
    }
    None
}

/// A record as it was read. None if its kind is one that only a newer Tollgate knows.
pub(crate) fn stored(row: Row<'_>) -> Result<Option<Stored>, Fault> {
    let Some(kind) = RecordKind::parse(row.text(0)?) else { return Ok(None) };
    Ok(Some(Stored {
        name: Name::new(kind, row.text(1)?, row.text(2)?),
        generation: row.number(3)?,
        document: row.maybe(4)?.map(str::to_owned),
        created_at: row.moment(5)?,
        updated_at: row.moment(6)?,
        updated_by: row.text(7)?.to_owned(),
        reason: row.text(8)?.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::end;

    #[test]
    fn the_end_of_a_prefix_is_past_all_that_begin_with_it() {
        assert_eq!(end("ab").as_deref(), Some("ac"));
        assert_eq!(end("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(end("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!(end("\u{10ffff}"), None);
        assert_eq!(end(""), None);
    }
}
