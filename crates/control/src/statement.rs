//! Statements and rows of both databases.
//!
//! The text of a statement contains no values. Each `?` stands for the next value, as in SQLite; for PostgreSQL they are numbered.
//! (SQLite accepts `$1` as well, but looks each one up among all names of the statement.)

use sqlx::database::HasStatementCache;
#[cfg(feature = "postgres")]
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, Database, Decode, Encode, Row as _, Type};
use tollgate_core::Timestamp;
use tollgate_records::RecordKind;

use crate::error::Fault;

/// A value in a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Number(u64),
    Text(&'a str),
    /// Text, or NULL.
    OptionalText(Option<&'a str>),
}

/// A statement and its values.
#[derive(Clone, Debug)]
pub(crate) struct Statement<'a> {
    sql: String,
    values: Vec<Value<'a>>,
    /// Whether its text is likely to be used again: then the connection caches the prepared statement.
    is_cached: bool,
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Value::Number(number)
    }
}

impl From<Timestamp> for Value<'_> {
    fn from(at: Timestamp) -> Self {
        Value::Number(at.as_micros())
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(text)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Value::Text(text)
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Value::OptionalText(text)
    }
}

impl From<RecordKind> for Value<'_> {
    fn from(kind: RecordKind) -> Self {
        Value::Text(kind.name())
    }
}

impl<'a> Statement<'a> {
    /// Starts a statement.
    pub(crate) fn new(sql: &str) -> Statement<'a> {
        Statement { sql: sql.to_owned(), values: Vec::new(), is_cached: true }
    }

    /// Appends this text, in which each `?` stands for the next of the values.
    pub(crate) fn push<const N: usize>(&mut self, sql: &str, values: [Value<'a>; N]) -> &mut Self {
        self.sql.push_str(sql);
        self.values.extend(values);
        self
    }

    /// Appends rows of values: `(?, ?), (?, ?)`.
    pub(crate) fn push_rows<const N: usize>(&mut self, rows: impl IntoIterator<Item = [Value<'a>; N]>) -> &mut Self {
        let row = format!("({})", ["?"; N].join(", "));
        for (index, values) in rows.into_iter().enumerate() {
            self.sql.push_str(if index == 0 { "" } else { ", " });
            self.push(&row, values);
        }
        self
    }

    /// Sets whether the prepared statement is cached. It is, by default.
    pub(crate) fn set_cached(&mut self, is_cached: bool) {
        self.is_cached = is_cached;
    }

    /// Whether a value has a NUL character, which PostgreSQL accepts in no text.
    pub(crate) fn has_nul(&self) -> bool {
        self.values.iter().any(|value| match value {
            Value::Number(_) | Value::OptionalText(None) => false,
            Value::Text(text) | Value::OptionalText(Some(text)) => text.contains('\0'),
        })
    }

    /// The statement for SQLite.
    pub(crate) fn sqlite(&self) -> Query<'static, Sqlite, SqliteArguments> {
        self.query(self.sql.clone())
    }

    /// The statement for PostgreSQL.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(&self) -> Query<'static, Postgres, PgArguments> {
        let mut parts = self.sql.split('?');
        let mut sql = parts.next().unwrap_or_default().to_owned();
        for (index, part) in parts.enumerate() {
            sql.push('$');
            sql.push_str(&(index + 1).to_string());
            sql.push_str(part);
        }
        self.query(sql)
    }

    fn query<DB>(&self, sql: String) -> Query<'static, DB, <DB as Database>::Arguments>
    where
        DB: Database + HasStatementCache,
        for<'t> i64: Encode<'t, DB> + Type<DB>,
        for<'t> &'t str: Encode<'t, DB> + Type<DB>,
        for<'t> Option<&'t str>: Encode<'t, DB> + Type<DB>,
    {
        let query = sqlx::query::<DB>(AssertSqlSafe(sql)).persistent(self.is_cached);
        self.values.iter().fold(query, |query, value| match value {
            // Generations and microseconds are below 2^53, and counts of rows far below.
            Value::Number(number) => query.bind(i64::try_from(*number).unwrap_or(i64::MAX)),
            Value::Text(text) => query.bind(*text),
            Value::OptionalText(text) => query.bind(*text),
        })
    }
}

/// A row of a result. Columns are counted from 0.
#[derive(Clone, Copy)]
pub(crate) enum Row<'r> {
    Sqlite(&'r SqliteRow),
    #[cfg(feature = "postgres")]
    Postgres(&'r PgRow),
}

/// A type that columns of both databases decode to.
#[cfg(feature = "postgres")]
trait Column<'r>: Decode<'r, Sqlite> + Decode<'r, Postgres> {}
#[cfg(feature = "postgres")]
impl<'r, T: Decode<'r, Sqlite> + Decode<'r, Postgres>> Column<'r> for T {}
#[cfg(not(feature = "postgres"))]
trait Column<'r>: Decode<'r, Sqlite> {}
#[cfg(not(feature = "postgres"))]
impl<'r, T: Decode<'r, Sqlite>> Column<'r> for T {}

impl<'r> Row<'r> {
    /// A number. Only numbers that are not negative are stored.
    pub(crate) fn number(self, column: usize) -> Result<u64, Fault> {
        Ok(self.get::<i64>(column)?.max(0).unsigned_abs())
    }

    /// A timestamp.
    pub(crate) fn timestamp(self, column: usize) -> Result<Timestamp, Fault> {
        self.number(column).map(Timestamp::from_micros)
    }

    /// Text.
    pub(crate) fn text(self, column: usize) -> Result<&'r str, Fault> {
        self.get(column)
    }

    /// Text, or NULL.
    pub(crate) fn optional_text(self, column: usize) -> Result<Option<&'r str>, Fault> {
        self.get(column)
    }

    fn get<T: Column<'r>>(self, column: usize) -> Result<T, Fault> {
        // The migrations of this crate define the columns' types.
        Ok(match self {
            Row::Sqlite(row) => row.try_get_unchecked(column)?,
            #[cfg(feature = "postgres")]
            Row::Postgres(row) => row.try_get_unchecked(column)?,
        })
    }
}
