//! What an operator sets, and the constants of the algorithm.

use std::fmt;
use std::time::Duration;

use crate::mode::ShedMode;
use crate::reserves::TierReserves;
use crate::shares::ClassShares;

/// What an operator sets of an adaptive cap.
#[derive(Clone, Debug, PartialEq)]
pub struct CapSettings {
    /// What the cap does with what it decides. It can be switched later.
    pub mode: ShedMode,
    /// The least limit.
    pub min: u32,
    /// The greatest limit.
    pub max: u32,
    /// The limit before anything is known of the upstream.
    pub initial: u32,
    /// The least time from one change of the limit to the next.
    pub window: Duration,
    /// The time without an idle upstream after which its idle latency is measured by a probe.
    pub probe_interval: Duration,
    /// The most that is added to the interval at random, as a share of it: replicas do not probe at the same time.
    pub probe_jitter: f64,
    /// The part of the limit that each class may use.
    pub shares: ClassShares,
    /// The part of the limit that is reserved for each of a few tiers.
    pub reserves: TierReserves,
    /// The constants of the algorithm.
    pub policy: CapPolicy,
}

/// The constants of the algorithm, chosen by simulation. The simulator changes them to show what each is good for; an
/// operator need not.
#[derive(Clone, Debug, PartialEq)]
pub struct CapPolicy {
    /// How far the latency may be above the idle one before the limit falls, as a share.
    pub buffer: f64,
    /// The queue that is always allowed, in requests …
    pub queue: f64,
    /// … and in roots of the limit.
    pub root_queue: f64,
    /// The least samples of a window.
    pub min_samples: u64,
    /// How much of a new limit takes effect in one window.
    pub smoothing: f64,
    /// The limit changes only if more than this share of it was in flight.
    pub used_share: f64,
    /// A request that begins with less than this share of the limit in flight meets no queue.
    pub idle_share: f64,
    /// How many latencies of such requests correct the idle latency together …
    pub idle_samples: u64,
    /// … by this weight.
    pub idle_weight: f64,
    /// The part of the upstream's capacity to which a probe lowers the limit.
    pub probe_share: f64,
    /// The time before a probe begins to measure, in latencies before it.
    pub probe_settle: f64,
    /// The least time that a probe measures, in windows …
    pub probe_windows: f64,
    /// … and its least samples.
    pub probe_samples: u64,
    /// A probe that differs from the idle latency by less than this share confirms it …
    pub probe_same: f64,
    /// … and corrects it by this weight.
    pub probe_weight: f64,
    /// The time from a probe that found another idle latency to the next; twice as long after each that confirms it. Also
    /// the least time from one probe to an early one.
    pub confirm_interval: Duration,
    /// A limit that fell to this share of what it was at the last probe, while requests are refused, is probed early: the
    /// upstream may have become slower.
    pub early_fall: f64,
    /// At the start the limit doubles until the latency rises by this factor.
    pub start_rise: f64,
    /// At the start a limit that is halved is halved again while the latency falls to less than this share.
    pub start_fall: f64,
    /// How many requests a burst may have above the limit, as a share of the limit …
    pub burst: f64,
    /// … after this time without a refusal.
    pub burst_refill: Duration,
    /// What a reserve means.
    pub reserve_rule: ReserveRule,
}

/// What a reserve means to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveRule {
    /// What a tier does not use of its reserve stays free for it.
    HoldBack,
    /// Everybody is admitted up to the limit, and a tier within its reserve above it too.
    AboveLimit,
}

/// Why settings are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidSettings {
    /// Not 1 ≤ min ≤ initial ≤ max.
    Limits,
    /// The window is not between 1 ms and 60 s.
    Window,
    /// The probe interval is not between 1 s and a day.
    ProbeInterval,
    /// The jitter is not between 0 and 1.
    ProbeJitter,
}

impl Default for CapSettings {
    fn default() -> CapSettings {
        CapSettings {
            mode: ShedMode::Enforce,
            min: 1,
            max: 1_000,
            initial: 20,
            window: Duration::from_millis(100),
            probe_interval: Duration::from_secs(60),
            probe_jitter: 0.1,
            shares: ClassShares::default(),
            reserves: TierReserves::default(),
            policy: CapPolicy::default(),
        }
    }
}

impl Default for CapPolicy {
    fn default() -> CapPolicy {
        CapPolicy {
            buffer: 0.1,
            queue: 2.25,
            root_queue: 0.5,
            min_samples: 25,
            smoothing: 0.35,
            used_share: 0.5,
            idle_share: 0.4,
            idle_samples: 25,
            idle_weight: 0.2,
            probe_share: 0.95,
            probe_settle: 3.0,
            probe_windows: 2.0,
            probe_samples: 50,
            probe_same: 0.2,
            probe_weight: 0.45,
            confirm_interval: Duration::from_secs(10),
            early_fall: 0.65,
            start_rise: 1.3,
            start_fall: 0.6,
            burst: 0.5,
            burst_refill: Duration::from_secs(1),
            reserve_rule: ReserveRule::AboveLimit,
        }
    }
}

impl CapSettings {
    /// Checks the settings.
    pub fn validate(&self) -> Result<(), InvalidSettings> {
        if !(1 <= self.min && self.min <= self.initial && self.initial <= self.max) {
            return Err(InvalidSettings::Limits);
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(60)).contains(&self.window) {
            return Err(InvalidSettings::Window);
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&self.probe_interval) {
            return Err(InvalidSettings::ProbeInterval);
        }
        if !(0.0..=1.0).contains(&self.probe_jitter) {
            return Err(InvalidSettings::ProbeJitter);
        }
        Ok(())
    }
}

impl fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidSettings::Limits => "write limits with 1 <= min <= initial <= max",
            InvalidSettings::Window => "write a window from 1 ms to 60 s",
            InvalidSettings::ProbeInterval => "write a probe interval from 1 s to a day",
            InvalidSettings::ProbeJitter => "write a probe jitter from 0 to 1",
        })
    }
}

impl std::error::Error for InvalidSettings {}
