//! One connection to either database.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, SqlStr};
use tokio_stream::StreamExt;

use crate::OPERATION;
use crate::error::{DbError, Fault};
use crate::follow::{Reader, record};
use crate::place::Place;
use crate::statement::{Row, Statement};

/// How long SQLite waits for another process that writes; less than [`OPERATION`], so that its own word on it is heard.
const BUSY: Duration = Duration::from_secs(4);
/// How soon a file that was locked while it was opened is tried again.
const BUSY_AGAIN: Duration = Duration::from_millis(10);
/// Rows that wait between the thread that reads the file and the one that takes them.
const ROWS_AHEAD: usize = 1_024;

/// What PostgreSQL is told at the start of each connection. A server of ours that is frozen or cut off in the middle of a write
/// must not keep all others from writing. And a plan that was made for an empty table must not be kept while it grows.
const SESSION: &str = "SET lock_timeout = '5s'; SET idle_in_transaction_session_timeout = '10s'; \
                       SET plan_cache_mode = force_custom_plan";

/// A connection.
#[derive(Debug)]
pub(crate) enum Connection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

/// How a connection is made. Not `Debug`: it has the password.
#[derive(Clone)]
pub(crate) enum Source {
    Sqlite(SqliteConnectOptions),
    Postgres(PgConnectOptions),
}

impl Source {
    pub(crate) fn file(path: &Path) -> Source {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // What was acknowledged survives a power cut. Operators don't write often.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY)
            .row_buffer_size(ROWS_AHEAD)
            .disable_statement_logging();
        Source::Sqlite(options)
    }

    pub(crate) fn postgres(url: &str) -> Result<Source, DbError> {
        postgres_options(url).map(Source::Postgres)
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Fault> {
        match self {
            Source::Postgres(options) => {
                let mut connection = Connection::Postgres(options.connect().await?);
                connection.script(SESSION).await?;
                Ok(connection)
            }
            Source::Sqlite(options) => loop {
                // Turning a new file to write-ahead logging takes a lock for which SQLite does not wait by itself.
                match options.connect().await.map_err(Fault::from) {
                    Err(fault) if fault.is_busy() => tokio::time::sleep(BUSY_AGAIN).await,
                    connected => return connected.map(Connection::Sqlite),
                }
            },
        }
    }
}

/// What a URL says, without what it says in an error: it may have a password.
pub(crate) fn postgres_options(url: &str) -> Result<PgConnectOptions, DbError> {
    let scheme = url.starts_with("postgres://") || url.starts_with("postgresql://");
    let options = PgConnectOptions::from_str(url).ok().filter(|_| scheme);
    let options = options.ok_or_else(|| {
        let place = Place::Postgres(String::new());
        DbError::Invalid(format!("{place}: write postgres://user:password@host:5432/database"))
    })?;
    Ok(options.application_name("tollgate").disable_statement_logging())
}

/// Does something with each row that a statement gives. Not the whole must be there in time, but each row.
macro_rules! each_row {
    ($connection:expr, $statement:expr, $row:ident => $do:expr) => {
        each_row!(@match $connection, $statement, $row => $do, Sqlite sqlite, Postgres postgres)
    };
    (@match $connection:expr, $statement:expr, $row:ident => $do:expr, $($kind:ident $query:ident),*) => {
        match $connection {
            $(Connection::$kind(connection) => {
                let mut rows = $statement.$query().fetch(connection);
                while let Some(row) = tokio::time::timeout(OPERATION, rows.next()).await.map_err(|_| Fault::Late)? {
                    let row = row?;
                    let $row = Row::$kind(&row);
                    $do;
                }
            })*
        }
    };
}

impl Connection {
    /// Runs a statement and hands out its rows as they come.
    pub(crate) async fn each(
        &mut self,
        statement: &Statement<'_>,
        mut each: impl FnMut(Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        each_row!(self, statement, row => each(row)?);
        Ok(())
    }

    /// Runs a statement that asks for the columns of a [`Record`](crate::Record) and hands out its rows as fast as the reader
    /// takes them. `false` if it wanted no more.
    pub(crate) async fn read(&mut self, statement: &Statement<'_>, reader: &mut impl Reader) -> Result<bool, Fault> {
        each_row!(self, statement, row => {
            let Some(record) = record(row)? else { continue };
            reader.take(record);
            if reader.is_full() && !reader.rest().await {
                return Ok(false);
            }
        });
        Ok(true)
    }

    /// Runs a statement and says how many rows it changed.
    pub(crate) async fn run(&mut self, statement: &Statement<'_>) -> Result<u64, Fault> {
        Ok(match self {
            Connection::Sqlite(connection) => statement.sqlite().execute(connection).await?.rows_affected(),
            Connection::Postgres(connection) => statement.postgres().execute(connection).await?.rows_affected(),
        })
    }

    /// Runs statements without values.
    pub(crate) async fn script(&mut self, sql: &'static str) -> Result<(), Fault> {
        let script = sqlx::raw_sql(SqlStr::from_static(sql));
        match self {
            Connection::Sqlite(connection) => script.execute(connection).await.map(drop)?,
            Connection::Postgres(connection) => script.execute(connection).await.map(drop)?,
        }
        Ok(())
    }
}
