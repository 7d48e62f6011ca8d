//! Snapshots: the counters of a store as bytes, and a store from these bytes.
//!
//! ```text
//! file     = magic version header block … block end       one block for each shard, in their order
//! header   = shards secret secret written_at crc
//! block    = number entry … entry 0 crc
//! entry    = kind key key stale_at scope state            a counter
//!          | kind key key until caller made body terms passed readings
//!                                                         a record of a claim that is settled once
//! end      = END counters records crc                     and nothing after it
//! ```
//!
//! Numbers are little endian. Each `crc` is the CRC-32 of all bytes since the previous one (the first: since the
//! version), so damage and truncation are detected anywhere. Keys are the keyed hashes of the tables, so the snapshot
//! contains the secret: whoever can read it can find keys that collide. The shard of an entry is selected by bits
//! that are not stored with it, so a restored store has as many shards as the original.
//!
//! The first word of a counter's key has the counter's worth in its last bits. Records are in the block of the first
//! shard whose callers they belong to.
//!
//! In version 2 there were no scopes, worths and callers: its counters share one share and are retained like counters
//! that refuse, its records have no bound per caller. In version 1 records also had neither terms nor verdict: they are
//! skipped.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, BufReader, Read, Write};

use tollgate_core::{Claim, Source, Timestamp};

use super::{MemoryConfig, MemoryStore};
use crate::clock::{Clock, SystemClock};
use decode::SnapshotReader;
use encode::SnapshotWriter;

/// The sources of readings, each by its number in a snapshot.
const SOURCES: [Source; 7] =
    [Source::Store, Source::Cache, Source::Local, Source::Assumed, Source::Shed, Source::Lease, Source::Summed];

/// The content of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStats {
    /// Live counters.
    pub counters: u64,
    /// Idempotency records.
    pub once: u64,
    /// The total length.
    pub bytes: u64,
}

/// The result of restoring a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// The content of the snapshot.
    pub snapshot: SnapshotStats,
    /// The time of the snapshot.
    pub written_at: Timestamp,
    /// Counters and records that have expired since and were skipped.
    pub stale: u64,
    /// Counters and records that there was no room for.
    pub dropped: u64,
}

/// Why a snapshot cannot be restored.
#[derive(Debug)]
pub enum SnapshotError {
    /// The bytes do not begin like a snapshot.
    NotASnapshot,
    /// The snapshot was written by a newer version of this program.
    NewerVersion {
        /// The version of the format.
        version: u32,
    },
    /// The bytes were altered.
    Damaged {
        /// The position at which that was detected.
        at: u64,
    },
    /// The end is missing.
    Truncated {
        /// The number of bytes.
        at: u64,
    },
    /// The bytes cannot be read.
    Io(io::Error),
}

const MAGIC: [u8; 8] = *b"TOLLSNAP";
const VERSION: u32 = 3;
/// The oldest supported version.
const MIN_VERSION: u32 = 1;
/// In place of a shard's number. There are never that many shards.
const END: u32 = u32::MAX;

/// The type of the next item in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum EntryKind {
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
    /// Writes all live counters and records.
    ///
    /// Claims continue meanwhile. Each counter has its state at some moment of the writing; of a concurrent claim
    /// only some counters may be included.
    pub fn snapshot(&self, out: &mut impl Write) -> io::Result<SnapshotStats> {
        let now = self.clock.now();
        let mut writer = SnapshotWriter::new(out);
        writer.header(self.shards.len(), self.hasher.secret(), now)?;
        for number in 0..self.shards.len() {
            writer.begin_block(number);
            let large = {
                let shard = self.lock(number);
                writer.small(&shard, now);
                shard.large.live(now).map(|(key, ..)| key).collect::<Vec<_>>()
            };
            writer.flush()?;
            // Logs and holds can be long. The lock is released between batches of them.
            let mut left = large.as_slice();
            while !left.is_empty() {
                left = writer.large(&self.lock(number), left, now);
                writer.flush()?;
            }
            if number.is_multiple_of(self.shards_per_answers()) {
                let records: Vec<_> = {
                    let answers = self.lock_answers(number / self.shards_per_answers());
                    let records = answers.live(now).filter(|(_, it)| it.readings.len() <= Claim::MAX_CHARGES);
                    records.map(|(key, record)| (key, record.clone())).collect()
                };
                for (key, record) in &records {
                    writer.record(*key, record)?;
                }
            }
            writer.end_block()?;
        }
        writer.end()
    }

    /// The number of shards whose records share a table.
    fn shards_per_answers(&self) -> usize {
        self.shards.len() / self.answers.len()
    }
}

impl MemoryConfig {
    /// A store with these bounds and the content of a snapshot, using the system clock.
    pub fn restore(self, input: &mut impl Read) -> Result<(MemoryStore, RestoreReport), SnapshotError> {
        self.restore_with(input, SystemClock::default())
    }

    /// The same, using the given clock.
    pub fn restore_with<C: Clock>(
        self,
        input: &mut impl Read,
        clock: C,
    ) -> Result<(MemoryStore<C>, RestoreReport), SnapshotError> {
        const BUFFER: usize = 256 * 1024;
        let now = clock.now();
        let mut reader = SnapshotReader::new(BufReader::with_capacity(BUFFER, input));
        let (shards, hasher, written_at) = reader.header()?;
        let store = self.build_empty(clock, hasher, shards);
        for number in 0..shards {
            let answers = number / store.shards_per_answers();
            reader.block(number, &mut store.lock(number), &mut store.lock_answers(answers), now)?;
        }
        let (snapshot, stale, dropped) = reader.end()?;
        let dropped = dropped + store.stats().once_evicted;
        Ok((store, RestoreReport { snapshot, written_at, stale, dropped }))
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::NotASnapshot => write!(f, "it is not a snapshot of counters"),
            SnapshotError::NewerVersion { version } => {
                write!(f, "it has version {version} of the format, and this program supports versions up to {VERSION}")
            }
            SnapshotError::Damaged { at } => write!(f, "it is damaged: the bytes before byte {at} are invalid"),
            SnapshotError::Truncated { at } => write!(f, "it is truncated: it ends after {at} bytes"),
            SnapshotError::Io(error) => write!(f, "it cannot be read: {error}"),
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
