//! What a server holds and knows of one leased key.

mod answer;

use smallvec::SmallVec;
use tollgate_core::{
    Algorithm, Ask, Charge, Limit, Mode, OnFailure, OwnedCharge, OwnedKey, Reading, Shortcuts, Source, Span, Timestamp,
    Wait,
};

use super::chunk::Chunk;
use super::demand::Demand;
use super::policy::{self, LeasePolicy, Outlook};
use crate::clock::Steady;

pub(super) use answer::{Answer, ChargeAnswer};

/// The units of one key, and what is known of its counter.
#[derive(Debug)]
pub(super) struct Pool {
    key: OwnedKey,
    limit: Limit,
    /// Oldest first: those are spent first.
    chunks: SmallVec<[Chunk; 2]>,
    demand: Demand,
    /// The share of the last requests that were refused.
    refused: f64,
    heard: Option<Heard>,
    pause: Option<Pause>,
    /// How often in a row the store refused.
    refusals: u32,
    /// The factor by which chunks of a bucket exceed the demand.
    stretch: f64,
    /// Units that drained while they were held, and are not counted yet.
    drained: u64,
    /// How long calls take, in seconds.
    rtt: f64,
    /// The size of the last chunk that the store was called for.
    chunk: u64,
    /// Whether a call for units is in progress.
    is_refilling: bool,
    /// No call for units before this moment.
    refill_from: Steady,
    /// Requests, and those of them that were decided here.
    requests: u64,
    decided: u64,
    /// Changes when what is known of the counter is outdated. An answer to a call of an older one says nothing.
    generation: Generation,
    /// Units of older generations are void: the store does not count them any more.
    void_before: Generation,
}

/// Numbers the times between changes of a counter, or of its limit, that did not come from requests. No two pools of a
/// table have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Generation(u64);

/// The last answer of the store.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// By the store's clock.
    at: Timestamp,
    /// When the call was sent.
    sent: Steady,
    remaining: u64,
    reset_after: Span,
}

/// The store is not called for a while, because it had no units.
#[derive(Clone, Copy, Debug)]
struct Pause {
    /// Fewer units than these may fit.
    units: u64,
    until: Steady,
    /// When the store expects to have room.
    room_at: Steady,
}

/// The most chunks. The two oldest of more become one.
const MAX_CHUNKS: usize = 4;

/// How a pool answers a charge.
#[derive(Clone, Copy, Debug)]
pub(super) enum PoolAnswer {
    /// From its units.
    Spent,
    /// The store would refuse: it did a moment ago.
    Refused,
    /// The store must be called, and up to this many units taken ahead of demand with it.
    Call { chunk: u64 },
}

/// Units that a claim took from a pool, until the claim has passed.
#[derive(Clone, Debug, Default)]
pub(super) struct Reserved(SmallVec<[Chunk; 1]>);

impl Generation {
    /// The next one.
    pub(super) fn next(&mut self) -> Generation {
        self.0 += 1;
        *self
    }
}

impl Pool {
    /// A pool for a key that had `requests` in the last `time`.
    pub(super) fn new(charge: &Charge<'_>, now: Steady, requests: u32, time: Span, generation: Generation) -> Pool {
        Pool {
            key: OwnedKey::from(&charge.key),
            limit: charge.limit.clone(),
            chunks: SmallVec::new(),
            demand: Demand::new(now, requests, time),
            refused: 0.0,
            heard: None,
            pause: None,
            refusals: 0,
            stretch: 1.0,
            drained: 0,
            rtt: 0.0,
            chunk: 0,
            is_refilling: false,
            refill_from: Steady::default(),
            requests: u64::from(requests),
            decided: 0,
            generation,
            void_before: generation,
        }
    }

    /// That of calls that begin now.
    pub(super) fn generation(&self) -> Generation {
        self.generation
    }

    pub(super) fn key(&self) -> &OwnedKey {
        &self.key
    }

    /// Whether the pool's units are those of this limit.
    pub(super) fn is_of(&self, limit: &Limit) -> bool {
        (self.limit.amount(), self.limit.quota()) == (limit.amount(), limit.quota())
    }

    /// Continues with another limit. Returns what is to be given back under the old one.
    pub(super) fn change_limit(&mut self, limit: &Limit, now: Steady, generation: Generation) -> Vec<OwnedCharge> {
        let returns = self.purge(now, generation).0;
        self.limit = limit.clone();
        returns
    }

    /// Counts a request.
    #[inline]
    pub(super) fn record(&mut self, units: u64, now: Steady) {
        self.requests += 1;
        self.demand.record(now, units);
    }

    /// Answers a charge, if possible from the units that are held.
    #[inline]
    pub(super) fn answer(
        &mut self,
        charge: &Charge<'_>,
        now: Steady,
        policy: &LeasePolicy,
        reserved: &mut Reserved,
    ) -> PoolAnswer {
        if self.take(charge.units, now, reserved) {
            self.decided += 1;
            self.refused -= self.refused * policy.refused_weight;
            return PoolAnswer::Spent;
        }
        let is_paused = self.pause.is_some_and(|pause| now < pause.until && charge.units >= pause.units);
        // Whether more units than the limit has ever fit is for the store to say.
        let may_fit = charge.units <= self.limit.quota();
        if is_paused && may_fit && charge.mode != Mode::Soft {
            self.decided += 1;
            self.refused += (1.0 - self.refused) * policy.refused_weight;
            return PoolAnswer::Refused;
        }
        PoolAnswer::Call { chunk: self.next_chunk(now, policy) }
    }

    /// The units that may be spent now.
    pub(super) fn held(&self, now: Steady) -> u64 {
        self.chunks.iter().map(|chunk| chunk.valid(&self.limit, now)).sum()
    }

    /// The same with units that may not be spent any more.
    pub(super) fn unspent(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.units).sum()
    }

    fn take(&mut self, units: u64, now: Steady, reserved: &mut Reserved) -> bool {
        // Most pools have one chunk.
        if let [chunk] = &mut self.chunks[..] {
            let fits = chunk.valid(&self.limit, now) >= units;
            if fits {
                self.drained += chunk.drop_drained(&self.limit, now);
                reserved.0.push(chunk.split(units));
            }
            return fits;
        }
        if self.held(now) < units {
            return false;
        }
        let mut missing = units;
        for chunk in &mut self.chunks {
            self.drained += chunk.drop_drained(&self.limit, now);
            let part = chunk.valid(&self.limit, now).min(missing);
            if part > 0 {
                missing -= part;
                reserved.0.push(chunk.split(part));
            }
        }
        true
    }

    /// The units that drained since the last call of this.
    #[inline]
    pub(super) fn take_drained(&mut self) -> u64 {
        std::mem::take(&mut self.drained)
    }

    /// Puts back units of a claim that did not pass. Returns whether they are still counted.
    pub(super) fn put_back(&mut self, reserved: &Reserved, generation: Generation) -> bool {
        if generation < self.void_before {
            return false;
        }
        for part in &reserved.0 {
            match self.chunks.iter_mut().find(|chunk| chunk.ends_with(part)) {
                Some(chunk) => chunk.add(part),
                None => self.chunks.insert(0, *part),
            }
        }
        true
    }

    /// How many units to take ahead of demand now. Zero if none.
    fn next_chunk(&self, now: Steady, policy: &LeasePolicy) -> u64 {
        if self.requests < policy.min_requests || self.is_refilling || now < self.refill_from {
            return 0;
        }
        let left = match self.store_time(now) {
            Some(at) => self.limit.part_end(at).since(at),
            None => self.limit.part(),
        };
        let remaining = match &self.heard {
            Some(heard) => self.remaining(heard, now),
            None => self.limit.quota(),
        };
        let (rate, refused, stretch) = (self.demand.rate(now), self.refused, self.stretch);
        policy.chunk(&self.limit, &Outlook { rate, refused, remaining, left, lead: policy.lead(self.rtt), stretch })
    }

    /// A call for units ahead of demand, if the pool needs them.
    pub(super) fn refill(&mut self, now: Steady, policy: &LeasePolicy) -> Option<OwnedCharge> {
        if self.is_refilling || self.pause.is_some_and(|pause| now < pause.until) {
            return None;
        }
        let lead = policy.lead(self.rtt);
        let needed = self.demand.rate(now) * lead;
        if needed < policy.min_ahead || self.held(now.after(policy::span(lead))) as f64 >= needed {
            return None;
        }
        self.take_refill(now, policy)
    }

    /// Units to take with a call that is made anyway.
    pub(super) fn take_refill(&mut self, now: Steady, policy: &LeasePolicy) -> Option<OwnedCharge> {
        let chunk = self.next_chunk(now, policy);
        (chunk > 0).then(|| {
            self.begin_call(chunk);
            self.charge(&self.limit, Ask::UpTo, chunk)
        })
    }

    /// A call for this many units is sent.
    pub(super) fn begin_call(&mut self, chunk: u64) {
        (self.is_refilling, self.chunk) = (true, chunk);
    }

    /// A call for units ended without an answer of the store. What it may have taken is lost until it expires there.
    pub(super) fn fail_call(&mut self, sent: Steady, policy: &LeasePolicy) {
        (self.is_refilling, self.refill_from) = (false, sent.after(policy::span(policy.unanswered_pause)));
    }

    /// A call for units ended, and none were to be taken.
    pub(super) fn abandon_call(&mut self) {
        self.is_refilling = false;
    }

    /// Takes everything that is held out of the pool: the charges that return it, and the units that are let go.
    pub(super) fn give_back(&mut self, now: Steady) -> (Vec<OwnedCharge>, u64) {
        let chunks = std::mem::take(&mut self.chunks);
        self.returns(&self.limit, &chunks, now)
    }

    /// The same for chunks whose time is over. What is left of a sliding window's part weighs on in the next one.
    pub(super) fn give_back_over(&mut self, now: Steady) -> (Vec<OwnedCharge>, u64) {
        let chunks = std::mem::take(&mut self.chunks);
        let (over, valid): (SmallVec<[Chunk; 2]>, _) = chunks.into_iter().partition(|chunk| chunk.is_over(now));
        self.chunks = valid;
        self.returns(&self.limit, &over, now)
    }

    /// The charges that return chunks of a limit, and the units that are let go.
    fn returns(&self, limit: &Limit, chunks: &[Chunk], now: Steady) -> (Vec<OwnedCharge>, u64) {
        let mut let_go = 0;
        let mut returns = Vec::new();
        let weighs_on = matches!(limit.algorithm(), Algorithm::SlidingWindow { .. })
            && !self.heard.is_some_and(|heard| policy::is_calm(limit, heard.remaining));
        for chunk in chunks.iter().filter(|chunk| chunk.units > 0) {
            let is_gone = chunk.is_over(now) && !weighs_on;
            match chunk.return_date(limit, now).filter(|_| !is_gone) {
                Some(taken_at) => returns.push(self.charge(limit, Ask::Return { taken_at }, chunk.units)),
                None => let_go += chunk.units,
            }
        }
        (returns, let_go)
    }

    /// As [`give_back`](Self::give_back), and forgets what the store said: it is called for the next request.
    pub(super) fn purge(&mut self, now: Steady, generation: Generation) -> (Vec<OwnedCharge>, u64) {
        self.generation = generation;
        (self.heard, self.pause, self.refusals, self.stretch) = (None, None, 0, 1.0);
        self.give_back(now)
    }

    /// Drops everything that is known and held, because the counter was reset. Returns the dropped units.
    pub(super) fn reset(&mut self, generation: Generation) -> u64 {
        (self.generation, self.void_before) = (generation, generation);
        let units = self.unspent();
        self.chunks.clear();
        (self.heard, self.pause, self.refusals) = (None, None, 0);
        units
    }

    /// Calls the store again at the next request without units.
    pub(super) fn end_pause(&mut self) {
        (self.pause, self.refusals) = (None, 0);
    }

    /// Whether some of the units are over.
    pub(super) fn has_over(&self, now: Steady) -> bool {
        self.chunks.iter().any(|chunk| chunk.is_over(now))
    }

    /// Whether no request came for a while.
    pub(super) fn is_idle(&self, now: Steady, policy: &LeasePolicy) -> bool {
        now.since(self.demand.last()) >= policy.idle(self.demand.rate(self.demand.last())) && !self.is_refilling
    }

    /// Whether no claim can have units of the pool reserved any more, while no request reaches it.
    pub(super) fn is_unused(&self, now: Steady) -> bool {
        now.since(self.demand.last()) >= policy::UNUSED && !self.is_refilling
    }

    /// The reading of a charge that was decided here.
    #[inline]
    pub(super) fn reading(&self, admits: bool, units: u64, now: Steady) -> Reading {
        let (remaining, reset_after) = match &self.heard {
            Some(heard) => {
                let elapsed = now.since(heard.sent).as_micros();
                let reset_after = Span::from_micros(heard.reset_after.as_micros().saturating_sub(elapsed));
                (self.remaining(heard, now), reset_after)
            }
            None => (0, Span::ZERO),
        };
        let wait = match self.pause {
            _ if admits => Wait::None,
            Some(pause) => Wait::For(pause.room_at.since(now).max(Span::from_micros(1))),
            None => Wait::For(Span::from_micros(1)),
        };
        let remaining = remaining.saturating_add(self.held(now)).min(self.limit.quota());
        Reading {
            admits,
            taken: if admits { units } else { 0 },
            remaining: if admits { remaining } else { remaining.min(units.saturating_sub(1)) },
            wait,
            reset_after,
            delay: Span::ZERO,
            source: Source::Lease,
        }
    }

    /// What the store has left, by its last answer and the time since.
    fn remaining(&self, heard: &Heard, now: Steady) -> u64 {
        policy::remaining(&self.limit, heard.remaining, heard.reset_after, now.since(heard.sent))
    }

    /// The store's clock.
    pub(super) fn store_time(&self, now: Steady) -> Option<Timestamp> {
        self.heard.as_ref().map(|heard| heard.at.after(now.since(heard.sent)))
    }

    /// Units a second, the size of the last chunk, and the share of requests that were decided here.
    pub(super) fn figures(&self, now: Steady) -> (f64, u64, f64) {
        (self.demand.rate(now), self.chunk, self.decided as f64 / self.requests.max(1) as f64)
    }

    fn charge(&self, limit: &Limit, ask: Ask, units: u64) -> OwnedCharge {
        OwnedCharge {
            key: self.key.clone(),
            limit: limit.clone(),
            ask,
            units,
            mode: Mode::Enforce,
            // Otherwise units would come from this server's share while the store is unavailable.
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::Refusals,
        }
    }
}
