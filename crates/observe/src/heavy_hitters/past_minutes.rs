//! Completed minutes, and blocks merged from them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Window;
use super::summary::{Retention, Summary};

/// Summaries of completed minutes.
#[derive(Debug, Default)]
pub(crate) struct PastMinutes {
    /// By minute, oldest first.
    minutes: VecDeque<(u64, Arc<Summary>)>,
    /// Blocks of [`BLOCK`] minutes, oldest first.
    blocks: VecDeque<(u64, Arc<Summary>)>,
    /// The number of rollovers of all shards.
    rollovers: u64,
}

/// Keys of a completed minute that are retained by each measure.
pub(crate) const RETENTION: Retention = Retention { counted: 560, used: 256 };
/// Minutes that are retained individually.
const MAX_MINUTES: u64 = 6;
/// Minutes per block.
const BLOCK: u64 = 5;
/// Blocks: one hour, and the block in which it begins.
const MAX_BLOCKS: usize = 13;

impl PastMinutes {
    /// Adds the completed minute of one shard.
    pub(crate) fn add(&mut self, minute: u64, summary: Summary) {
        self.rollovers += 1;
        if summary.keys.is_empty() {
            return;
        }
        let at = self.minutes.partition_point(|(other, _)| *other < minute);
        let other = match self.minutes.get_mut(at) {
            Some((other, summary)) if *other == minute => std::mem::take(Arc::make_mut(summary)),
            _ => {
                self.minutes.insert(at, (minute, Arc::default()));
                Summary::default()
            }
        };
        let mut both = Summary::merge_same_minute(&other, &summary);
        both.prune(RETENTION);
        self.minutes[at].1 = Arc::new(both);
        let newest = self.minutes.back().map_or(minute, |(newest, _)| *newest);
        while let Some((oldest, _)) = self.minutes.front()
            && oldest + MAX_MINUTES <= newest
            && let Some((minute, summary)) = self.minutes.pop_front()
        {
            self.fold(minute, &summary);
        }
    }

    /// Merges a minute into its block.
    fn fold(&mut self, minute: u64, summary: &Summary) {
        let block = minute / BLOCK;
        let at = self.blocks.partition_point(|(other, _)| *other < block);
        if self.blocks.get(at).is_none_or(|(other, _)| *other != block) {
            self.blocks.insert(at, (block, Arc::default()));
        }
        let mut both = Summary::merge([&self.blocks[at].1, summary]);
        both.prune(RETENTION);
        self.blocks[at].1 = Arc::new(both);
        while self.blocks.len() > MAX_BLOCKS {
            self.blocks.pop_front();
        }
    }

    /// Drops summaries that are ahead of this minute: the clock was set back.
    pub(crate) fn drop_future(&mut self, minute: u64) {
        self.rollovers += 1;
        self.minutes.retain(|(other, _)| *other <= minute + MAX_MINUTES);
        self.blocks.retain(|(other, _)| other * BLOCK <= minute + MAX_MINUTES);
    }

    /// The summaries of a window that ends at this minute.
    pub(crate) fn in_window(&self, window: Window, minute: u64) -> Vec<Arc<Summary>> {
        let first = minute.saturating_sub(window.minutes());
        // Shorter windows are covered by individual minutes.
        let blocks = self.blocks.iter().filter(|(block, _)| window == Window::Hour && block * BLOCK + BLOCK > first);
        let minutes = self.minutes.iter().filter(|(other, _)| *other >= first);
        blocks.chain(minutes).map(|(_, summary)| summary.clone()).collect()
    }

    /// A number that changes with every rollover.
    pub(crate) fn rollovers(&self) -> u64 {
        self.rollovers
    }

    /// The summary of this minute.
    pub(crate) fn minute(&self, minute: u64) -> Option<&Summary> {
        self.minutes.iter().find(|(other, _)| *other == minute).map(|(_, summary)| &**summary)
    }

    /// The memory in use, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.minutes.iter().chain(&self.blocks).map(|(_, summary)| summary.bytes() + size_of::<u64>()).sum()
    }
}
