//! Stored answers of idempotent claims. Their number is bounded; the oldest are evicted.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tollgate_core::{Claim, Once, Reading, Replay, Settlement, Timestamp, Verdict, Wait};

use super::hash::Fingerprint;

/// The stored answers of one shard.
#[derive(Debug)]
pub(super) struct StoredAnswers {
    by_key: HashMap<Fingerprint, StoredAnswer>,
    /// By time of insertion. Entries that were removed from `by_key` or replaced since are skipped.
    order: VecDeque<(Fingerprint, Timestamp)>,
    max: usize,
    evicted: u64,
}

/// An answer and its expiry.
#[derive(Clone, Debug)]
pub(super) struct StoredAnswer {
    pub(super) body: u64,
    pub(super) terms: u64,
    /// Whether the claim passed.
    pub(super) passed: bool,
    pub(super) settled_at: Timestamp,
    pub(super) until: Timestamp,
    /// Shared with a snapshot while it is written.
    pub(super) readings: Arc<[Reading]>,
}

impl StoredAnswers {
    pub(super) fn new(max: usize) -> StoredAnswers {
        StoredAnswers { by_key: HashMap::new(), order: VecDeque::new(), max, evicted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The unexpired answer under this key.
    pub(super) fn get(&mut self, key: Fingerprint, now: Timestamp) -> Option<&StoredAnswer> {
        if self.by_key.get(&key).is_some_and(|answer| answer.until <= now) {
            self.by_key.remove(&key);
        }
        self.by_key.get(&key)
    }

    /// Stores an answer: a passed claim's for as long as the claim says, a refusal no longer than its wait.
    pub(super) fn insert(&mut self, key: Fingerprint, once: &Once<'_>, claim: &Claim<'_>, settlement: &Settlement) {
        let verdict = Verdict::reach(claim, settlement);
        let keep = match verdict.wait {
            Wait::For(wait) if !verdict.allowed => wait.min(once.keep),
            _ => once.keep,
        };
        let answer = StoredAnswer {
            body: once.body,
            terms: once.terms,
            passed: verdict.allowed,
            settled_at: settlement.at,
            until: settlement.at.after(keep),
            readings: settlement.readings.as_slice().into(),
        };
        self.admit(key, answer, settlement.at);
    }

    /// Adds an answer that is newer than all others.
    pub(super) fn admit(&mut self, key: Fingerprint, answer: StoredAnswer, now: Timestamp) {
        self.make_room(now);
        self.order.push_back((key, answer.settled_at));
        self.by_key.insert(key, answer);
    }

    /// The unexpired answers, oldest first.
    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = (Fingerprint, &StoredAnswer)> {
        self.order.iter().filter_map(move |(key, settled_at)| {
            let answer =
                self.by_key.get(key).filter(|answer| answer.settled_at == *settled_at && answer.until > now)?;
            Some((*key, answer))
        })
    }

    /// The queue is as long as the map except for answers that expired and were replaced. Both stay within the bound.
    fn make_room(&mut self, now: Timestamp) {
        while let Some((key, settled_at)) = self.order.front().copied() {
            let answer = self.by_key.get(&key).filter(|answer| answer.settled_at == settled_at);
            let expired = answer.is_none_or(|answer| answer.until <= now);
            if !expired && self.order.len() < self.max {
                return;
            }
            if answer.is_some() {
                self.by_key.remove(&key);
                self.evicted += u64::from(!expired);
            }
            self.order.pop_front();
        }
    }
}

impl StoredAnswer {
    /// The stored answer, unless it belongs to a different request.
    pub(super) fn replay(&self, once: &Once<'_>) -> Option<Settlement> {
        (self.body == once.body).then(|| Settlement {
            readings: self.readings.as_ref().into(),
            at: self.settled_at,
            replay: Replay::Again { terms: self.terms, passed: self.passed },
        })
    }
}
