//! Requests: how servers decide them, and what is recorded of them.

use tollgate_core::Charge;
use tollgate_store::leased::LeaseStep;

use super::calls::{CLAIM_COST, CallKind, held_charges};
use super::{Engine, Event, SimulatedServer};
use crate::counters::{Arrival, claim_of, counter_of, passes};
use crate::measure::{Moment, Window};
use crate::outcome::{Outcome, Violation};
use crate::traffic::COLD_INTERVAL;

/// The number of points of the picture.
pub(super) const MOMENTS: u64 = 120;
/// The most windows that are recorded.
const MAX_WINDOWS: usize = 100_000;

impl Engine<'_> {
    /// A request arrives at a server.
    pub(super) fn request(&mut self, number: u32, arrival: Arrival) {
        let SimulatedServer { is_up, paused_until, tables, .. } = self.servers[number as usize];
        if !is_up {
            self.outcome.unserved += 1;
            return;
        }
        if paused_until > self.now {
            let Arrival { key, units } = arrival;
            return self.schedule(paused_until, Event::Request { server: number, key, units });
        }
        let claim = claim_of(&self.world.limits, arrival);
        let (at, steady, is_measured) = (self.store_time(), self.steady(number), self.is_measured());
        let mut settlement = std::mem::take(&mut self.settlement);
        let region = self.servers[number as usize].region;
        let is_exact = self.counters.decide_exactly(&claim, region, at);
        self.record_request(number, arrival, is_exact, is_measured);
        match self.tables(tables).begin(&claim, steady, &mut settlement) {
            LeaseStep::Answered { has_errands } => {
                if passes(&claim, &settlement) {
                    for charge in &claim.charges {
                        self.spend(charge, region);
                    }
                    self.record_admitted(number, arrival, self.now, is_measured);
                }
                self.outcome.local += u64::from(is_measured);
                if has_errands {
                    self.notify(number);
                }
            }
            LeaseStep::Whole => {
                self.outcome.calls.exact += u64::from(is_measured);
                self.send(number, arrival, CallKind::Whole);
            }
            LeaseStep::Call(call) => {
                for charge in held_charges(&claim, &call) {
                    self.spend(charge, region);
                }
                self.outcome.calls.misses += u64::from(is_measured);
                self.send(number, arrival, CallKind::Call(call));
            }
        }
        self.settlement = settlement;
    }

    /// Counts units that are admitted in a region.
    pub(super) fn spend(&mut self, charge: &Charge<'_>, region: usize) {
        let at = self.store_time();
        let excess = self.counters.spend(charge, region, at);
        let allowed = self.scenario.allowed_excess(counter_of(charge).limit);
        if self.scenario.compares_counters && allowed == 0 {
            let (uncovered, counter) = (self.counters.uncovered(charge, at), counter_of(charge));
            self.outcome.uncovered = self.outcome.uncovered.max(uncovered);
            if uncovered > 0 && self.outcome.first_uncovered.is_none() {
                let what = format!("{uncovered} units of key {} of limit {}", counter.key + 1, counter.limit + 1);
                self.outcome.first_uncovered = Some(Violation { at: self.now as f64 / 1e9, what });
            }
        }
        if excess > 0 {
            self.outcome.excess = self.outcome.excess.max(excess);
            self.outcome.excesses += 1;
            if self.scenario.promises_no_excess() && excess > allowed {
                let counter = counter_of(charge);
                self.violation(format!(
                    "key {} of limit {} is exceeded by {excess}",
                    counter.key + 1,
                    counter.limit + 1
                ));
            }
        }
    }

    fn record_request(&mut self, server: u32, arrival: Arrival, is_exact: bool, is_measured: bool) {
        let moment = self.moment(self.now);
        moment.requests += 1;
        moment.exact += u64::from(is_exact);
        if is_exact && let Some(window) = self.window(self.now) {
            window.exact += u64::from(arrival.units);
        }
        if is_measured {
            self.outcome.requests += 1;
            self.outcome.exact += u64::from(is_exact);
            self.outcome.servers[server as usize].requests += 1;
        }
    }

    /// `at` is the moment of the decision.
    pub(super) fn record_admitted(&mut self, server: u32, arrival: Arrival, at: u64, is_measured: bool) {
        self.moment(at).admitted += 1;
        if let Some(window) = self.window(at) {
            window.admitted += u64::from(arrival.units);
        }
        if is_measured {
            self.outcome.admitted += 1;
            self.outcome.servers[server as usize].admitted += 1;
        }
    }

    pub(super) fn moment(&mut self, at: u64) -> &mut Moment {
        &mut self.outcome.moments[(at / self.moment_length).min(MOMENTS - 1) as usize]
    }

    /// The aligned period of the first limit, if all requests share its counter.
    fn window(&mut self, at: u64) -> Option<&mut Window> {
        let planned = &self.scenario.limits[0];
        if self.scenario.traffic.keys > 1 && !planned.is_global {
            return None;
        }
        let place = (at / 1_000 / planned.limit.period().span().as_micros()) as usize;
        if place >= self.outcome.windows.len() && place < MAX_WINDOWS {
            self.outcome.windows.resize(place + 1, Window::default());
        }
        self.outcome.windows.get_mut(place)
    }

    /// Counts the requests of keys that have no counter here.
    pub(super) fn cold(&mut self) {
        if self.now >= self.scenario.duration.as_micros() * 1_000 {
            return;
        }
        let requests = self.arrivals.cold_requests(self.now);
        let share = requests * CLAIM_COST / self.shards.len() as u64;
        for shard in &mut self.shards {
            shard.free_at = shard.free_at.max(self.now) + share;
        }
        let moment = self.moment(self.now);
        moment.requests += requests;
        moment.admitted += requests;
        moment.exact += requests;
        moment.calls += requests;
        if self.is_measured() {
            let Outcome { requests: all, admitted, exact, calls, .. } = &mut self.outcome;
            *all += requests;
            *admitted += requests;
            *exact += requests;
            calls.cold += requests;
        }
        self.schedule(self.now + COLD_INTERVAL, Event::Cold);
    }
}
