//! Units that requests spend before the store counts them, for rules with `ahead`.
//!
//! All servers together may spend a part of the quota in advance, each of them an equal share of it, and the store counts
//! what they spent within [`INTERVAL`]. A server stops when the store has less left than that part, and begins again when
//! it has more. So the limit is exceeded by at most that part: when the store has nothing left, each server spends at most
//! its share before it hears of it.

use std::collections::{HashMap, VecDeque};

use tollgate_core::{
    Ask, Charge, Key, Limit, Mode, OnFailure, OwnedCharge, OwnedKey, Reading, Shortcuts, Source, Span, Wait,
};

use super::changes::KeyAdjustment;
use super::policy;
use crate::clock::Steady;

/// The keys of which units were spent in advance.
#[derive(Debug)]
pub(super) struct Advances {
    keys: HashMap<u128, Advance, foldhash::fast::RandomState>,
    /// The most keys.
    max_keys: usize,
    /// The hashes of all keys, each once. A key that was checked moves to the back.
    order: VecDeque<u128>,
    /// Those of which the store has to count units, each once.
    due: Vec<u128>,
}

/// The state of one key.
#[derive(Debug)]
struct Advance {
    key: OwnedKey,
    limit: Limit,
    /// What all servers together may spend in advance.
    part: u64,
    /// Spent by claims that have not passed yet.
    reserved: u64,
    /// Spent, and not sent to the store.
    unsent: u64,
    /// Sent, and not answered.
    sent: u64,
    /// The store's last answer.
    heard: Option<LastAnswer>,
    last_used: Steady,
}

#[derive(Clone, Copy, Debug)]
struct LastAnswer {
    remaining: u64,
    reset_after: Span,
    sent: Steady,
    /// Nothing is spent in advance before this.
    stopped_until: Steady,
}

/// Units are sent to the store at this interval.
pub(super) const INTERVAL: Span = Span::from_micros(100_000);
/// What the store said of a key is remembered for this long after its last request.
const IDLE: Span = Span::from_secs(10);
/// The pause after a call that the store did not answer.
const UNANSWERED_PAUSE: Span = Span::from_secs(1);
/// The keys that a beat checks.
const KEYS_OF_A_BEAT: usize = 256;

/// What all servers may spend of a limit in advance, and the share of each.
pub(super) fn shares(limit: &Limit, basis_points: u16, servers: u64) -> (u64, u64) {
    let part = u128::from(limit.quota()) * u128::from(basis_points) / 10_000;
    let part = u64::try_from(part).unwrap_or(u64::MAX);
    (part, part.checked_div(servers).unwrap_or(0))
}

impl Advances {
    pub(super) fn new(max_keys: usize) -> Advances {
        Advances { keys: HashMap::default(), max_keys, order: VecDeque::new(), due: Vec::new() }
    }

    /// Reserves the units of a charge, if they may be spent in advance.
    pub(super) fn reserve(
        &mut self,
        hash: u128,
        charge: &Charge<'_>,
        (part, share): (u64, u64),
        now: Steady,
    ) -> Option<Reading> {
        if charge.units > share || charge.mode != Mode::Enforce {
            return None;
        }
        let advance = self.key(hash, charge, part, now)?;
        let outstanding = advance.reserved + advance.unsent + advance.sent;
        let is_stopped = advance.heard.is_some_and(|heard| now < heard.stopped_until);
        if is_stopped || outstanding + charge.units > share {
            return None;
        }
        advance.reserved += charge.units;
        Some(advance.reading(charge.units, now))
    }

    fn key(&mut self, hash: u128, charge: &Charge<'_>, part: u64, now: Steady) -> Option<&mut Advance> {
        if !self.keys.contains_key(&hash) {
            if self.keys.len() >= self.max_keys {
                return None;
            }
            let (key, limit) = (OwnedKey::from(&charge.key), charge.limit.clone());
            let advance = Advance { key, limit, part, reserved: 0, unsent: 0, sent: 0, heard: None, last_used: now };
            self.keys.insert(hash, advance);
            self.order.push_back(hash);
        }
        let advance = self.keys.get_mut(&hash)?;
        if (advance.limit.amount(), advance.limit.quota()) != (charge.limit.amount(), charge.limit.quota()) {
            advance.limit = charge.limit.clone();
            advance.heard = None;
        }
        (advance.part, advance.last_used) = (part, now);
        Some(advance)
    }

    /// The claim of reserved units passed.
    pub(super) fn spend(&mut self, hash: u128, units: u64) {
        if let Some(advance) = self.keys.get_mut(&hash) {
            advance.reserved = advance.reserved.saturating_sub(units);
            if advance.unsent == 0 {
                self.due.push(hash);
            }
            advance.unsent += units;
        }
    }

    /// The claim of reserved units did not pass.
    pub(super) fn release(&mut self, hash: u128, units: u64) {
        if let Some(advance) = self.keys.get_mut(&hash) {
            advance.reserved = advance.reserved.saturating_sub(units);
        }
    }

    /// The units that the store has to count now.
    pub(super) fn take_due(&mut self) -> Vec<(u128, OwnedCharge)> {
        let keys = &mut self.keys;
        let charges = self.due.drain(..).filter_map(|hash| {
            let advance = keys.get_mut(&hash)?;
            let units = std::mem::take(&mut advance.unsent);
            advance.sent += units;
            Some((hash, advance.charge(units)))
        });
        charges.collect()
    }

    /// Units that were to be sent, and could not be: they are due again.
    pub(super) fn put_back(&mut self, hash: u128, units: u64) {
        if let Some(advance) = self.keys.get_mut(&hash) {
            advance.sent = advance.sent.saturating_sub(units);
            if advance.unsent == 0 {
                self.due.push(hash);
            }
            advance.unsent += units;
        }
    }

    /// The answer to units that were sent. If it is not the store's, nothing more is spent for a while, and units that the
    /// layer below does not send later either are sent again: the store may count them twice, but never not at all.
    pub(super) fn end_call(&mut self, hash: u128, units: u64, reading: Option<&Reading>, sent: Steady) {
        let source = reading.map(|reading| reading.source);
        if !matches!(source, Some(Source::Store | Source::Local)) {
            self.put_back(hash, units);
        } else if let Some(advance) = self.keys.get_mut(&hash) {
            advance.sent = advance.sent.saturating_sub(units);
        }
        let Some(advance) = self.keys.get_mut(&hash) else { return };
        match reading.filter(|_| source == Some(Source::Store)) {
            Some(reading) => advance.hear(reading, sent),
            None => {
                let stopped_until = sent.after(UNANSWERED_PAUSE);
                let unknown = LastAnswer { remaining: 0, reset_after: Span::ZERO, sent, stopped_until };
                advance.heard = Some(LastAnswer { stopped_until, ..advance.heard.unwrap_or(unknown) });
            }
        }
    }

    /// The store's answer to a request of the key.
    pub(super) fn hear(&mut self, hash: u128, charge: &Charge<'_>, part: u64, reading: &Reading, sent: Steady) {
        if let Some(advance) = self.key(hash, charge, part, sent) {
            advance.hear(reading, sent);
        }
    }

    /// Forgets what is known of a key, because an operator changed its counter. Units that were spent stay.
    pub(super) fn forget(&mut self, hash: u128) {
        if let Some(advance) = self.keys.get_mut(&hash) {
            advance.heard = None;
        }
    }

    /// Does so for the keys that operators changed on other servers.
    pub(super) fn forget_if(&mut self, adjustment_of: impl Fn(&Key<'_>) -> Option<KeyAdjustment>) {
        for advance in self.keys.values_mut().filter(|advance| adjustment_of(&advance.key.key()).is_some()) {
            advance.heard = None;
        }
    }

    /// Forgets idle keys.
    pub(super) fn beat(&mut self, now: Steady) {
        for _ in 0..self.order.len().min(KEYS_OF_A_BEAT) {
            let Some(hash) = self.order.pop_front() else { break };
            let is_needed = self.keys.get(&hash).is_some_and(|advance| advance.is_needed(now));
            match is_needed {
                true => self.order.push_back(hash),
                false => drop(self.keys.remove(&hash)),
            }
        }
    }

    /// Whether the store has to count units.
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

impl Advance {
    fn hear(&mut self, reading: &Reading, sent: Steady) {
        let is_scarce = !reading.admits || reading.remaining < self.part;
        // A counter that nobody uses until then is as new.
        let stopped_until = if is_scarce { sent.after(reading.reset_after) } else { sent };
        let Reading { remaining, reset_after, .. } = *reading;
        // Answers may arrive out of order; the later call knows more.
        if self.heard.is_none_or(|heard| heard.sent <= sent) {
            self.heard = Some(LastAnswer { remaining, reset_after, sent, stopped_until });
        }
    }

    fn is_needed(&self, now: Steady) -> bool {
        let is_stopped = self.heard.is_some_and(|heard| now < heard.stopped_until);
        self.reserved + self.unsent + self.sent > 0 || is_stopped || now.since(self.last_used) < IDLE
    }

    fn reading(&self, units: u64, now: Steady) -> Reading {
        let outstanding = self.reserved + self.unsent + self.sent;
        let (remaining, reset_after) = match self.heard {
            Some(LastAnswer { remaining, reset_after, sent, .. }) => {
                let elapsed = now.since(sent);
                let left = Span::from_micros(reset_after.as_micros().saturating_sub(elapsed.as_micros()));
                (policy::remaining(&self.limit, remaining, reset_after, elapsed), left)
            }
            None => (self.limit.quota(), self.limit.period().span()),
        };
        Reading {
            admits: true,
            taken: units,
            remaining: remaining.saturating_sub(outstanding),
            wait: Wait::None,
            reset_after,
            delay: Span::ZERO,
            source: Source::Lease,
        }
    }

    fn charge(&self, units: u64) -> OwnedCharge {
        OwnedCharge {
            key: self.key.clone(),
            limit: self.limit.clone(),
            ask: Ask::Regardless,
            units,
            mode: Mode::Enforce,
            // While the store is unavailable, the layer below remembers the units, and sends them later.
            on_failure: OnFailure::Local,
            shortcuts: Shortcuts::Refusals,
        }
    }
}
