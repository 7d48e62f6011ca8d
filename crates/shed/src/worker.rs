//! The last resort: sheds a growing part of the requests of this process, the least important first, while the process has
//! been overloaded for long.
//!
//! It follows Stripe's worker utilisation load shedder. Utilisation is that of this process, not of an upstream: an
//! upstream is fully used whenever a cap does its work.

mod offered;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use offered::Offered;

use crate::class::{ByClass, Class};
use crate::mode::{ModeSwitch, ShedMode};
use crate::padded::Padded;
use crate::ramp::{Ramp, RampSettings};
use crate::time::Monotonic;

/// A shedder by the utilisation of this process.
#[derive(Debug)]
pub struct WorkerShedder {
    mode: ModeSwitch,
    /// The chance that a request is dropped, by class, in parts of 2^32.
    chances: ByClass<AtomicU32>,
    offered: Padded<ByClass<AtomicU64>>,
    refused: Padded<ByClass<AtomicU64>>,
    state: Mutex<State>,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerVerdict {
    /// The request goes on.
    Admitted,
    /// The request goes on; in mode `enforce` it would have been refused.
    WouldRefuse,
    /// The request is answered with 503.
    Refused,
}

/// The numbers of a worker shedder at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerStatus {
    /// What the shedder does with what it decides.
    pub mode: ShedMode,
    /// The utilisation of the last observation.
    pub utilisation: f64,
    /// The share of the requests that is shed, from 0 to 1.
    pub shed_amount: f64,
    /// The chance of each class to be shed.
    pub chances: ByClass<f64>,
    /// Requests that were refused, or would have been in mode `shadow`, by class.
    pub refused: ByClass<u64>,
}

#[derive(Debug)]
struct State {
    ramp: Ramp,
    offered: Offered,
    utilisation: f64,
}

/// A chance of 1.
const CERTAIN: f64 = (1u64 << 32) as f64;

impl WorkerShedder {
    /// A shedder that sheds nothing yet, with the usual settings.
    pub fn new(mode: ShedMode) -> WorkerShedder {
        WorkerShedder::with_ramp(mode, RampSettings::default())
    }

    /// A shedder that sheds nothing yet.
    pub fn with_ramp(mode: ShedMode, ramp: RampSettings) -> WorkerShedder {
        WorkerShedder {
            mode: ModeSwitch::new(mode),
            chances: ByClass::default(),
            offered: Padded(ByClass::default()),
            refused: Padded(ByClass::default()),
            state: Mutex::new(State { ramp: Ramp::new(ramp), offered: Offered::default(), utilisation: 0.0 }),
        }
    }

    /// Takes the utilisation of this process into account, from 0 to 1. To be called every few seconds, by one thread.
    pub fn observe(&self, utilisation: f64, now: Monotonic) {
        // A panic elsewhere left numbers that are still valid.
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let counts = self.offered.0.map(|count| count.swap(0, Ordering::Relaxed));
        let utilisation = if utilisation.is_finite() { utilisation.clamp(0.0, 1.0) } else { 0.0 };
        let seconds = state.ramp.observe(utilisation, 1.0, now);
        state.utilisation = utilisation;
        state.offered.add(&counts, seconds);
        let chances = state.offered.chances(state.ramp.amount());
        for (class, chance) in chances.iter() {
            // The largest chance that fits lets one request of 2^32 pass.
            self.chances[class].store((chance * CERTAIN).min(CERTAIN - 1.0) as u32, Ordering::Relaxed);
        }
    }

    /// Decides a request. `random` is uniform over all numbers.
    #[inline]
    pub fn admit(&self, class: Class, random: u32) -> WorkerVerdict {
        let mode = self.mode.get();
        if mode == ShedMode::Off {
            return WorkerVerdict::Admitted;
        }
        self.offered.0[class].fetch_add(1, Ordering::Relaxed);
        if random >= self.chances[class].load(Ordering::Relaxed) {
            return WorkerVerdict::Admitted;
        }
        self.refused.0[class].fetch_add(1, Ordering::Relaxed);
        if mode == ShedMode::Enforce { WorkerVerdict::Refused } else { WorkerVerdict::WouldRefuse }
    }

    /// What the shedder does with what it decides.
    pub fn mode(&self) -> ShedMode {
        self.mode.get()
    }

    /// Changes what the shedder does with what it decides, from the next request on.
    pub fn set_mode(&self, mode: ShedMode) {
        self.mode.set(mode);
    }

    /// The numbers of this moment.
    pub fn status(&self) -> WorkerStatus {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        WorkerStatus {
            mode: self.mode(),
            utilisation: state.utilisation,
            shed_amount: state.ramp.amount(),
            chances: state.offered.chances(state.ramp.amount()),
            refused: self.refused.0.map(|count| count.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests;
