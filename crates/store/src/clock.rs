//! The one place that reads a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate_core::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// A clock that moves when it is told to. Clones share their time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    micros: Arc<AtomicU64>,
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // The one place.
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(since.as_secs().saturating_mul(1_000_000) + u64::from(since.subsec_micros()))
    }
}

impl ManualClock {
    /// A clock that stands at this moment.
    pub fn at(moment: Timestamp) -> ManualClock {
        let clock = ManualClock::default();
        clock.set(moment);
        clock
    }

    /// Moves it, forward or back.
    pub fn set(&self, moment: Timestamp) {
        self.micros.store(moment.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }
}
