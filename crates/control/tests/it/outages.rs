//! A database that fails and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate_control::{
    AuditFilter, Db, DbError, DbLocation, IdempotencyKey, MAX_CONNECTIONS, ONCE_RETENTION, OPERATION_TIMEOUT,
    Precondition, RecordFilter, WriteBatch, WriteError, WriteOutcome,
};
use tollgate_records::RecordKind;
use tollgate_testing::{Postgres, Relay};

use crate::world::{START, World, commit, generation, numbered, put, quota, write};

/// More than any operation may take, with a reserve for a busy machine.
const BOUND: Duration = OPERATION_TIMEOUT.saturating_add(Duration::from_secs(15));

/// A dead connection that listens is found after two probe intervals, and replaced at one of the first tries even on a busy machine.
/// Usually it takes far less.
const RECOVERY: Duration = Duration::from_secs(120);

fn location(port: u16) -> DbLocation {
    DbLocation::Postgres(format!("postgres://postgres:s3cret@127.0.0.1:{port}/postgres"))
}

/// Runs a call that blocks outside of the runtime's own threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Runs each operation concurrently. Each must end in time.
async fn run_all_operations(db: &Db, name: &str) -> Vec<Result<(), String>> {
    let change = write(vec![put(&quota(name), Precondition::Absent, "{}")]);
    let (filter, log) = (RecordFilter::new(RecordKind::Quota), AuditFilter::default());
    let name = quota("a");
    fn availability<T>(answer: Result<T, DbError>) -> Result<(), String> {
        match answer {
            Ok(_) => Ok(()),
            Err(DbError::Unavailable(what)) => Err(what),
            Err(other) => panic!("{other:?}"),
        }
    }
    let all = async {
        let all = tokio::join!(
            async { availability(db.generation().await) },
            async { availability(db.get(&name).await) },
            async { availability(db.list(&filter, None, 10).await) },
            async { availability(db.count(&filter).await) },
            async { availability(db.for_each_since(0, true, |_| ()).await) },
            async { availability(db.audit(&log, 0, 10).await) },
            async { availability(db.sweep(START.before(ONCE_RETENTION)).await) },
            async {
                match db.write(&change).await {
                    Ok(_) => Ok(()),
                    Err(WriteError::Unavailable(what)) => Err(what),
                    Err(other) => panic!("{other:?}"),
                }
            },
        );
        vec![all.0, all.1, all.2, all.3, all.4, all.5, all.6, all.7]
    };
    tokio::time::timeout(BOUND, all).await.expect("an answer in time")
}

#[track_caller]
fn assert_all_unavailable(answers: &[Result<(), String>]) {
    for answer in answers {
        let what = answer.as_ref().unwrap_err();
        assert!(what.contains("postgres://127.0.0.1:") && !what.contains("s3cret"), "{what}");
    }
}

async fn assert_all_available(db: &Db, name: &str) {
    let answers = run_all_operations(db, name).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

/// A busy machine may need time for new connections.
async fn wait_until_all_available(db: &Db, name: &str) {
    let answered = async {
        for n in 0.. {
            if run_all_operations(db, &format!("{name}-{n}")).await.iter().all(Result::is_ok) {
                break;
            }
        }
    };
    tokio::time::timeout(RECOVERY, answered).await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_postgres_is_killed() {
    let mut postgres = blocking(Postgres::start).await;
    let db = Db::open(DbLocation::Postgres(postgres.url())).await.unwrap();
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
                    match db.write(&write(vec![put(&name, Precondition::Absent, &numbered(n))])).await {
                        Ok(WriteOutcome::Committed { generation, .. }) => acknowledged.push((name, generation)),
                        Err(WriteError::Unavailable(what)) => {
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
        postgres = blocking(move || {
            postgres.kill();
            postgres
        })
        .await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        postgres = blocking(move || {
            postgres.restart();
            postgres
        })
        .await;
        // The same handle writes again.
        let before = db.generation().await.unwrap();
        while db.generation().await.unwrap() < before + 10 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    over.store(true, Ordering::SeqCst);
    let (mut stored_count, mut unknown) = (0, 0);
    for writer in writers {
        let (acknowledged, failed) = writer.await.unwrap();
        for (name, generation) in acknowledged {
            let stored = db.get(&name).await.unwrap().unwrap_or_else(|| panic!("{name} is lost"));
            assert_eq!(stored.generation, generation);
            stored_count += 1;
        }
        for (name, what) in failed {
            if what.contains("whether it was written is not known") {
                unknown += u64::from(db.get(&name).await.unwrap().is_some());
            } else {
                assert_eq!(db.get(&name).await, Ok(None), "{what}");
            }
        }
    }
    assert!(stored_count > 60, "{stored_count}");
    // Each generation has its record.
    assert_eq!(db.count(&RecordFilter::new(RecordKind::Quota)).await, Ok(stored_count + unknown));
    assert_eq!(db.generation().await, Ok(stored_count + unknown));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_frozen_postgres_is_unavailable_in_bounded_time_and_comes_back() {
    let mut postgres = blocking(Postgres::start).await;
    let db = Db::open(location(postgres.port())).await.unwrap();
    assert_all_available(&db, "a").await;
    // More than fits into the buffers of a connection.
    const MUCH: &str = "INSERT INTO records SELECT 'block', 'shop', n::text, 1, '{\"much\":\"' || repeat('x', 10000) || '\"}', \
                        1, 1, 'ann', '' FROM generate_series(1, 3000) n";
    postgres = blocking(move || {
        postgres.query(MUCH);
        postgres
    })
    .await;
    let mut seen = 0;
    let frozen = db.for_each_since(0, true, |_| {
        seen += 1;
        if seen == 2 {
            postgres.freeze();
        }
    });
    let frozen = tokio::time::timeout(BOUND, frozen).await.expect("an answer in time");
    assert!(matches!(frozen, Err(DbError::Unavailable(_))), "{frozen:?}");
    assert!((2..3_000).contains(&seen), "{seen}");
    assert_all_unavailable(&run_all_operations(&db, "b").await);
    // A new handle opens in time, too.
    let other = tokio::time::timeout(BOUND, Db::open(location(postgres.port()))).await.expect("in time").unwrap();
    postgres.thaw();
    assert_all_available(&db, "c").await;
    assert_all_available(&other, "d").await;
    // The write that failed was not committed later.
    assert_eq!(db.get(&quota("b")).await, Ok(None));
    assert_eq!(db.generation().await, Ok(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_connections_that_died_silently_are_replaced() {
    let postgres = Postgres::database();
    let relay = Relay::to(postgres.port());
    let url = postgres.url().replace(&postgres.port().to_string(), &relay.port().to_string());
    let db = Db::open(DbLocation::Postgres(url)).await.unwrap();
    let other = Db::open(DbLocation::Postgres(postgres.url().to_owned())).await.unwrap();
    // Several connections are idle now.
    wait_until_all_available(&db, "a").await;
    // One connection listens: it received the notification, or it read the generation when it started to listen.
    let generation = commit(&other, vec![put(&quota("b"), Precondition::Absent, "{}")]).await;
    assert_eq!(tokio::time::timeout(RECOVERY, db.wait_for_change(generation - 1)).await, Ok(generation));
    relay.blackhole();
    let first = tokio::time::timeout(RECOVERY, db.generation()).await.expect("an answer");
    assert!(matches!(first, Err(DbError::Unavailable(_))), "{first:?}");
    // No other idle connection is used: apart from the first one, only the one that listens is.
    for round in ["c", "d", "e", "f"] {
        wait_until_all_available(&db, round).await;
    }
    let generation = commit(&other, vec![put(&quota("g"), Precondition::Absent, "{}")]).await;
    assert_eq!(tokio::time::timeout(RECOVERY, db.wait_for_change(generation - 1)).await, Ok(generation));
    assert_eq!(relay.blackholed_uses(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_with_an_unknown_outcome_can_be_sent_again() {
    let postgres = Postgres::database();
    let relay = Relay::to(postgres.port());
    let url = postgres.url().replace(&postgres.port().to_string(), &relay.port().to_string());
    let db = Db::open(DbLocation::Postgres(url)).await.unwrap();
    let once = IdempotencyKey { key: "k".to_owned(), digest: "d".to_owned(), answer: "done".to_owned() };
    let write = WriteBatch { once: Some(once), ..write(vec![put(&quota("a"), Precondition::Absent, "{}")]) };
    // Not the BEGIN, which contains COMMITTED.
    relay.lose_reply_to(b"COMMIT\0");
    match db.write(&write).await {
        Err(WriteError::Unavailable(what)) => assert!(what.contains("whether it was written is not known"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(relay.replies_lost(), 1);
    assert_eq!(db.write(&write).await, Ok(WriteOutcome::Replayed { generation: 1, answer: "done".to_owned() }));
    // A write that fails earlier has a known outcome.
    relay.lose_reply_to(b"INSERT INTO records");
    match db
        .write(&WriteBatch { once: None, ..crate::world::write(vec![put(&quota("b"), Precondition::Absent, "{}")]) })
        .await
    {
        Err(WriteError::Unavailable(what)) => assert!(!what.contains("not known"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(db.get(&quota("b")).await, Ok(None));
    // A connection that broke while it was idle is replaced without an error.
    relay.cut();
    assert_eq!(generation(db.write(&crate::world::write(vec![put(&quota("b"), Precondition::Absent, "{}")])).await), 2);
    relay.cut();
    assert_eq!(db.generation().await, Ok(2));
    relay.cut();
    assert_eq!(db.for_each_since(1, true, |_| ()).await, Ok(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_unavailable_at_the_start_is_used_later() {
    let mut postgres = blocking(Postgres::start).await;
    postgres = blocking(move || {
        postgres.kill();
        postgres
    })
    .await;
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Db::open(location(postgres.port())).await.unwrap());
    }
    assert_all_unavailable(&run_all_operations(&servers[0], "a").await);
    let woken = tokio::spawn({
        let db = servers[0].clone();
        async move { db.wait_for_change(0).await }
    });
    postgres = blocking(move || {
        postgres.restart();
        postgres
    })
    .await;
    // All three migrate at the same time.
    let writing: Vec<_> = (0..12)
        .map(|n| {
            let db = servers[n % 3].clone();
            tokio::spawn(
                async move { commit(&db, vec![put(&quota(&n.to_string()), Precondition::Absent, "{}")]).await },
            )
        })
        .collect();
    for written in writing {
        written.await.unwrap();
    }
    assert_eq!(servers[0].generation().await, Ok(12));
    assert!(tokio::time::timeout(RECOVERY, woken).await.expect("the waiter wakes").unwrap() > 0);
    let (steps, _postgres) = blocking(move || (postgres.query("SELECT count(*) FROM tollgate_schema"), postgres)).await;
    assert_eq!(steps, "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_that_are_cut_come_back() {
    let postgres = Postgres::database();
    let location = || DbLocation::Postgres(postgres.url().to_owned());
    let (db, other) = (Db::open(location()).await.unwrap(), Db::open(location()).await.unwrap());
    for round in 1..=3 {
        // Wait until both handles listen.
        let listening =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
        let (sql, database) = (listening.to_owned(), postgres.clone());
        blocking(move || tollgate_testing::eventually(|| (database.query(&sql) == "2").then_some(()))).await.unwrap();
        let (cut, database) = (listening.replace("count(*)", "count(pg_terminate_backend(pid))"), postgres.clone());
        assert_eq!(blocking(move || database.query(&cut)).await, "2");
        // By the other handle: a handle announces its own writes without a notification.
        let generation = commit(&other, vec![put(&quota("a"), Precondition::Any, &numbered(round))]).await;
        let woken = tokio::time::timeout(RECOVERY, db.wait_for_change(generation - 1)).await;
        assert_eq!(woken, Ok(generation));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_bounded() {
    let postgres = Postgres::database();
    let db = Db::open(DbLocation::Postgres(postgres.url().to_owned())).await.unwrap();
    let writers: Vec<_> = (0..50)
        .map(|n| {
            let db = db.clone();
            tokio::spawn(async move {
                for m in 0..4 {
                    commit(&db, vec![put(&quota(&format!("{n}-{m}")), Precondition::Absent, "{}")]).await;
                    db.generation().await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let count: usize = blocking(move || postgres.query(sql)).await.parse().unwrap();
    assert!((2..=MAX_CONNECTIONS + 1).contains(&count), "{count}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permanent_errors_are_refused_at_the_start() {
    let postgres = Postgres::database();
    let nowhere = format!("postgres://postgres:s3cret@127.0.0.1:{}/nowhere", postgres.port());
    let refused = Db::open(DbLocation::Postgres(nowhere)).await.unwrap_err();
    assert!(matches!(&refused, DbError::Refused(what) if what.contains("\"nowhere\" does not exist")), "{refused:?}");
    for odd in ["mysql://a:s3cret@h/d", "postgres://a:s3cret@h:port/d", "s3cret", ""] {
        let refused = Db::open(DbLocation::Postgres(odd.to_owned())).await.unwrap_err();
        assert!(matches!(&refused, DbError::Invalid(what) if !what.contains("s3cret")), "{odd}: {refused:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    let refused = Db::open(DbLocation::File(directory.path().to_owned())).await.unwrap_err();
    assert!(matches!(&refused, DbError::Refused(_)), "{refused:?}");
    let other = directory.path().join("letter.txt");
    std::fs::write(&other, "Dear Sir or Madam, ".repeat(1_000)).unwrap();
    let refused = Db::open(DbLocation::File(other)).await.unwrap_err();
    assert!(matches!(&refused, DbError::Refused(what) if what.contains("not a database")), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_used_and_other_authorities_are_refused() {
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());
    let directory = tempfile::tempdir().unwrap();
    let roots = [("own.pem", own.cert.pem()), ("other.pem", other.cert.pem())].map(|(name, pem)| {
        let file = directory.path().join(name);
        std::fs::write(&file, pem).unwrap();
        file.display().to_string()
    });
    let postgres = blocking(move || Postgres::start_tls(&certificate, &key)).await;
    let location =
        |root: &str| DbLocation::Postgres(format!("{}?sslmode=verify-full&sslrootcert={root}", postgres.url()));
    let db = Db::open(location(&roots[0])).await.unwrap();
    commit(&db, vec![put(&quota("a"), Precondition::Absent, "{}")]).await;
    let refused = Db::open(location(&roots[1])).await.unwrap_err();
    assert!(matches!(&refused, DbError::Refused(what) if what.contains("certificate")), "{refused:?}");
    // Every connection is encrypted, the listening one included. The pool may have more than one: the listener reads the
    // generation through it.
    commit(&db, vec![put(&quota("a"), Precondition::Present, "{}")]).await;
    const ENCRYPTED: &str = "SELECT count(*) FILTER (WHERE NOT ssl), \
                             count(*) FILTER (WHERE query LIKE 'LISTEN%' OR query = 'SELECT 1') FROM pg_stat_ssl \
                             JOIN pg_stat_activity USING (pid) WHERE application_name = 'tollgate'";
    blocking(move || tollgate_testing::until("encrypted connections", || postgres.query(ENCRYPTED) == "0|1")).await;
}

#[tokio::test]
async fn the_password_is_never_shown() {
    let location = DbLocation::Postgres("postgres://ann:s3cret@127.0.0.1:1/d?password=s3cret".to_owned());
    let db = Db::open(location.clone()).await.unwrap();
    let shown = format!("{location:?} {location} {db:?} {:?} {:#?}", db.generation().await, db);
    assert!(shown.contains("postgres://127.0.0.1:1/d") && !shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
async fn only_the_owner_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::sqlite();
    let db = world.open().await;
    commit(&db, vec![put(&quota("a"), Precondition::Absent, "{}")]).await;
    let World::Sqlite(directory) = &world else { panic!() };
    let files: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap).collect();
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
}

/// Another server stopped in the middle of a write: nobody can write until its transaction ends, but everybody can read.
pub(crate) async fn slow_a_held_lock_blocks_writers_but_not_readers(world: World) {
    use sqlx::{ConnectOptions, Connection, Executor};
    let db = world.open().await;
    commit(&db, vec![put(&quota("a"), Precondition::Absent, "{}")]).await;
    let writing = async || {
        let change = write(vec![put(&quota("b"), Precondition::Absent, "{}")]);
        tokio::time::timeout(BOUND, db.write(&change)).await.expect("in time")
    };
    let reading = async || {
        assert_eq!(db.generation().await, Ok(1));
        assert_eq!(db.for_each_since(0, true, |_| ()).await, Ok(1));
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
            assert!(matches!(&refused, Err(WriteError::Unavailable(what)) if what.contains("locked")), "{refused:?}");
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
            assert!(matches!(&refused, Err(WriteError::Unavailable(_))), "{refused:?}");
            reading().await;
            other.execute("ROLLBACK").await.unwrap();
            other.close().await.unwrap();
        }
    }
    assert_eq!(generation(writing().await), 2);
}
