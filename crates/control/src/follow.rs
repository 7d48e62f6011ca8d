//! All that changed, for those who follow.

use crate::error::{DbError, Fault};
use crate::model::Point;
use crate::packed;
use crate::pool::Lent;
use crate::statement::Statement;
use crate::{Begin, Db, OPERATION};
use tollgate_records::{Record, RecordKind};

/// One who reads many records, at its own pace.
pub trait Reader: Send {
    /// What follows is as of this point.
    fn begin(&mut self, _at: &Point) {}

    /// One record.
    fn take(&mut self, record: Record<'_>);

    /// Whether no more is to come before it has [rested](Reader::rest).
    fn is_full(&self) -> bool;

    /// Makes room. `false`: it wants no more.
    fn rest(&mut self) -> impl Future<Output = bool> + Send;
}

/// Records that are handed out before others get their turn on the thread.
const AT_ONCE: u64 = 256;

/// A reader that never has enough.
struct Each<F> {
    each: F,
    taken: u64,
}

impl<F: FnMut(Record<'_>) + Send> Reader for Each<F> {
    fn take(&mut self, record: Record<'_>) {
        self.taken += 1;
        (self.each)(record);
    }

    fn is_full(&self) -> bool {
        self.taken.is_multiple_of(AT_ONCE)
    }

    async fn rest(&mut self) -> bool {
        tokio::task::yield_now().await;
        true
    }
}

impl Db {
    /// What tells this database's generations from those of others. It changes when the database was restored from a backup and
    /// somebody noticed ([`Db::disown`]).
    pub async fn identity(&self) -> Result<String, DbError> {
        let mut identity = String::new();
        self.select(&Statement::new("SELECT identity FROM control"), |row| {
            identity = row.text(0)?.to_owned();
            Ok(())
        })
        .await?;
        Ok(identity)
    }

    /// Hands out the records that were written past a generation, as they are at one moment, and says the generation of that
    /// moment. They come in the order of generations; all of them (`after` is 0) come in any order. Records of kinds that only a
    /// newer Tollgate knows are left out.
    ///
    /// [`DbError::TooOld`]: deletions past `after` may have been forgotten, or this database has never been there. Then `after`
    /// must be 0, and what is not handed out is not there.
    pub async fn each_since(
        &self,
        after: u64,
        with_deleted: bool,
        each: impl FnMut(Record<'_>) + Send,
    ) -> Result<u64, DbError> {
        let read = self.read_past(after, None, with_deleted, &mut Each { each, taken: 0 }).await?;
        Ok(read.map_or(after, |at| at.generation))
    }

    /// The same for a reader that may need time, and that knows which database it is about: at another one it is
    /// [`DbError::TooOld`]. Without a point all records are read. `None` if the reader wanted no more.
    pub async fn read(
        &self,
        past: Option<&Point>,
        with_deleted: bool,
        reader: &mut impl Reader,
    ) -> Result<Option<Point>, DbError> {
        let (after, of) = past.map_or((0, None), |past| (past.generation, Some(&*past.of)));
        self.read_past(after, of, with_deleted, reader).await
    }

    /// Says that this database has not gone on from a point where it was known to be: it was restored from a backup, and its
    /// generations will come to mean something else than they did. All who follow it are to load everything, also those who look
    /// only when it has passed that point again.
    pub async fn disown(&self, point: &Point) -> Result<(), DbError> {
        let identity = match self.is_postgres() {
            true => "UPDATE control SET identity = replace(gen_random_uuid()::text, '-', '')",
            false => "UPDATE control SET identity = lower(hex(randomblob(16)))",
        };
        self.within(OPERATION, async {
            let mut lent = self.begin(self.writer(), Begin::Write).await?;
            let mut statement = Statement::new(identity);
            statement
                .and(" WHERE identity = ? AND generation < ?", [(&point.of).into(), point.generation.into()])
                .seldom(true);
            lent.run(&statement).await?;
            lent.script("COMMIT").await?;
            lent.keep();
            Ok(())
        })
        .await
    }

    async fn read_past(
        &self,
        after: u64,
        of: Option<&str>,
        with_deleted: bool,
        reader: &mut impl Reader,
    ) -> Result<Option<Point>, DbError> {
        let (mut lent, at) = self.within(OPERATION, self.begin_past(after, of)).await?;
        let mut statement = Statement::new("SELECT kind, domain, name, generation, document FROM records");
        if after > 0 {
            statement.and(" WHERE generation > ?", [after.into()]);
        }
        if !with_deleted {
            statement.and(if after > 0 { " AND " } else { " WHERE " }, []).and("document IS NOT NULL", []);
        }
        if after > 0 {
            statement.and(" ORDER BY generation", []);
        }
        reader.begin(&at);
        // Each row has its own deadline.
        let read = match after {
            0 if !self.is_postgres() => packed::read(&mut lent, with_deleted, reader).await,
            _ => lent.read(&statement, reader).await,
        };
        let read = read.map_err(|fault| fault.told(&self.0.place));
        if matches!(read, Err(DbError::Away(_))) {
            self.0.readers.forget_idle();
        }
        if !read? {
            // The connection is in the middle of an answer.
            return Ok(None);
        }
        self.within(OPERATION, async {
            lent.script("COMMIT").await?;
            lent.keep();
            Ok(())
        })
        .await?;
        Ok(Some(at))
    }

    /// A connection that sees one moment, and which moment that is.
    async fn begin_past(&self, after: u64, of: Option<&str>) -> Result<(Lent<'_>, Point), Fault> {
        let heard = *self.0.heard.borrow();
        let mut lent = self.begin(&self.0.readers, Begin::Read).await?;
        let (mut at, mut swept) = (Point::default(), 0);
        lent.each(&Statement::new("SELECT generation, swept, identity FROM control"), |row| {
            at = Point { of: row.text(2)?.to_owned(), generation: row.number(0)? };
            swept = row.number(1)?;
            Ok(())
        })
        .await?;
        self.0.unhear(heard, at.generation);
        let another = of.is_some_and(|of| of != at.of);
        let known = !another && (after == 0 || (swept..=at.generation).contains(&after));
        known.then_some((lent, at)).ok_or(Fault::TooOld)
    }
}

/// The record in a row; none of a kind that is not known here.
pub(crate) fn record(row: crate::statement::Row<'_>) -> Result<Option<Record<'_>>, Fault> {
    let Some(kind) = RecordKind::parse(row.text(0)?) else { return Ok(None) };
    let (domain, name) = (row.text(1)?.into(), row.text(2)?.into());
    Ok(Some(Record { kind, domain, name, generation: row.number(3)?, document: row.maybe(4)?.map(Into::into) }))
}
