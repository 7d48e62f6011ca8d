//! The store of record: what operators decide, kept in one SQLite file or in PostgreSQL.
//!
//! Everything is a [`Stored`] record: a [`Name`] (kind, domain, name), a JSON document that this crate does not read, and the
//! generation of the write that put it there. A [`Write`] is one transaction: the next generation, the records, what the audit
//! log says of them, and what is remembered for an idempotency key. Generations commit in their order, so a follower that asks
//! for what is past the last one it saw ([`Db::each_since`], [`Db::read`]) misses nothing. A deleted record stays for a while without its
//! document, so that followers hear of it.
//!
//! Nothing here waits without end: a database that is away, frozen or cut off is [`DbError::Away`] within a bounded time, and
//! used again once it is back.

mod audit;
mod connection;
mod decisions;
mod error;
mod follow;
mod listen;
mod migrate;
mod model;
mod packed;
mod place;
mod pool;
mod records;
mod servers;
mod statement;
mod sweep;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

pub use audit::{AuditEntry, AuditFilter, MOST_AUDITED};
pub use decisions::{Decided, DecidedFilter, MOST_DECISIONS, MOST_FORGOTTEN, MOST_FOUND};
pub use error::{DbError, WriteError};
pub use follow::Reader;
pub use model::{Change, Expect, Name, Once, Point, Stored, Write, Written};
pub use place::Place;
pub use records::{Filter, MOST_LISTED};
pub use servers::{KEEP_SERVERS, LONGEST_SERVER, MOST_SERVERS, ServerRow};
pub use sweep::{KEEP_DELETED, KEEP_ONCE, Swept};
pub use write::{
    LONGEST_ACTION, LONGEST_ANSWER, LONGEST_DOCUMENT, LONGEST_NAME, LONGEST_REASON, LONGEST_WRITE, MOST_CHANGES,
};

use error::Fault;
use pool::{Lent, Pool};
use statement::{Row, Statement};

/// How long an operation may take, the wait for a connection included. What streams may take this long for each row.
pub const OPERATION: Duration = Duration::from_secs(5);
/// How long a write of many changes may take.
pub const BULK: Duration = Duration::from_secs(30);
/// Connections to PostgreSQL, besides the one that listens.
pub const MOST_CONNECTIONS: usize = 8;
/// Connections that read an SQLite file, besides the one that writes.
pub const MOST_READERS: usize = 4;

/// The store of record. Cheap to clone: all clones share their connections.
#[derive(Clone, Debug)]
pub struct Db(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    place: Place,
    /// Also those that write, where the database sorts writers out itself.
    readers: Pool,
    /// SQLite has one writer at a time: more would only wait for each other inside.
    writer: Option<Pool>,
    /// The highest generation that was heard of.
    heard: watch::Sender<u64>,
}

impl Db {
    /// Opens it and brings its tables up to date. The SQLite file is made if it is not there. A PostgreSQL that is away is no
    /// error: its tables are brought up to date at the first contact. Must be called within a Tokio runtime, which then runs
    /// what listens to PostgreSQL until the last clone is dropped.
    pub async fn open(place: Place) -> Result<Db, DbError> {
        let (readers, writer) = match &place {
            Place::File(path) => (Pool::of_file(path, MOST_READERS)?, Some(Pool::of_file(path, 1)?)),
            Place::Postgres(url) => (Pool::of_postgres(url, MOST_CONNECTIONS)?, None),
        };
        let heard = watch::Sender::new(0);
        let db = Db(Arc::new(Inner { place, readers, writer, heard }));
        match (db.meet().await, &db.0.place) {
            (Ok(()), _) | (Err(DbError::Away(_)), Place::Postgres(_)) => {}
            (Err(error), _) => return Err(error),
        }
        if let Place::Postgres(url) = &db.0.place {
            listen::start(url, Arc::downgrade(&db.0))?;
        }
        Ok(db)
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.0.place
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

    /// Waits until a generation past `after` is heard of, and says which. It misses nothing that happened before it was called.
    ///
    /// With PostgreSQL that is what any server writes, as long as the connection that listens stands; with SQLite what this
    /// process writes. Who must not miss a write asks for the [`Db::generation`] now and then, too.
    pub async fn changed(&self, after: u64) -> u64 {
        let mut heard = self.0.heard.subscribe();
        // The sender is in `self`: it is not gone.
        heard.wait_for(|heard| *heard > after).await.map(|heard| *heard).unwrap_or(after)
    }

    /// The first contact: the tables are brought up to date on the way.
    async fn meet(&self) -> Result<(), DbError> {
        self.within(OPERATION, async {
            let pool = self.writer();
            pool.lend(false).await?.keep();
            Ok(())
        })
        .await?;
        // What was written before this process began is no news.
        let generation = self.generation().await?;
        self.0.hear(generation);
        Ok(())
    }

    fn is_postgres(&self) -> bool {
        matches!(self.0.place, Place::Postgres(_))
    }

    fn writer(&self) -> &Pool {
        self.0.writer.as_ref().unwrap_or(&self.0.readers)
    }

    /// Reads rows by one statement. A connection that broke while it lay idle is replaced, once.
    async fn select(
        &self,
        statement: &Statement<'_>,
        mut each: impl FnMut(Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), DbError> {
        if statement.has_nul() {
            return Err(DbError::Invalid("a text has a NUL character".to_owned()));
        }
        self.within(OPERATION, async {
            let mut fresh = false;
            loop {
                let mut lent = self.0.readers.lend(fresh).await?;
                let mut begun = false;
                let read = lent.each(statement, |row| {
                    begun = true;
                    each(row)
                });
                match read.await {
                    Ok(()) => {
                        lent.keep();
                        return Ok(());
                    }
                    Err(fault) if lent.reused && !begun && fault.is_broken() => fresh = true,
                    Err(fault) => return Err(fault),
                }
            }
        })
        .await
    }

    /// A connection on which a transaction has begun. One that broke while it lay idle shows here, and is replaced.
    async fn begin<'p>(&self, pool: &'p Pool, begin: Begin) -> Result<Lent<'p>, Fault> {
        let sql = begin.sql(self.is_postgres());
        let mut lent = pool.lend(false).await?;
        match lent.script(sql).await {
            Err(fault) if lent.reused && fault.is_broken() => {
                drop(lent);
                lent = pool.lend(true).await?;
                lent.script(sql).await?;
                Ok(lent)
            }
            begun => begun.map(|()| lent),
        }
    }

    /// Waits for an operation, but no longer than this, and says where it failed.
    async fn within<T>(
        &self,
        limit: Duration,
        operation: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, DbError> {
        let done = tokio::time::timeout(limit, operation).await.unwrap_or(Err(Fault::Late));
        done.map_err(|fault| {
            if fault.is_away() {
                // What lies idle is likely to be as dead as the one that failed.
                self.0.readers.forget_idle();
                self.0.writer.iter().for_each(Pool::forget_idle);
            }
            fault.told(&self.0.place)
        })
    }
}

impl Inner {
    /// Tells those who wait that this generation is there.
    fn hear(&self, generation: u64) {
        self.heard.send_if_modified(|heard| {
            let newer = generation > *heard;
            *heard = generation.max(*heard);
            newer
        });
    }

    /// What was heard of before somebody looked is there when it looks. If it is not, the database is another than before (restored
    /// from an old copy perhaps), or somebody notified us of what is not true: nobody must be told of it again and again.
    fn unhear(&self, heard_before: u64, generation: u64) {
        self.heard.send_if_modified(|heard| {
            if *heard == heard_before && generation < heard_before {
                *heard = generation;
            }
            // Nobody waits for less.
            false
        });
    }
}

/// What a transaction is begun for.
#[derive(Clone, Copy, Debug)]
enum Begin {
    /// Several statements see the same moment.
    Read,
    /// The first statement takes the one row that all writers take: they follow one another, in the order of generations.
    Write,
}

impl Begin {
    fn sql(self, postgres: bool) -> &'static str {
        match (self, postgres) {
            (Begin::Read, false) => "BEGIN",
            // A transaction that turns from reader to writer may find that another was first. This one is a writer at once.
            (Begin::Write, false) => "BEGIN IMMEDIATE",
            (Begin::Read, true) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            // Each statement must see what was committed while the first one waited, whatever the database's default is.
            (Begin::Write, true) => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
        }
    }
}
