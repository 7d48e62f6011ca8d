//! When changed files are complete: a file may be read while it is still being written, and half of the rules would be valid.
//!
//! Where the file system reports that a file was closed or moved into place, the change is complete at that moment. Otherwise (a
//! network file system, where only polling finds the change) it is complete when nothing changed for a while.

use tollgate::{Span, Timestamp};

/// The files that were read, as far as they differ from those in force.
#[derive(Debug, Default)]
pub(super) struct PendingFiles {
    seen: Option<Seen>,
    /// Completion was reported for this change.
    announced: bool,
}

/// One state of the changed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilesSeen {
    /// The digest of their content.
    pub(super) digest: u64,
    /// The number of the last write to a file that is still open for writing.
    pub(super) open: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    files: FilesSeen,
    /// When this state was first seen.
    since: Timestamp,
    /// When rules were first found to be missing in it.
    doubted: Option<Timestamp>,
}

/// How long files must not have changed, if their completion was not reported.
pub(super) const QUIET_PERIOD: Span = Span::from_secs(1);
/// How long a file that is open for writing must not have been written to. Closing it ends the wait.
const OPEN_PERIOD: Span = Span::from_secs(10);

impl PendingFiles {
    /// The files are those that were read before.
    pub(super) fn end(&mut self) {
        *self = PendingFiles::default();
    }

    /// Takes note that completion was reported, by the file system or by an operator.
    pub(super) fn announce(&mut self) {
        self.announced = true;
    }

    /// The time at which to read changed files again because they may be incomplete; `None` if they are complete.
    pub(super) fn wait_until(&mut self, files: FilesSeen, now: Timestamp) -> Option<Timestamp> {
        let same = self.seen.filter(|seen| seen.files == files && seen.since <= now);
        let seen = *self.seen.insert(same.unwrap_or(Seen { files, since: now, doubted: None }));
        let period = match (files.open, self.announced) {
            (Some(_), _) => OPEN_PERIOD,
            (None, true) => return None,
            (None, false) => QUIET_PERIOD,
        };
        later(seen.since.after(period), now)
    }

    /// The same for complete files in which rules are missing: a second look has to find them unchanged.
    pub(super) fn confirm_at(&mut self, now: Timestamp) -> Option<Timestamp> {
        let seen = self.seen.as_mut()?;
        let doubted = *seen.doubted.get_or_insert(now);
        later(doubted.after(QUIET_PERIOD), now)
    }
}

fn later(at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    (at > now).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + millis * 1_000)
    }

    fn files(digest: u64, open: Option<u64>) -> FilesSeen {
        FilesSeen { digest, open }
    }

    #[test]
    fn a_change_that_is_found_by_polling_waits_for_a_quiet_second() {
        let mut pending = PendingFiles::default();
        assert_eq!(pending.wait_until(files(1, None), at(0)), Some(at(1_000)));
        assert_eq!(pending.wait_until(files(1, None), at(900)), Some(at(1_000)));
        // Another part of it was written.
        assert_eq!(pending.wait_until(files(2, None), at(1_000)), Some(at(2_000)));
        assert_eq!(pending.wait_until(files(2, None), at(2_000)), None);
    }

    #[test]
    fn an_announced_change_waits_for_nothing_but_files_that_are_open() {
        let mut pending = PendingFiles::default();
        pending.announce();
        assert_eq!(pending.wait_until(files(1, None), at(0)), None);
        // Another file is being written.
        assert_eq!(pending.wait_until(files(2, Some(1)), at(10)), Some(at(10_010)));
        assert_eq!(pending.wait_until(files(3, Some(2)), at(9_000)), Some(at(19_000)));
        assert_eq!(pending.wait_until(files(3, None), at(9_100)), None);
        pending.end();
        assert_eq!(pending.wait_until(files(4, None), at(9_200)), Some(at(10_200)));
    }

    #[test]
    fn a_file_that_is_never_closed_is_complete_after_a_while() {
        let mut pending = PendingFiles::default();
        assert_eq!(pending.wait_until(files(1, Some(7)), at(0)), Some(at(10_000)));
        assert_eq!(pending.wait_until(files(1, Some(7)), at(10_000)), None);
    }

    #[test]
    fn missing_rules_need_a_second_look_at_the_same_files() {
        let mut pending = PendingFiles::default();
        pending.announce();
        assert_eq!(pending.wait_until(files(1, None), at(0)), None);
        assert_eq!(pending.confirm_at(at(0)), Some(at(1_000)));
        // The rest arrives, but not all of it.
        assert_eq!(pending.wait_until(files(2, None), at(500)), None);
        assert_eq!(pending.confirm_at(at(500)), Some(at(1_500)));
        assert_eq!(pending.wait_until(files(2, None), at(1_500)), None);
        assert_eq!(pending.confirm_at(at(1_500)), None);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_prolong_the_wait() {
        let mut pending = PendingFiles::default();
        pending.wait_until(files(1, None), at(60_000));
        assert_eq!(pending.wait_until(files(1, None), at(0)), Some(at(1_000)));
        assert_eq!(pending.wait_until(files(1, None), at(1_000)), None);
    }
}
