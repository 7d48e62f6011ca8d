//! A fresh database for a test, and short ways to write to it.

use sqlx::{AssertSqlSafe, ConnectOptions, Row};
use tempfile::TempDir;
use tollgate_control::{Change, Db, Expect, Name, Place, Stored, Write, WriteError, Written};
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

    pub(crate) fn place(&self) -> Place {
        match self {
            World::Sqlite(directory) => Place::File(directory.path().join("control.db")),
            World::Postgres(database) => Place::Postgres(database.url().to_owned()),
        }
    }

    pub(crate) async fn open(&self) -> Db {
        Db::open(self.place()).await.unwrap()
    }

    /// What somebody else may ask the database: the first column, a row on each line.
    pub(crate) async fn ask(&self, sql: &str) -> Result<String, String> {
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
                tokio::task::spawn_blocking(move || database.try_ask(&sql)).await.unwrap()
            }
        }
    }
}

/// A quota's name.
pub(crate) fn quota(name: &str) -> Name {
    Name::new(RecordKind::Quota, "shop", name)
}

/// A change that puts a document.
pub(crate) fn put(name: &Name, expect: Expect, document: &str) -> Change {
    let document = Some(document.to_owned());
    Change { name: name.clone(), expect, document, action: "quota.put".to_owned(), reason: "asked".to_owned() }
}

/// A change that deletes.
pub(crate) fn delete(name: &Name, expect: Expect) -> Change {
    Change { document: None, action: "quota.delete".to_owned(), ..put(name, expect, "") }
}

/// A write of these changes, at the start.
pub(crate) fn write(changes: Vec<Change>) -> Write {
    Write { by: "ann".to_owned(), from: "10.0.0.7".to_owned(), at: START, once: None, since: None, changes }
}

/// A document with a number in it.
pub(crate) fn numbered(n: u64) -> String {
    format!("{{\"n\":{n}}}")
}

/// The generation of a write that was written now.
pub(crate) async fn written(db: &Db, changes: Vec<Change>) -> u64 {
    generation(db.write(&write(changes)).await)
}

/// The same of a write that was made elsewhere.
#[track_caller]
pub(crate) fn generation(written: Result<Written, WriteError>) -> u64 {
    match written {
        Ok(Written::Now { generation, .. }) => generation,
        other => panic!("{other:?}"),
    }
}

/// The document of a record that is there.
pub(crate) fn document(stored: Option<Stored>) -> String {
    stored.unwrap().document.unwrap()
}
