//! Opening the database.

use std::path::Path;

use sqlx::ConnectOptions as _;

use crate::connection::{Connection, ConnectionOptions, OPERATION_TIMEOUT};
use crate::db::Db;
use crate::error::{DbError, Fault};
#[cfg(feature = "postgres")]
use crate::listen;
use crate::location::DbLocation;
use crate::model::FeedPosition;
use crate::packed;
use crate::pool::Pool;
use crate::schema::Schema;
use crate::sink::RecordSink;

/// Connections to PostgreSQL, apart from the one that listens.
pub const MAX_CONNECTIONS: usize = 8;
/// Connections that read an SQLite file, apart from the one that writes.
pub const MAX_READERS: usize = 4;

impl Db {
    /// Opens the database and migrates its tables. The SQLite file is created if it does not exist. An unavailable database is no
    /// error: its tables are migrated at the first connection.
    pub async fn open(location: DbLocation) -> Result<Db, DbError> {
        let db = Db::unconnected(location)?;
        match db.connect().await {
            Ok(()) | Err(DbError::Unavailable(_)) => Ok(db),
            Err(error) => Err(error),
        }
    }

    /// A handle on a database that is connected to when it is used.
    pub fn unconnected(location: DbLocation) -> Result<Db, DbError> {
        let (readers, writer) = match &location {
            DbLocation::File(path) => {
                (Pool::open_file(path, Schema::Control, MAX_READERS), Some(Pool::open_file(path, Schema::Control, 1)))
            }
            DbLocation::Postgres(url) => (Pool::open_postgres(url, MAX_CONNECTIONS)?, None),
        };
        Ok(Db::new(location, readers, writer))
    }

    /// Makes the first connection, which migrates the tables. Call it once and within a Tokio runtime, which then runs the task that
    /// listens to PostgreSQL until the last clone is dropped: also after an error, for the database may be available later.
    pub async fn connect(&self) -> Result<(), DbError> {
        let connected = self.connect_now().await;
        #[cfg(feature = "postgres")]
        if let DbLocation::Postgres(url) = self.location() {
            listen::start(url, self.downgrade())?;
        }
        connected
    }

    async fn connect_now(&self) -> Result<(), DbError> {
        self.with_timeout(OPERATION_TIMEOUT, async {
            self.writer().acquire(false).await?.release();
            Ok(())
        })
        .await?;
        // Writes from before the start are no news.
        let generation = self.generation().await?;
        self.announce(generation);
        Ok(())
    }

    /// Hands out all records of an SQLite file that can't be opened the usual way, because its disk is full or read-only. What was
    /// written last may be missing.
    pub async fn read_file_as_is(path: &Path, sink: &mut impl RecordSink) -> Result<FeedPosition, DbError> {
        let read = async {
            let mut connection = Connection::Sqlite(ConnectionOptions::file_as_is(path).connect().await?);
            let at = FeedPosition::read(&mut connection).await?.0;
            sink.begin(&at);
            packed::read(&mut connection, false, sink).await?;
            Ok::<_, Fault>(at)
        };
        read.await.map_err(|fault| fault.into_error(&DbLocation::File(path.to_owned())))
    }
}

#[cfg(all(test, not(feature = "postgres")))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_the_feature_postgres_a_url_is_an_error_with_a_remedy() {
        let location = DbLocation::Postgres("postgres://ann:s3cret@127.0.0.1/d".to_owned());
        let error = Db::open(location).await.unwrap_err().to_string();
        assert!(error.contains("name an SQLite file") && !error.contains("s3cret"), "{error}");
    }
}
