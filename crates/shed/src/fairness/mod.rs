//! Lowers the rates of the busiest callers of an upstream while it is overloaded: first those of the lowest tier, then of
//! the next. When the load subsides, they are restored in the opposite order.
//!
//! No caller is lowered below the fair rate of its tier, so whoever sends no more than that is never refused here.
//! (Approximate fair dropping, for callers instead of flows.)

mod callers;
mod settings;
mod status;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

pub use callers::MAX_CALLERS;
use callers::{Callers, Past, Rates};
pub use settings::{FairnessSettings, InvalidFairness};
pub use status::{FairnessStatus, TierStatus};

use crate::mode::{ModeSwitch, ShedMode};
use crate::padded::Padded;
use crate::ramp::Ramp;
use crate::time::Monotonic;

/// The most tiers that are distinguished. Those above are of the highest.
pub const MAX_TIERS: usize = 8;

/// How often the pressure is looked at, in nanoseconds.
const INTERVAL: u64 = 250_000_000;
/// The time over which rates are averaged, in seconds.
const AVERAGED_SECONDS: f64 = 5.0;
/// A caller is lowered by the rate that it has at least, so many deviations below its average: few requests vary much.
const DEVIATIONS: f32 = 2.0;
/// Time without requests after which nothing known of them counts any more, in nanoseconds.
const MAX_PAUSE: u64 = 10_000_000_000;

/// A shedder that lowers the rates of the busiest callers of one upstream.
pub struct FairnessShedder {
    mode: ModeSwitch,
    /// When the pressure is looked at next, in nanoseconds.
    next: AtomicU64,
    /// Whether there was pressure lately. Callers are counted only then.
    is_watching: AtomicBool,
    /// The most requests a second of a caller of each tier, as bits of an `f32`.
    ceilings: [AtomicU32; MAX_TIERS],
    callers: Callers,
    window: Padded<LoadCounts>,
    refused: Padded<[AtomicU64; MAX_TIERS]>,
    state: Mutex<FairnessState>,
    settings: FairnessSettings,
}

/// The load of an upstream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// All requests that its cap has refused so far, or would have in mode `shadow`.
    pub refused: u64,
    /// Its latency in relation to the one without a queue, when both are known.
    pub latency: Option<f64>,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairnessVerdict {
    /// The request goes on.
    Admitted,
    /// The request goes on; in mode `enforce` it would have been refused.
    WouldRefuse,
    /// The request is answered with 503.
    Refused,
}

/// Requests since the pressure was looked at.
#[derive(Debug, Default)]
struct LoadCounts {
    offered: AtomicU64,
    passed: AtomicU64,
    /// The number of the highest tier so far, and 1.
    tiers: AtomicU32,
}

#[derive(Debug)]
struct FairnessState {
    ramp: Ramp,
    looked: Option<Monotonic>,
    /// What the cap had refused then.
    refused: u64,
    /// In relation to the threshold.
    pressure: f64,
    rates: Rates,
}

impl FairnessShedder {
    /// A shedder that lowers nothing yet.
    pub fn new(settings: FairnessSettings) -> Result<FairnessShedder, InvalidFairness> {
        settings.validate()?;
        Ok(FairnessShedder {
            mode: ModeSwitch::new(settings.mode),
            next: AtomicU64::new(0),
            is_watching: AtomicBool::new(false),
            ceilings: std::array::from_fn(|_| AtomicU32::new(f32::INFINITY.to_bits())),
            callers: Callers::new(),
            window: Padded(LoadCounts::default()),
            refused: Padded(Default::default()),
            state: Mutex::new(FairnessState {
                ramp: Ramp::new(settings.ramp()),
                looked: None,
                refused: 0,
                pressure: 0.0,
                rates: Rates::default(),
            }),
            settings,
        })
    }

    /// Looks at the pressure if that is due, and says whether callers are counted. If not, everybody is admitted.
    #[inline]
    pub fn watches(&self, now: Monotonic, pressure: impl FnOnce() -> Pressure) -> bool {
        if self.mode.get() == ShedMode::Off {
            return false;
        }
        if now.as_nanos() >= self.next.load(Ordering::Relaxed) {
            self.look(now, pressure);
        }
        self.is_watching.load(Ordering::Relaxed)
    }

    /// Decides a request of a caller, by a hash of its name. `tier` counts from 0, the lowest; `random` is uniform over all
    /// numbers.
    pub fn admit(&self, tier: usize, caller: u64, random: u32) -> FairnessVerdict {
        let mode = self.mode.get();
        if mode == ShedMode::Off {
            return FairnessVerdict::Admitted;
        }
        let tier = tier.min(MAX_TIERS - 1);
        let window = &self.window.0;
        window.offered.fetch_add(1, Ordering::Relaxed);
        if tier as u32 >= window.tiers.load(Ordering::Relaxed) {
            window.tiers.fetch_max(tier as u32 + 1, Ordering::Relaxed);
        }
        let rate = self.callers.count(tier, caller);
        let least = rate - DEVIATIONS * (rate / (2.0 * AVERAGED_SECONDS as f32)).sqrt();
        let ceiling = f32::from_bits(self.ceilings[tier].load(Ordering::Relaxed));
        // The part of the caller's requests that is above the ceiling.
        let is_admitted = least <= ceiling || f64::from(random) / TWO_TO_32 >= f64::from(1.0 - ceiling / least);
        if is_admitted {
            window.passed.fetch_add(1, Ordering::Relaxed);
            return FairnessVerdict::Admitted;
        }
        self.refused.0[tier].fetch_add(1, Ordering::Relaxed);
        match mode {
            ShedMode::Enforce => FairnessVerdict::Refused,
            ShedMode::Shadow | ShedMode::Off => {
                window.passed.fetch_add(1, Ordering::Relaxed);
                FairnessVerdict::WouldRefuse
            }
        }
    }

    /// What the shedder does with what it decides.
    pub fn mode(&self) -> ShedMode {
        self.mode.get()
    }

    /// Changes what the shedder does with what it decides, from the next request on.
    pub fn set_mode(&self, mode: ShedMode) {
        self.mode.set(mode);
    }

    #[cold]
    fn look(&self, now: Monotonic, pressure: impl FnOnce() -> Pressure) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            // A panic elsewhere left numbers that are still valid.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another request looks.
            Err(TryLockError::WouldBlock) => return,
        };
        self.next.store(now.as_nanos().saturating_add(INTERVAL), Ordering::Relaxed);
        let state = &mut *state;
        let load = pressure();
        let window = &self.window.0;
        let offered = window.offered.swap(0, Ordering::Relaxed);
        let passed = window.passed.swap(0, Ordering::Relaxed);
        let elapsed = state.looked.map_or(0, |looked| now.nanos_since(looked));
        state.looked = Some(state.looked.map_or(now, |looked| looked.max(now)));
        let refused = load.refused.saturating_sub(std::mem::replace(&mut state.refused, load.refused));
        if elapsed == 0 {
            return;
        }
        let was_watching = self.is_watching.load(Ordering::Relaxed);
        state.pressure = if elapsed > MAX_PAUSE { 0.0 } else { self.pressure(was_watching, passed, refused, load) };
        // A pressure of 1 is at the threshold, and half of it below.
        let tiers = f64::from(window.tiers.load(Ordering::Relaxed).max(1));
        state.ramp.observe((state.pressure / 2.0).min(1.0), tiers, now);
        let is_watching = !state.ramp.is_at_rest() || state.pressure >= 1.0 || refused > 0 && elapsed <= MAX_PAUSE;
        if !was_watching || elapsed > MAX_PAUSE {
            self.callers.clear();
            state.rates = Rates::default();
            window.tiers.store(0, Ordering::Relaxed);
        } else {
            let past = Past {
                seconds: elapsed as f64 / 1e9,
                offered,
                admitted: passed.saturating_sub(refused),
                has_room: state.pressure < 0.5,
            };
            state.rates = self.callers.average(&state.rates, past);
        }
        let amount = state.ramp.amount();
        for (tier, ceiling) in self.ceilings.iter().enumerate() {
            ceiling.store((state.rates.ceiling(tier, lowered(amount, tier)) as f32).to_bits(), Ordering::Relaxed);
        }
        self.is_watching.store(is_watching, Ordering::Relaxed);
    }

    /// The load in relation to the threshold, above which rates are lowered.
    fn pressure(&self, was_watching: bool, passed: u64, refused: u64, load: Pressure) -> f64 {
        let by_latency = load.latency.map_or(0.0, |latency| (latency - 1.0) / (self.settings.latency - 1.0));
        // How many requests there were is not known before they are counted.
        let by_refusals =
            if was_watching && passed > 0 { refused as f64 / passed as f64 / self.settings.refused } else { 0.0 };
        by_latency.max(by_refusals).max(0.0)
    }
}

/// How far the rates of a tier are lowered, from 0 to 1.
fn lowered(amount: f64, tier: usize) -> f64 {
    (amount - tier as f64).clamp(0.0, 1.0)
}

const TWO_TO_32: f64 = (1u64 << 32) as f64;

impl std::fmt::Debug for FairnessShedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FairnessShedder").field(&self.status()).finish()
    }
}

#[cfg(test)]
mod tests;
