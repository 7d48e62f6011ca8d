//! Recent changes, for followers of this server.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::watch;
use tollgate_control::FeedPosition;

use super::stream::RecordLine;

/// The lines of recent changes.
#[derive(Debug)]
pub struct Feed {
    recent: Mutex<RecentLines>,
    /// The latest generation.
    latest: watch::Sender<u64>,
}

#[derive(Debug)]
struct RecentLines {
    /// The point up to which it is complete.
    at: FeedPosition,
    lines: VecDeque<RecordLine>,
    bytes: usize,
    /// The number of dropped lines.
    before: u64,
    /// All changes after this generation are available.
    since: u64,
    /// The number of resets.
    resets: u64,
}

/// The position of a follower.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    resets: u64,
    position: u64,
}

/// The next changes for a follower.
#[derive(Debug, PartialEq, Eq)]
pub enum FeedBatch {
    /// Lines, and the generation in force after them, if they are the last ones.
    LineSender(Bytes, Option<u64>),
    /// The follower is too far behind: it has to take a snapshot.
    TooOld,
}

/// Retained lines, and bytes of them.
pub(super) const MAX_LINES: usize = 10_000;
pub(super) const MAX_BYTES: usize = 16 << 20;

impl Feed {
    pub(super) fn new(at: FeedPosition) -> Feed {
        let latest = watch::Sender::new(at.generation);
        Feed { recent: Mutex::new(RecentLines::since(at, 0)), latest }
    }

    /// Adds lines ordered by generation; the feed is complete up to `up_to` then.
    pub(super) fn add(&self, lines: impl IntoIterator<Item = RecordLine>, up_to: u64) {
        {
            let mut recent = self.recent();
            for line in lines {
                recent.bytes += line.bytes.len();
                recent.lines.push_back(line);
            }
            while recent.lines.len() > MAX_LINES || recent.bytes > MAX_BYTES {
                let Some(line) = recent.lines.pop_front() else { break };
                (recent.bytes, recent.since) = (recent.bytes - line.bytes.len(), line.generation);
                recent.before += 1;
            }
            recent.at.generation = up_to;
        }
        self.latest.send_replace(up_to);
    }

    /// Everything changed, or too much: all followers have to start over.
    pub(super) fn reset(&self, at: FeedPosition) {
        let generation = at.generation;
        {
            let mut recent = self.recent();
            *recent = RecentLines::since(at, recent.resets + 1);
        }
        self.latest.send_replace(generation);
    }

    /// The point up to which the feed is complete.
    pub fn at(&self) -> FeedPosition {
        self.recent().at.clone()
    }

    /// The position of a follower that knows everything up to a generation, of this store of record if given. `None`: it has to
    /// take a snapshot.
    pub fn follow(&self, of: Option<&str>, after: u64) -> Option<Cursor> {
        let recent = self.recent();
        let is_available =
            (recent.since..=recent.at.generation).contains(&after) && of.is_none_or(|of| of == recent.at.identity);
        let position = recent.lines.partition_point(|line| line.generation <= after);
        is_available.then_some(Cursor { resets: recent.resets, position: recent.before + position as u64 })
    }

    /// The next lines for a follower: up to `max_bytes`, or one line.
    pub fn next(&self, cursor: &mut Cursor, max_bytes: usize) -> FeedBatch {
        let recent = self.recent();
        if cursor.resets != recent.resets || cursor.position < recent.before {
            return FeedBatch::TooOld;
        }
        let mut chunk = BytesMut::new();
        let from = usize::try_from(cursor.position - recent.before).unwrap_or(usize::MAX);
        for line in recent.lines.iter().skip(from) {
            if !chunk.is_empty() && chunk.len() + line.bytes.len() > max_bytes {
                return FeedBatch::LineSender(chunk.freeze(), None);
            }
            chunk.extend_from_slice(&line.bytes);
            cursor.position += 1;
        }
        FeedBatch::LineSender(chunk.freeze(), Some(recent.at.generation))
    }

    /// Notifies of new generations.
    pub fn latest(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    fn recent(&self) -> MutexGuard<'_, RecentLines> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentLines {
    fn since(at: FeedPosition, resets: u64) -> RecentLines {
        RecentLines { since: at.generation, at, lines: VecDeque::new(), bytes: 0, before: 0, resets }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_records::RecordKind;

    use super::*;

    fn at(generation: u64) -> FeedPosition {
        FeedPosition { identity: "a".to_owned(), generation }
    }

    fn line(generation: u64) -> RecordLine {
        RecordLine { generation, kind: RecordKind::Quota, bytes: Bytes::from(format!("{generation}\n")) }
    }

    fn lines(text: &'static str, whole: Option<u64>) -> FeedBatch {
        FeedBatch::LineSender(Bytes::from_static(text.as_bytes()), whole)
    }

    #[test]
    fn a_follower_gets_all_that_is_past_what_it_knows() {
        let feed = Feed::new(at(5));
        assert!(feed.follow(None, 4).is_none() && feed.follow(None, 6).is_none());
        assert!(feed.follow(Some("b"), 5).is_none());
        let mut cursor = feed.follow(Some("a"), 5).unwrap();
        assert_eq!(feed.next(&mut cursor, 100), lines("", Some(5)));
        // One write may change many records, or none that is published.
        feed.add([line(6), line(7), line(7), line(7)], 8);
        assert_eq!(feed.next(&mut cursor, 4), lines("6\n7\n", None));
        assert_eq!(feed.next(&mut cursor, 4), lines("7\n7\n", Some(8)));
        assert_eq!(feed.next(&mut cursor, 4), lines("", Some(8)));
        let mut cursor = feed.follow(None, 6).unwrap();
        assert_eq!(feed.next(&mut cursor, 100), lines("7\n7\n7\n", Some(8)));
    }

    #[test]
    fn one_that_is_too_slow_or_followed_something_else_begins_again() {
        let feed = Feed::new(at(0));
        let mut slow = feed.follow(None, 0).unwrap();
        feed.add((1..=MAX_LINES as u64 + 2).map(line), MAX_LINES as u64 + 2);
        assert_eq!(feed.next(&mut slow, 100), FeedBatch::TooOld);
        assert!(feed.follow(None, 1).is_none());
        assert!(feed.follow(None, 2).is_some());
        let mut cursor = feed.follow(None, 3).unwrap();
        // Another database that is at the same generation.
        feed.reset(FeedPosition { identity: "b".to_owned(), generation: 3 });
        assert_eq!(feed.next(&mut cursor, 100), FeedBatch::TooOld);
        assert!(feed.follow(Some("a"), 3).is_none());
        assert!(feed.follow(Some("b"), 3).is_some());
    }
}
