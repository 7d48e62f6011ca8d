//! What servers tell each other, and what only they know.

use tollgate_control::{Db, DbError, Expect, LONGEST_SERVER};
use tollgate_core::Span;

use crate::world::{World, document, put, quota, written};

async fn told(db: &Db) -> Vec<(String, String)> {
    db.servers().await.unwrap().into_iter().map(|row| (row.id, row.document)).collect()
}

fn row(id: &str, document: &str) -> (String, String) {
    (id.to_owned(), document.to_owned())
}

pub(crate) async fn what_servers_tell_is_read(world: World) {
    let (one, other) = (world.open().await, world.open().await);
    assert!(told(&one).await.is_empty());
    one.tell("a", "{\"n\":1}").await.unwrap();
    other.tell("b", "it's ? and ünï").await.unwrap();
    assert_eq!(told(&one).await, [row("a", "{\"n\":1}"), row("b", "it's ? and ünï")]);
    one.tell("a", "{\"n\":2}").await.unwrap();
    assert_eq!(told(&other).await, [row("a", "{\"n\":2}"), row("b", "it's ? and ünï")]);
    let rows = other.servers().await.unwrap();
    assert!(rows.iter().all(|row| row.age < Span::from_secs(30)), "{rows:?}");
    one.leave("a").await.unwrap();
    assert_eq!(told(&other).await, [row("b", "it's ? and ünï")]);
    // It is no write: nobody who follows hears of it.
    assert_eq!(one.generation().await, Ok(0));
}

pub(crate) async fn what_is_old_is_not_told(world: World) {
    let db = world.open().await;
    db.tell("a", "old").await.unwrap();
    db.tell("b", "new").await.unwrap();
    world.ask("UPDATE servers SET at = at - 59000000 WHERE id = 'a'").await.unwrap();
    assert_eq!(told(&db).await.len(), 2);
    world.ask("UPDATE servers SET at = at - 2000000 WHERE id = 'a'").await.unwrap();
    assert_eq!(told(&db).await, [row("b", "new")]);
    assert_eq!(world.ask("SELECT 'rows: ' || count(*) FROM servers").await.unwrap(), "rows: 2");
    db.tell("b", "newer").await.unwrap();
    assert_eq!(world.ask("SELECT 'rows: ' || count(*) FROM servers").await.unwrap(), "rows: 1");
}

pub(crate) async fn all_know_one_secret(world: World) {
    let (one, other) = (world.open().await, world.open().await);
    let secret = one.secret().await.unwrap();
    assert_eq!(secret.len(), 32, "{secret}");
    assert_eq!(other.secret().await.unwrap(), secret);
    assert_ne!(one.identity().await.unwrap(), secret);
}

pub(crate) async fn what_a_server_tells_is_bounded(world: World) {
    let db = world.open().await;
    db.tell("a", &"x".repeat(LONGEST_SERVER)).await.unwrap();
    let refused = db.tell("a", &"x".repeat(LONGEST_SERVER + 1)).await.unwrap_err();
    assert!(matches!(refused, DbError::Invalid(_)), "{refused:?}");
    assert!(matches!(db.tell("a", "\0").await, Err(DbError::Invalid(_))));
}

pub(crate) async fn tables_of_before_are_brought_up_to_date(world: World) {
    let db = world.open().await;
    written(&db, vec![put(&quota("a"), Expect::Absent, "{\"n\":1}")]).await;
    // As they were before servers told anything.
    world.ask("DROP TABLE decisions").await.unwrap();
    world.ask("DROP TABLE servers").await.unwrap();
    world.ask("ALTER TABLE control DROP COLUMN secret").await.unwrap();
    world.ask("DELETE FROM tollgate_schema WHERE version > 1").await.unwrap();
    drop(db);
    let db = world.open().await;
    db.tell("a", "here").await.unwrap();
    assert_eq!(db.secret().await.unwrap().len(), 32);
    assert_eq!(document(db.get(&quota("a")).await.unwrap()), "{\"n\":1}");
}
