//! Snapshots: a store's counters as bytes, and a store from them.
//!
//! ```text
//! file     = magic version header block … block end       one block for each shard, in their order
//! header   = shards secret secret written_at crc
//! block    = number entry … entry 0 crc
//! entry    = kind key key stale_at state                  a counter
//!          | kind key key until made body terms passed readings
//!                                                         a record of a claim that is settled once
//! end      = END counters records crc                     and nothing after it
//! ```
//!
//! Numbers are little endian. Each `crc` is the CRC-32 of all bytes since the one before (the first: since the version), so
//! damage and truncation are found wherever they are. Keys are the keyed hashes of the tables, so the secret is in there: who
//! can read the bytes can find keys that collide. The shard of an entry is chosen by bits that are not kept with it, so a
//! restored store has as many shards as the one that was written.
//!
//! In version 1 records had neither terms nor verdict. Its counters are read; its records are left out.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, BufReader, Read, Write};

use tollgate_core::{Claim, Timestamp};

use super::{MemoryConfig, MemoryStore};
use crate::clock::{Clock, SystemClock};
use decode::Source;
use encode::Sink;

/// What a snapshot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStats {
    /// Counters that were live.
    pub counters: u64,
    /// Records of claims that are settled once.
    pub once: u64,
    /// The length of it all.
    pub bytes: u64,
}

/// What came back from a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// What the snapshot holds.
    pub snapshot: SnapshotStats,
    /// When it was written.
    pub written_at: Timestamp,
    /// Counters and records that are over by now and were left out.
    pub stale: u64,
    /// Counters and records that there was no room for.
    pub dropped: u64,
}

/// Why there is no store in these bytes.
#[derive(Debug)]
pub enum SnapshotError {
    /// They do not begin as a snapshot does.
    NotASnapshot,
    /// A newer version of this program wrote them.
    NewerVersion {
        /// Of the format.
        version: u32,
    },
    /// They are not what was written.
    Damaged {
        /// The byte at which that was found.
        at: u64,
    },
    /// The end is missing.
    Truncated {
        /// Where they end.
        at: u64,
    },
    /// They can't be read.
    Io(io::Error),
}

const MAGIC: [u8; 8] = *b"TOLLSNAP";
const VERSION: u32 = 2;
/// The oldest version that is read.
const OLDEST: u32 = 1;
/// Stands where a shard's number would. There are never so many shards.
const END: u32 = u32::MAX;

/// What comes next in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    BlockEnds = 0,
    Bucket = 1,
    FixedWindow = 2,
    SlidingWindow = 3,
    SubWindows = 4,
    SlidingLog = 5,
    Holds = 6,
    Once = 7,
}

impl<C: Clock> MemoryStore<C> {
    /// Writes all counters and records that are live.
    ///
    /// Claims go on meanwhile. Each counter is as it was at some moment of the writing; a claim that was settled then may be in
    /// it with some of its counters.
    pub fn snapshot(&self, out: &mut impl Write) -> io::Result<SnapshotStats> {
        let now = self.clock.now();
        let mut sink = Sink::new(out);
        sink.header(self.shards.len(), self.hasher.secret(), now)?;
        for number in 0..self.shards.len() {
            sink.begin_block(number);
            let large = {
                let shard = self.lock(number);
                sink.small(&shard, now);
                shard.large.live(now).map(|(key, ..)| key).collect::<Vec<_>>()
            };
            sink.flush()?;
            // Logs and holds can be long. The lock is let go between some of them.
            let mut left = large.as_slice();
            while !left.is_empty() {
                left = sink.large(&mut self.lock(number), left, now);
                sink.flush()?;
            }
            let records: Vec<_> = {
                let shard = self.lock(number);
                let records = shard.records.live(now).filter(|(_, it)| it.readings.len() <= Claim::MOST_CHARGES);
                records.map(|(key, record)| (key, record.clone())).collect()
            };
            for (key, record) in &records {
                sink.record(*key, record)?;
            }
            sink.end_block()?;
        }
        sink.end()
    }
}

impl MemoryConfig {
    /// A store of this size with what a snapshot holds, on the machine's clock.
    pub fn restore(self, input: &mut impl Read) -> Result<(MemoryStore, Restored), SnapshotError> {
        self.restore_with(input, SystemClock::default())
    }

    /// The same on a clock of the caller's.
    pub fn restore_with<C: Clock>(
        self,
        input: &mut impl Read,
        clock: C,
    ) -> Result<(MemoryStore<C>, Restored), SnapshotError> {
        const BUFFER: usize = 256 * 1024;
        let now = clock.now();
        let mut source = Source::new(BufReader::with_capacity(BUFFER, input));
        let (shards, hasher, written_at) = source.header()?;
        let store = MemoryStore { clock, hasher, shards: self.lanes(shards) };
        for number in 0..shards {
            source.block(number, &mut store.lock(number), now)?;
        }
        let (snapshot, stale, dropped) = source.end()?;
        let dropped = dropped + store.stats().once_evicted;
        Ok((store, Restored { snapshot, written_at, stale, dropped }))
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::NotASnapshot => write!(f, "it is not a snapshot of counters"),
            SnapshotError::NewerVersion { version } => {
                write!(f, "it has version {version} of the format, and this program knows versions up to {VERSION}")
            }
            SnapshotError::Damaged { at } => write!(f, "it is damaged: what comes before byte {at} can't be right"),
            SnapshotError::Truncated { at } => write!(f, "it is truncated: it ends after {at} bytes"),
            SnapshotError::Io(error) => write!(f, "it can't be read: {error}"),
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SnapshotError::Io(error) => Some(error),
            _ => None,
        }
    }
}
