//! Minutes that are over, and longer stretches made of them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Window;
use super::summary::{Keep, Summary};

/// What is over.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// By their numbers, the oldest first.
    minutes: VecDeque<(u64, Arc<Summary>)>,
    /// Of [`BLOCK`] minutes each, the oldest first.
    blocks: VecDeque<(u64, Arc<Summary>)>,
    /// How often a minute ended for a shard.
    turns: u64,
}

/// Keys of a minute that are kept by each measure, once it is over.
pub(crate) const KEEP: Keep = Keep { counted: 560, used: 256 };
/// Minutes that are kept one by one.
const MOST_MINUTES: u64 = 6;
/// Minutes of a block.
const BLOCK: u64 = 5;
/// The most blocks: an hour, and the one that it begins in.
const MOST_BLOCKS: usize = 13;

impl Past {
    /// A minute is over, for one shard.
    pub(crate) fn add(&mut self, minute: u64, summary: Summary) {
        self.turns += 1;
        if summary.cells.is_empty() {
            return;
        }
        let at = self.minutes.partition_point(|(known, _)| *known < minute);
        let known = match self.minutes.get_mut(at) {
            Some((known, summary)) if *known == minute => std::mem::take(Arc::make_mut(summary)),
            _ => {
                self.minutes.insert(at, (minute, Arc::default()));
                Summary::default()
            }
        };
        let mut both = Summary::of_one_minute(&known, &summary);
        both.prune(KEEP);
        self.minutes[at].1 = Arc::new(both);
        let newest = self.minutes.back().map_or(minute, |(newest, _)| *newest);
        while let Some((oldest, _)) = self.minutes.front()
            && oldest + MOST_MINUTES <= newest
            && let Some((minute, summary)) = self.minutes.pop_front()
        {
            self.fold(minute, &summary);
        }
    }

    /// A minute becomes a part of a block.
    fn fold(&mut self, minute: u64, summary: &Summary) {
        let block = minute / BLOCK;
        let at = self.blocks.partition_point(|(known, _)| *known < block);
        if self.blocks.get(at).is_none_or(|(known, _)| *known != block) {
            self.blocks.insert(at, (block, Arc::default()));
        }
        let mut both = Summary::together([&self.blocks[at].1, summary]);
        both.prune(KEEP);
        self.blocks[at].1 = Arc::new(both);
        while self.blocks.len() > MOST_BLOCKS {
            self.blocks.pop_front();
        }
    }

    /// Nothing of what is ahead of this minute by more than a few is true.
    pub(crate) fn forget_ahead(&mut self, minute: u64) {
        self.turns += 1;
        self.minutes.retain(|(known, _)| *known <= minute + MOST_MINUTES);
        self.blocks.retain(|(known, _)| known * BLOCK <= minute + MOST_MINUTES);
    }

    /// What belongs to a window that ends in this minute.
    pub(crate) fn within(&self, window: Window, minute: u64) -> Vec<Arc<Summary>> {
        let first = minute.saturating_sub(window.minutes());
        // Minutes of shorter windows are kept one by one.
        let blocks = self.blocks.iter().filter(|(block, _)| window == Window::Hour && block * BLOCK + BLOCK > first);
        let minutes = self.minutes.iter().filter(|(known, _)| *known >= first);
        blocks.chain(minutes).map(|(_, summary)| summary.clone()).collect()
    }

    /// A number that changes whenever a minute ends for a shard.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// The minute of this number.
    pub(crate) fn minute(&self, minute: u64) -> Option<&Summary> {
        self.minutes.iter().find(|(known, _)| *known == minute).map(|(_, summary)| &**summary)
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.minutes.iter().chain(&self.blocks).map(|(_, summary)| summary.bytes() + size_of::<u64>()).sum()
    }
}
