//! Encodes a snapshot.

use std::io::{self, Write};

use tollgate_core::key::HashSecret;
use tollgate_core::{CounterState, Reading, Timestamp, Wait};

use super::super::hash::Fingerprint;
use super::super::once::StoredAnswer;
use super::super::shard::MemoryShard;
use super::super::table::SlotTag;
use super::{END, EntryKind, MAGIC, SOURCES, SnapshotStats, VERSION};

/// Writes a snapshot. Data that is encoded under a shard's lock is buffered until the lock is released.
pub(super) struct SnapshotWriter<W> {
    out: W,
    buffer: Vec<u8>,
    crc: crc32fast::Hasher,
    stats: SnapshotStats,
}

/// The maximum number of bytes, except for the last entry, that are encoded before the lock is released: some tens of
/// microseconds.
const BATCH: usize = 128 * 1024;

impl<W: Write> SnapshotWriter<W> {
    pub(super) fn new(out: W) -> SnapshotWriter<W> {
        SnapshotWriter { out, buffer: Vec::new(), crc: crc32fast::Hasher::new(), stats: SnapshotStats::default() }
    }

    pub(super) fn header(&mut self, shards: usize, secret: HashSecret, written_at: Timestamp) -> io::Result<()> {
        self.out.write_all(&MAGIC)?;
        self.out.write_all(&VERSION.to_le_bytes())?;
        self.stats.bytes += (MAGIC.len() + size_of_val(&VERSION)) as u64;
        self.number(shards);
        self.words([secret.0, secret.1, written_at.as_micros()]);
        self.checksum()
    }

    pub(super) fn begin_block(&mut self, number: usize) {
        self.number(number);
    }

    /// Encodes the states that are in the tables themselves.
    pub(super) fn small(&mut self, shard: &MemoryShard, now: Timestamp) {
        for (key, tag, stale_at, it) in shard.buckets.live(now) {
            self.counter(EntryKind::Bucket, shard, key, tag, stale_at);
            self.words([it.level, it.at]);
        }
        for (key, tag, stale_at, it) in shard.fixed_windows.live(now) {
            self.counter(EntryKind::FixedWindow, shard, key, tag, stale_at);
            self.words([it.start, it.used]);
        }
        for (key, tag, stale_at, it) in shard.sliding_windows.live(now) {
            let [before, current] = it.counts;
            self.counter(EntryKind::SlidingWindow, shard, key, tag, stale_at);
            self.words([it.start, before, current]);
        }
    }

    /// Encodes some of the boxed states that still exist. Returns the remaining keys.
    pub(super) fn large<'k>(
        &mut self,
        shard: &MemoryShard,
        keys: &'k [Fingerprint],
        now: Timestamp,
    ) -> &'k [Fingerprint] {
        for (at, key) in keys.iter().enumerate() {
            if self.buffer.len() >= BATCH {
                return &keys[at..];
            }
            if let Some(index) = shard.large.find(*key) {
                let (state, stale_at) = shard.large.peek(index);
                if stale_at > now {
                    self.large_state(shard, *key, shard.large.tag(index), stale_at, state);
                }
            }
        }
        &[]
    }

    fn large_state(
        &mut self,
        shard: &MemoryShard,
        key: Fingerprint,
        tag: SlotTag,
        stale_at: Timestamp,
        state: &CounterState,
    ) {
        match state {
            CounterState::SubWindows(it) => {
                self.counter(EntryKind::SubWindows, shard, key, tag, stale_at);
                self.words([it.start]);
                self.number(it.counts.len());
                it.counts.iter().for_each(|count| self.words([*count]));
            }
            CounterState::SlidingLog(it) => {
                self.counter(EntryKind::SlidingLog, shard, key, tag, stale_at);
                self.number(it.entries.len());
                it.entries.iter().for_each(|entry| self.words([entry.at, entry.units]));
            }
            CounterState::Holds(it) => {
                self.counter(EntryKind::Holds, shard, key, tag, stale_at);
                self.words([it.at]);
                self.number(it.holds.len());
                for hold in &it.holds {
                    self.words([hold.by.0 as u64, (hold.by.0 >> 64) as u64, hold.expires]);
                }
            }
            // The others have tables of their own.
            CounterState::Fresh
            | CounterState::Bucket(_)
            | CounterState::FixedWindow(_)
            | CounterState::SlidingWindow(_) => {}
        }
    }

    pub(super) fn record(&mut self, key: Fingerprint, record: &StoredAnswer) -> io::Result<()> {
        self.stats.once += 1;
        self.buffer.push(EntryKind::Once as u8);
        let (until, settled_at) = (record.until.as_micros(), record.settled_at.as_micros());
        self.words([key.high, key.low, until, record.caller, settled_at, record.body, record.terms]);
        self.buffer.push(u8::from(record.passed));
        self.number(record.readings.len());
        record.readings.iter().for_each(|reading| self.reading(reading));
        if self.buffer.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn reading(&mut self, reading: &Reading) {
        let (kind, wait) = match reading.wait {
            Wait::None => (0, 0),
            Wait::For(span) => (1, span.as_micros()),
            Wait::Forever => (2, 0),
        };
        let source = SOURCES.iter().position(|source| *source == reading.source).unwrap_or_default();
        self.buffer.extend([u8::from(reading.admits), kind, source as u8]);
        let (reset_after, delay) = (reading.reset_after.as_micros(), reading.delay.as_micros());
        self.words([reading.taken, reading.remaining, wait, reset_after, delay]);
    }

    pub(super) fn end_block(&mut self) -> io::Result<()> {
        self.buffer.push(EntryKind::BlockEnds as u8);
        self.checksum()
    }

    pub(super) fn end(mut self) -> io::Result<SnapshotStats> {
        self.buffer.extend(END.to_le_bytes());
        self.words([self.stats.counters, self.stats.once]);
        self.checksum()?;
        self.out.flush()?;
        Ok(self.stats)
    }

    /// Writes the buffer.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.crc.update(&self.buffer);
        self.out.write_all(&self.buffer)?;
        self.stats.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn checksum(&mut self) -> io::Result<()> {
        self.flush()?;
        let sum = std::mem::take(&mut self.crc).finalize().to_le_bytes();
        self.stats.bytes += sum.len() as u64;
        self.out.write_all(&sum)
    }

    /// Encodes what every counter has before its state.
    fn counter(&mut self, kind: EntryKind, shard: &MemoryShard, key: Fingerprint, tag: SlotTag, stale_at: Timestamp) {
        self.stats.counters += 1;
        self.buffer.push(kind as u8);
        let worth = u64::from(tag.worth.bits());
        self.words([key.high | worth, key.low, stale_at.as_micros(), shard.shares.digest(tag.scope)]);
    }

    fn words<const N: usize>(&mut self, words: [u64; N]) {
        self.buffer.extend_from_slice(words.map(u64::to_le_bytes).as_flattened());
    }

    /// Encodes a number that is known to be small.
    fn number(&mut self, number: usize) {
        self.buffer.extend((number as u32).to_le_bytes());
    }
}
