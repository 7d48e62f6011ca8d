//! A handle on the database, and what all its operations share: connections, transactions, deadlines and the latest generation.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::connection::OPERATION_TIMEOUT;
use crate::error::{DbError, Fault};
use crate::location::DbLocation;
use crate::pool::{Pool, PooledConnection};
use crate::statement::{Row, Statement};

/// The store of record. Cheap to clone: all clones share their connections.
#[derive(Clone, Debug)]
pub struct Db(Arc<DbInner>);

/// A [`Db`] that does not keep its connections open.
#[cfg(feature = "postgres")]
#[derive(Debug)]
pub(crate) struct WeakDb(std::sync::Weak<DbInner>);

#[derive(Debug)]
struct DbInner {
    location: DbLocation,
    /// They also write, where the database orders writers itself.
    readers: Pool,
    /// SQLite has one writer at a time: more would only wait for each other inside.
    writer: Option<Pool>,
    latest: LatestGeneration,
}

/// The highest generation that was announced to this process.
#[derive(Debug)]
struct LatestGeneration(watch::Sender<u64>);

/// What a transaction is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TransactionKind {
    /// Several statements see the same moment.
    Read,
    /// The first statement locks the one row that all writers lock: writers follow one another, in the order of generations.
    Write,
}

impl Db {
    /// A handle on these pools. Nothing is connected yet.
    pub(crate) fn new(location: DbLocation, readers: Pool, writer: Option<Pool>) -> Db {
        let latest = LatestGeneration(watch::Sender::new(0));
        Db(Arc::new(DbInner { location, readers, writer, latest }))
    }

    /// Where the database is.
    pub fn location(&self) -> &DbLocation {
        &self.0.location
    }

    /// The generation of the last write; 0 if there was none.
    pub async fn generation(&self) -> Result<u64, DbError> {
        let mut generation = 0;
        let statement = Statement::new("SELECT generation FROM control");
        self.select(&statement, |row| {
            generation = row.number(0)?;
            Ok(())
        })
        .await?;
        Ok(generation)
    }

    /// Waits until a generation past `after` is announced, and returns it. It misses nothing that was announced before the call.
    ///
    /// With PostgreSQL these are the writes of every server, while the connection that listens is open; with SQLite those of this
    /// process. A caller that must not miss a write also polls [`Db::generation`].
    pub async fn wait_for_change(&self, after: u64) -> u64 {
        let mut latest = self.0.latest.0.subscribe();
        // The sender is in `self`, so the channel is open.
        latest.wait_for(|latest| *latest > after).await.map(|latest| *latest).unwrap_or(after)
    }

    /// Announces a generation to those who wait.
    pub(crate) fn announce(&self, generation: u64) {
        self.0.latest.announce(generation);
    }

    /// The highest generation that was announced.
    pub(crate) fn latest_announced(&self) -> u64 {
        *self.0.latest.0.borrow()
    }

    /// Takes an announcement back that the database does not confirm. See [`LatestGeneration::retract`].
    pub(crate) fn retract(&self, announced: u64, generation: u64) {
        self.0.latest.retract(announced, generation);
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.0.location, DbLocation::Postgres(_))
    }

    pub(crate) fn readers(&self) -> &Pool {
        &self.0.readers
    }

    pub(crate) fn writer(&self) -> &Pool {
        self.0.writer.as_ref().unwrap_or(&self.0.readers)
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn downgrade(&self) -> WeakDb {
        WeakDb(Arc::downgrade(&self.0))
    }

    /// Reads rows by one statement. A connection that broke while it was idle is replaced, once.
    pub(crate) async fn select(
        &self,
        statement: &Statement<'_>,
        mut each: impl FnMut(Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), DbError> {
        if statement.has_nul() {
            return Err(DbError::Invalid("a text has a NUL character".to_owned()));
        }
        self.with_timeout(OPERATION_TIMEOUT, async {
            let mut fresh = false;
            loop {
                let mut connection = self.0.readers.acquire(fresh).await?;
                let mut started = false;
                let read = connection.each(statement, |row| {
                    started = true;
                    each(row)
                });
                match read.await {
                    Ok(()) => {
                        connection.release();
                        return Ok(());
                    }
                    Err(fault) if connection.reused && !started && fault.is_connection_broken() => fresh = true,
                    Err(fault) => return Err(fault),
                }
            }
        })
        .await
    }

    /// A connection with an open transaction. A connection that broke while it was idle fails here, and is replaced.
    pub(crate) async fn begin<'p>(&self, pool: &'p Pool, kind: TransactionKind) -> Result<PooledConnection<'p>, Fault> {
        let sql = kind.begin_sql(self.is_postgres());
        let mut connection = pool.acquire(false).await?;
        match connection.script(sql).await {
            Err(fault) if connection.reused && fault.is_connection_broken() => {
                drop(connection);
                connection = pool.acquire(true).await?;
                connection.script(sql).await?;
                Ok(connection)
            }
            begun => begun.map(|()| connection),
        }
    }

    /// Runs an operation, for this long at most. Its error names the database.
    pub(crate) async fn with_timeout<T>(
        &self,
        timeout: Duration,
        operation: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, DbError> {
        let result = tokio::time::timeout(timeout, operation).await.unwrap_or(Err(Fault::Timeout));
        result.map_err(|fault| {
            if fault.is_transient() {
                // Idle connections are probably as dead as the one that failed.
                self.0.readers.close_idle();
                self.0.writer.iter().for_each(Pool::close_idle);
            }
            fault.into_error(&self.0.location)
        })
    }
}

#[cfg(feature = "postgres")]
impl WeakDb {
    /// The database, unless all its handles are dropped.
    pub(crate) fn upgrade(&self) -> Option<Db> {
        self.0.upgrade().map(Db)
    }

    /// Whether all handles are dropped.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl LatestGeneration {
    fn announce(&self, generation: u64) {
        self.0.send_if_modified(|latest| {
            let newer = generation > *latest;
            *latest = generation.max(*latest);
            newer
        });
    }

    /// A generation that was announced before a read began is in the database at the read. If the read finds less, the database is
    /// another one than before (restored from an old backup, for instance), or a notification was wrong. Waiters must not wake for
    /// it again and again.
    fn retract(&self, announced: u64, generation: u64) {
        self.0.send_if_modified(|latest| {
            if *latest == announced && generation < announced {
                *latest = generation;
            }
            // Nobody waits for a lower generation.
            false
        });
    }
}

impl TransactionKind {
    fn begin_sql(self, postgres: bool) -> &'static str {
        match (self, postgres) {
            (TransactionKind::Read, false) => "BEGIN",
            // A transaction that turns from reader to writer may find that another was first. This one is a writer at once.
            (TransactionKind::Write, false) => "BEGIN IMMEDIATE",
            (TransactionKind::Read, true) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            // Each statement must see what was committed while the first one waited, whatever the database's default is.
            (TransactionKind::Write, true) => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
        }
    }
}
