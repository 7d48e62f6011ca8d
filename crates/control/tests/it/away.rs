//! A database that goes away and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate_control::{
    AuditFilter, Db, DbError, Expect, Filter, KEEP_ONCE, MOST_CONNECTIONS, OPERATION, Once, Place, Write, WriteError,
    Written,
};
use tollgate_records::RecordKind;
use tollgate_testing::{Postgres, Relay};

use crate::world::{START, World, generation, numbered, put, quota, write, written};

/// More than any operation may take, and some for a busy machine.
const BOUND: Duration = OPERATION.saturating_add(Duration::from_secs(15));

/// A connection that listens is found dead after two pauses, and made anew at one of the first tries even on a busy machine. Nobody
/// waits for so long where all is well.
const HEARD: Duration = Duration::from_secs(120);

fn url(port: u16) -> Place {
    Place::Postgres(format!("postgres://postgres:s3cret@127.0.0.1:{port}/postgres"))
}

/// What blocks, away from the runtime's own threads.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Each operation at once; each must be answered in time.
async fn ask_everything(db: &Db, name: &str) -> Vec<Result<(), String>> {
    let change = write(vec![put(&quota(name), Expect::Absent, "{}")]);
    let (filter, log) = (Filter::of(RecordKind::Quota), AuditFilter::default());
    let name = quota("a");
    fn told<T>(answer: Result<T, DbError>) -> Result<(), String> {
        match answer {
            Ok(_) => Ok(()),
            Err(DbError::Away(what)) => Err(what),
            Err(other) => panic!("{other:?}"),
        }
    }
    let all = async {
        let all = tokio::join!(
            async { told(db.generation().await) },
            async { told(db.get(&name).await) },
            async { told(db.list(&filter, None, 10).await) },
            async { told(db.count(&filter).await) },
            async { told(db.each_since(0, true, |_| ()).await) },
            async { told(db.audit(&log, 0, 10).await) },
            async { told(db.sweep(START.before(KEEP_ONCE)).await) },
            async {
                match db.write(&change).await {
                    Ok(_) => Ok(()),
                    Err(WriteError::Away(what)) => Err(what),
                    Err(other) => panic!("{other:?}"),
                }
            },
        );
        vec![all.0, all.1, all.2, all.3, all.4, all.5, all.6, all.7]
    };
    tokio::time::timeout(BOUND, all).await.expect("an answer in time")
}

#[track_caller]
fn all_away(answers: &[Result<(), String>]) {
    for answer in answers {
        let what = answer.as_ref().unwrap_err();
        assert!(what.contains("postgres://127.0.0.1:") && !what.contains("s3cret"), "{what}");
    }
}

async fn all_back(db: &Db, name: &str) {
    let answers = ask_everything(db, name).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

/// A machine that is busy may be late with new connections.
async fn all_back_at_last(db: &Db, name: &str) {
    let answered = async {
        for n in 0.. {
            if ask_everything(db, &format!("{name}-{n}")).await.iter().all(Result::is_ok) {
                break;
            }
        }
    };
    tokio::time::timeout(HEARD, answered).await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_postgres_is_killed() {
    let mut postgres = aside(Postgres::start).await;
    let db = Db::open(Place::Postgres(postgres.url())).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..6)
        .map(|writer| {
            let (db, over) = (db.clone(), over.clone());
            tokio::spawn(async move {
                let (mut acknowledged, mut failed) = (Vec::new(), Vec::new());
                for n in 0.. {
                    if over.load(Ordering::SeqCst) {
                        break;
                    }
                    let name = quota(&format!("{writer}-{n}"));
                    match db.write(&write(vec![put(&name, Expect::Absent, &numbered(n))])).await {
                        Ok(Written::Now { generation, .. }) => acknowledged.push((name, generation)),
                        Err(WriteError::Away(what)) => {
                            failed.push((name, what));
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                        other => panic!("{other:?}"),
                    }
                }
                (acknowledged, failed)
            })
        })
        .collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        postgres = aside(move || {
            postgres.kill();
            postgres
        })
        .await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        postgres = aside(move || {
            postgres.restart();
            postgres
        })
        .await;
        // Written again, by connections that were there before the end.
        let before = db.generation().await.unwrap();
        while db.generation().await.unwrap() < before + 10 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    over.store(true, Ordering::SeqCst);
    let (mut kept, mut unknown) = (0, 0);
    for writer in writers {
        let (acknowledged, failed) = writer.await.unwrap();
        for (name, generation) in acknowledged {
            let stored = db.get(&name).await.unwrap().unwrap_or_else(|| panic!("{name} is lost"));
            assert_eq!(stored.generation, generation);
            kept += 1;
        }
        for (name, what) in failed {
            if what.contains("whether it was written is not known") {
                unknown += u64::from(db.get(&name).await.unwrap().is_some());
            } else {
                assert_eq!(db.get(&name).await, Ok(None), "{what}");
            }
        }
    }
    assert!(kept > 60, "{kept}");
    // No generation is without its record.
    assert_eq!(db.count(&Filter::of(RecordKind::Quota)).await, Ok(kept + unknown));
    assert_eq!(db.generation().await, Ok(kept + unknown));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_frozen_postgres_is_away_in_bounded_time_and_comes_back() {
    let mut postgres = aside(Postgres::start).await;
    let db = Db::open(url(postgres.port())).await.unwrap();
    all_back(&db, "a").await;
    // More than is on its way at any time.
    const MUCH: &str = "INSERT INTO records SELECT 'block', 'shop', n::text, 1, '{\"much\":\"' || repeat('x', 10000) || '\"}', \
                        1, 1, 'ann', '' FROM generate_series(1, 3000) n";
    postgres = aside(move || {
        postgres.ask(MUCH);
        postgres
    })
    .await;
    let mut seen = 0;
    let frozen = db.each_since(0, true, |_| {
        seen += 1;
        if seen == 2 {
            postgres.freeze();
        }
    });
    let frozen = tokio::time::timeout(BOUND, frozen).await.expect("an answer in time");
    assert!(matches!(frozen, Err(DbError::Away(_))), "{frozen:?}");
    assert!((2..3_000).contains(&seen), "{seen}");
    all_away(&ask_everything(&db, "b").await);
    // Also who has never met it.
    let met = tokio::time::timeout(BOUND, Db::open(url(postgres.port()))).await.expect("in time").unwrap();
    postgres.thaw();
    all_back(&db, "c").await;
    all_back(&met, "d").await;
    // What was away was not written after all.
    assert_eq!(db.get(&quota("b")).await, Ok(None));
    assert_eq!(db.generation().await, Ok(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_connections_that_died_without_a_word_are_replaced() {
    let postgres = Postgres::database();
    let relay = Relay::to(postgres.port());
    let place = postgres.url().replace(&postgres.port().to_string(), &relay.port().to_string());
    let db = Db::open(Place::Postgres(place)).await.unwrap();
    let other = Db::open(Place::Postgres(postgres.url().to_owned())).await.unwrap();
    // Several connections lie idle.
    all_back_at_last(&db, "a").await;
    // One listens: this was heard on it, or asked for by who had just begun to listen.
    let generation = written(&other, vec![put(&quota("b"), Expect::Absent, "{}")]).await;
    assert_eq!(tokio::time::timeout(HEARD, db.changed(generation - 1)).await, Ok(generation));
    relay.forget();
    let first = tokio::time::timeout(HEARD, db.generation()).await.expect("an answer");
    assert!(matches!(first, Err(DbError::Away(_))), "{first:?}");
    // Nobody else uses what lay idle: but for the first, only who listens finds out by itself.
    for round in ["c", "d", "e", "f"] {
        all_back_at_last(&db, round).await;
    }
    let generation = written(&other, vec![put(&quota("g"), Expect::Absent, "{}")]).await;
    assert_eq!(tokio::time::timeout(HEARD, db.changed(generation - 1)).await, Ok(generation));
    assert_eq!(relay.asked_in_vain(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_end_is_not_known_can_be_sent_again() {
    let postgres = Postgres::database();
    let relay = Relay::to(postgres.port());
    let place = postgres.url().replace(&postgres.port().to_string(), &relay.port().to_string());
    let db = Db::open(Place::Postgres(place)).await.unwrap();
    let once = Once { key: "k".to_owned(), digest: "d".to_owned(), answer: "done".to_owned() };
    let write = Write { once: Some(once), ..write(vec![put(&quota("a"), Expect::Absent, "{}")]) };
    // Not the one that begins, which has the word in it too.
    relay.lose_reply_to(b"COMMIT\0");
    match db.write(&write).await {
        Err(WriteError::Away(what)) => assert!(what.contains("whether it was written is not known"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(relay.replies_lost(), 1);
    assert_eq!(db.write(&write).await, Ok(Written::Before { generation: 1, answer: "done".to_owned() }));
    // One that fails earlier says nothing of the kind.
    relay.lose_reply_to(b"INSERT INTO records");
    match db.write(&Write { once: None, ..crate::world::write(vec![put(&quota("b"), Expect::Absent, "{}")]) }).await {
        Err(WriteError::Away(what)) => assert!(!what.contains("not known"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(db.get(&quota("b")).await, Ok(None));
    // A connection that broke while it lay idle fails nobody.
    relay.cut();
    assert_eq!(generation(db.write(&crate::world::write(vec![put(&quota("b"), Expect::Absent, "{}")])).await), 2);
    relay.cut();
    assert_eq!(db.generation().await, Ok(2));
    relay.cut();
    assert_eq!(db.each_since(1, true, |_| ()).await, Ok(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_away_at_the_start_is_met_later() {
    let mut postgres = aside(Postgres::start).await;
    postgres = aside(move || {
        postgres.kill();
        postgres
    })
    .await;
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Db::open(url(postgres.port())).await.unwrap());
    }
    all_away(&ask_everything(&servers[0], "a").await);
    let heard = tokio::spawn({
        let db = servers[0].clone();
        async move { db.changed(0).await }
    });
    postgres = aside(move || {
        postgres.restart();
        postgres
    })
    .await;
    // All three make the tables at once.
    let writing: Vec<_> = (0..12)
        .map(|n| {
            let db = servers[n % 3].clone();
            tokio::spawn(async move { written(&db, vec![put(&quota(&n.to_string()), Expect::Absent, "{}")]).await })
        })
        .collect();
    for written in writing {
        written.await.unwrap();
    }
    assert_eq!(servers[0].generation().await, Ok(12));
    assert!(tokio::time::timeout(HEARD, heard).await.expect("it is heard of").unwrap() > 0);
    let (steps, _postgres) = aside(move || (postgres.ask("SELECT count(*) FROM tollgate_schema"), postgres)).await;
    assert_eq!(steps, "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_that_are_cut_come_back() {
    let postgres = Postgres::database();
    let place = || Place::Postgres(postgres.url().to_owned());
    let (db, other) = (Db::open(place()).await.unwrap(), Db::open(place()).await.unwrap());
    for round in 1..=3 {
        // Once it listens, and others too.
        let listening =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
        let (asked, database) = (listening.to_owned(), postgres.clone());
        aside(move || tollgate_testing::eventually(|| (database.ask(&asked) == "2").then_some(()))).await.unwrap();
        let (cut, database) = (listening.replace("count(*)", "count(pg_terminate_backend(pid))"), postgres.clone());
        assert_eq!(aside(move || database.ask(&cut)).await, "2");
        // By who does not hear it from itself.
        let generation = written(&other, vec![put(&quota("a"), Expect::Anything, &numbered(round))]).await;
        let heard = tokio::time::timeout(HEARD, db.changed(generation - 1)).await;
        assert_eq!(heard, Ok(generation));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_bounded() {
    let postgres = Postgres::database();
    let db = Db::open(Place::Postgres(postgres.url().to_owned())).await.unwrap();
    let writers: Vec<_> = (0..50)
        .map(|n| {
            let db = db.clone();
            tokio::spawn(async move {
                for m in 0..4 {
                    written(&db, vec![put(&quota(&format!("{n}-{m}")), Expect::Absent, "{}")]).await;
                    db.generation().await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let count: usize = aside(move || postgres.ask(sql)).await.parse().unwrap();
    assert!((2..=MOST_CONNECTIONS + 1).contains(&count), "{count}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_can_mend_by_waiting_is_refused_at_the_start() {
    let postgres = Postgres::database();
    let nowhere = format!("postgres://postgres:s3cret@127.0.0.1:{}/nowhere", postgres.port());
    let refused = Db::open(Place::Postgres(nowhere)).await.unwrap_err();
    assert!(matches!(&refused, DbError::Refused(what) if what.contains("\"nowhere\" does not exist")), "{refused:?}");
    for odd in ["mysql://a:s3cret@h/d", "postgres://a:s3cret@h:port/d", "s3cret", ""] {
        let refused = Db::open(Place::Postgres(odd.to_owned())).await.unwrap_err();
        assert!(matches!(&refused, DbError::Invalid(what) if !what.contains("s3cret")), "{odd}: {refused:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    let refused = Db::open(Place::File(directory.path().to_owned())).await.unwrap_err();
    assert!(matches!(&refused, DbError::Refused(_)), "{refused:?}");
    let other = directory.path().join("letter.txt");
    std::fs::write(&other, "Dear Sir or Madam, ".repeat(1_000)).unwrap();
    let refused = Db::open(Place::File(other)).await.unwrap_err();
    assert!(matches!(&refused, DbError::Refused(what) if what.contains("not a database")), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_spoken_and_strangers_are_refused() {
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let stranger = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());
    let directory = tempfile::tempdir().unwrap();
    let roots = [("own.pem", own.cert.pem()), ("stranger.pem", stranger.cert.pem())].map(|(name, pem)| {
        let file = directory.path().join(name);
        std::fs::write(&file, pem).unwrap();
        file.display().to_string()
    });
    let postgres = aside(move || Postgres::start_tls(&certificate, &key)).await;
    let place = |root: &str| Place::Postgres(format!("{}?sslmode=verify-full&sslrootcert={root}", postgres.url()));
    let db = Db::open(place(&roots[0])).await.unwrap();
    written(&db, vec![put(&quota("a"), Expect::Absent, "{}")]).await;
    let refused = Db::open(place(&roots[1])).await.unwrap_err();
    assert!(matches!(&refused, DbError::Refused(what) if what.contains("certificate")), "{refused:?}");
    // Every connection is encrypted, the listening one included. The pool may have more than one: the listener reads the
    // generation through it.
    written(&db, vec![put(&quota("a"), Expect::Present, "{}")]).await;
    const ENCRYPTED: &str = "SELECT count(*) FILTER (WHERE NOT ssl), \
                             count(*) FILTER (WHERE query LIKE 'LISTEN%' OR query = 'SELECT 1') FROM pg_stat_ssl \
                             JOIN pg_stat_activity USING (pid) WHERE application_name = 'tollgate'";
    aside(move || tollgate_testing::until("encrypted connections", || postgres.ask(ENCRYPTED) == "0|1")).await;
}

#[tokio::test]
async fn the_password_is_never_told() {
    let place = Place::Postgres("postgres://ann:s3cret@127.0.0.1:1/d?password=s3cret".to_owned());
    let db = Db::open(place.clone()).await.unwrap();
    let told = format!("{place:?} {place} {db:?} {:?} {:#?}", db.generation().await, db);
    assert!(told.contains("postgres://127.0.0.1:1/d") && !told.contains("s3cret"), "{told}");
}

#[tokio::test]
async fn the_file_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::sqlite();
    let db = world.open().await;
    written(&db, vec![put(&quota("a"), Expect::Absent, "{}")]).await;
    let World::Sqlite(directory) = &world else { panic!() };
    let files: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap).collect();
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
}

/// Another server that stopped in the middle of a write: nobody writes until it is over, but all read.
pub(crate) async fn slow_a_lock_that_is_held_is_away_and_readers_go_on(world: World) {
    use sqlx::{ConnectOptions, Connection, Executor};
    let db = world.open().await;
    written(&db, vec![put(&quota("a"), Expect::Absent, "{}")]).await;
    let writing = async || {
        let change = write(vec![put(&quota("b"), Expect::Absent, "{}")]);
        tokio::time::timeout(BOUND, db.write(&change)).await.expect("in time")
    };
    let reading = async || {
        assert_eq!(db.generation().await, Ok(1));
        assert_eq!(db.each_since(0, true, |_| ()).await, Ok(1));
    };
    const HOLD: &str = "UPDATE control SET generation = generation + 1";
    match &world {
        World::Sqlite(directory) => {
            let file = directory.path().join("control.db");
            let mut other = sqlx::sqlite::SqliteConnectOptions::new().filename(file).connect().await.unwrap();
            other.execute("BEGIN IMMEDIATE").await.unwrap();
            other.execute(HOLD).await.unwrap();
            reading().await;
            let refused = writing().await;
            assert!(matches!(&refused, Err(WriteError::Away(what)) if what.contains("locked")), "{refused:?}");
            reading().await;
            other.execute("ROLLBACK").await.unwrap();
            other.close().await.unwrap();
        }
        World::Postgres(database) => {
            let mut other = sqlx::postgres::PgConnection::connect(database.url()).await.unwrap();
            other.execute("BEGIN").await.unwrap();
            other.execute(HOLD).await.unwrap();
            reading().await;
            let refused = writing().await;
            assert!(matches!(&refused, Err(WriteError::Away(_))), "{refused:?}");
            reading().await;
            other.execute("ROLLBACK").await.unwrap();
            other.close().await.unwrap();
        }
    }
    assert_eq!(generation(writing().await), 2);
}
