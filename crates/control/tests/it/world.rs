//! A fresh database for a test, and helpers to write to it.

use sqlx::{AssertSqlSafe, ConnectOptions, Row};
use tempfile::TempDir;
use tollgate_control::{
    Change, Db, DbLocation, Precondition, RecordName, StoredRecord, WriteBatch, WriteError, WriteOutcome,
};
use tollgate_core::Timestamp;
use tollgate_records::RecordKind;
use tollgate_testing::Postgres;
use tollgate_testing::postgres::Database;

/// The moment at which tests begin: 2026-01-01.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_767_225_600);

pub(crate) enum World {
    Sqlite(TempDir),
    Postgres(Database),
}

impl World {
    pub(crate) fn sqlite() -> World {
        World::Sqlite(TempDir::new().unwrap())
    }

    pub(crate) fn postgres() -> World {
        World::Postgres(Postgres::database())
    }

    pub(crate) fn location(&self) -> DbLocation {
        match self {
            World::Sqlite(directory) => DbLocation::File(directory.path().join("control.db")),
            World::Postgres(database) => DbLocation::Postgres(database.url().to_owned()),
        }
    }

    pub(crate) async fn open(&self) -> Db {
        Db::open(self.location()).await.unwrap()
    }

    /// Runs a statement on a connection of its own: the first column, a row on each line.
    pub(crate) async fn query(&self, sql: &str) -> Result<String, String> {
        match self {
            World::Sqlite(directory) => {
                let options = sqlx::sqlite::SqliteConnectOptions::new().filename(directory.path().join("control.db"));
                let mut connection = options.connect().await.unwrap();
                let rows = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(&mut connection).await;
                let rows = rows.map_err(|error| error.to_string())?;
                let lines: Vec<String> = rows.iter().map(|row| row.get_unchecked(0)).collect();
                Ok(lines.join("\n"))
            }
            World::Postgres(database) => {
                let (database, sql) = (database.clone(), sql.to_owned());
                tokio::task::spawn_blocking(move || database.try_query(&sql)).await.unwrap()
            }
        }
    }
}

/// The name of a quota.
pub(crate) fn quota(name: &str) -> RecordName {
    RecordName::new(RecordKind::Quota, "shop", name)
}

/// A change that puts a document.
pub(crate) fn put(name: &RecordName, expect: Precondition, document: &str) -> Change {
    let document = Some(document.to_owned());
    Change { name: name.clone(), expect, document, action: "quota.put".to_owned(), reason: "a request".to_owned() }
}

/// A change that deletes.
pub(crate) fn delete(name: &RecordName, expect: Precondition) -> Change {
    Change { document: None, action: "quota.delete".to_owned(), ..put(name, expect, "") }
}

/// A write of these changes, at [`START`].
pub(crate) fn write(changes: Vec<Change>) -> WriteBatch {
    let (by, from) = ("ann".to_owned(), "10.0.0.7".to_owned());
    WriteBatch { by, from, at: START, once: None, since: None, known: None, is_note: false, changes }
}

/// A document with a number in it.
pub(crate) fn numbered(n: u64) -> String {
    format!("{{\"n\":{n}}}")
}

/// Writes changes, and returns their generation.
pub(crate) async fn commit(db: &Db, changes: Vec<Change>) -> u64 {
    generation(db.write(&write(changes)).await)
}

/// The generation of a write that is committed now.
#[track_caller]
pub(crate) fn generation(outcome: Result<WriteOutcome, WriteError>) -> u64 {
    match outcome {
        Ok(WriteOutcome::Committed { generation, .. }) => generation,
        other => panic!("{other:?}"),
    }
}

/// The document of a record that exists.
pub(crate) fn document(stored: Option<StoredRecord>) -> String {
    stored.unwrap().document.unwrap()
}
