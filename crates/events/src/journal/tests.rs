//! Journals that are read, restarted, cut and filled up.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const DAY: Span = Span::from_secs(86_400);

fn open(directory: &Path, max_bytes: u64) -> Journal {
    Journal::open(JournalConfig { directory: directory.to_owned(), max_bytes, keep: DAY }).unwrap()
}

fn append(journal: &Journal, lines: impl IntoIterator<Item = u64>) {
    let lines: Vec<_> = lines.into_iter().map(|line| line.to_string()).collect();
    journal.append(&lines, NOW).unwrap();
}

fn read(journal: &Journal, from: u64, max: usize) -> Vec<(u64, u64)> {
    let lines = journal.read(from, max).unwrap();
    lines.iter().map(|(number, line)| (*number, line.parse().unwrap())).collect()
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    files
}

#[test]
fn lines_are_read_by_their_numbers_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/events");
    let journal = open(&path, 1 << 20);
    let appended = journal.appended();
    append(&journal, [10, 20]);
    append(&journal, [30]);
    assert!(appended.has_changed().unwrap());
    assert_eq!(read(&journal, 0, 2), [(1, 10), (2, 20)]);
    assert_eq!((read(&journal, 3, 9), read(&journal, 4, 9)), (vec![(3, 30)], vec![]));
    drop(journal);
    let journal = open(&path, 1 << 20);
    assert_eq!((journal.oldest(), journal.next()), (1, 4));
    append(&journal, [40]);
    assert_eq!(read(&journal, 2, 9), [(2, 20), (3, 30), (4, 40)]);
}

#[test]
fn a_new_sink_begins_at_the_end_and_a_damaged_cursor_at_the_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path(), 1 << 20);
    append(&journal, [10, 20]);
    assert_eq!(journal.load_cursor("pager").unwrap().next, 3);
    append(&journal, [30]);
    // It is saved at once: a crash does not move it.
    let journal = open(directory.path(), 1 << 20);
    assert_eq!(journal.load_cursor("pager").unwrap().next, 3);
    let ended = SinkCursor { next: 2, ended: Some("x".to_owned()) };
    journal.save_cursor("pager", &ended).unwrap();
    assert_eq!(journal.load_cursor("pager").unwrap(), ended);
    fs::write(cursor_path(directory.path(), "pager"), "").unwrap();
    assert_eq!(journal.load_cursor("pager").unwrap(), SinkCursor { next: 1, ended: None });
    journal.load_cursor("other").unwrap();
    journal.remove_cursors_except(&["other"]).unwrap();
    assert_eq!(names(directory.path()).unwrap(), ["other"]);
}

#[test]
fn numbers_that_a_sink_has_read_are_not_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path(), 1 << 20);
    append(&journal, [10]);
    // The machine crashed, and lines 2 to 6 never reached the disk.
    journal.save_cursor("pager", &SinkCursor { next: 7, ended: None }).unwrap();
    let journal = open(directory.path(), 1 << 20);
    append(&journal, [20]);
    assert_eq!(read(&journal, 7, 9), [(7, 20)]);
    assert_eq!(read(&journal, 1, 9), [(1, 10), (7, 20)]);
}

#[test]
fn old_and_excess_lines_are_removed_but_not_the_newest() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path(), 4_000);
    let line = "x".repeat(499);
    (0..100).for_each(|_| journal.append(std::slice::from_ref(&line), NOW).unwrap());
    let bytes: u64 = files(directory.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!((3_000..=4_000).contains(&bytes), "{bytes}");
    assert_eq!((journal.oldest(), journal.next()), (101 - bytes / 500, 101));
    journal.append(std::slice::from_ref(&line), NOW.after(DAY).after(Span::from_secs(1))).unwrap();
    assert!(journal.oldest() >= 100);
    // A line larger than the bound is still written.
    journal.append(&["y".repeat(9_000)], NOW).unwrap();
    assert_eq!(journal.read(102, 9).unwrap().len(), 1);
}

#[test]
fn without_a_directory_the_newest_lines_are_in_memory() {
    let journal = Journal::in_memory();
    assert_eq!(journal.load_cursor("pager").unwrap().next, 1);
    append(&journal, 1..=MAX_IN_MEMORY as u64 + 10);
    assert_eq!((journal.oldest(), journal.next()), (11, MAX_IN_MEMORY as u64 + 11));
    assert_eq!(read(&journal, 1, 2), [(11, 11), (12, 12)]);
    assert_eq!(read(&journal, journal.next(), 2), []);
}

#[derive(Clone, Debug)]
enum Action {
    Append(u64),
    /// Reads so many lines and saves the cursor, or does not because of a crash.
    Read(usize, bool),
    /// Ends the process; so many bytes of a line that was being written remain.
    Crash(usize),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        3 => (1..20u64).prop_map(Action::Append),
        3 => (1..20usize, any::<bool>()).prop_map(|(max, saved)| Action::Read(max, saved)),
        1 => (0..5usize).prop_map(Action::Crash),
    ];
    proptest::collection::vec(action, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is interleaved: lines are read at least once, in order, and what was removed unread is known.
    #[test]
    fn every_line_is_read_or_counted_as_removed(actions in actions(), max_bytes in 64..512u64) {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = open(directory.path(), max_bytes);
        let (mut appended, mut read_to, mut removed) = (0, journal.load_cursor("a").unwrap().next, 0);
        for action in actions {
            match action {
                Action::Append(lines) => {
                    append(&journal, appended + 1..=appended + lines);
                    appended += lines;
                }
                Action::Read(max, saved) => {
                    let next = journal.load_cursor("a").unwrap().next;
                    prop_assert!(next <= read_to);
                    removed += journal.oldest().saturating_sub(next.max(read_to));
                    let lines = read(&journal, next, max);
                    let expected = next.max(journal.oldest())..;
                    prop_assert!(lines.iter().zip(expected).all(|((number, line), next)| *number == next && *line == next));
                    let end = lines.last().map_or(next, |(number, _)| number + 1);
                    read_to = read_to.max(end);
                    if saved {
                        journal.save_cursor("a", &SinkCursor { next: end, ended: None }).unwrap();
                    }
                }
                Action::Crash(partial) => {
                    drop(journal);
                    if let Some(last) = files(directory.path()).last() {
                        let mut text = fs::read(last).unwrap();
                        text.extend_from_slice(&b"98765"[..partial]);
                        fs::write(last, text).unwrap();
                    }
                    journal = open(directory.path(), max_bytes);
                }
            }
            prop_assert_eq!(journal.next(), appended + 1);
        }
        let rest = read(&journal, read_to, usize::MAX).len() as u64;
        removed += journal.oldest().saturating_sub(read_to);
        prop_assert!(read_to - 1 + rest + removed >= appended);
        let bytes: u64 = files(directory.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        // One file more than fits, and the newest append.
        prop_assert!(bytes <= max_bytes + 20 * 4, "{}", bytes);
    }
}
