//! Stored answers of idempotent claims. Their number is bounded, also for each caller. Expired ones are removed first,
//! then those that expire soonest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tollgate_core::{Claim, Once, Reading, Replay, Settlement, Span, Timestamp, Verdict, Wait};

use super::hash::{Fingerprint, KeyHash};

/// The stored answers of some partitions.
#[derive(Debug)]
pub(super) struct StoredAnswers {
    by_key: HashMap<Fingerprint, StoredAnswer>,
    by_expiry: BTreeMap<Expiry, Fingerprint>,
    by_caller: BTreeMap<(u64, Expiry), Fingerprint>,
    /// The number of answers of each caller.
    callers: HashMap<u64, usize, foldhash::fast::RandomState>,
    bounds: OnceBounds,
    evicted: u64,
    /// The number of answers so far. Of those that expire at the same time, the oldest is evicted first.
    stored: u64,
}

/// The bounds of stored answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnceBounds {
    pub(super) max: usize,
    pub(super) max_per_caller: usize,
}

/// When an answer expires, and its number.
type Expiry = (Timestamp, u64);

/// An answer and its expiry.
#[derive(Clone, Debug)]
pub(super) struct StoredAnswer {
    pub(super) caller: u64,
    pub(super) body: u64,
    pub(super) terms: u64,
    /// Whether the claim passed.
    pub(super) passed: bool,
    pub(super) settled_at: Timestamp,
    pub(super) until: Timestamp,
    /// Shared with a snapshot while it is written.
    pub(super) readings: Arc<[Reading]>,
    number: u64,
}

/// The caller of an answer from a snapshot that does not have it.
pub(super) const UNKNOWN_CALLER: u64 = 0;
/// The maximum number of expired answers that are removed for a new one. More than one, so that they become fewer.
const MAX_EXPIRED: usize = 64;

impl StoredAnswers {
    pub(super) fn new(bounds: OnceBounds) -> StoredAnswers {
        StoredAnswers {
            by_key: HashMap::new(),
            by_expiry: BTreeMap::new(),
            by_caller: BTreeMap::new(),
            callers: HashMap::default(),
            bounds,
            evicted: 0,
            stored: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The number of answers that were stored so far.
    pub(super) fn stored(&self) -> u64 {
        self.stored
    }

    /// The stored answer under this key, if it has not expired.
    pub(super) fn replay(
        &self,
        key: Fingerprint,
        once: &Once<'_>,
        claim: &Claim<'_>,
        now: Timestamp,
    ) -> Option<Settlement> {
        let answer = self.by_key.get(&key).filter(|answer| answer.until > now)?;
        Some(answer.replay(once).unwrap_or_else(|| Settlement::conflict(claim, now)))
    }

    /// Stores an answer for repetitions of the claim, if there is something to repeat: a passed claim's for as long as the
    /// claim says, a refusal no longer than its wait.
    pub(super) fn record(&mut self, hash: KeyHash, once: &Once<'_>, claim: &Claim<'_>, settlement: &Settlement) {
        let verdict = Verdict::reach(claim, settlement);
        let keep = match verdict.wait {
            Wait::For(wait) if !verdict.allowed => wait.min(once.keep),
            _ => once.keep,
        };
        if once.keep == Span::ZERO || !settlement.needs_record(claim) {
            return;
        }
        let answer = StoredAnswer {
            caller: hash.caller(),
            body: once.body,
            terms: once.terms,
            passed: verdict.allowed,
            settled_at: settlement.at,
            until: settlement.at.after(keep),
            readings: settlement.readings.as_slice().into(),
            number: 0,
        };
        self.admit(hash.key, answer, settlement.at);
    }

    /// Adds an answer.
    pub(super) fn admit(&mut self, key: Fingerprint, answer: StoredAnswer, now: Timestamp) {
        self.remove(key);
        self.remove_expired(now);
        let of_caller = self.callers.get(&answer.caller).copied().unwrap_or(0);
        if of_caller >= self.bounds.max_per_caller && answer.caller != UNKNOWN_CALLER {
            let own = (answer.caller, (Timestamp::default(), 0))..=(answer.caller, (Timestamp::MAX, u64::MAX));
            let first = self.by_caller.range(own).next().map(|(_, key)| *key);
            self.evict(first, now);
        }
        if self.by_key.len() >= self.bounds.max {
            let first = self.by_expiry.first_key_value().map(|(_, key)| *key);
            self.evict(first, now);
        }
        self.stored += 1;
        let answer = StoredAnswer { number: self.stored, ..answer };
        self.by_expiry.insert(answer.expiry(), key);
        self.by_caller.insert((answer.caller, answer.expiry()), key);
        *self.callers.entry(answer.caller).or_default() += 1;
        self.by_key.insert(key, answer);
    }

    /// The unexpired answers, those that expire soonest first.
    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = (Fingerprint, &StoredAnswer)> {
        let keys = self.by_expiry.range((now, u64::MAX)..);
        keys.filter_map(|(_, key)| Some((*key, self.by_key.get(key)?)))
    }

    fn remove_expired(&mut self, now: Timestamp) {
        for _ in 0..MAX_EXPIRED {
            match self.by_expiry.first_key_value() {
                Some(((until, _), key)) if *until <= now => self.remove(*key),
                _ => return,
            }
        }
    }

    fn evict(&mut self, key: Option<Fingerprint>, now: Timestamp) {
        let Some(key) = key else { return };
        self.evicted += u64::from(self.by_key.get(&key).is_some_and(|answer| answer.until > now));
        self.remove(key);
    }

    fn remove(&mut self, key: Fingerprint) {
        let Some(answer) = self.by_key.remove(&key) else { return };
        self.by_expiry.remove(&answer.expiry());
        self.by_caller.remove(&(answer.caller, answer.expiry()));
        if let Some(left) = self.callers.get_mut(&answer.caller) {
            *left -= 1;
            if *left == 0 {
                self.callers.remove(&answer.caller);
            }
        }
    }
}

impl StoredAnswer {
    /// An answer from a snapshot.
    pub(super) fn restored(
        caller: u64,
        [body, terms]: [u64; 2],
        passed: bool,
        [settled_at, until]: [Timestamp; 2],
        readings: Arc<[Reading]>,
    ) -> StoredAnswer {
        StoredAnswer { caller, body, terms, passed, settled_at, until, readings, number: 0 }
    }

    fn expiry(&self) -> Expiry {
        (self.until, self.number)
    }

    /// The stored answer, unless it belongs to a different request.
    fn replay(&self, once: &Once<'_>) -> Option<Settlement> {
        (self.body == once.body).then(|| Settlement {
            readings: self.readings.as_ref().into(),
            at: self.settled_at,
            replay: Replay::Again { terms: self.terms, passed: self.passed },
            ..Settlement::default()
        })
    }
}
