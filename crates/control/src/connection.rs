//! One connection to either database.

use std::path::{Path, PathBuf};
#[cfg(feature = "postgres")]
use std::str::FromStr;
use std::time::Duration;

#[cfg(feature = "postgres")]
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, SqlStr};
use tokio_stream::StreamExt;

use crate::error::{DbError, Fault};
#[cfg(feature = "postgres")]
use crate::location::DbLocation;
use crate::schema::Schema;
use crate::sink::{RecordSink, read_record};
use crate::statement::{Row, Statement};

/// How long an operation may take, the wait for a connection included. A read that streams may take this long for each row.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);

/// How long SQLite waits for another process that writes; less than [`OPERATION_TIMEOUT`], so that SQLite's own error is reported.
const BUSY_TIMEOUT: Duration = Duration::from_secs(4);
/// The pause before a file that was locked while it was opened is tried again.
const BUSY_RETRY: Duration = Duration::from_millis(10);
/// Rows that wait between the thread that reads the file and the task that receives them.
const ROW_BUFFER: usize = 1_024;
/// The journal of an SQLite file shrinks to this size, in bytes, when it has been written back.
const MAX_IDLE_JOURNAL: &str = "4194304";

/// The settings of each PostgreSQL session. A server that is frozen or cut off in the middle of a write must not block all other
/// writers. And a plan that was made for an empty table must not stay in use while the table grows.
#[cfg(feature = "postgres")]
const SESSION_SETTINGS: &str = "SET lock_timeout = '5s'; SET idle_in_transaction_session_timeout = '10s'; \
                       SET plan_cache_mode = force_custom_plan";

/// A connection to SQLite or PostgreSQL.
#[derive(Debug)]
pub(crate) enum Connection {
    Sqlite(SqliteConnection),
    #[cfg(feature = "postgres")]
    Postgres(PgConnection),
}

/// How to connect. Not `Debug`: it has the password.
#[derive(Clone)]
pub(crate) enum ConnectionOptions {
    Sqlite(SqliteConnectOptions, PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(PgConnectOptions),
}

impl ConnectionOptions {
    pub(crate) fn file(path: &Path, schema: Schema) -> ConnectionOptions {
        let synchronous = match schema {
            // An acknowledged write survives a power cut. Operators don't write often.
            Schema::Control => SqliteSynchronous::Full,
            // The last entries of a log may be lost.
            Schema::Decisions => SqliteSynchronous::Normal,
        };
        let options = sqlite_options(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .pragma("journal_size_limit", MAX_IDLE_JOURNAL)
            .synchronous(synchronous);
        ConnectionOptions::Sqlite(options, path.to_owned())
    }

    /// An SQLite file that is read as it is: no file is created or written, and what is only in its journal is not seen.
    pub(crate) fn file_as_is(path: &Path) -> SqliteConnectOptions {
        sqlite_options(path).read_only(true).immutable(true)
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(url: &str) -> Result<ConnectionOptions, DbError> {
        postgres_options(url).map(ConnectionOptions::Postgres)
    }

    #[cfg(not(feature = "postgres"))]
    pub(crate) fn postgres(_: &str) -> Result<ConnectionOptions, DbError> {
        Err(DbError::Invalid(
            "this binary was built without PostgreSQL: name an SQLite file, or build with the feature `postgres`"
                .to_owned(),
        ))
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Fault> {
        match self {
            #[cfg(feature = "postgres")]
            ConnectionOptions::Postgres(options) => {
                let mut connection = Connection::Postgres(options.connect().await?);
                connection.script(SESSION_SETTINGS).await?;
                Ok(connection)
            }
            ConnectionOptions::Sqlite(options, path) => loop {
                create_private(path).map_err(Fault::File)?;
                // Switching a new file to write-ahead logging takes a lock that SQLite does not wait for by itself.
                match options.connect().await.map_err(Fault::from) {
                    Err(fault) if fault.is_busy() => tokio::time::sleep(BUSY_RETRY).await,
                    connected => return connected.map(Connection::Sqlite),
                }
            },
        }
    }
}

fn sqlite_options(path: &Path) -> SqliteConnectOptions {
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(BUSY_TIMEOUT);
    options.row_buffer_size(ROW_BUFFER).disable_statement_logging()
}

/// Creates a file that only its owner can read, if there is none.
fn create_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    match path.is_file() {
        true => Ok(()),
        false => std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop),
    }
}

/// The options in a URL. The error does not repeat the URL: it may have a password.
#[cfg(feature = "postgres")]
pub(crate) fn postgres_options(url: &str) -> Result<PgConnectOptions, DbError> {
    let scheme = url.starts_with("postgres://") || url.starts_with("postgresql://");
    let options = PgConnectOptions::from_str(url).ok().filter(|_| scheme);
    let options = options.ok_or_else(|| {
        let location = DbLocation::Postgres(String::new());
        DbError::Invalid(format!("{location}: write postgres://user:password@host:5432/database"))
    })?;
    Ok(options.application_name("tollgate").disable_statement_logging())
}

/// Evaluates an expression for each row of a statement. Each row has a deadline, the whole result has none.
macro_rules! each_row {
    ($connection:expr, $statement:expr, $row:ident => $do:expr) => {
        match $connection {
            Connection::Sqlite(connection) => {
                each_row!(@fetch $statement.sqlite().fetch(connection), $row, Row::Sqlite => $do)
            }
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => {
                each_row!(@fetch $statement.postgres().fetch(connection), $row, Row::Postgres => $do)
            }
        }
    };
    (@fetch $fetch:expr, $row:ident, $kind:path => $do:expr) => {{
        let mut rows = $fetch;
        while let Some(row) = tokio::time::timeout(OPERATION_TIMEOUT, rows.next()).await.map_err(|_| Fault::Timeout)? {
            let row = row?;
            let $row = $kind(&row);
            $do;
        }
    }};
}

impl Connection {
    /// Runs a statement and hands out its rows as they arrive.
    pub(crate) async fn each(
        &mut self,
        statement: &Statement<'_>,
        mut each: impl FnMut(Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        each_row!(self, statement, row => each(row)?);
        Ok(())
    }

    /// Runs a statement that selects the [record columns](crate::sink::RECORD_COLUMNS), and pushes the records as fast as the sink
    /// takes them. `false` if the sink ended the read.
    pub(crate) async fn read(&mut self, statement: &Statement<'_>, sink: &mut impl RecordSink) -> Result<bool, Fault> {
        each_row!(self, statement, row => {
            let Some((record, written_at)) = read_record(row)? else { continue };
            sink.push_written(record, written_at);
            if sink.is_full() && !sink.flush().await {
                return Ok(false);
            }
        });
        Ok(true)
    }

    /// Runs a statement and returns how many rows it changed.
    pub(crate) async fn run(&mut self, statement: &Statement<'_>) -> Result<u64, Fault> {
        Ok(match self {
            Connection::Sqlite(connection) => statement.sqlite().execute(connection).await?.rows_affected(),
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => statement.postgres().execute(connection).await?.rows_affected(),
        })
    }

    /// Runs statements without values.
    pub(crate) async fn script(&mut self, sql: &'static str) -> Result<(), Fault> {
        let script = sqlx::raw_sql(SqlStr::from_static(sql));
        match self {
            Connection::Sqlite(connection) => script.execute(connection).await.map(drop)?,
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => script.execute(connection).await.map(drop)?,
        }
        Ok(())
    }
}
