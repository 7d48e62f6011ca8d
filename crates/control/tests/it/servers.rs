//! The servers' reports, and their secret.

use tollgate_control::{Db, DbError, MAX_SERVER_BYTES, Precondition};
use tollgate_core::Span;

use crate::world::{World, commit, document, put, quota};

async fn reports(db: &Db) -> Vec<(String, String)> {
    db.servers().await.unwrap().into_iter().map(|row| (row.id, row.document)).collect()
}

fn row(id: &str, document: &str) -> (String, String) {
    (id.to_owned(), document.to_owned())
}

pub(crate) async fn reports_are_read_by_other_servers(world: World) {
    let (one, other) = (world.open().await, world.open().await);
    assert!(reports(&one).await.is_empty());
    one.put_server("a", "{\"n\":1}").await.unwrap();
    other.put_server("b", "it's ? and ünï").await.unwrap();
    assert_eq!(reports(&one).await, [row("a", "{\"n\":1}"), row("b", "it's ? and ünï")]);
    one.put_server("a", "{\"n\":2}").await.unwrap();
    assert_eq!(reports(&other).await, [row("a", "{\"n\":2}"), row("b", "it's ? and ünï")]);
    let rows = other.servers().await.unwrap();
    assert!(rows.iter().all(|row| row.age < Span::from_secs(30)), "{rows:?}");
    one.remove_server("a").await.unwrap();
    assert_eq!(reports(&other).await, [row("b", "it's ? and ünï")]);
    // A report has no generation: followers don't see it.
    assert_eq!(one.generation().await, Ok(0));
}

pub(crate) async fn old_reports_expire(world: World) {
    let db = world.open().await;
    db.put_server("a", "old").await.unwrap();
    db.put_server("b", "new").await.unwrap();
    world.query("UPDATE servers SET at = at - 59000000 WHERE id = 'a'").await.unwrap();
    assert_eq!(reports(&db).await.len(), 2);
    world.query("UPDATE servers SET at = at - 2000000 WHERE id = 'a'").await.unwrap();
    assert_eq!(reports(&db).await, [row("b", "new")]);
    assert_eq!(world.query("SELECT 'rows: ' || count(*) FROM servers").await.unwrap(), "rows: 2");
    db.put_server("b", "newer").await.unwrap();
    assert_eq!(world.query("SELECT 'rows: ' || count(*) FROM servers").await.unwrap(), "rows: 1");
}

pub(crate) async fn servers_share_one_secret(world: World) {
    let (one, other) = (world.open().await, world.open().await);
    let secret = one.secret().await.unwrap();
    assert_eq!(secret.len(), 32, "{secret}");
    assert_eq!(other.secret().await.unwrap(), secret);
    assert_ne!(one.identity().await.unwrap(), secret);
}

pub(crate) async fn reports_are_bounded(world: World) {
    let db = world.open().await;
    db.put_server("a", &"x".repeat(MAX_SERVER_BYTES)).await.unwrap();
    let refused = db.put_server("a", &"x".repeat(MAX_SERVER_BYTES + 1)).await.unwrap_err();
    assert!(matches!(refused, DbError::Invalid(_)), "{refused:?}");
    assert!(matches!(db.put_server("a", "\0").await, Err(DbError::Invalid(_))));
}

pub(crate) async fn tables_of_version_1_are_migrated(world: World) {
    let db = world.open().await;
    commit(&db, vec![put(&quota("a"), Precondition::Absent, "{\"n\":1}")]).await;
    // The tables as version 1 made them.
    world.query("DROP TABLE decisions").await.unwrap();
    world.query("DROP TABLE servers").await.unwrap();
    world.query("ALTER TABLE control DROP COLUMN secret").await.unwrap();
    world.query("DELETE FROM tollgate_schema WHERE version > 1").await.unwrap();
    drop(db);
    let db = world.open().await;
    db.put_server("a", "here").await.unwrap();
    assert_eq!(db.secret().await.unwrap().len(), 32);
    assert_eq!(document(db.get(&quota("a")).await.unwrap()), "{\"n\":1}");
}
