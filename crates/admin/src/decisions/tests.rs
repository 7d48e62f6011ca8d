//! The log in this process: on every sink, when it fails, and when it is flooded.

use std::io::{self, Write};
use std::sync::mpsc;

use tempfile::TempDir;
use tollgate::{Descriptor, Limiter, ManualClock, MemoryConfig, MemoryStore, Request, Ruleset};
use tollgate_control::{Db, DbLocation};
use tollgate_events::FilesConfig;
use tollgate_observe::{LogConfig, ObserverConfig};
use tollgate_testing::Postgres;

use super::*;

const RULES: &str = "
domain: api
entity: user
rules:
  - {name: per-user, key: [user], limit: {free: 2/hour, pro: 10/hour}, algorithm: fixed_window}
  - {name: all, key: [], limit: 1000000/hour, algorithm: fixed_window}
";

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

struct Bench {
    limiter: Limiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
    decisions: Arc<Decisions>,
}

impl Bench {
    fn new(sink: DecisionSink) -> Bench {
        Bench::of(
            sink,
            LogConfig { on: true, sample: SampleRate::NONE, callers: SampleRate::NONE, ..LogConfig::default() },
        )
    }

    fn of(sink: DecisionSink, log: LogConfig) -> Bench {
        let observer = Arc::new(Observer::new(ObserverConfig { log, ..ObserverConfig::default() }, Arc::default()));
        let clock = ManualClock::at(START);
        let store = MemoryConfig::default().build_with(clock.clone());
        let rules = Ruleset::from_text(RULES, 3).unwrap().0;
        let limiter = Limiter::new(rules, store).with_clock(clock.clone()).with_witness(observer.clone());
        let config = DecisionsConfig {
            server: "host-1".to_owned(),
            region: Some("eu".to_owned()),
            keep: Span::from_secs(86_400),
            max_rows: 500_000,
            max_bytes: 256 << 20,
        };
        Bench { limiter, clock, decisions: Decisions::new(observer, sink, config) }
    }

    fn check(&self, user: &str, cost: u64) {
        let entries = [("user", user)];
        let request = Request { cost, descriptors: &[Descriptor::new(&entries)], ..Request::default() };
        tollgate::poll_once(self.limiter.check_request(&request)).unwrap().unwrap();
    }

    /// A refusal, at this second.
    fn refuse(&self, user: &str, second: u64) {
        self.clock.set(START.after(Span::from_secs(second)));
        self.check(user, 3);
    }

    async fn write(&self) -> Result<(), String> {
        self.decisions.write(self.clock.now()).await
    }

    /// What is held in memory: lines and bytes.
    fn held(&self) -> (usize, usize) {
        let queue = self.decisions.queue();
        (queue.lines.len(), queue.bytes)
    }

    /// When what is known of a caller was decided, in seconds, the newest first.
    async fn found(&self, user: &str) -> Vec<u64> {
        let lines = self.decisions.find(&lookup(user)).await.unwrap();
        lines.iter().map(|line| line.at.0.since(START).as_micros() / 1_000_000).collect()
    }
}

fn lookup(caller: &str) -> DecisionLookup {
    DecisionLookup { filter: DecisionFilter { caller: caller.to_owned(), ..DecisionFilter::default() }, max: 100 }
}

fn files(home: &TempDir) -> DecisionSink {
    let directory = home.path().join("decisions");
    let keep = Span::from_secs(86_400);
    DecisionSink::files(FilesConfig { directory, name: "decisions", max_bytes: 1 << 20, max_files: 4, keep }).unwrap()
}

/// What is waiting, what is written, and both at once, each entry once.
async fn is_found_at_once_and_later(sink: DecisionSink) {
    let bench = Bench::new(sink);
    let odd = "ü \"'\\\n\0\u{1f980}";
    bench.refuse("ann", 1);
    bench.refuse(odd, 2);
    bench.refuse("ann", 3);
    assert_eq!((bench.found("ann").await, bench.found(odd).await), (vec![3, 1], vec![2]));
    bench.write().await.unwrap();
    assert_eq!((bench.found("ann").await, bench.found(odd).await), (vec![3, 1], vec![2]));
    bench.refuse("ann", 4);
    assert_eq!(bench.found("ann").await, [4, 3, 1]);
    bench.write().await.unwrap();
    assert_eq!(bench.decisions.counts(), DecisionLogCounts { written: 4, dropped: 0, failed: 0, summarized: 0 });

    let at = |second| Some(START.after(Span::from_secs(second)));
    let ann = || lookup("ann").filter;
    for (filter, max, expected) in [
        (ann(), 2, vec![4, 3]),
        (DecisionFilter { from: at(3), ..ann() }, 9, vec![4, 3]),
        (DecisionFilter { to: at(3), ..ann() }, 9, vec![1]),
        (DecisionFilter { rule: Some("all".to_owned()), ..ann() }, 9, vec![]),
        (DecisionFilter { rule: Some("per-user".to_owned()), domain: Some("api".to_owned()), ..ann() }, 1, vec![4]),
        (DecisionFilter { domain: Some("shop".to_owned()), ..ann() }, 9, vec![]),
        (lookup("an").filter, 9, vec![]),
    ] {
        let lines = bench.decisions.find(&DecisionLookup { filter: filter.clone(), max }).await.unwrap();
        let seconds: Vec<_> = lines.iter().map(|line| line.at.0.since(START).as_micros() / 1_000_000).collect();
        assert_eq!(seconds, expected, "{filter:?}");
    }
    let reply = bench.decisions.find(&lookup("ann")).await.unwrap();
    assert_eq!(
        reply[0].explain(),
        "ann was refused: per-user allows 2/hour to the tier free, it had used 0 of 2, 3 were requested, and there is never room \
         for that many."
    );
}

#[tokio::test]
async fn in_files() {
    is_found_at_once_and_later(files(&TempDir::new().unwrap())).await;
}

#[tokio::test]
async fn in_memory() {
    is_found_at_once_and_later(DecisionSink::Memory).await;
}

#[tokio::test]
async fn on_standard_output() {
    is_found_at_once_and_later(DecisionSink::output(io::sink()).unwrap()).await;
}

#[tokio::test]
async fn in_sqlite() {
    let home = TempDir::new().unwrap();
    let db = Db::open(DbLocation::File(home.path().join("control.db"))).await.unwrap();
    is_found_at_once_and_later(DecisionSink::control(&db)).await;
}

#[tokio::test]
async fn in_postgres_and_of_all_servers() {
    let database = Postgres::database();
    let open = || async { Db::open(DbLocation::Postgres(database.url().to_owned())).await.unwrap() };
    is_found_at_once_and_later(DecisionSink::control(&open().await)).await;
    let (one, other) =
        (Bench::new(DecisionSink::control(&open().await)), Bench::new(DecisionSink::control(&open().await)));
    one.refuse("bob", 1);
    other.refuse("bob", 2);
    one.write().await.unwrap();
    other.write().await.unwrap();
    assert_eq!((one.found("bob").await, other.found("bob").await), (vec![2, 1], vec![2, 1]));
}

#[tokio::test]
async fn a_line_has_everything() {
    let bench = Bench::new(DecisionSink::Memory);
    bench.refuse("ann", 1);
    let lines = bench.decisions.find(&lookup("ann")).await.unwrap();
    let line = serde_json::to_value(&lines[0]).unwrap();
    assert_eq!(
        line,
        serde_json::json!({
            "at": "2023-11-14T22:13:21Z", "domain": "api", "caller": "ann", "cost": 3,
            "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}],
            "verdict": "deny", "source": "store", "replay": false, "retry_after_seconds": null,
            "rule": "per-user", "rules_generation": 3, "rule_version": null, "block": null, "region": "eu", "server": "host-1",
            "limits": [
                {
                    "rule": "per-user", "tier": "free", "resolved_by": "tier", "mode": "enforce", "limit": 2, "period": "hour",
                    "units": 3, "used": 0, "remaining": 2, "reset_seconds": 2799.0, "wait_seconds": null, "admits": false,
                    "key": "ann",
                },
                {
                    "rule": "all", "tier": "default", "resolved_by": "default", "mode": "enforce", "limit": 1_000_000,
                    "period": "hour", "units": 3, "used": 0, "remaining": 1_000_000, "reset_seconds": 2799.0,
                    "wait_seconds": null, "admits": true, "key": "",
                },
            ],
        })
    );
    // Lines of a newer Tollgate are shown as far as possible.
    let mut newer = line;
    (newer["verdict"], newer["mood"]) = ("pondered".into(), "good".into());
    let newer: DecisionLine = serde_json::from_value(newer).unwrap();
    assert!(newer.explain().contains("a newer Tollgate"), "{}", newer.explain());
}

#[tokio::test]
async fn what_a_crash_tore_is_skipped() {
    let home = TempDir::new().unwrap();
    let bench = Bench::new(files(&home));
    bench.refuse("ann", 1);
    bench.refuse("ann", 2);
    bench.write().await.unwrap();
    let path = std::fs::read_dir(home.path().join("decisions")).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&path).unwrap();
    // A line that is half there.
    std::fs::write(&path, &text[..text.len() - 40]).unwrap();
    let again = Bench::new(files(&home));
    assert_eq!(again.found("ann").await, [1]);
    again.refuse("ann", 3);
    again.write().await.unwrap();
    assert_eq!(again.found("ann").await, [3, 1]);
}

#[tokio::test]
async fn a_flood_is_bounded_and_counted_and_later_lines_are_written() {
    let home = TempDir::new().unwrap();
    let log = LogConfig {
        max_entries: 1_000,
        max_single: u64::MAX,
        on: true,
        sample: SampleRate::NONE,
        ..LogConfig::default()
    };
    let bench = Bench::of(files(&home), log);
    for round in 0..40 {
        (0..2_000).for_each(|n| bench.refuse(&format!("user_{n}"), round));
        // Nothing is written, and whoever asks gathers.
        bench.found("nobody").await;
    }
    let queue = bench.decisions.queue().left();
    assert!((MAX_WAITING..MAX_WAITING + 1_000).contains(&queue), "{queue}");
    let logged = bench.decisions.observer.log().counts();
    assert_eq!(logged.queued + logged.dropped, 80_000);
    assert_eq!(bench.decisions.counts().dropped, logged.dropped);
    while bench.decisions.queue().left() > 0 {
        bench.write().await.unwrap();
    }
    bench.refuse("late", 99);
    bench.write().await.unwrap();
    assert_eq!(bench.found("late").await, [99]);
    assert_eq!(bench.decisions.counts().written, bench.decisions.observer.log().counts().queued);
    assert_eq!(bench.held(), (0, 0));
}

#[tokio::test]
async fn in_memory_the_last_ones_stay() {
    let bench = Bench::new(DecisionSink::Memory);
    for round in 0..4 {
        (0..5_000).for_each(|n| bench.refuse(&format!("user_{n}"), round));
        bench.write().await.unwrap();
    }
    let (lines, bytes) = bench.held();
    assert!(lines <= MAX_WAITING && bytes <= MAX_BYTES_WAITING && lines > 10_000, "{lines} lines of {bytes} bytes");
    let found = bench.found("user_4999").await;
    assert!(found[0] == 3 && found.len() < 4, "{found:?}");
    // And go when they are old.
    bench.clock.set(START.after(Span::from_secs(2 * 86_400)));
    bench.write().await.unwrap();
    assert_eq!(bench.decisions.queue().lines.len(), 0);
}

/// Accepts nothing until it is released.
struct Stuck(mpsc::Receiver<()>, mpsc::Sender<Vec<u8>>);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.recv().map_err(io::Error::other)?;
        self.1.send(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn standard_output_that_nobody_reads_holds_nothing_up_and_gets_each_line_once() {
    let ((go, release), (taken, took)) = (mpsc::channel(), mpsc::channel());
    let bench = Bench::new(DecisionSink::output(Stuck(release, taken)).unwrap());
    bench.refuse("ann", 1);
    assert_eq!(bench.write().await, Err("standard output is blocked".to_owned()));
    bench.refuse("ann", 2);
    assert_eq!(bench.write().await, Err("standard output is blocked".to_owned()));
    assert_eq!((bench.found("ann").await, bench.decisions.counts().written), (vec![2, 1], 0));
    go.send(()).unwrap();
    go.send(()).unwrap();
    // The thread is outside of the time that is paused.
    let first = tokio::task::spawn_blocking(move || (took.recv().unwrap(), took)).await.unwrap();
    while bench.write().await.is_err() {}
    let second = tokio::task::spawn_blocking(move || first.1.recv().unwrap()).await.unwrap();
    while bench.decisions.counts().written < 2 {
        let _ = bench.write().await;
    }
    let lines = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().lines().count();
    assert_eq!((lines(&first.0), lines(&second)), (1, 1));
    drop(go);
    bench.refuse("ann", 3);
    while bench.decisions.counts().failed == 0 {
        let _ = bench.write().await;
    }
    assert_eq!(bench.decisions.counts(), DecisionLogCounts { written: 2, dropped: 0, failed: 1, summarized: 0 });
}

#[tokio::test]
async fn a_directory_that_is_gone_is_reported_and_its_lines_are_written_when_it_is_back() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("decisions");
    let keep = Span::from_secs(86_400);
    let sink = DecisionSink::files(FilesConfig {
        directory: directory.clone(),
        name: "decisions",
        max_bytes: 1,
        max_files: 4,
        keep,
    })
    .unwrap();
    let bench = Bench::new(sink);
    bench.refuse("ann", 1);
    bench.write().await.unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    bench.refuse("ann", 2);
    let explain = bench.write().await.unwrap_err();
    assert!(explain.contains("No such file"), "{explain}");
    std::fs::create_dir(&directory).unwrap();
    bench.write().await.unwrap();
    assert_eq!(bench.found("ann").await, [2]);
}

#[tokio::test]
async fn what_is_off_logs_nothing() {
    let bench = Bench::of(DecisionSink::Memory, LogConfig::default());
    bench.refuse("ann", 1);
    bench.write().await.unwrap();
    assert_eq!((bench.found("ann").await, bench.decisions.place()), (vec![], None));
}

#[tokio::test]
async fn a_caller_that_is_refused_again_and_again_takes_few_lines_of_every_sink() {
    let home = TempDir::new().unwrap();
    let db = Db::open(DbLocation::File(home.path().join("control.db"))).await.unwrap();
    for sink in [DecisionSink::control(&db), files(&home), DecisionSink::Memory] {
        let bench = Bench::new(sink);
        let max_single = LogConfig::default().max_single;
        bench.write().await.unwrap();
        // Entries that are equal would be found once.
        let refuse_many = |user: &str, times: u64, second: u64| {
            (0..times).for_each(|n| {
                bench.clock.set(START.after(Span::from_micros(second * 1_000_000 + n)));
                bench.check(user, 3);
            });
        };
        refuse_many("flood", 5_000, 1);
        bench.refuse("ann", 2);
        bench.write().await.unwrap();
        let newest = |lines: Vec<DecisionLine>| {
            lines.iter().find_map(|line| serde_json::to_value(line).unwrap()["count"].as_u64())
        };
        // Whoever asks meanwhile gets the number so far.
        let found = bench.decisions.find(&lookup("flood")).await.unwrap();
        assert_eq!(found.len() as u64, max_single + 1);
        assert_eq!(newest(found), Some(5_000 - max_single));
        assert_eq!(bench.decisions.counts().written, max_single + 1);
        bench.refuse("flood", 90);
        bench.write().await.unwrap();
        let found = bench.decisions.find(&lookup("flood")).await.unwrap();
        assert_eq!((found.len() as u64, newest(found)), (max_single + 1, Some(5_001 - max_single)));
        assert_eq!((bench.found("ann").await, bench.decisions.counts().written), (vec![2], max_single + 2));
        // The end of the server ends the minute.
        refuse_many("last", 30, 91);
        bench.decisions.write_last(bench.clock.now()).await.unwrap();
        assert_eq!(bench.found("last").await.len() as u64, max_single + 1);
        assert_eq!(bench.decisions.counts().summarized, 5_001 - max_single + 30 - max_single);
    }
}

/// The log in the store of record, filled by many callers with long attributes.
async fn is_bounded_in_bytes(sink: DecisionSink, size: impl AsyncFn() -> u64) {
    const MAX_BYTES: u64 = 2 << 20;
    let mut bench = Bench::new(sink);
    Arc::get_mut(&mut bench.decisions).unwrap().config.max_bytes = MAX_BYTES;
    let long = "x".repeat(1_000);
    for round in 0..10 {
        bench.clock.set(START.after(Span::from_secs(round)));
        for n in 0..300 {
            let user = format!("user_{n}");
            let entries: [(&str, &str); 5] = [("user", &user), ("a", &long), ("b", &long), ("c", &long), ("d", &long)];
            let request = Request { cost: 3, descriptors: &[Descriptor::new(&entries)], ..Request::default() };
            tollgate::poll_once(bench.limiter.check_request(&request)).unwrap().unwrap();
        }
        bench.write().await.unwrap();
        let size = size().await;
        assert!(size <= MAX_BYTES + MAX_BYTES / 4, "{size}");
    }
    assert_eq!(bench.decisions.counts().written, 3_000);
    let found = bench.found("user_299").await;
    assert!(found[0] == 9 && found.len() < 10, "{found:?}");
}

#[tokio::test]
async fn in_sqlite_bytes_are_bounded() {
    let home = TempDir::new().unwrap();
    let db = Db::open(DbLocation::File(home.path().join("control.db"))).await.unwrap();
    let file = home.path().join("control-decisions.db");
    is_bounded_in_bytes(DecisionSink::control(&db), async || std::fs::metadata(&file).unwrap().len()).await;
    // The log is not among the records.
    assert!(std::fs::metadata(home.path().join("control.db")).unwrap().len() < 200_000);
}

#[tokio::test]
async fn in_postgres_bytes_are_bounded() {
    let database = Postgres::database();
    let db = Db::open(DbLocation::Postgres(database.url().to_owned())).await.unwrap();
    let size = async || {
        let database = database.clone();
        let sum = move || database.query("SELECT coalesce(sum(octet_length(document)), 0) FROM decisions");
        tokio::task::spawn_blocking(sum).await.unwrap().trim().parse().unwrap()
    };
    is_bounded_in_bytes(DecisionSink::control(&db), size).await;
}
