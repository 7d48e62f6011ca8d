//! Reading the records that changed, for followers.

use tollgate_records::Record;

use crate::connection::{Connection, OPERATION_TIMEOUT};
use crate::db::{Db, TransactionKind};
use crate::error::{DbError, Fault};
use crate::model::FeedPosition;
use crate::packed;
use crate::pool::PooledConnection;
use crate::sink::{ForEach, RECORD_COLUMNS, RecordSink};
use crate::statement::Statement;

impl Db {
    /// A random text that distinguishes the generations of this database from those of others. It changes when a follower finds that
    /// the database was restored from a backup ([`Db::renew_identity`]).
    pub async fn identity(&self) -> Result<String, DbError> {
        let mut identity = String::new();
        self.select(&Statement::new("SELECT identity FROM control"), |row| {
            identity = row.text(0)?.to_owned();
            Ok(())
        })
        .await?;
        Ok(identity)
    }

    /// The position of the last write.
    pub async fn position(&self) -> Result<FeedPosition, DbError> {
        let mut position = FeedPosition::default();
        self.select(&Statement::new("SELECT generation, identity FROM control"), |row| {
            position = FeedPosition { generation: row.number(0)?, identity: row.text(1)?.to_owned() };
            Ok(())
        })
        .await?;
        Ok(position)
    }

    /// Hands out the records that were written past a generation, as they are at one moment, and returns the generation of that
    /// moment. They come in the order of generations; all of them (`after` is 0) come in any order. Records of kinds that only a
    /// newer Tollgate knows are left out.
    ///
    /// [`DbError::TooOld`]: deletions past `after` may have been swept, or this database has never reached `after`. Then read all
    /// records (`after` is 0): a record that is not among them does not exist.
    pub async fn for_each_since(
        &self,
        after: u64,
        with_deleted: bool,
        each: impl FnMut(Record<'_>) + Send,
    ) -> Result<u64, DbError> {
        let read = self.read_past(after, None, with_deleted, &mut ForEach::new(each)).await?;
        Ok(read.map_or(after, |at| at.generation))
    }

    /// The same for a sink that may need time, and for a position in one database: in another database it is [`DbError::TooOld`].
    /// Without a position all records are read. `None` if the sink ended the read.
    pub async fn read_since(
        &self,
        position: Option<&FeedPosition>,
        with_deleted: bool,
        sink: &mut impl RecordSink,
    ) -> Result<Option<FeedPosition>, DbError> {
        let (after, identity) = position.map_or((0, None), |past| (past.generation, Some(&*past.identity)));
        self.read_past(after, identity, with_deleted, sink).await
    }

    /// Gives the database a new identity, if it is behind a position that it had reached. It was restored from a backup then, and its
    /// generations will stand for other writes than before. All followers have to load everything, also those that look only when it
    /// has passed that position again.
    pub async fn renew_identity(&self, position: &FeedPosition) -> Result<(), DbError> {
        let identity = match self.is_postgres() {
            true => "UPDATE control SET identity = replace(gen_random_uuid()::text, '-', '')",
            false => "UPDATE control SET identity = lower(hex(randomblob(16)))",
        };
        self.with_timeout(OPERATION_TIMEOUT, async {
            let mut connection = self.begin(self.writer(), TransactionKind::Write).await?;
            let mut statement = Statement::new(identity);
            statement
                .push(
                    " WHERE identity = ? AND generation < ?",
                    [(&position.identity).into(), position.generation.into()],
                )
                .set_cached(false);
            connection.run(&statement).await?;
            connection.script("COMMIT").await?;
            connection.release();
            Ok(())
        })
        .await
    }

    async fn read_past(
        &self,
        after: u64,
        identity: Option<&str>,
        with_deleted: bool,
        sink: &mut impl RecordSink,
    ) -> Result<Option<FeedPosition>, DbError> {
        let (mut connection, at) = self.with_timeout(OPERATION_TIMEOUT, self.begin_past(after, identity)).await?;
        let mut statement = Statement::new("SELECT ");
        statement.push(RECORD_COLUMNS, []).push(" FROM records", []);
        if after > 0 {
            statement.push(" WHERE generation > ?", [after.into()]);
        }
        if !with_deleted {
            statement.push(if after > 0 { " AND " } else { " WHERE " }, []).push("document IS NOT NULL", []);
        }
        if after > 0 {
            statement.push(" ORDER BY generation", []);
        }
        sink.begin(&at);
        // Each row has its own deadline.
        let read = match after {
            0 if !self.is_postgres() => packed::read(&mut connection, with_deleted, sink).await,
            _ => connection.read(&statement, sink).await,
        };
        let read = read.map_err(|fault| fault.into_error(self.location()));
        if matches!(read, Err(DbError::Unavailable(_))) {
            self.readers().close_idle();
        }
        if !read? {
            // The connection is in the middle of a response, so it is not released.
            return Ok(None);
        }
        self.with_timeout(OPERATION_TIMEOUT, async {
            connection.script("COMMIT").await?;
            connection.release();
            Ok(())
        })
        .await?;
        Ok(Some(at))
    }

    /// A connection that sees one moment, and the position of that moment.
    async fn begin_past(
        &self,
        after: u64,
        identity: Option<&str>,
    ) -> Result<(PooledConnection<'_>, FeedPosition), Fault> {
        let announced = self.latest_announced();
        let mut connection = self.begin(self.readers(), TransactionKind::Read).await?;
        let (at, swept) = FeedPosition::read(&mut connection).await?;
        self.retract(announced, at.generation);
        let is_other = identity.is_some_and(|identity| identity != at.identity);
        let is_known = !is_other && (after == 0 || (swept..=at.generation).contains(&after));
        is_known.then_some((connection, at)).ok_or(Fault::TooOld)
    }
}

impl FeedPosition {
    /// The position of the last write, and the highest generation among the deleted records that are forgotten.
    pub(crate) async fn read(connection: &mut Connection) -> Result<(FeedPosition, u64), Fault> {
        let (mut at, mut swept) = (FeedPosition::default(), 0);
        connection
            .each(&Statement::new("SELECT generation, swept, identity FROM control"), |row| {
                at = FeedPosition { identity: row.text(2)?.to_owned(), generation: row.number(0)? };
                swept = row.number(1)?;
                Ok(())
            })
            .await?;
        Ok((at, swept))
    }
}
