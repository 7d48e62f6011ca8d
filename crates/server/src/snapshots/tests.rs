//! Real files, with a manual clock.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, PoisonError};

use tollgate::{Descriptor, LoadOptions, ManualClock, Request, Ruleset, Timestamp, poll_once};
use tollgate_rules::{RuleFile, load_sources};

use super::*;
use tollgate_net::closing::Closer;
use tollgate_telemetry::metrics::Metrics;

const START: Timestamp = Timestamp::from_secs(1_767_225_600);
const CONFIG: MemoryConfig =
    MemoryConfig { max_keys: 1_000, rule_share_bps: 5_000, max_once: 10, max_once_per_caller: 10, grace: Span::ZERO };

type TestLimiter = Limiter<MemoryStore<ManualClock>>;

impl MemoryCounters for TestLimiter {
    type Clock = ManualClock;

    fn memory(&self) -> Option<&MemoryStore<ManualClock>> {
        Some(self.store())
    }
}

fn limiter(store: MemoryStore<ManualClock>) -> Arc<TestLimiter> {
    let text = "domain: d\nrules:\n  - {name: r, key: [k], limit: 10/h}\n".to_owned();
    let loaded = load_sources(&[RuleFile { name: "rules.yaml".to_owned(), text }], &LoadOptions::default()).unwrap();
    Arc::new(Limiter::new(Ruleset::compile(loaded.domains, 1).unwrap(), store))
}

fn fresh() -> Arc<TestLimiter> {
    limiter(CONFIG.build_with(ManualClock::at(START)))
}

/// Takes units, and returns the number that is left.
fn take(limiter: &TestLimiter, cost: u64) -> u64 {
    let descriptors = [Descriptor::new(&[("k", "a")])];
    let request = Request { domain: None, descriptors: &descriptors, cost, ..Request::default() };
    poll_once(limiter.check_request(&request)).unwrap().unwrap().tightest().unwrap().reading.remaining
}

fn load(snapshots: &Snapshots, at: Timestamp) -> (Arc<TestLimiter>, LoadOutcome) {
    let (store, outcome) = snapshots.load_with(CONFIG, || ManualClock::at(at));
    (limiter(store), outcome)
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// The log of this thread.
#[derive(Clone, Default)]
struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    fn begin() -> (CapturedLog, tracing::subscriber::DefaultGuard) {
        let log = CapturedLog::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(lines))
    }

    fn lines_with(&self, word: &str) -> usize {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).lines().filter(|line| line.contains(word)).count()
    }
}

impl Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const INTERVAL: Duration = Duration::from_secs(10);

fn reporter(health: &Arc<Health>) -> SnapshotReporter {
    SnapshotReporter { health: Arc::clone(health), metrics: Metrics::new().snapshots().clone() }
}

#[test]
fn what_was_saved_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::in_directory(directory.path());
    let (first, outcome) = load(&snapshots, START);
    assert!(matches!(outcome, LoadOutcome::Fresh), "{outcome:?}");
    take(&first, 4);
    assert_eq!(snapshots.save(first.store()).unwrap().counters, 1);

    let (second, outcome) = load(&snapshots, START);
    let LoadOutcome::Restored(restored) = outcome else { panic!("{outcome:?}") };
    assert_eq!((restored.snapshot.counters, restored.written_at), (1, START));
    assert_eq!(take(&second, 1), 5);
    assert_eq!(names(directory.path()), [NAME]);
    let mode = fs::metadata(snapshots.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it has a secret in it");
}

#[test]
fn a_save_replaces_what_a_crash_left() {
    let directory = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::in_directory(directory.path());
    let unfinished = directory.path().join(UNFINISHED);
    fs::write(&unfinished, "half").unwrap();
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o644)).unwrap();
    snapshots.save(fresh().store()).unwrap();
    assert_eq!(names(directory.path()), [NAME]);
    assert_eq!(fs::metadata(snapshots.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_failed_save_leaves_the_previous_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::in_directory(directory.path());
    let limiter = fresh();
    take(&limiter, 4);
    snapshots.save(limiter.store()).unwrap();
    // A directory in its place, which can't be removed as a file.
    fs::create_dir(directory.path().join(UNFINISHED)).unwrap();
    take(&limiter, 4);
    snapshots.save(limiter.store()).unwrap_err();
    assert_eq!(take(&load(&snapshots, START).0, 0), 6);
}

#[test]
fn damaged_snapshots_are_renamed_and_the_newest_three_retained() {
    let directory = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::in_directory(directory.path());
    let (log, _guard) = CapturedLog::begin();
    fs::write(directory.path().join("counters.snapshot.damaged-by-me"), "mine").unwrap();
    for second in 0..5 {
        fs::write(snapshots.path(), format!("damaged {second}")).unwrap();
        let at = START.after(Span::from_secs(second));
        let (limiter, outcome) = load(&snapshots, at);
        assert_eq!(take(&limiter, 1), 9, "it starts from zero");
        let LoadOutcome::Damaged { reason, renamed_to: Some(renamed_to) } = outcome else { panic!("{outcome:?}") };
        assert_eq!(reason, "it is not a snapshot of counters");
        assert_eq!(fs::read_to_string(renamed_to).unwrap(), format!("damaged {second}"));
        assert!(matches!(load(&snapshots, at).1, LoadOutcome::Fresh));
    }
    let retained = [2, 3, 4].map(|second| format!("{DAMAGED_PREFIX}{}", 1_767_225_600 + second));
    assert_eq!(names(directory.path())[..3], retained);
    assert_eq!(names(directory.path()).len(), 4, "files with other names are not touched");
    fs::write(snapshots.path(), "damaged").unwrap();
    let health = Health::default();
    snapshots.load(MemoryConfig::default(), &health);
    assert_eq!(log.lines_with("can't be used"), 1);
    assert_eq!(health.conditions().len(), 1);
}

#[test]
fn a_truncated_file_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::in_directory(directory.path());
    snapshots.save(fresh().store()).unwrap();
    let file = OpenOptions::new().write(true).open(snapshots.path()).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    let LoadOutcome::Damaged { reason, .. } = load(&snapshots, START).1 else { panic!() };
    assert!(reason.starts_with("it is truncated"), "{reason}");
}

#[test]
fn saving_takes_a_tenth_of_the_time_at_most() {
    let rows = [(0, 10), (1_000, 10), (1_111, 10), (2_000, 18), (30_000, 270), (3_600_000, 300)];
    for (took_millis, pause) in rows {
        let took = Span::from_micros(took_millis * 1_000);
        assert_eq!(pause_after(took, INTERVAL), Duration::from_secs(pause), "{took_millis} ms");
    }
}

/// The clock advances only in `sleep`.
#[tokio::test(start_paused = true)]
async fn snapshots_are_saved_every_interval_if_anything_changed() {
    let directory = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::in_directory(directory.path());
    let (limiter, health) = (fresh(), Arc::new(Health::default()));
    let (closer, closing) = Closer::new();
    let saving =
        tokio::spawn(snapshots.clone().save_periodically(Arc::clone(&limiter), INTERVAL, reporter(&health), closing));
    take(&limiter, 4);
    tokio::time::sleep(INTERVAL - Duration::from_millis(1)).await;
    assert_eq!(names(directory.path()), [""; 0]);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(take(&load(&snapshots, START).0, 0), 6);

    fs::remove_file(snapshots.path()).unwrap();
    take(&limiter, 0);
    tokio::time::sleep(3 * INTERVAL).await;
    assert_eq!(names(directory.path()), [""; 0], "nothing has changed");
    take(&limiter, 1);
    tokio::time::sleep(INTERVAL).await;
    assert_eq!(take(&load(&snapshots, START).0, 0), 5);

    closer.close();
    saving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_logged_once_until_it_is_over() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let snapshots = Snapshots::in_directory(&directory);
    let (log, _guard) = CapturedLog::begin();
    let (limiter, health) = (fresh(), Arc::new(Health::default()));
    let (closer, closing) = Closer::new();
    let saving =
        tokio::spawn(snapshots.clone().save_periodically(Arc::clone(&limiter), INTERVAL, reporter(&health), closing));
    take(&limiter, 4);
    tokio::time::sleep(5 * INTERVAL).await;
    let conditions = health.conditions();
    assert_eq!(conditions.len(), 1);
    assert!(conditions[0].0 == "snapshots" && conditions[0].1.contains("can't be written"), "{conditions:?}");
    assert_eq!(log.lines_with("saving the counters failed"), 1);

    fs::create_dir(&directory).unwrap();
    tokio::time::sleep(2 * INTERVAL).await;
    assert_eq!(health.conditions(), []);
    assert_eq!(log.lines_with("works again"), 1);
    assert_eq!(take(&load(&snapshots, START).0, 0), 6, "changes during the failure are saved");

    fs::remove_dir_all(&directory).unwrap();
    take(&limiter, 1);
    tokio::time::sleep(2 * INTERVAL).await;
    assert_eq!(log.lines_with("saving the counters failed"), 2);
    closer.close();
    saving.await.unwrap();
}
