//! A bounded number of connections.
//!
//! A connection returns to the pool only if its user releases it ([`PooledConnection::release`]). In every other case (an error, a
//! deadline, a caller that was cancelled) it is closed at once: no transaction is left open, and nothing waits for a connection to a
//! database that hangs.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::connection::{Connection, ConnectionOptions};
use crate::error::{DbError, Fault};
use crate::migrate;
use crate::schema::Schema;

/// Connections to one database.
pub(crate) struct Pool {
    options: ConnectionOptions,
    schema: Schema,
    permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
    /// Whether the tables are up to date.
    migrated: AtomicBool,
}

/// A connection in use. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct PooledConnection<'p> {
    connection: Option<Connection>,
    /// Whether it was idle before: then it may have broken meanwhile.
    pub(crate) reused: bool,
    pool: &'p Pool,
    _permit: SemaphorePermit<'p>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("free", &self.permits.available_permits()).finish_non_exhaustive()
    }
}

impl Pool {
    /// Connections to an SQLite file. The file is created if it does not exist, readable by its owner only.
    pub(crate) fn open_file(path: &Path, schema: Schema, max: usize) -> Pool {
        Pool::new(ConnectionOptions::file(path, schema), schema, max)
    }

    /// Connections to PostgreSQL.
    pub(crate) fn open_postgres(url: &str, max: usize) -> Result<Pool, DbError> {
        Ok(Pool::new(ConnectionOptions::postgres(url)?, Schema::Control, max))
    }

    fn new(options: ConnectionOptions, schema: Schema, max: usize) -> Pool {
        let (permits, migrated) = (Semaphore::new(max), AtomicBool::new(false));
        Pool { options, schema, permits, idle: Mutex::default(), migrated }
    }

    /// Takes a connection: an idle one, or a new one if there is none or if `fresh` is set.
    pub(crate) async fn acquire(&self, fresh: bool) -> Result<PooledConnection<'_>, Fault> {
        let permit = self.permits.acquire().await.map_err(|_| Fault::Timeout)?;
        let idle = if fresh { None } else { self.idle().pop() };
        let reused = idle.is_some();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(PooledConnection { connection: Some(connection), reused, pool: self, _permit: permit })
    }

    /// Closes the idle connections.
    pub(crate) fn close_idle(&self) {
        // Not closed under the lock.
        let idle = std::mem::take(&mut *self.idle());
        drop(idle);
    }

    async fn connect(&self) -> Result<Connection, Fault> {
        let mut connection = self.options.connect().await?;
        if !self.migrated.load(Ordering::Acquire) {
            migrate::migrate(&mut connection, self.schema).await?;
            self.migrated.store(true, Ordering::Release);
        }
        Ok(connection)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PooledConnection<'_> {
    /// Returns it to the pool. It must have no open transaction and no response under way.
    pub(crate) fn release(mut self) {
        let connection = self.connection.take();
        self.pool.idle().extend(connection);
    }
}

impl Deref for PooledConnection<'_> {
    type Target = Connection;

    #[allow(clippy::expect_used, reason = "only `release` takes it, and `release` consumes `self`")]
    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("it is there until it is released")
    }
}

impl DerefMut for PooledConnection<'_> {
    #[allow(clippy::expect_used, reason = "only `release` takes it, and `release` consumes `self`")]
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is there until it is released")
    }
}
