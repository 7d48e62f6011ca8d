//! The algorithm: from what a window showed to the limit of the next one. One thread at a time, no clock, no atomics.

use std::time::Duration;

use super::samples::Latencies;
use super::settings::CapSettings;
use crate::time::Monotonic;

/// What a window showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) ended: Monotonic,
    pub(super) latencies: Option<Latencies>,
    /// Those of requests that met no queue; none while they are too few.
    pub(super) idle: Option<Latencies>,
    /// The most requests in flight.
    pub(super) peak: u32,
    /// Requests that were refused, or would have been in shadow mode.
    pub(super) refused: u64,
    /// Whether the limit was in force.
    pub(super) is_enforced: bool,
}

/// What holds in the next window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Next {
    /// The limit that is in force.
    pub(super) limit: f64,
    /// A request that begins with at most this many in flight, itself included, meets no queue.
    pub(super) idle_ceiling: f64,
    /// Latencies of requests that began before are no samples.
    pub(super) samples_since: Monotonic,
    /// The window does not end before …
    pub(super) ends: Monotonic,
    /// … nor with fewer samples, unless it lasted until `expires`.
    pub(super) samples: u64,
    pub(super) expires: Option<Monotonic>,
    /// The fewest samples without a queue that are taken out.
    pub(super) idle_samples: u64,
}

/// The state of the algorithm. Latencies are in nanoseconds.
#[derive(Debug)]
pub(super) struct Control {
    settings: CapSettings,
    limit: f64,
    gradient: f64,
    /// The latency without a queue, when it is known.
    min_rtt: Option<f64>,
    /// The latency of the last window.
    sample_rtt: Option<f64>,
    /// How many requests the upstream works on at the same time, by its latency while requests were refused.
    capacity: Option<f64>,
    phase: Phase,
    /// When the idle latency is probed if no request shows it before.
    probe_at: Option<Monotonic>,
    probe_ended: Option<Monotonic>,
    /// Probes in a row that found the same idle latency.
    confirmations: u32,
    /// The limit after the last probe, or a greater one since.
    reference: f64,
    samples_since: Monotonic,
    random: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The first requests are in flight. Only the fast ones among them have ended, so that nothing is measured yet.
    Filling,
    /// The idle latency is unknown. With the latency at half of the limit, after the first window.
    Starting(Option<f64>),
    /// The limit follows the latency.
    Steady,
    /// The limit was lowered for a probe, and what is in flight drains.
    Settling(Probe),
    /// The latency at the lowered limit is measured.
    Measuring(Probe),
}

/// A measurement of the idle latency at a lowered limit.
#[derive(Clone, Copy, Debug)]
struct Probe {
    level: f64,
    /// The latency at twice the level, if the level is lowered further until the latency no longer falls with it: what
    /// falls with it is time in a queue.
    above: Option<f64>,
}

/// A window at most halves the limit.
const MIN_GRADIENT: f64 = 0.5;
/// A window lasts at least as long as a request, but not longer than this many windows.
const MAX_STRETCH: u32 = 50;
/// A probe that gets too few samples ends after this many windows.
const MAX_PROBE_WINDOWS: u32 = 100;

impl Control {
    pub(super) fn new(settings: CapSettings, seed: u64) -> Control {
        let limit = f64::from(settings.initial);
        Control {
            limit,
            gradient: 1.0,
            min_rtt: None,
            sample_rtt: None,
            capacity: None,
            phase: Phase::Filling,
            probe_at: None,
            probe_ended: None,
            confirmations: 0,
            reference: limit,
            samples_since: Monotonic::default(),
            random: seed,
            settings,
        }
    }

    pub(super) fn limit(&self) -> f64 {
        self.limit
    }

    pub(super) fn gradient(&self) -> f64 {
        self.gradient
    }

    pub(super) fn min_rtt(&self) -> Option<f64> {
        self.min_rtt
    }

    pub(super) fn sample_rtt(&self) -> Option<f64> {
        self.sample_rtt
    }

    pub(super) fn is_probing(&self) -> bool {
        matches!(self.phase, Phase::Settling(_) | Phase::Measuring(_))
    }

    /// Whether the limit follows the latency.
    pub(super) fn is_steady(&self) -> bool {
        matches!(self.phase, Phase::Steady)
    }

    /// The queue that the limit allows in any case.
    pub(super) fn queue(&self) -> f64 {
        self.settings.policy.queue + self.settings.policy.root_queue * self.limit.sqrt()
    }

    /// The first window.
    pub(super) fn begin(&mut self, now: Monotonic) -> Next {
        let ends = now.after(self.settings.window / 2);
        Next { ends, samples: 0, idle_samples: 0, ..self.window(now) }
    }

    /// What a window showed, and what holds in the next one.
    pub(super) fn end_window(&mut self, observed: &Observed) -> Next {
        let now = observed.ended;
        match self.phase {
            // A probe has no effect on requests that are not refused.
            _ if self.is_probing() && !observed.is_enforced => self.end_probe(now),
            Phase::Filling => {
                self.phase = Phase::Starting(None);
                self.window(now)
            }
            Phase::Settling(probe) => {
                self.phase = Phase::Measuring(probe);
                self.window(now)
            }
            Phase::Measuring(probe) => self.measured(probe, observed),
            Phase::Starting(_) | Phase::Steady => self.follow(observed),
        }
    }

    fn follow(&mut self, observed: &Observed) -> Next {
        let now = observed.ended;
        if let Some(idle) = observed.idle {
            self.correct(idle.typical, now);
        }
        let Some(Latencies { typical: rtt, .. }) = observed.latencies else { return self.window(now) };
        self.sample_rtt = Some(rtt);
        let in_use = f64::from(observed.peak) >= self.limit * self.settings.policy.used_share;
        match (self.phase, self.min_rtt) {
            _ if !in_use => {
                self.gradient = 1.0;
                self.window(now)
            }
            (Phase::Starting(before), _) if observed.is_enforced => self.start(before, rtt, now),
            (_, Some(min_rtt)) => self.adjust(min_rtt, rtt, observed),
            _ => self.window(now),
        }
    }

    /// Corrects the idle latency by requests that met no queue.
    fn correct(&mut self, rtt: f64, now: Monotonic) {
        let weight = self.settings.policy.idle_weight;
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |before| before + weight * (rtt - before)));
        self.probe_at = Some(now.after(self.probe_delay()));
        if matches!(self.phase, Phase::Starting(_)) {
            self.phase = Phase::Steady;
        }
    }

    /// Moves the limit to where the latency would be what is allowed.
    fn adjust(&mut self, min_rtt: f64, rtt: f64, observed: &Observed) -> Next {
        let is_refusing = observed.refused > 0;
        // A limit that is not in force says nothing about what is in flight, which may be far above it.
        let (in_flight, least) =
            if observed.is_enforced { (self.limit, MIN_GRADIENT) } else { (f64::from(observed.peak), 0.0) };
        let target = self.target(min_rtt, rtt, in_flight, least);
        if !is_refusing && target < self.limit {
            return self.window(observed.ended);
        }
        let policy = &self.settings.policy;
        if is_refusing {
            let busy = in_flight * (min_rtt / rtt).min(1.0);
            self.capacity = Some(self.capacity.map_or(busy, |before| before + policy.smoothing * (busy - before)));
        }
        self.set_limit(self.limit + policy.smoothing * (target - self.limit));
        self.reference = self.reference.max(self.limit);
        if observed.is_enforced && (self.is_due(observed.ended) || is_refusing && self.is_early(observed.ended)) {
            let level = self.limit * (min_rtt / rtt).min(1.0) * self.settings.policy.probe_share;
            return self.probe(level, None, rtt, observed.ended);
        }
        self.window(observed.ended)
    }

    /// The limit at which the latency would be what is allowed.
    fn target(&mut self, min_rtt: f64, rtt: f64, in_flight: f64, least_gradient: f64) -> f64 {
        let allowed = min_rtt * (1.0 + self.settings.policy.buffer);
        self.gradient = (allowed / rtt).clamp(least_gradient, 1.0);
        in_flight * self.gradient + self.queue()
    }

    /// Doubles the limit until the latency grows with it: then there is a queue, and a probe finds the latency without.
    fn start(&mut self, before: Option<f64>, rtt: f64, now: Monotonic) -> Next {
        match before {
            Some(before) if rtt > before * self.settings.policy.start_rise => {
                self.set_limit(self.limit / 2.0);
                self.sample_rtt = Some(before);
                self.probe(self.limit / 2.0, Some(before), rtt, now)
            }
            _ => {
                self.phase = Phase::Starting(Some(before.map_or(rtt, |before| f64::midpoint(before, rtt))));
                self.set_limit(self.limit * 2.0);
                self.window(now)
            }
        }
    }

    fn is_due(&self, now: Monotonic) -> bool {
        self.probe_at.is_some_and(|at| now >= at)
    }

    /// Whether the limit fell so far that the upstream may have become slower: then the latency does not fall with it.
    fn is_early(&self, now: Monotonic) -> bool {
        let policy = &self.settings.policy;
        let rested = self.probe_ended.is_none_or(|ended| now >= ended.after(policy.confirm_interval));
        rested && self.limit < self.reference * policy.early_fall
    }

    /// Lowers the limit to measure the latency. It begins when what is in flight now, at a latency of `rtt`, has drained.
    fn probe(&mut self, level: f64, above: Option<f64>, rtt: f64, now: Monotonic) -> Next {
        let probe = Probe { level: level.max(1.0), above };
        self.phase = Phase::Settling(probe);
        self.samples_since = now;
        let settle = Duration::from_nanos((rtt * self.settings.policy.probe_settle) as u64);
        let ends = now.after(settle.min(self.settings.window * MAX_STRETCH));
        Next { ends, samples: 0, ..self.window(now) }
    }

    fn measured(&mut self, probe: Probe, observed: &Observed) -> Next {
        let now = observed.ended;
        let policy = &self.settings.policy;
        let latencies = observed.idle.filter(|idle| idle.count >= policy.min_samples);
        let Some(Latencies { typical, .. }) = latencies else { return self.end_probe(now) };
        if probe.level > 1.0 && probe.above.is_some_and(|above| typical < above * policy.start_fall) {
            return self.probe(probe.level / 2.0, Some(typical), typical, now);
        }
        let before = self.min_rtt.unwrap_or(typical);
        let is_same = self.min_rtt.is_some() && (typical - before).abs() < before * policy.probe_same;
        let weight = if is_same { policy.probe_weight } else { 1.0 };
        self.confirmations = if is_same { self.confirmations.saturating_add(1) } else { 0 };
        let min_rtt = before + weight * (typical - before);
        self.min_rtt = Some(min_rtt);
        if let Some(rtt) = self.sample_rtt {
            let target = self.target(min_rtt, rtt, self.limit, MIN_GRADIENT);
            self.set_limit(target.min(self.limit));
        }
        self.end_probe(now)
    }

    fn end_probe(&mut self, now: Monotonic) -> Next {
        self.phase = if self.min_rtt.is_some() { Phase::Steady } else { Phase::Starting(None) };
        self.reference = self.limit;
        self.probe_ended = Some(now);
        let confirm = self.settings.policy.confirm_interval * 2u32.saturating_pow(self.confirmations.min(16));
        self.probe_at = Some(now.after(self.probe_delay().min(confirm)));
        self.window(now)
    }

    fn set_limit(&mut self, limit: f64) {
        self.limit = limit.clamp(f64::from(self.settings.min), f64::from(self.settings.max));
    }

    fn window(&self, now: Monotonic) -> Next {
        let (window, policy) = (self.settings.window, &self.settings.policy);
        let samples_since = self.samples_since;
        match self.phase {
            Phase::Filling | Phase::Starting(_) | Phase::Steady => {
                let rtt = Duration::from_nanos(self.sample_rtt.unwrap_or(0.0) as u64);
                let idle = self.limit * policy.idle_share;
                let idle = self.capacity.map_or(idle, |capacity| idle.min(capacity * policy.probe_share));
                Next {
                    limit: self.limit,
                    idle_ceiling: idle,
                    samples_since,
                    ends: now.after(rtt.clamp(window, window * MAX_STRETCH)),
                    samples: policy.min_samples,
                    expires: None,
                    idle_samples: policy.idle_samples,
                }
            }
            Phase::Settling(probe) | Phase::Measuring(probe) => Next {
                limit: probe.level,
                // All requests of a probe are to meet no queue.
                idle_ceiling: f64::from(u32::MAX),
                samples_since,
                ends: now.after(window.mul_f64(policy.probe_windows)),
                samples: policy.probe_samples.max(2 * probe.level as u64),
                expires: Some(now.after(window * MAX_PROBE_WINDOWS)),
                idle_samples: 0,
            },
        }
    }

    /// The time from an idle latency to the probe that measures it again.
    fn probe_delay(&mut self) -> Duration {
        let jitter = self.settings.probe_jitter * self.unit();
        self.settings.probe_interval.mul_f64(1.0 + jitter)
    }

    /// A random number from 0 to less than 1 (SplitMix64).
    fn unit(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests;
