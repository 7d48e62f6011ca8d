//! What changed lately, for those who follow this server.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::watch;
use tollgate_control::Point;

/// The lines of what changed lately.
#[derive(Debug)]
pub(crate) struct Feed {
    recent: Mutex<Recent>,
    /// The generation of the latest of them.
    latest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Recent {
    /// As of which write all of it is.
    at: Point,
    lines: VecDeque<(u64, Bytes)>,
    bytes: usize,
    /// How many lines there were before these.
    before: u64,
    /// All that changed past this generation is there.
    since: u64,
    /// How often everything was another.
    beginnings: u64,
}

/// Up to where a follower was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    beginning: u64,
    told: u64,
}

/// What a follower is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Followed {
    /// These lines, and the generation that is in force with them, if they are all that there are.
    Lines(Bytes, Option<u64>),
    /// It knows too little: it has to take a snapshot.
    TooOld,
}

/// How many lines, and bytes of them, are kept.
pub(super) const MOST_LINES: usize = 10_000;
pub(super) const MOST_BYTES: usize = 16 << 20;

impl Feed {
    pub(super) fn new(at: Point) -> Feed {
        let latest = watch::Sender::new(at.generation);
        Feed { recent: Mutex::new(Recent::since(at, 0)), latest }
    }

    /// Adds lines in the order of their generations; with them all is as of `up_to`.
    pub(super) fn add(&self, lines: impl IntoIterator<Item = (u64, Bytes)>, up_to: u64) {
        {
            let mut recent = self.recent();
            for (generation, line) in lines {
                recent.bytes += line.len();
                recent.lines.push_back((generation, line));
            }
            while recent.lines.len() > MOST_LINES || recent.bytes > MOST_BYTES {
                let Some((generation, line)) = recent.lines.pop_front() else { break };
                (recent.bytes, recent.since) = (recent.bytes - line.len(), generation);
                recent.before += 1;
            }
            recent.at.generation = up_to;
        }
        self.latest.send_replace(up_to);
    }

    /// Everything is another, or too much changed: whoever follows has to begin again.
    pub(super) fn begin_again(&self, at: Point) {
        let generation = at.generation;
        {
            let mut recent = self.recent();
            *recent = Recent::since(at, recent.beginnings + 1);
        }
        self.latest.send_replace(generation);
    }

    /// As of which write all is that was told here.
    pub(crate) fn at(&self) -> Point {
        self.recent().at.clone()
    }

    /// Where one begins who knows all up to a generation, of this store of record if it says so. `None`: it has to take a
    /// snapshot.
    pub(crate) fn follow(&self, of: Option<&str>, after: u64) -> Option<Cursor> {
        let recent = self.recent();
        let known = (recent.since..=recent.at.generation).contains(&after) && of.is_none_or(|of| of == recent.at.of);
        let told = recent.lines.partition_point(|(generation, _)| *generation <= after);
        known.then_some(Cursor { beginning: recent.beginnings, told: recent.before + told as u64 })
    }

    /// The next lines for a follower, `most` bytes of them or one line.
    pub(crate) fn next(&self, cursor: &mut Cursor, most: usize) -> Followed {
        let recent = self.recent();
        if cursor.beginning != recent.beginnings || cursor.told < recent.before {
            return Followed::TooOld;
        }
        let mut told = BytesMut::new();
        let from = usize::try_from(cursor.told - recent.before).unwrap_or(usize::MAX);
        for (_, line) in recent.lines.iter().skip(from) {
            if !told.is_empty() && told.len() + line.len() > most {
                return Followed::Lines(told.freeze(), None);
            }
            told.extend_from_slice(line);
            cursor.told += 1;
        }
        Followed::Lines(told.freeze(), Some(recent.at.generation))
    }

    /// Tells when there may be something new.
    pub(crate) fn latest(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recent {
    fn since(at: Point, beginnings: u64) -> Recent {
        Recent { since: at.generation, at, lines: VecDeque::new(), bytes: 0, before: 0, beginnings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(generation: u64) -> Point {
        Point { of: "a".to_owned(), generation }
    }

    fn line(generation: u64) -> (u64, Bytes) {
        (generation, Bytes::from(format!("{generation}\n")))
    }

    fn lines(text: &'static str, whole: Option<u64>) -> Followed {
        Followed::Lines(Bytes::from_static(text.as_bytes()), whole)
    }

    #[test]
    fn a_follower_is_told_all_that_is_past_what_it_knows() {
        let feed = Feed::new(at(5));
        assert!(feed.follow(None, 4).is_none() && feed.follow(None, 6).is_none());
        assert!(feed.follow(Some("b"), 5).is_none());
        let mut cursor = feed.follow(Some("a"), 5).unwrap();
        assert_eq!(feed.next(&mut cursor, 100), lines("", Some(5)));
        // One write may change many records, and another none that is told.
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
        feed.add((1..=MOST_LINES as u64 + 2).map(line), MOST_LINES as u64 + 2);
        assert_eq!(feed.next(&mut slow, 100), Followed::TooOld);
        assert!(feed.follow(None, 1).is_none());
        assert!(feed.follow(None, 2).is_some());
        let mut cursor = feed.follow(None, 3).unwrap();
        // Another database that is at the same generation.
        feed.begin_again(Point { of: "b".to_owned(), generation: 3 });
        assert_eq!(feed.next(&mut cursor, 100), Followed::TooOld);
        assert!(feed.follow(Some("a"), 3).is_none());
        assert!(feed.follow(Some("b"), 3).is_some());
    }
}
