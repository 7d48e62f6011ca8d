//! Decodes a snapshot. The bytes may come from anyone.
//!
//! Everything is checked: lengths against their bounds before memory is allocated, states for being ones that their
//! algorithms can produce. The data that is retained before a block's checksum has been verified is bounded as the
//! shard is.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Read};

use tollgate_core::algorithm::{Bucket, FixedWindow, Hold, Holds, LogEntry, SlidingLog, SlidingWindow};
use tollgate_core::key::HashSecret;
use tollgate_core::{Claim, ClaimId, CounterState, EXACT, Limit, Reading, Span, Timestamp, Wait};

use super::super::MAX_SHARDS;
use super::super::hash::{Fingerprint, KeyHasher};
use super::super::once::{StoredAnswer, StoredAnswers, UNKNOWN_CALLER};
use super::super::shard::{MemoryShard, RestoredCounter, ShardBounds};
use super::super::shares::UNKNOWN_SCOPE;
use super::super::worth::Worth;
use super::{END, EntryKind, MAGIC, MIN_VERSION, SOURCES, SnapshotError, SnapshotStats, VERSION};

type Result<T> = std::result::Result<T, SnapshotError>;

/// Reads a snapshot.
pub(super) struct SnapshotReader<R> {
    input: R,
    crc: crc32fast::Hasher,
    /// The version of the format.
    version: u32,
    /// The content read so far.
    stats: SnapshotStats,
    stale: u64,
    dropped: u64,
}

impl<R: Read> SnapshotReader<R> {
    pub(super) fn new(input: R) -> SnapshotReader<R> {
        let (crc, stats) = (crc32fast::Hasher::new(), SnapshotStats::default());
        SnapshotReader { input, crc, version: VERSION, stats, stale: 0, dropped: 0 }
    }

    pub(super) fn header(&mut self) -> Result<(usize, KeyHasher, Timestamp)> {
        if self.bytes()? != MAGIC {
            return Err(SnapshotError::NotASnapshot);
        }
        match u32::from_le_bytes(self.bytes()?) {
            version @ MIN_VERSION..=VERSION => self.version = version,
            0 => return Err(self.damaged()),
            version => return Err(SnapshotError::NewerVersion { version }),
        }
        self.crc = crc32fast::Hasher::new();
        let shards = self.number(1..=MAX_SHARDS)?;
        let [one, other, written_at] = self.words()?;
        let written_at = self.moment(written_at)?;
        self.checksum()?;
        if !shards.is_power_of_two() {
            return Err(self.damaged());
        }
        Ok((shards, KeyHasher::from_secret(HashSecret(one, other)), written_at))
    }

    /// Reads the block of one shard into the shard and the table of its records.
    pub(super) fn block(
        &mut self,
        number: usize,
        shard: &mut MemoryShard,
        answers: &mut StoredAnswers,
        now: Timestamp,
    ) -> Result<()> {
        self.number(number..=number)?;
        let ShardBounds { max_keys: max, grace, .. } = shard.bounds();
        let stale = now.before(grace);
        let mut counters = Vec::new();
        loop {
            let kind = self.kind()?;
            if kind == EntryKind::BlockEnds {
                break;
            }
            let [high, low, until] = self.words()?;
            let (key, until) = (Fingerprint::new(high, low), self.moment(until)?);
            // The caller of a record, the scope of a counter.
            let owner = if self.version > 2 { Some(self.words::<1>()?[0]) } else { None };
            if kind == EntryKind::Once {
                let record = self.record(owner.unwrap_or(UNKNOWN_CALLER), until)?;
                self.stats.once += 1;
                match record.filter(|_| until > now) {
                    Some(record) => answers.admit(key, record, now),
                    None => self.stale += 1,
                }
            } else {
                let state = self.state(kind)?;
                self.stats.counters += 1;
                let worth = owner.map_or(Worth::UNKNOWN, |_| Worth::from_bits(high as u8));
                let scope = owner.unwrap_or(UNKNOWN_SCOPE);
                match until > stale {
                    true => counters.push(RestoredCounter { key, scope, worth, stale_at: until, state }),
                    false => self.stale += 1,
                }
                if counters.len() > max.saturating_mul(2) {
                    self.dropped += prune(&mut counters, max);
                }
            }
        }
        self.checksum()?;
        self.dropped += prune(&mut counters, max);
        shard.fill(counters);
        Ok(())
    }

    /// Reads the end. Returns the content of the snapshot, the number of expired items, and the number of items
    /// without room.
    pub(super) fn end(mut self) -> Result<(SnapshotStats, u64, u64)> {
        let is_end = u32::from_le_bytes(self.bytes()?) == END;
        let counts = self.words()?;
        self.checksum()?;
        let is_whole = counts == [self.stats.counters, self.stats.once];
        let is_all = self.input.read(&mut [0]).map_err(SnapshotError::Io)? == 0;
        if is_end && is_whole && is_all { Ok((self.stats, self.stale, self.dropped)) } else { Err(self.damaged()) }
    }

    fn kind(&mut self) -> Result<EntryKind> {
        let [byte] = self.bytes()?;
        let kinds = [
            EntryKind::BlockEnds,
            EntryKind::Bucket,
            EntryKind::FixedWindow,
            EntryKind::SlidingWindow,
            EntryKind::SubWindows,
            EntryKind::SlidingLog,
            EntryKind::Holds,
            EntryKind::Once,
        ];
        kinds.into_iter().find(|kind| *kind as u8 == byte).ok_or_else(|| self.damaged())
    }

    fn state(&mut self, kind: EntryKind) -> Result<CounterState> {
        const MAX: usize = Limit::MAX_ENTRIES as usize;
        let state = match kind {
            EntryKind::Bucket => {
                let [level, at] = self.words()?;
                CounterState::Bucket(Bucket { level, at })
            }
            EntryKind::FixedWindow => {
                let [start, used] = self.words()?;
                CounterState::FixedWindow(FixedWindow { start, used })
            }
            EntryKind::SlidingWindow => {
                let [start, before, current] = self.words()?;
                CounterState::SlidingWindow(SlidingWindow { start, counts: [before, current] })
            }
            EntryKind::SubWindows => {
                let [start] = self.words()?;
                let counts = self.list(3..=usize::from(Limit::MAX_SUB_WINDOWS) + 1, |[count]| count)?;
                CounterState::SubWindows(Box::new(SlidingWindow { start, counts }))
            }
            EntryKind::SlidingLog => {
                let entries = self.list(0..=MAX, |[at, units]| LogEntry { at, units })?;
                CounterState::SlidingLog(Box::new(SlidingLog::from_entries(entries.into())))
            }
            EntryKind::Holds => {
                let [at] = self.words()?;
                let by = |low, high| ClaimId(u128::from(high) << 64 | u128::from(low));
                let holds = self.list(0..=MAX, |[low, high, expires]| Hold { by: by(low, high), expires })?;
                CounterState::Holds(Box::new(Holds::new(at, holds)))
            }
            EntryKind::BlockEnds | EntryKind::Once => CounterState::Fresh,
        };
        if state.is_sound() { Ok(state) } else { Err(self.damaged()) }
    }

    /// A stored answer, unless an older version omitted essential fields.
    fn record(&mut self, caller: u64, until: Timestamp) -> Result<Option<StoredAnswer>> {
        let [settled_at, body] = self.words()?;
        let settled_at = self.moment(settled_at)?;
        let verdict = match self.version {
            1 => None,
            _ => {
                let ([terms], [passed]) = (self.words()?, self.bytes()?);
                if passed > 1 {
                    return Err(self.damaged());
                }
                Some((terms, passed == 1))
            }
        };
        let number = self.number(0..=Claim::MAX_CHARGES)?;
        let readings = (0..number).map(|_| self.reading()).collect::<Result<_>>()?;
        let times = [settled_at, until];
        Ok(verdict.map(|(terms, passed)| StoredAnswer::restored(caller, [body, terms], passed, times, readings)))
    }

    fn reading(&mut self) -> Result<Reading> {
        let [admits, wait, source] = self.bytes()?;
        let [taken, remaining, wait_for, reset_after, delay] = self.words()?;
        let source = SOURCES.get(usize::from(source)).copied();
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

/// Retains the counters of most worth, and of each scope as many as are guaranteed to it. Returns how many were dropped.
fn prune(counters: &mut Vec<RestoredCounter>, max: usize) -> u64 {
    let over = counters.len().saturating_sub(max);
    if over > 0 {
        counters.sort_unstable_by_key(|counter| Reverse((counter.worth, counter.stale_at)));
        let mut of_scope: HashMap<u64, usize> = HashMap::new();
        counters.iter().for_each(|counter| *of_scope.entry(counter.scope).or_default() += 1);
        let guarantee = max / (2 * of_scope.len().max(1));
        of_scope.clear();
        let is_guaranteed = |counter: &RestoredCounter| {
            let of_scope = of_scope.entry(counter.scope).or_default();
            *of_scope += 1;
            *of_scope <= guarantee
        };
        let (guaranteed, others): (Vec<_>, Vec<_>) = counters.drain(..).partition(is_guaranteed);
        counters.extend(guaranteed.into_iter().chain(others).take(max));
    }
    over as u64
}
