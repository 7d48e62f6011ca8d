//! A bounded number of connections.
//!
//! A connection comes back only if its user says that it is as it was ([`Lent::keep`]). Whatever else happens to it, be it an
//! error, a deadline or a caller that lost interest, it is closed on the spot: no transaction is left open, and no connection to a
//! database that hangs is waited for.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::connection::{Connection, Source};
use crate::error::{DbError, Fault};
use crate::migrate;

/// Connections of one kind.
pub(crate) struct Pool {
    source: Source,
    permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
    /// Whether the tables are known to be up to date.
    met: AtomicBool,
}

/// A connection that is in use.
#[derive(Debug)]
pub(crate) struct Lent<'p> {
    connection: Option<Connection>,
    /// Whether it lay idle before: then it may have broken meanwhile.
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
    /// Connections to an SQLite file, which is made if it is not there, for its owner alone.
    pub(crate) fn of_file(path: &Path, most: usize) -> Result<Pool, DbError> {
        use std::os::unix::fs::OpenOptionsExt;
        let made = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path);
        made.map_err(|error| DbError::Refused(format!("{}: {error}", path.display())))?;
        Ok(Pool::of(Source::file(path), most))
    }

    /// Connections to PostgreSQL.
    pub(crate) fn of_postgres(url: &str, most: usize) -> Result<Pool, DbError> {
        Ok(Pool::of(Source::postgres(url)?, most))
    }

    fn of(source: Source, most: usize) -> Pool {
        Pool { source, permits: Semaphore::new(most), idle: Mutex::default(), met: AtomicBool::new(false) }
    }

    /// A connection, one that lay idle unless it is to be fresh.
    pub(crate) async fn lend(&self, fresh: bool) -> Result<Lent<'_>, Fault> {
        let permit = self.permits.acquire().await.map_err(|_| Fault::Late)?;
        let idle = if fresh { None } else { self.idle().pop() };
        let reused = idle.is_some();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(Lent { connection: Some(connection), reused, pool: self, _permit: permit })
    }

    /// Closes what lies idle.
    pub(crate) fn forget_idle(&self) {
        // Not closed under the lock.
        let idle = std::mem::take(&mut *self.idle());
        drop(idle);
    }

    async fn connect(&self) -> Result<Connection, Fault> {
        let mut connection = self.source.connect().await?;
        if !self.met.load(Ordering::Acquire) {
            migrate::migrate(&mut connection).await?;
            self.met.store(true, Ordering::Release);
        }
        Ok(connection)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lent<'_> {
    /// Gives it back: it has no open transaction and no answer under way.
    pub(crate) fn keep(mut self) {
        let connection = self.connection.take();
        self.pool.idle().extend(connection);
    }
}

impl Deref for Lent<'_> {
    type Target = Connection;

    #[allow(clippy::expect_used, reason = "only `keep` takes it, and `keep` is the end of `self`")]
    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("it is there until it is kept")
    }
}

impl DerefMut for Lent<'_> {
    #[allow(clippy::expect_used, reason = "only `keep` takes it, and `keep` is the end of `self`")]
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is there until it is kept")
    }
}
