//! A claim that is settled partly here and partly by the store.

use smallvec::SmallVec;
use tollgate_core::{Ask, Charge, Claim, Mode, OnFailure, Reading, Replay, Settlement, Shortcuts, Source, Span, Vote};

use super::pool::{Answer, ChargeAnswer, Generation, Reserved};
use super::tables::{Parts, Tables};
use crate::clock::Steady;

/// A claim for the store, and what is to be done with its answer.
///
/// Units that the claim takes from pools are reserved until the store has answered. If it is dropped before, because the
/// caller is gone, they are put back.
#[derive(Debug)]
pub struct Call<'t, 'a> {
    tables: &'t Tables,
    claim: Claim<'a>,
    parts: Parts,
    sent: Steady,
    /// How long the store took, when it has answered.
    took: Span,
    is_ended: bool,
}

/// One charge of the claim.
#[derive(Debug)]
pub(super) enum Part {
    /// Paid from a pool.
    Held { pool: u128, generation: Generation, units: u64, reserved: Reserved, reading: Reading },
    /// Spent before the store counts it.
    Advanced { pool: u128, units: u64, reading: Reading },
    /// Refused by a pool.
    Refused(Reading),
    /// Settled by the store: the index of its charge there. If `chunk` is not zero, the next charge takes up to so many
    /// units for the pool.
    Sent { pool: Option<PoolPlace>, at: usize, chunk: u64 },
}

/// A pool, and its generation when the claim began.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolPlace {
    pub(super) hash: u128,
    pub(super) generation: Generation,
}

impl Part {
    /// A charge for the store, with its pool and the units to take for it. Its index is known when the call is made.
    pub(super) fn sent(pool: Option<PoolPlace>, chunk: u64) -> Part {
        Part::Sent { pool, at: 0, chunk }
    }

    pub(super) fn is_sent(&self) -> bool {
        matches!(self, Part::Sent { .. })
    }

    /// Whether the store settles the charge, and nothing else is to be done.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Part::Sent { pool: None, .. })
    }
}

/// Writes the answer of a claim that needs nothing from the store.
pub(super) fn answer(tables: &Tables, parts: &[Part], settlement: &mut Settlement) {
    settlement.readings.clear();
    settlement.readings.extend(parts.iter().map(|part| match part {
        Part::Held { reading, .. } | Part::Refused(reading) => *reading,
        Part::Advanced { pool, units, reading } => {
            tables.table(*pool).spend_in_advance(*pool, *units);
            *reading
        }
        Part::Sent { .. } => unreachable!("nothing was sent"),
    }));
    settlement.replay = Replay::First;
}

/// Ends a claim without an answer.
pub(super) fn abandon(tables: &Tables, parts: &[Part], sent: Steady) {
    for part in parts {
        match part {
            Part::Held { pool, generation, units, reserved, .. } => {
                tables.table(*pool).put_back(*pool, *generation, *units, reserved);
            }
            Part::Sent { pool: Some(pool), chunk, .. } if *chunk > 0 => {
                tables.table(pool.hash).fail_call(pool.hash, *chunk, sent, &tables.policy);
            }
            Part::Advanced { pool, units, .. } => tables.table(*pool).advances.release(*pool, *units),
            Part::Sent { .. } | Part::Refused(_) => {}
        }
    }
}

impl<'t, 'a> Call<'t, 'a> {
    /// Sends the charges of a claim that are not decided here.
    pub(super) fn new(tables: &'t Tables, claim: &Claim<'a>, mut parts: Parts, sent: Steady) -> Call<'t, 'a> {
        let mut charges = SmallVec::new();
        for (charge, part) in claim.charges.iter().zip(&mut parts) {
            let Part::Sent { at, chunk, .. } = part else { continue };
            *at = charges.len();
            charges.push(charge.clone());
            if *chunk > 0 {
                charges.push(Charge {
                    key: charge.key.clone(),
                    limit: charge.limit,
                    ask: Ask::UpTo,
                    units: *chunk,
                    mode: Mode::Enforce,
                    on_failure: OnFailure::Deny,
                    shortcuts: Shortcuts::Refusals,
                });
            }
        }
        let claim = Claim { id: claim.id, charges, once: None, timeout: claim.timeout };
        Call { tables, claim, parts, sent, took: Span::ZERO, is_ended: false }
    }

    /// The claim that the store is to settle.
    pub fn claim(&self) -> &Claim<'a> {
        &self.claim
    }

    /// Ends the claim with the store's answer to [`claim`](Self::claim), which came at `now`. `random` is from ½ to 1½.
    pub fn end(mut self, answer: &Settlement, now: Steady, random: f64, settlement: &mut Settlement) {
        (self.is_ended, self.took) = (true, now.since(self.sent));
        let mut vote = Vote::default();
        for (charge, reading) in self.claim.charges.iter().zip(&answer.readings) {
            vote.count(charge.ask, charge.mode, reading.admits);
        }
        let passes = vote.passes();
        settlement.readings.clear();
        for part in &self.parts {
            let reading = match part {
                Part::Held { reading, .. } if passes => *reading,
                Part::Held { pool, generation, units, reserved, reading } => {
                    self.tables.table(*pool).put_back(*pool, *generation, *units, reserved);
                    Reading { taken: 0, remaining: reading.remaining.saturating_add(*units), ..*reading }
                }
                Part::Advanced { pool, units, reading } if passes => {
                    self.tables.table(*pool).spend_in_advance(*pool, *units);
                    *reading
                }
                Part::Advanced { pool, units, reading } => {
                    self.tables.table(*pool).advances.release(*pool, *units);
                    Reading { taken: 0, remaining: reading.remaining.saturating_add(*units), ..*reading }
                }
                Part::Refused(reading) => *reading,
                Part::Sent { pool, at, chunk } => self.sent_part(*pool, *at, *chunk, answer, passes, random),
            };
            settlement.readings.push(reading);
        }
        (settlement.at, settlement.replay) = (answer.at, answer.replay);
        (settlement.link, settlement.lowered_to) = (answer.link, answer.lowered_to);
    }

    /// The reading of a charge that the store settled, from which its pool learns.
    fn sent_part(
        &self,
        pool: Option<PoolPlace>,
        at: usize,
        chunk: u64,
        answer: &Settlement,
        passes: bool,
        random: f64,
    ) -> Reading {
        let charge = &self.claim.charges[at];
        let Some(reading) = answer.readings.get(at) else { return Reading::assumed(charge, Source::Assumed) };
        let Some(PoolPlace { hash, generation }) = pool else { return *reading };
        let is_answer = |reading: &&Reading| reading.source == Source::Store;
        let taken = answer.readings.get(at + 1).filter(|reading| chunk > 0 && is_answer(reading));
        let mut table = self.tables.table(hash);
        if chunk > 0 && taken.is_none() {
            table.fail_call(hash, chunk, self.sent, &self.tables.policy);
        }
        // A claim that another limit refuses takes no chunk, however many units the store has.
        if taken.is_some() && !passes {
            table.abandon_call(hash);
        }
        if is_answer(&reading) {
            self.tables.hear(&mut table, hash, charge, reading, answer.at, self.sent);
            let (sent, took, limit) = (self.sent, self.took, charge.limit);
            let charge = Some(ChargeAnswer { units: charge.units, reading });
            let chunk = taken.filter(|_| passes).map(|taken| (chunk, taken));
            let answer = Answer { charge, chunk, at: answer.at, sent, took, limit, generation };
            self.tables.end_call(&mut table, hash, &answer, random);
        }
        let held = taken.map_or(0, |taken| taken.taken);
        Reading { remaining: reading.remaining.saturating_add(held), ..*reading }
    }
}

impl Drop for Call<'_, '_> {
    fn drop(&mut self) {
        if !self.is_ended {
            abandon(self.tables, &self.parts, self.sent);
        }
    }
}
