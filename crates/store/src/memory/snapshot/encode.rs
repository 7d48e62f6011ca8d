//! From a store to bytes.

use std::io::{self, Write};

use tollgate_core::key::Secret;
use tollgate_core::{Reading, State, Timestamp, Wait};

use super::super::hash::Fingerprint;
use super::super::once::Record;
use super::super::shard::Shard;
use super::{END, Kind, MAGIC, SnapshotStats, VERSION};

/// Where a snapshot goes. What is encoded under a shard's lock waits in memory until that is let go.
pub(super) struct Sink<W> {
    out: W,
    waiting: Vec<u8>,
    crc: crc32fast::Hasher,
    stats: SnapshotStats,
}

/// How many bytes are encoded at most, but for the last entry, before the lock is let go: some tens of microseconds.
const BATCH: usize = 128 * 1024;

impl<W: Write> Sink<W> {
    pub(super) fn new(out: W) -> Sink<W> {
        Sink { out, waiting: Vec::new(), crc: crc32fast::Hasher::new(), stats: SnapshotStats::default() }
    }

    pub(super) fn header(&mut self, shards: usize, secret: Secret, written_at: Timestamp) -> io::Result<()> {
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

    /// All that lies in the tables themselves.
    pub(super) fn small(&mut self, shard: &Shard, now: Timestamp) {
        for (key, stale_at, it) in shard.buckets.live(now) {
            self.counter(Kind::Bucket, [key.high, key.low, stale_at.as_micros(), it.level, it.at]);
        }
        for (key, stale_at, it) in shard.fixed_windows.live(now) {
            self.counter(Kind::FixedWindow, [key.high, key.low, stale_at.as_micros(), it.start, it.used]);
        }
        for (key, stale_at, it) in shard.sliding_windows.live(now) {
            let [before, under_way] = it.counts;
            let words = [key.high, key.low, stale_at.as_micros(), it.start, before, under_way];
            self.counter(Kind::SlidingWindow, words);
        }
    }

    /// Some of those that are boxed, as far as they are still there. Says which are left.
    pub(super) fn large<'k>(
        &mut self,
        shard: &mut Shard,
        keys: &'k [Fingerprint],
        now: Timestamp,
    ) -> &'k [Fingerprint] {
        for (at, key) in keys.iter().enumerate() {
            if self.waiting.len() >= BATCH {
                return &keys[at..];
            }
            if let Some(place) = shard.large.place(*key) {
                let (state, stale_at) = shard.large.at(place);
                if stale_at > now {
                    self.large_state(*key, stale_at, state);
                }
            }
        }
        &[]
    }

    fn large_state(&mut self, key: Fingerprint, stale_at: Timestamp, state: &State) {
        let head = [key.high, key.low, stale_at.as_micros()];
        match state {
            State::SubWindows(it) => {
                self.counter(Kind::SubWindows, head);
                self.words([it.start]);
                self.number(it.counts.len());
                it.counts.iter().for_each(|count| self.words([*count]));
            }
            State::SlidingLog(it) => {
                self.counter(Kind::SlidingLog, head);
                self.number(it.entries.len());
                it.entries.iter().for_each(|entry| self.words([entry.at, entry.units]));
            }
            State::Holds(it) => {
                self.counter(Kind::Holds, head);
                self.words([it.at]);
                self.number(it.holds.len());
                for hold in &it.holds {
                    self.words([hold.by.0 as u64, (hold.by.0 >> 64) as u64, hold.expires]);
                }
            }
            // The others have tables of their own.
            State::Fresh | State::Bucket(_) | State::FixedWindow(_) | State::SlidingWindow(_) => {}
        }
    }

    pub(super) fn record(&mut self, key: Fingerprint, record: &Record) -> io::Result<()> {
        self.stats.once += 1;
        self.waiting.push(Kind::Once as u8);
        let (until, made) = (record.until.as_micros(), record.made.as_micros());
        self.words([key.high, key.low, until, made, record.body, record.terms]);
        self.waiting.push(u8::from(record.passed));
        self.number(record.readings.len());
        record.readings.iter().for_each(|reading| self.reading(reading));
        if self.waiting.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn reading(&mut self, reading: &Reading) {
        let (kind, wait) = match reading.wait {
            Wait::None => (0, 0),
            Wait::For(span) => (1, span.as_micros()),
            Wait::Forever => (2, 0),
        };
        self.waiting.extend([u8::from(reading.admits), kind, reading.source as u8]);
        let (reset_after, delay) = (reading.reset_after.as_micros(), reading.delay.as_micros());
        self.words([reading.taken, reading.remaining, wait, reset_after, delay]);
    }

    pub(super) fn end_block(&mut self) -> io::Result<()> {
        self.waiting.push(Kind::BlockEnds as u8);
        self.checksum()
    }

    pub(super) fn end(mut self) -> io::Result<SnapshotStats> {
        self.waiting.extend(END.to_le_bytes());
        self.words([self.stats.counters, self.stats.once]);
        self.checksum()?;
        self.out.flush()?;
        Ok(self.stats)
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.crc.update(&self.waiting);
        self.out.write_all(&self.waiting)?;
        self.stats.bytes += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    fn checksum(&mut self) -> io::Result<()> {
        self.flush()?;
        let sum = std::mem::take(&mut self.crc).finalize().to_le_bytes();
        self.stats.bytes += sum.len() as u64;
        self.out.write_all(&sum)
    }

    fn counter<const N: usize>(&mut self, kind: Kind, words: [u64; N]) {
        self.stats.counters += 1;
        self.waiting.push(kind as u8);
        self.words(words);
    }

    fn words<const N: usize>(&mut self, words: [u64; N]) {
        self.waiting.extend_from_slice(words.map(u64::to_le_bytes).as_flattened());
    }

    /// A number of things that is known to be small.
    fn number(&mut self, number: usize) {
        self.waiting.extend((number as u32).to_le_bytes());
    }
}
