//! From bytes, whoever wrote them, to a store.
//!
//! Nothing is believed before it is checked: lengths against their bounds before anything is allocated, states for being ones
//! that their algorithms could have left. What is kept until a block's checksum has proved it is bounded as the shard is.

use std::cmp::Reverse;
use std::io::{self, Read};

use tollgate_core::algorithm::{Bucket, Entry, FixedWindow, Hold, Holds, SlidingLog, SlidingWindow};
use tollgate_core::key::Secret;
use tollgate_core::settle::Source as From;
use tollgate_core::{Claim, ClaimId, EXACT, Limit, Reading, Span, State, Timestamp, Wait};

use super::super::MOST_SHARDS;
use super::super::hash::{Fingerprint, Hasher};
use super::super::once::Record;
use super::super::shard::{Counter, Shard};
use super::{END, Kind, MAGIC, OLDEST, SnapshotError, SnapshotStats, VERSION};

type Result<T> = std::result::Result<T, SnapshotError>;

/// Where a snapshot comes from.
pub(super) struct Source<R> {
    input: R,
    crc: crc32fast::Hasher,
    /// Of the format.
    version: u32,
    /// What was read so far.
    stats: SnapshotStats,
    stale: u64,
    dropped: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: R) -> Source<R> {
        let (crc, stats) = (crc32fast::Hasher::new(), SnapshotStats::default());
        Source { input, crc, version: VERSION, stats, stale: 0, dropped: 0 }
    }

    pub(super) fn header(&mut self) -> Result<(usize, Hasher, Timestamp)> {
        if self.bytes()? != MAGIC {
            return Err(SnapshotError::NotASnapshot);
        }
        match u32::from_le_bytes(self.bytes()?) {
            version @ OLDEST..=VERSION => self.version = version,
            0 => return Err(self.damaged()),
            version => return Err(SnapshotError::NewerVersion { version }),
        }
        self.crc = crc32fast::Hasher::new();
        let shards = self.number(1..=MOST_SHARDS)?;
        let [one, other, written_at] = self.words()?;
        let written_at = self.moment(written_at)?;
        self.checksum()?;
        if !shards.is_power_of_two() {
            return Err(self.damaged());
        }
        Ok((shards, Hasher::of(Secret(one, other)), written_at))
    }

    /// Reads the block of one shard into it.
    pub(super) fn block(&mut self, number: usize, shard: &mut Shard, now: Timestamp) -> Result<()> {
        self.number(number..=number)?;
        let stale = now.before(shard.grace());
        let most = shard.max_keys();
        let mut counters = Vec::new();
        loop {
            let kind = self.kind()?;
            if kind == Kind::BlockEnds {
                break;
            }
            let [high, low, until] = self.words()?;
            let (key, until) = (Fingerprint { high, low }, self.moment(until)?);
            if kind == Kind::Once {
                let record = self.record(until)?;
                self.stats.once += 1;
                match record.filter(|_| until > now) {
                    Some(record) => shard.records.admit(key, record, now),
                    None => self.stale += 1,
                }
            } else {
                let state = self.state(kind)?;
                self.stats.counters += 1;
                match until > stale {
                    true => counters.push(Counter { key, stale_at: until, state }),
                    false => self.stale += 1,
                }
                if counters.len() > most.saturating_mul(2) {
                    self.dropped += prune(&mut counters, most);
                }
            }
        }
        self.checksum()?;
        self.dropped += prune(&mut counters, most);
        shard.fill(counters);
        Ok(())
    }

    /// Reads the end: what the snapshot holds, how many are over, and how many there was no room for.
    pub(super) fn end(mut self) -> Result<(SnapshotStats, u64, u64)> {
        let is_end = u32::from_le_bytes(self.bytes()?) == END;
        let counts = self.words()?;
        self.checksum()?;
        let is_whole = counts == [self.stats.counters, self.stats.once];
        let is_all = self.input.read(&mut [0]).map_err(SnapshotError::Io)? == 0;
        if is_end && is_whole && is_all { Ok((self.stats, self.stale, self.dropped)) } else { Err(self.damaged()) }
    }

    fn kind(&mut self) -> Result<Kind> {
        let [byte] = self.bytes()?;
        let kinds = [
            Kind::BlockEnds,
            Kind::Bucket,
            Kind::FixedWindow,
            Kind::SlidingWindow,
            Kind::SubWindows,
            Kind::SlidingLog,
            Kind::Holds,
            Kind::Once,
        ];
        kinds.into_iter().find(|kind| *kind as u8 == byte).ok_or_else(|| self.damaged())
    }

    fn state(&mut self, kind: Kind) -> Result<State> {
        const MOST: usize = Limit::MOST_ENTRIES as usize;
        let state = match kind {
            Kind::Bucket => {
                let [level, at] = self.words()?;
                State::Bucket(Bucket { level, at })
            }
            Kind::FixedWindow => {
                let [start, used] = self.words()?;
                State::FixedWindow(FixedWindow { start, used })
            }
            Kind::SlidingWindow => {
                let [start, before, under_way] = self.words()?;
                State::SlidingWindow(SlidingWindow { start, counts: [before, under_way] })
            }
            Kind::SubWindows => {
                let [start] = self.words()?;
                let counts = self.list(3..=usize::from(Limit::MOST_SUB_WINDOWS) + 1, |[count]| count)?;
                State::SubWindows(Box::new(SlidingWindow { start, counts }))
            }
            Kind::SlidingLog => {
                let entries = self.list(0..=MOST, |[at, units]| Entry { at, units })?;
                State::SlidingLog(Box::new(SlidingLog::of(entries.into())))
            }
            Kind::Holds => {
                let [at] = self.words()?;
                let by = |low, high| ClaimId(u128::from(high) << 64 | u128::from(low));
                let holds = self.list(0..=MOST, |[low, high, expires]| Hold { by: by(low, high), expires })?;
                State::Holds(Box::new(Holds::of(at, holds)))
            }
            Kind::BlockEnds | Kind::Once => State::Fresh,
        };
        if state.is_sound() { Ok(state) } else { Err(self.damaged()) }
    }

    /// A record, unless an older version left out what matters of it.
    fn record(&mut self, until: Timestamp) -> Result<Option<Record>> {
        let [made, body] = self.words()?;
        let made = self.moment(made)?;
        let known = match self.version {
            1 => None,
            _ => {
                let ([terms], [passed]) = (self.words()?, self.bytes()?);
                if passed > 1 {
                    return Err(self.damaged());
                }
                Some((terms, passed == 1))
            }
        };
        let number = self.number(0..=Claim::MOST_CHARGES)?;
        let readings = (0..number).map(|_| self.reading()).collect::<Result<_>>()?;
        Ok(known.map(|(terms, passed)| Record { body, terms, passed, made, until, readings }))
    }

    fn reading(&mut self) -> Result<Reading> {
        let [admits, wait, source] = self.bytes()?;
        let [taken, remaining, wait_for, reset_after, delay] = self.words()?;
        let sources = [From::Store, From::Cache, From::Local, From::Assumed, From::Shed];
        let source = sources.into_iter().find(|it| *it as u8 == source);
        let wait = match (wait, wait_for) {
            (0, 0) => Some(Wait::None),
            (1, 1..) => Some(Wait::For(Span::from_micros(wait_for))),
            (2, 0) => Some(Wait::Forever),
            _ => None,
        };
        let (Some(source), Some(wait), true) = (source, wait, admits <= 1) else {
            return Err(self.damaged());
        };
        let (reset_after, delay) = (Span::from_micros(reset_after), Span::from_micros(delay));
        Ok(Reading { admits: admits == 1, taken, remaining, wait, reset_after, delay, source })
    }

    fn list<T, const N: usize>(
        &mut self,
        lengths: std::ops::RangeInclusive<usize>,
        item: impl Fn([u64; N]) -> T,
    ) -> Result<Vec<T>> {
        let length = self.number(lengths)?;
        let mut items = Vec::with_capacity(length);
        for _ in 0..length {
            items.push(item(self.words()?));
        }
        Ok(items)
    }

    fn number(&mut self, allowed: std::ops::RangeInclusive<usize>) -> Result<usize> {
        let number = u32::from_le_bytes(self.bytes()?);
        usize::try_from(number).ok().filter(|number| allowed.contains(number)).ok_or_else(|| self.damaged())
    }

    fn moment(&self, micros: u64) -> Result<Timestamp> {
        if micros < EXACT { Ok(Timestamp::from_micros(micros)) } else { Err(self.damaged()) }
    }

    fn checksum(&mut self) -> Result<()> {
        let sum = std::mem::take(&mut self.crc).finalize();
        let found = u32::from_le_bytes(self.bytes()?);
        self.crc = crc32fast::Hasher::new();
        if found == sum { Ok(()) } else { Err(self.damaged()) }
    }

    fn words<const N: usize>(&mut self) -> Result<[u64; N]> {
        let mut bytes = [[0; 8]; N];
        self.fill(bytes.as_flattened_mut())?;
        Ok(bytes.map(u64::from_le_bytes))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) => return Err(SnapshotError::Truncated { at: self.stats.bytes + filled as u64 }),
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SnapshotError::Io(error)),
            }
        }
        self.crc.update(bytes);
        self.stats.bytes += bytes.len() as u64;
        Ok(())
    }

    fn damaged(&self) -> SnapshotError {
        SnapshotError::Damaged { at: self.stats.bytes }
    }
}

/// Keeps those that are live the longest, and says how many had to go.
fn prune(counters: &mut Vec<Counter>, most: usize) -> u64 {
    let over = counters.len().saturating_sub(most);
    if over > 0 {
        counters.select_nth_unstable_by_key(most, |counter| Reverse(counter.stale_at));
        counters.truncate(most);
    }
    over as u64
}
