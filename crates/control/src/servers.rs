//! What servers tell each other of themselves, for a minute at most; and what only they know.

use tollgate_core::{Span, Timestamp};

use crate::error::{DbError, Fault};
use crate::statement::Statement;
use crate::{Begin, Db, OPERATION};

/// What a server told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRow {
    /// Which one: drawn when it started.
    pub id: String,
    /// When it told it, by the database's clock.
    pub at: Timestamp,
    /// How long ago that was.
    pub age: Span,
    /// What it told.
    pub document: String,
}

/// How long what a server told is true.
pub const KEEP_SERVERS: Span = Span::from_secs(60);
/// The most servers that are told of.
pub const MOST_SERVERS: usize = 256;
/// The longest document of a server, in bytes.
pub const LONGEST_SERVER: usize = 512 << 10;

impl Db {
    /// Tells others of this server, and forgets those that have told nothing for [`KEEP_SERVERS`].
    pub async fn tell(&self, id: &str, document: &str) -> Result<(), DbError> {
        if document.len() > LONGEST_SERVER {
            return Err(DbError::Invalid(format!("a server tells more than {LONGEST_SERVER} bytes")));
        }
        let now = self.now_sql();
        let mut tell = Statement::new("INSERT INTO servers (id, document, at) VALUES ");
        tell.and("(?, ?, ", [id.into(), document.into()])
            .and(now, [])
            .and(") ON CONFLICT (id) DO UPDATE SET at = excluded.at, document = excluded.document", []);
        let mut forget = Statement::new("DELETE FROM servers WHERE at < ");
        forget.and(now, []).and(" - ?", [KEEP_SERVERS.as_micros().into()]);
        self.run_all(&[tell, forget]).await
    }

    /// Forgets a server that is about to stop.
    pub async fn leave(&self, id: &str) -> Result<(), DbError> {
        let mut leave = Statement::new("DELETE FROM servers WHERE id = ");
        leave.and("?", [id.into()]);
        self.run_all(&[leave]).await
    }

    /// What servers told in the last minute, in the order of their ids.
    pub async fn servers(&self) -> Result<Vec<ServerRow>, DbError> {
        let now = self.now_sql();
        let mut statement = Statement::new("SELECT id, at, ");
        statement
            .and(now, [])
            .and(" - at, document FROM servers WHERE at >= ", [])
            .and(now, [])
            .and(" - ? ORDER BY id LIMIT ?", [KEEP_SERVERS.as_micros().into(), (MOST_SERVERS as u64).into()]);
        let mut rows = Vec::new();
        self.select(&statement, |row| {
            let age = Span::from_micros(row.number(2)?);
            let (id, document) = (row.text(0)?.to_owned(), row.text(3)?.to_owned());
            rows.push(ServerRow { id, at: row.moment(1)?, age, document });
            Ok(())
        })
        .await?;
        Ok(rows)
    }

    /// A text that all servers of this database know, and nobody else: the key of hashes that they must agree on.
    pub async fn secret(&self) -> Result<String, DbError> {
        let mut secret = String::new();
        self.select(&Statement::new("SELECT secret FROM control"), |row| {
            secret = row.text(0)?.to_owned();
            Ok(())
        })
        .await?;
        Ok(secret)
    }

    /// Runs these in one transaction.
    async fn run_all(&self, statements: &[Statement<'_>]) -> Result<(), DbError> {
        if statements.iter().any(Statement::has_nul) {
            return Err(DbError::Invalid("a text has a NUL character".to_owned()));
        }
        let all = async {
            let mut lent = self.begin(self.writer(), Begin::Write).await?;
            for statement in statements {
                lent.run(statement).await?;
            }
            lent.script("COMMIT").await?;
            lent.keep();
            Ok::<(), Fault>(())
        };
        self.within(OPERATION, all).await
    }

    /// Servers' clocks may differ: the database's says how old what they told is.
    fn now_sql(&self) -> &'static str {
        match self.is_postgres() {
            true => "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
            false => "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
        }
    }
}
