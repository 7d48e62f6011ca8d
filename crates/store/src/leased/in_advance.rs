//! The steps of a claim through the tables when units are spent before the store counts them, and the calls that have it
//! count them.

use std::sync::atomic::Ordering;

use tollgate_core::{Charge, Reading, Settlement, Shortcuts, Source, Span, Timestamp};

use super::advance::{self, Advances};
use super::errand::Errand;
use super::pool::Answer;
use super::tables::{Table, Tables, UNKNOWN, lock};
use crate::clock::Steady;

impl Tables {
    /// Reserves the units of a charge, if they may be spent in advance.
    pub(super) fn reserve_in_advance(
        &self,
        advances: &mut Advances,
        hash: u128,
        charge: &Charge<'_>,
        basis_points: u16,
        now: Steady,
    ) -> Option<Reading> {
        let is_timed = self.clock_offset.load(Ordering::Relaxed) != UNKNOWN;
        let shares = advance::shares(charge.limit, basis_points, self.servers.load(Ordering::Relaxed));
        if is_timed { advances.reserve(hash, charge, shares, now) } else { None }
    }

    /// Learns from the store's answer to a request.
    pub(super) fn hear(
        &self,
        table: &mut Table,
        hash: u128,
        charge: &Charge<'_>,
        reading: &Reading,
        at: Timestamp,
        sent: Steady,
    ) {
        let Shortcuts::Ahead(share) = charge.shortcuts else { return };
        self.set_clock(at, sent);
        let (part, _) = advance::shares(charge.limit, share, self.servers.load(Ordering::Relaxed));
        table.advances.hear(hash, charge, part, reading, sent);
    }

    /// The number of servers that share the store. While it is unknown, nothing is spent before the store counts it.
    pub fn set_servers(&self, servers: u64) {
        self.servers.store(servers, Ordering::Relaxed);
    }

    /// Has the store count what was spent in advance.
    pub(super) fn send_debits(&self, now: Steady) {
        let last = Steady::from_micros(self.debited_at.load(Ordering::Relaxed));
        if now.since(last) < advance::INTERVAL && self.is_enabled() {
            return;
        }
        self.debited_at.store(now.as_micros(), Ordering::Relaxed);
        for table in &self.tables {
            let mut table = lock(table);
            if !table.advances.has_due() {
                continue;
            }
            let Table { pools, advances, counts, .. } = &mut *table;
            for (hash, charge) in advances.take_due() {
                let units = charge.units;
                let pool = pools.get_mut(&hash);
                let generation = pool.as_ref().map_or_else(Default::default, |pool| pool.generation());
                let refill = pool.and_then(|pool| pool.take_refill(now, &self.policy));
                let taken = refill.is_some();
                if self.push(Errand { pool: hash, charge, refill, generation }) {
                    counts.debits += 1;
                } else {
                    advances.put_back(hash, units);
                    if let Some(pool) = pools.get_mut(&hash).filter(|_| taken) {
                        pool.fail_call(now, &self.policy);
                    }
                }
            }
        }
    }

    /// The answer to an errand of [`send_debits`](Self::send_debits).
    pub(super) fn end_debit(&self, errand: &Errand, answer: &Settlement, sent: Steady, took: Span, random: f64) {
        let is_answer = |reading: &&Reading| reading.source == Source::Store;
        let debited = answer.readings.first();
        if debited.is_some_and(|reading| is_answer(&reading)) {
            self.set_clock(answer.at, sent);
        }
        let mut table = self.table(errand.pool);
        table.advances.end_call(errand.pool, errand.charge.units, debited, sent);
        let Some(refill) = &errand.refill else { return };
        match answer.readings.get(1).filter(is_answer) {
            Some(reading) => {
                let (limit, generation) = (&refill.limit, errand.generation);
                let chunk = Some((refill.units, reading));
                let answer = Answer { charge: None, chunk, at: answer.at, sent, took, limit, generation };
                self.end_call(&mut table, errand.pool, &answer, random);
            }
            None => table.fail_call(errand.pool, refill.units, sent, &self.policy),
        }
    }

    fn set_clock(&self, at: Timestamp, now: Steady) {
        let offset = at.as_micros().cast_signed().saturating_sub(now.as_micros().cast_signed());
        self.clock_offset.store(offset, Ordering::Relaxed);
    }
}

impl Table {
    /// Spends units that were reserved.
    pub(super) fn spend_in_advance(&mut self, hash: u128, units: u64) {
        self.counts.advanced += units;
        self.advances.spend(hash, units);
    }
}
