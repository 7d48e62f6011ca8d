//! Regions, the ways between them, and what limits mean in all of them.

use tollgate_core::{Algorithm, GlobalTerms, Span};
use tollgate_store::DebitConfig;
use tollgate_store::leased::LeasePolicy;

use super::{Fault, PlannedLimit, Scenario};

/// The regions of a fleet. Each has a store of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRegions {
    /// The regions.
    pub regions: Vec<PlannedRegion>,
    /// The time that a message from one region to another takes, where `ways` says nothing else.
    pub delay: Span,
    /// Ways that take another time: from, to, delay.
    pub ways: Vec<(usize, usize, Span)>,
    /// The interval at which debits are sent.
    pub beat: Span,
}

/// A region.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRegion {
    /// Its name.
    pub name: String,
    /// Its servers.
    pub servers: u32,
    /// Its share of the requests, in relation to the others.
    pub share: f64,
}

/// What a limit means in several regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlannedMode {
    /// Each region has a counter with the whole limit.
    #[default]
    Each,
    /// Each region has a counter with an equal share of the limit.
    Split,
    /// One region has the counter: this one, or another for each key.
    Home(Option<usize>),
    /// Each region has a counter with the whole limit, and debits the others.
    Global(GlobalTerms),
}

/// The longest time for which a server waits for the answer to a debit, while it sends no other.
const DEBIT_TIMEOUT: Span = Span::from_secs(1);
/// From such a lag on, regions are apart.
const APART_AFTER: Span = Span::from_secs(2);

impl PlannedRegions {
    /// So many regions with so many servers each, and equal shares of the requests.
    pub fn alike(count: usize, servers: u32, delay: Span) -> PlannedRegions {
        let region = |number| PlannedRegion { name: format!("region-{}", number + 1), servers, share: 1.0 };
        let beat = Span::from_micros(DebitConfig::DEFAULT_BEAT.as_micros() as u64);
        PlannedRegions { regions: (0..count).map(region).collect(), delay, ways: Vec::new(), beat }
    }

    /// The time that a message takes.
    pub fn delay(&self, from: usize, to: usize) -> Span {
        let way = self.ways.iter().rev().find(|(one, other, _)| (*one, *other) == (from, to));
        match way {
            Some((_, _, delay)) => *delay,
            None if from == to => Span::ZERO,
            None => self.delay,
        }
    }

    fn longest_delay(&self) -> Span {
        self.ways.iter().map(|(_, _, delay)| *delay).fold(self.delay, Span::max)
    }

    /// The most of the requests that one region has.
    fn largest_share(&self) -> f64 {
        let all: f64 = self.regions.iter().map(|region| region.share).sum();
        self.regions.iter().map(|region| region.share / all).fold(0.0, f64::max)
    }
}

impl Scenario {
    /// The number of regions.
    pub fn region_count(&self) -> usize {
        self.regions.as_ref().map_or(1, |planned| planned.regions.len())
    }

    /// By how much regions may exceed a limit that is debited among them, as in docs/regions.md: what one takes before another
    /// knows of it, and what is not debited because it is below the threshold.
    pub(super) fn debited_excess(&self, planned: &PlannedLimit, terms: GlobalTerms) -> u64 {
        let limit = &planned.limit;
        let Some(regions) = &self.regions else { return 0 };
        let others = (regions.regions.len() - 1) as f64;
        let seconds = |span: Span| span.as_micros() as f64 / 1e6;
        let (quota, rate) = (limit.quota() as f64, limit.amount() as f64 / seconds(limit.period().span()));
        let way = regions.longest_delay();
        // The next debit waits for the answer to the last one.
        let answer = seconds(way) * 2.0;
        let busy = if answer > seconds(regions.beat) { answer.min(seconds(DEBIT_TIMEOUT)) } else { 0.0 };
        let apart = self.faults.iter().map(|planned| match planned.fault {
            Fault::Separate { lasts, .. } => seconds(lasts) + seconds(APART_AFTER),
            _ => 0.0,
        });
        let lag = seconds(regions.beat) + seconds(way) + busy + apart.sum::<f64>();
        let demand =
            self.traffic.rate * regions.largest_share() * (self.traffic.units.0 + self.traffic.units.1) as f64 / 2.0;
        let taken = demand * lag + self.leased_ahead(planned, demand);
        // Requests come at random, and a region with units left takes those of a whole request.
        let taken = taken + 4.0 * taken.sqrt() + self.traffic.units.1 as f64;
        let most = match limit.algorithm() {
            Algorithm::Bucket { .. } => quota + rate * lag,
            _ => quota,
        };
        // Of a bucket, in each time in which it refills: what is below the threshold then drains here and is not debited.
        let times = match limit.algorithm() {
            Algorithm::Bucket { .. } => (seconds(self.duration) / seconds(limit.refill_time())).ceil().max(1.0),
            _ => 1.0,
        };
        let hidden = quota * f64::from(terms.debit_threshold) / 1e4 * times;
        (others * (taken.min(most) + hidden)).ceil() as u64
    }

    /// The most units that the servers of a region take at once, ahead of requests. They know the demand by what they saw of it.
    fn leased_ahead(&self, planned: &PlannedLimit, demand: f64) -> f64 {
        if !self.leases || !planned.is_leased || !planned.limit.is_leasable() {
            return 0.0;
        }
        let seconds = |span: Span| span.as_micros() as f64 / 1e6;
        let LeasePolicy { max_time, period_share, min_time, quota_share, .. } = self.lease_policy;
        let time = (seconds(planned.limit.period().span()) * period_share).max(min_time).min(max_time);
        let servers = self.regions.iter().flat_map(|planned| &planned.regions).map(|region| region.servers).max();
        let most = f64::from(servers.unwrap_or(0)) * planned.limit.quota() as f64 * quota_share;
        (2.0 * demand * time).min(most)
    }
}
