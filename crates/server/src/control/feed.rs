//! What changed lately, for those who follow this server.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

/// The lines of what changed lately.
#[derive(Debug)]
pub(crate) struct Feed {
    recent: Mutex<Recent>,
    /// The generation of the latest of them.
    latest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Recent {
    lines: VecDeque<(u64, Bytes)>,
    bytes: usize,
    /// All that changed past this generation is there.
    since: u64,
}

#[expect(dead_code, reason = "for the parts of the API that are being written")]
/// What a follower is told.
#[derive(Debug)]
pub(crate) enum Followed {
    /// These lines, up to this generation.
    Lines(Vec<Bytes>, u64),
    /// It knows too little: it has to take a snapshot.
    TooOld,
}

/// How many lines, and bytes of them, are kept.
const MOST_LINES: usize = 10_000;
const MOST_BYTES: usize = 16 << 20;

impl Feed {
    pub(super) fn new(since: u64) -> Feed {
        let recent = Recent { lines: VecDeque::new(), bytes: 0, since };
        Feed { recent: Mutex::new(recent), latest: watch::Sender::new(since) }
    }

    /// Adds lines in the order of their generations; `up_to` is the last of them.
    pub(super) fn add(&self, lines: impl IntoIterator<Item = (u64, Bytes)>, up_to: u64) {
        {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            for (generation, line) in lines {
                recent.bytes += line.len();
                recent.lines.push_back((generation, line));
            }
            while recent.lines.len() > MOST_LINES || recent.bytes > MOST_BYTES {
                let Some((generation, line)) = recent.lines.pop_front() else { break };
                (recent.bytes, recent.since) = (recent.bytes - line.len(), generation);
            }
        }
        self.latest.send_replace(up_to);
    }

    /// Everything is another: whoever follows has to begin again.
    pub(super) fn begin_again(&self, since: u64) {
        *self.recent.lock().unwrap_or_else(PoisonError::into_inner) =
            Recent { lines: VecDeque::new(), bytes: 0, since };
        self.latest.send_replace(since);
    }

    #[expect(dead_code, reason = "for the parts of the API that are being written")]
    /// What changed past a generation.
    pub(crate) fn past(&self, after: u64) -> Followed {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = *self.latest.borrow();
        if after < recent.since || after > latest {
            return Followed::TooOld;
        }
        let lines = recent.lines.iter().filter(|(generation, _)| *generation > after);
        Followed::Lines(lines.map(|(_, line)| line.clone()).collect(), latest)
    }

    #[expect(dead_code, reason = "for the parts of the API that are being written")]
    /// Follows the generation of the latest line.
    pub(crate) fn latest(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }
}
