//! What a pool does with an answer of the store.

use tollgate_core::{Algorithm, Limit, OwnedCharge, Reading, Span, Timestamp, Wait};

use super::{Generation, Heard, MAX_CHUNKS, Pause, Pool};
use crate::clock::Steady;
use crate::leased::chunk::Chunk;
use crate::leased::policy::LeasePolicy;

/// An answer of the store to a pool.
#[derive(Clone, Copy, Debug)]
pub(in crate::leased) struct Answer<'a> {
    /// The answer to the request itself. `None` for a call ahead of demand.
    pub(in crate::leased) charge: Option<ChargeAnswer<'a>>,
    /// The units that were to be taken ahead of demand, and the reading.
    pub(in crate::leased) chunk: Option<(u64, &'a Reading)>,
    /// By the store's clock.
    pub(in crate::leased) at: Timestamp,
    /// When the call was sent.
    pub(in crate::leased) sent: Steady,
    /// How long the call took.
    pub(in crate::leased) took: Span,
    /// The limit of the units, and the pool's generation when the call began.
    pub(in crate::leased) limit: &'a Limit,
    pub(in crate::leased) generation: Generation,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::leased) struct ChargeAnswer<'a> {
    pub(in crate::leased) units: u64,
    pub(in crate::leased) reading: &'a Reading,
}

impl Pool {
    /// Adds units that the store gave.
    fn add(&mut self, new: Chunk) {
        let is_window = !matches!(self.limit.algorithm(), Algorithm::Bucket { .. });
        match self.chunks.last_mut() {
            Some(last) if is_window && last.ends_with(&new) => last.add(&new),
            _ => self.chunks.push(new),
        }
        if self.chunks.len() > MAX_CHUNKS {
            let oldest = self.chunks.remove(0);
            self.chunks[0] = oldest.joined(&self.limit, &self.chunks[0]);
        }
    }

    /// Receives units and learns from an answer of the store. Returns the units that are dropped, and the charges that give
    /// back those that are not needed.
    pub(in crate::leased) fn hear(
        &mut self,
        answer: &Answer<'_>,
        policy: &LeasePolicy,
        random: f64,
    ) -> (u64, Vec<OwnedCharge>) {
        if answer.generation != self.generation {
            return self.hear_outdated(answer, policy);
        }
        (self.learn(answer, policy, random), Vec::new())
    }

    /// Ends a call that began before the counter or its limit was changed.
    fn hear_outdated(&mut self, answer: &Answer<'_>, policy: &LeasePolicy) -> (u64, Vec<OwnedCharge>) {
        let Some((requested, reading)) = answer.chunk else { return Default::default() };
        self.is_refilling = false;
        if reading.taken > requested {
            return Default::default();
        }
        let chunk = Chunk::new(reading.taken, answer.limit, reading, answer.at, answer.sent, policy);
        match chunk.filter(|_| answer.generation >= self.void_before) {
            Some(chunk) => {
                let (returns, let_go) = self.returns(answer.limit, &[chunk], answer.sent);
                (let_go, returns)
            }
            None => (reading.taken, Vec::new()),
        }
    }

    fn learn(&mut self, answer: &Answer<'_>, policy: &LeasePolicy, random: f64) -> u64 {
        let Answer { charge, chunk, at, sent, took, .. } = *answer;
        self.rtt = policy.smoothed_rtt(self.rtt, took);
        let mut dropped = 0;
        if let Some((requested, reading)) = chunk {
            self.is_refilling = false;
            // An answer that makes no sense gives nothing.
            if reading.taken > 0 && reading.taken <= requested {
                let new = Chunk::new(reading.taken, &self.limit, reading, at, sent, policy);
                match new {
                    Some(new) => self.add(new),
                    None => dropped = reading.taken,
                }
            }
        }
        let Some(read) = chunk.map(|(_, reading)| reading).or(charge.map(|charge| charge.reading)) else { return 0 };
        self.heard = Some(Heard { at, sent, remaining: read.remaining, reset_after: read.reset_after });
        if chunk.is_some_and(|(_, reading)| reading.taken > 0) {
            self.stretch = policy.stretched(&self.limit, self.stretch, read.reset_after);
        }
        if let Some(ChargeAnswer { reading, .. }) = charge {
            let refused = if reading.admits { 0.0 } else { 1.0 };
            self.refused += (refused - self.refused) * policy.refused_weight;
        }
        let is_short = chunk.is_some_and(|(requested, reading)| reading.taken < requested);
        match charge.filter(|charge| !charge.reading.admits) {
            Some(ChargeAnswer { units, reading: Reading { wait: Wait::For(wait), .. } }) => {
                self.refusals = self.refusals.saturating_add(1);
                self.pause_calls(units, Some(*wait), sent, policy, random);
            }
            // Never admitted: says nothing about the units.
            Some(_) => {}
            None if is_short => {
                // A pause must not reach into the next window, where there is room.
                let is_fixed = self.limit.algorithm() == Algorithm::FixedWindow;
                let end = is_fixed.then(|| self.limit.part_end(at).since(at));
                self.pause_calls(1, end, sent, policy, random);
            }
            None => (self.refusals, self.pause) = (0, None),
        }
        dropped
    }

    fn pause_calls(&mut self, units: u64, wait: Option<Span>, sent: Steady, policy: &LeasePolicy, random: f64) {
        let pace = policy.pace(&self.limit, self.refused, self.refusals, wait, random);
        let until = sent.after(pace);
        let room_at = until.max(sent.after(wait.unwrap_or_default()));
        self.pause = Some(Pause { units, until, room_at });
    }
}
