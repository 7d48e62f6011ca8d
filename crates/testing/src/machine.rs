//! The machine, which all tests share.
//!
//! Most tests wait for other processes and leave the processors idle, so they run at the same time. A test that judges how long
//! something takes needs the processors: it calls [`alone`] and runs when no other test does.
//!
//! The lock is on a file. It holds between the threads of a test binary, and between test binaries that run at the same time.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt as _;

thread_local! {
    /// What this thread holds of the machine. A test has a thread of its own, so it is released when the test ends.
    static HELD: RefCell<Option<Hold>> = const { RefCell::new(None) };
}

/// A share of the machine, or all of it, until it is dropped.
#[derive(Debug)]
struct Hold {
    /// Locked. Closing it unlocks it.
    _file: File,
    is_alone: bool,
}

/// Waits until no other test runs that starts processes, and keeps others from it until this test ends. Call it on the test's own
/// thread, first of all.
///
/// A test that waits here occupies a thread of the test binary. Tests run in the order of their names: give those that call this
/// names that come last.
#[track_caller]
pub fn alone() {
    let is_shared = HELD.with_borrow(|held| held.as_ref().is_some_and(|hold| !hold.is_alone));
    assert!(!is_shared, "call alone() before the test starts any process");
    hold(true);
}

/// Waits while a test runs alone, and keeps such tests from running until this test ends. Whatever starts a process calls it.
pub fn share() {
    hold(false);
}

fn hold(is_alone: bool) {
    HELD.with_borrow_mut(|held| {
        if held.is_none() {
            let file = lock_file();
            let locked = if is_alone { file.lock() } else { file.lock_shared() };
            locked.unwrap_or_else(|error| panic!("the lock of the tests: {error}"));
            *held = Some(Hold { _file: file, is_alone });
        }
    });
}

/// A new handle of it: each has a lock of its own. Users have files of their own, which others may not open.
fn lock_file() -> File {
    let user = std::fs::metadata("/proc/self").map_or(0, |own| own.uid());
    let path = std::env::temp_dir().join(format!("tollgate-tests-{user}.lock"));
    let opened = OpenOptions::new().create(true).append(true).open(&path);
    opened.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
