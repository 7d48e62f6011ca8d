//! When requests arrive, of which key, and at which server.

use crate::counters::Arrival;
use crate::random::{Generator, Zipf, mix};
use crate::scenario::{Routing, Scenario, Traffic};

/// Nanoseconds of a second.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Keys without a counter are counted at this interval.
pub(crate) const COLD_INTERVAL: u64 = SECOND / 100;

/// Draws the requests of a scenario.
#[derive(Debug)]
pub(crate) struct Arrivals<'s> {
    traffic: &'s Traffic,
    servers: u64,
    /// The first server, the servers, and the share of the requests of each region and of those before it.
    regions: Vec<(u64, u64, f64)>,
    zipf: Zipf,
    /// The keys with a counter.
    warm_keys: u64,
    /// Requests of them a nanosecond.
    warm_rate: f64,
    /// Requests of the others a nanosecond.
    cold_rate: f64,
    random: Generator,
}

/// The time in which a server must see a key several times before it leases it, in seconds.
const DOOR_TIME: f64 = 4.0;
/// Keys of which a server expects at most so many requests in that time are too rare for a lease.
const COLD_REQUESTS: f64 = 0.25;
/// Keys with at most this share of their limit are far from it.
const COLD_SHARE: f64 = 0.1;

impl<'s> Arrivals<'s> {
    pub(crate) fn new(scenario: &'s Scenario) -> Arrivals<'s> {
        let traffic = &scenario.traffic;
        let warm_keys = warm_keys(scenario);
        let share = match warm_keys == traffic.keys {
            true => 1.0,
            false => Zipf::total(traffic.exponent, warm_keys) / Zipf::total(traffic.exponent, traffic.keys),
        };
        let rate = traffic.rate / SECOND as f64;
        Arrivals {
            traffic,
            servers: u64::from(scenario.servers),
            regions: regions(scenario),
            zipf: Zipf::new(warm_keys.max(1), traffic.exponent),
            warm_keys,
            warm_rate: if warm_keys == 0 { 0.0 } else { rate * share },
            cold_rate: if warm_keys == 0 { rate } else { rate * (1.0 - share) },
            random: Generator::new(scenario.seed, 1),
        }
    }

    /// The keys with a counter.
    pub(crate) fn warm_keys(&self) -> u64 {
        self.warm_keys
    }

    pub(crate) fn has_cold_keys(&self) -> bool {
        self.cold_rate > 0.0
    }

    /// The moment of the next request with a counter.
    pub(crate) fn next_after(&mut self, now: u64) -> u64 {
        if self.warm_rate <= 0.0 {
            return u64::MAX;
        }
        let gap = self.random.gap() / self.warm_rate;
        let next = now.saturating_add(gap.min(1e18) as u64);
        let Some(bursts) = self.traffic.bursts else { return next };
        // Time passes only while requests come.
        let (on, off) = (bursts.on.as_micros() * 1_000, bursts.off.as_micros() * 1_000);
        let cycle = on + off;
        let passed = now / cycle * on + (now % cycle).min(on) + (next - now);
        (passed / on) * cycle + passed % on
    }

    /// The key and the units of the next request.
    pub(crate) fn draw(&mut self) -> Arrival {
        let (least, most) = self.traffic.units;
        let units = if least == most { least } else { self.random.between(least, most) };
        Arrival { key: self.zipf.draw(&mut self.random) as u32, units: units as u32 }
    }

    /// The server that receives a request.
    pub(crate) fn route(&mut self, arrival: Arrival, now: u64) -> u32 {
        let server = match self.traffic.routing {
            Routing::Random if !self.regions.is_empty() => {
                let share = self.random.unit();
                let place = self.regions.partition_point(|(_, _, until)| *until <= share);
                let (first, servers, _) = self.regions[place.min(self.regions.len() - 1)];
                first + self.random.below(servers)
            }
            Routing::Random => self.random.below(self.servers),
            Routing::Sticky(servers) => {
                let moved = self.traffic.moves.map_or(0, |every| now / (every.as_micros().max(1) * 1_000));
                let first = mix(u64::from(arrival.key) ^ mix(moved)) % self.servers;
                (first + self.random.below(u64::from(servers))) % self.servers
            }
        };
        server as u32
    }

    /// The requests of keys without a counter in the interval that begins now.
    pub(crate) fn cold_requests(&mut self, now: u64) -> u64 {
        let is_off = self.traffic.bursts.is_some_and(|bursts| {
            let (on, off) = (bursts.on.as_micros() * 1_000, bursts.off.as_micros() * 1_000);
            now % (on + off) >= on
        });
        if is_off { 0 } else { self.random.poisson(self.cold_rate * COLD_INTERVAL as f64) }
    }
}

/// The first server, the servers, and the share of the requests of each region and of those before it.
fn regions(scenario: &Scenario) -> Vec<(u64, u64, f64)> {
    let Some(planned) = &scenario.regions else { return Vec::new() };
    let all: f64 = planned.regions.iter().map(|region| region.share).sum();
    let mut before = (0, 0.0);
    let place = planned.regions.iter().map(|region| {
        let (first, share) = before;
        before = (first + u64::from(region.servers), share + region.share / all);
        (first, u64::from(region.servers), before.1)
    });
    place.collect()
}

/// The servers that see one key.
pub(crate) fn servers_of_a_key(scenario: &Scenario) -> u32 {
    match scenario.traffic.routing {
        Routing::Random => scenario.servers,
        Routing::Sticky(servers) => servers.min(scenario.servers),
    }
}

/// The number of keys, busiest first, that have a counter here. The others are too rare for a lease and far from their
/// limits: each of their requests is a call, and is admitted.
fn warm_keys(scenario: &Scenario) -> u64 {
    let Traffic { rate, keys, exponent, units, .. } = scenario.traffic;
    let has_global = scenario.limits.iter().any(|planned| planned.is_global);
    if !scenario.counts_cold_keys || has_global {
        return keys;
    }
    let total = Zipf::total(exponent, keys);
    let servers = f64::from(servers_of_a_key(scenario));
    let is_cold = |rank: u64| {
        let rate = rate * ((rank + 1) as f64).powf(-exponent) / total;
        let is_far = scenario.limits.iter().all(|planned| {
            let period = planned.limit.period().span().as_micros() as f64 / 1e6;
            let most = planned.limit.amount().min(planned.limit.quota()) as f64;
            rate * units.1 as f64 * period <= COLD_SHARE * most
        });
        is_far && rate * DOOR_TIME / servers <= COLD_REQUESTS
    };
    let (mut warm, mut cold) = (0, keys);
    while warm < cold {
        let middle = warm + (cold - warm) / 2;
        match is_cold(middle) {
            true => cold = middle,
            false => warm = middle + 1,
        }
    }
    warm
}
