//! The machine, which all tests share.
//!
//! Most tests wait for other processes and leave the processors idle, so they run at the same time. A test that judges how long
//! something takes needs the processors: it calls [`alone`] and runs when no other test does.
//!
//! The lock is on a file. It holds between the threads of a test binary, and between test binaries that run at the same time.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt as _;

use crate::time::avoid_full_hour;

thread_local! {
    /// This thread's lock on the machine. A test has a thread of its own, so the lock is released when the test ends.
    static LOCK: RefCell<Option<MachineLock>> = const { RefCell::new(None) };
}

/// A lock on the machine, shared or exclusive, until it is dropped.
#[derive(Debug)]
struct MachineLock {
    /// Closing the file unlocks it.
    _file: File,
    is_exclusive: bool,
}

/// Waits until no other test that starts processes runs, and blocks others until this test ends. Call it first, on the test's own
/// thread.
///
/// A test that waits here occupies a thread of the test binary. Tests run in the order of their names: give those that call this
/// names that come last.
#[track_caller]
pub fn alone() {
    let is_shared = LOCK.with_borrow(|lock| lock.as_ref().is_some_and(|lock| !lock.is_exclusive));
    assert!(!is_shared, "call alone() before the test starts any process");
    lock(true);
}

/// Waits while a test runs alone, and blocks such tests until this test ends. Everything that starts a process calls it: the clock of
/// another process can't be moved, so the test also waits for a full hour that begins soon.
pub fn share() {
    lock(false);
}

fn lock(is_exclusive: bool) {
    LOCK.with_borrow_mut(|lock| {
        if lock.is_none() {
            let file = lock_file();
            let locked = if is_exclusive { file.lock() } else { file.lock_shared() };
            locked.unwrap_or_else(|error| panic!("the lock of the tests: {error}"));
            *lock = Some(MachineLock { _file: file, is_exclusive });
            avoid_full_hour();
        }
    });
}

/// Opens the lock file. Each handle has a lock of its own, and each user a file, which others may not open.
fn lock_file() -> File {
    let user = std::fs::metadata("/proc/self").map_or(0, |own| own.uid());
    let path = std::env::temp_dir().join(format!("tollgate-tests-{user}.lock"));
    let opened = OpenOptions::new().create(true).append(true).open(&path);
    opened.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
