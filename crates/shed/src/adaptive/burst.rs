//! Bursts: a few requests above the limit, while the upstream is not overloaded.
//!
//! Requests come by chance, so that now and then many are in flight although the upstream can easily do them all. A limit that
//! refused none of these would allow a long queue in an overload. So the limit stays, and a stock of requests above it fills while
//! nothing is refused. An overload empties it once.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::control::{Control, Observed};
use super::settings::CapPolicy;

/// The requests above the limit.
pub(super) struct Burst {
    /// How many more are admitted.
    left: AtomicU32,
    in_flight: AtomicU32,
    /// When the last window ended, in nanoseconds.
    refilled: AtomicU64,
    share: f64,
    refill: Duration,
}

impl Burst {
    pub(super) fn new(policy: &CapPolicy) -> Burst {
        let (share, refill) = (policy.burst, policy.burst_refill);
        Burst { left: AtomicU32::new(0), in_flight: AtomicU32::new(0), refilled: AtomicU64::new(0), share, refill }
    }

    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn has_room(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Takes one, if there is one. It counts as in flight if `is_counted`.
    pub(super) fn take(&self, is_counted: bool) -> bool {
        let less = |left: u32| left.checked_sub(1);
        let is_taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        if is_taken && is_counted {
            self.in_flight.fetch_add(1, Ordering::Relaxed);
        }
        is_taken
    }

    pub(super) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// A window has ended. Called by one thread at a time.
    pub(super) fn refill(&self, observed: &Observed, control: &Control) {
        let before = self.refilled.swap(observed.ended.as_nanos(), Ordering::Relaxed);
        let lasted = Duration::from_nanos(observed.ended.as_nanos().saturating_sub(before));
        if !control.is_steady() {
            // The limit is being measured: nothing may be above it.
            return self.left.store(0, Ordering::Relaxed);
        }
        if observed.refused == 0 {
            let all = self.share * control.limit();
            // Those that are still in flight have not made room.
            let most = (all - f64::from(self.in_flight())).max(0.0);
            let part = (all * lasted.as_secs_f64() / self.refill.as_secs_f64()).ceil();
            let fuller = |left: u32| Some((f64::from(left) + part).min(most) as u32);
            // It always succeeds.
            let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fuller);
        }
    }
}
