//! The reports that servers exchange through the database, and the secret that they share.

use tollgate_core::{Span, Timestamp};

use crate::connection::OPERATION_TIMEOUT;
use crate::db::{Db, TransactionKind};
use crate::error::{DbError, Fault};
use crate::statement::Statement;

/// The last report of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRow {
    /// The server's id, which is random for each start.
    pub id: String,
    /// When it was written, by the database's clock.
    pub at: Timestamp,
    /// How long ago that was.
    pub age: Span,
    /// The report.
    pub document: String,
}

/// How long a report is valid.
pub const SERVER_TTL: Span = Span::from_secs(60);
/// Servers whose reports are read.
pub const MAX_SERVERS: usize = 256;
/// Bytes of a report.
pub const MAX_SERVER_BYTES: usize = 512 << 10;

impl Db {
    /// Writes the report of a server, and deletes reports that are older than [`SERVER_TTL`].
    pub async fn put_server(&self, id: &str, document: &str) -> Result<(), DbError> {
        if document.len() > MAX_SERVER_BYTES {
            return Err(DbError::Invalid(format!("a server's report has more than {MAX_SERVER_BYTES} bytes")));
        }
        let now = self.now_sql();
        let mut put = Statement::new("INSERT INTO servers (id, document, at) VALUES ");
        put.push("(?, ?, ", [id.into(), document.into()])
            .push(now, [])
            .push(") ON CONFLICT (id) DO UPDATE SET at = excluded.at, document = excluded.document", []);
        let mut delete = Statement::new("DELETE FROM servers WHERE at < ");
        delete.push(now, []).push(" - ?", [SERVER_TTL.as_micros().into()]);
        self.run_all(&[put, delete]).await
    }

    /// Deletes the report of a server that is about to stop.
    pub async fn remove_server(&self, id: &str) -> Result<(), DbError> {
        let mut remove = Statement::new("DELETE FROM servers WHERE id = ");
        remove.push("?", [id.into()]);
        self.run_all(&[remove]).await
    }

    /// The reports that are younger than [`SERVER_TTL`], in the order of the servers' ids.
    pub async fn servers(&self) -> Result<Vec<ServerRow>, DbError> {
        let now = self.now_sql();
        let mut statement = Statement::new("SELECT id, at, ");
        statement
            .push(now, [])
            .push(" - at, document FROM servers WHERE at >= ", [])
            .push(now, [])
            .push(" - ? ORDER BY id LIMIT ?", [SERVER_TTL.as_micros().into(), (MAX_SERVERS as u64).into()]);
        let mut rows = Vec::new();
        self.select(&statement, |row| {
            let age = Span::from_micros(row.number(2)?);
            let (id, document) = (row.text(0)?.to_owned(), row.text(3)?.to_owned());
            rows.push(ServerRow { id, at: row.timestamp(1)?, age, document });
            Ok(())
        })
        .await?;
        Ok(rows)
    }

    /// A text that only the servers of this database know: the key of hashes that they must agree on.
    pub async fn secret(&self) -> Result<String, DbError> {
        let mut secret = String::new();
        self.select(&Statement::new("SELECT secret FROM control"), |row| {
            secret = row.text(0)?.to_owned();
            Ok(())
        })
        .await?;
        Ok(secret)
    }

    /// Runs statements in one transaction.
    async fn run_all(&self, statements: &[Statement<'_>]) -> Result<(), DbError> {
        if statements.iter().any(Statement::has_nul) {
            return Err(DbError::Invalid("a text has a NUL character".to_owned()));
        }
        let all = async {
            let mut connection = self.begin(self.writer(), TransactionKind::Write).await?;
            for statement in statements {
                connection.run(statement).await?;
            }
            connection.script("COMMIT").await?;
            connection.release();
            Ok::<(), Fault>(())
        };
        self.with_timeout(OPERATION_TIMEOUT, all).await
    }

    /// Servers' clocks may differ, so the database's clock measures the age of reports.
    fn now_sql(&self) -> &'static str {
        match self.is_postgres() {
            true => "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
            false => "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
        }
    }
}
