//! Records of claims that are settled once: bounded, the oldest out.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tollgate_core::{Claim, Once, Reading, Replay, Settlement, Timestamp, Verdict, Wait};

use super::hash::Fingerprint;

/// The records of one shard.
#[derive(Debug)]
pub(super) struct Records {
    by_key: HashMap<Fingerprint, Record>,
    /// In the order of their making; what is gone from `by_key`, or was made anew since, is passed over.
    order: VecDeque<(Fingerprint, Timestamp)>,
    max: usize,
    evicted: u64,
}

/// What was answered, and until when that holds.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) body: u64,
    pub(super) terms: u64,
    /// Whether the claim passed.
    pub(super) passed: bool,
    pub(super) made: Timestamp,
    pub(super) until: Timestamp,
    /// Shared with a snapshot while that is written.
    pub(super) readings: Arc<[Reading]>,
}

impl Records {
    pub(super) fn new(max: usize) -> Records {
        Records { by_key: HashMap::new(), order: VecDeque::new(), max, evicted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The record of this name, if it still holds.
    pub(super) fn get(&mut self, key: Fingerprint, now: Timestamp) -> Option<&Record> {
        if self.by_key.get(&key).is_some_and(|record| record.until <= now) {
            self.by_key.remove(&key);
        }
        self.by_key.get(&key)
    }

    /// Keeps an answer: one that passed as long as the claim says, a refusal no longer than its wait.
    pub(super) fn insert(&mut self, key: Fingerprint, once: &Once<'_>, claim: &Claim<'_>, settlement: &Settlement) {
        let verdict = Verdict::reach(claim, settlement);
        let keep = match verdict.wait {
            Wait::For(wait) if !verdict.allowed => wait.min(once.keep),
            _ => once.keep,
        };
        let record = Record {
            body: once.body,
            terms: once.terms,
            passed: verdict.allowed,
            made: settlement.at,
            until: settlement.at.after(keep),
            readings: settlement.readings.as_slice().into(),
        };
        self.admit(key, record, settlement.at);
    }

    /// Takes in a record that is newer than all others.
    pub(super) fn admit(&mut self, key: Fingerprint, record: Record, now: Timestamp) {
        self.make_room(now);
        self.order.push_back((key, record.made));
        self.by_key.insert(key, record);
    }

    /// The records that still hold, the oldest first.
    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = (Fingerprint, &Record)> {
        self.order.iter().filter_map(move |(key, made)| {
            let record = self.by_key.get(key).filter(|record| record.made == *made && record.until > now)?;
            Some((*key, record))
        })
    }

    /// The queue is as long as the map but for what expired and was asked for again; both stay within the bound.
    fn make_room(&mut self, now: Timestamp) {
        while let Some((key, made)) = self.order.front().copied() {
            let record = self.by_key.get(&key).filter(|record| record.made == made);
            let over = record.is_none_or(|record| record.until <= now);
            if !over && self.order.len() < self.max {
                return;
            }
            if record.is_some() {
                self.by_key.remove(&key);
                self.evicted += u64::from(!over);
            }
            self.order.pop_front();
        }
    }
}

impl Record {
    /// What was answered, unless it was something else that was asked.
    pub(super) fn answer(&self, once: &Once<'_>) -> Option<Settlement> {
        (self.body == once.body).then(|| Settlement {
            readings: self.readings.as_ref().into(),
            at: self.made,
            replay: Replay::Again { terms: self.terms, passed: self.passed },
        })
    }
}
