//! The result of a run.

use tollgate_core::Algorithm;
use tollgate_store::LeaseCounts;

use crate::measure::{Calls, Moment, ServerTally, Times, Window};
use crate::scenario::Scenario;

/// What happened in a run. Counts of requests and calls begin after the warm-up.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was simulated.
    pub scenario: Scenario,
    /// Requests.
    pub requests: u64,
    /// Admitted requests.
    pub admitted: u64,
    /// Requests that a fleet admits whose every request asks the store, and gets its answer at once.
    pub exact: u64,
    /// Requests that were decided without the store.
    pub local: u64,
    /// Requests that the store did not answer in time. They are refused here.
    pub unanswered: u64,
    /// Requests to servers that were down. They count nowhere else.
    pub unserved: u64,
    /// The calls to the store.
    pub calls: Calls,
    /// How long requests waited that needed the store.
    pub waits: Times,
    /// The most units by which a counter was past its limit.
    pub excess: u64,
    /// The most units by which more was admitted than the store counted, if the scenario compares them.
    pub uncovered: u64,
    /// When that was first the case.
    pub first_uncovered: Option<Violation>,
    /// How many admissions went past a limit.
    pub excesses: u64,
    /// How often something was not as promised.
    pub violated: u64,
    /// The first of these.
    pub violations: Vec<Violation>,
    /// Units in the whole run, of all servers.
    pub units: LeaseCounts,
    /// Units held at the end of the traffic.
    pub held: u64,
    /// Keys with a pool then, of all servers.
    pub pools: u64,
    /// Units that servers held when they were killed.
    pub crashed: u64,
    /// The keys that had a counter.
    pub warm_keys: u64,
    /// By server.
    pub servers: Vec<ServerTally>,
    /// The picture.
    pub moments: Vec<Moment>,
    /// The aligned periods of the first limit, if all requests share its counter.
    pub windows: Vec<Window>,
}

/// Windows with fewer units are not compared.
const MIN_WINDOW: u64 = 1_000;

/// Something that was not as promised.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The second of the run.
    pub at: f64,
    /// What.
    pub what: String,
}

impl Outcome {
    pub(crate) fn new(scenario: &Scenario, servers: usize, moments: usize) -> Outcome {
        Outcome {
            scenario: scenario.clone(),
            requests: 0,
            admitted: 0,
            exact: 0,
            local: 0,
            unanswered: 0,
            unserved: 0,
            calls: Calls::default(),
            waits: Times::default(),
            excess: 0,
            uncovered: 0,
            first_uncovered: None,
            excesses: 0,
            violated: 0,
            violations: Vec::new(),
            units: LeaseCounts::default(),
            held: 0,
            pools: 0,
            crashed: 0,
            warm_keys: 0,
            servers: vec![ServerTally::default(); servers],
            moments: vec![Moment::default(); moments],
            windows: Vec::new(),
        }
    }

    pub(crate) fn add_units(&mut self, counts: &LeaseCounts) {
        let units = &mut self.units;
        units.taken += counts.taken;
        units.spent += counts.spent;
        units.returned += counts.returned;
        units.expired += counts.expired;
        units.lost += counts.lost;
        units.unanswered += counts.unanswered;
        units.impossible += counts.impossible;
        units.refused += counts.refused;
        units.misses += counts.misses;
        units.ahead += counts.ahead;
        units.back += counts.back;
        units.advanced += counts.advanced;
        units.debits += counts.debits;
    }

    /// The measured time in seconds.
    pub fn seconds(&self) -> f64 {
        let measured = self.scenario.duration.as_micros().saturating_sub(self.scenario.warm_up.as_micros());
        (measured as f64 / 1e6).max(1e-6)
    }

    /// How many times fewer calls than requests there are.
    pub fn ratio(&self) -> f64 {
        self.requests as f64 / self.calls.total().max(1) as f64
    }

    /// Admitted requests as a share of those of an exact fleet.
    pub fn against_exact(&self) -> f64 {
        if self.exact == 0 { 1.0 } else { self.admitted as f64 / self.exact as f64 }
    }

    /// Jain's index of the share of requests that each server admits: 1 if all are alike, 1 ÷ n if one has everything.
    pub fn fairness(&self) -> f64 {
        let shares = self.servers.iter().filter(|server| server.requests > 0);
        let shares: Vec<f64> = shares.map(|server| server.admitted as f64 / server.requests as f64).collect();
        let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
    }

    /// The least share of what an exact fleet admits in a whole window, if all requests share a counter. A window of few
    /// requests says nothing, nor does one of a bucket: an exact fleet may only have admitted a burst a moment earlier.
    pub fn least_window(&self) -> Option<f64> {
        if matches!(self.scenario.limits.first()?.limit.algorithm(), Algorithm::Bucket { .. }) {
            return None;
        }
        let windows = self.whole_windows().iter().filter(|window| window.exact >= MIN_WINDOW);
        windows.map(|window| window.admitted as f64 / window.exact as f64).min_by(f64::total_cmp)
    }

    /// The whole periods after the warm-up.
    pub fn whole_windows(&self) -> &[Window] {
        let Some(planned) = self.scenario.limits.first() else { return &[] };
        let period = planned.limit.period().span().as_micros();
        let first = self.scenario.warm_up.as_micros().div_ceil(period) as usize;
        let end = (self.scenario.duration.as_micros() / period) as usize;
        self.windows.get(first..end.min(self.windows.len())).unwrap_or(&[])
    }
}
