//! Opening the database.

use crate::connection::OPERATION_TIMEOUT;
use crate::db::Db;
use crate::error::DbError;
#[cfg(feature = "postgres")]
use crate::listen;
use crate::location::DbLocation;
use crate::pool::Pool;

/// Connections to PostgreSQL, apart from the one that listens.
pub const MAX_CONNECTIONS: usize = 8;
/// Connections that read an SQLite file, apart from the one that writes.
pub const MAX_READERS: usize = 4;

impl Db {
    /// Opens the database and migrates its tables. The SQLite file is created if it does not exist. An unavailable PostgreSQL is no
    /// error: its tables are migrated at the first connection. Call it within a Tokio runtime, which then runs the task that listens
    /// to PostgreSQL until the last clone is dropped.
    pub async fn open(location: DbLocation) -> Result<Db, DbError> {
        let (readers, writer) = match &location {
            DbLocation::File(path) => (Pool::open_file(path, MAX_READERS)?, Some(Pool::open_file(path, 1)?)),
            DbLocation::Postgres(url) => (Pool::open_postgres(url, MAX_CONNECTIONS)?, None),
        };
        let db = Db::new(location, readers, writer);
        match (db.connect().await, db.location()) {
            (Ok(()), _) | (Err(DbError::Unavailable(_)), DbLocation::Postgres(_)) => {}
            (Err(error), _) => return Err(error),
        }
        #[cfg(feature = "postgres")]
        if let DbLocation::Postgres(url) = db.location() {
            listen::start(url, db.downgrade())?;
        }
        Ok(db)
    }

    /// Makes the first connection, which migrates the tables.
    async fn connect(&self) -> Result<(), DbError> {
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
