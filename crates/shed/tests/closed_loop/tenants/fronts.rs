//! What decides requests before they reach the upstream.

use tollgate_shed::{
    AdaptiveCap, Admission, Begun, CapSettings, FairnessSettings, FairnessShedder, FairnessVerdict, Monotonic,
    Pressure, RequestEnd,
};

use super::Arrival;
use crate::random::Random;

/// What becomes of a request at its arrival.
pub(crate) enum Outcome {
    Sent(Begun),
    Waits,
    Refused,
}

/// What becomes of one that waited.
pub(crate) enum Waiting {
    Sent(Arrival, Begun),
    Expired(Arrival),
}

/// Decides requests. Times are in nanoseconds.
pub(crate) trait Front {
    fn arrive(&mut self, request: Arrival, now: u64) -> Outcome;

    fn end(&mut self, request: Arrival, begun: Begun, now: u64);

    /// One that waits no longer.
    fn next_waiting(&mut self, _: u64) -> Option<Waiting> {
        None
    }

    /// How much the rates of callers are lowered.
    fn lowered(&self) -> f64 {
        0.0
    }
}

/// A cap, with a fairness shedder before it.
pub(crate) struct Caps {
    cap: AdaptiveCap,
    /// The number of the reserve of each tier, the lowest first.
    reserves: &'static [Option<usize>],
    fairness: Option<FairnessShedder>,
    random: Random,
}

impl Caps {
    pub(crate) fn new(
        settings: CapSettings,
        reserves: &'static [Option<usize>],
        fairness: Option<FairnessSettings>,
        seed: u64,
    ) -> Caps {
        let cap = AdaptiveCap::new(settings, seed).expect("valid settings");
        let fairness = fairness.map(|settings| FairnessShedder::new(settings).expect("valid settings"));
        Caps { cap, reserves, fairness, random: Random::new(seed, 6) }
    }

    fn is_fair(&mut self, request: Arrival, now: Monotonic) -> bool {
        let Some(fairness) = &self.fairness else { return true };
        let watches = fairness.watches(now, || pressure(&self.cap));
        let random = (self.random.unit() * f64::from(u32::MAX)) as u32;
        !watches || fairness.admit(request.tier, hash(request.caller), random) != FairnessVerdict::Refused
    }
}

/// The load behind a cap.
fn pressure(cap: &AdaptiveCap) -> Pressure {
    let status = cap.status();
    let latency = status.sample_rtt.zip(status.min_rtt).map(|(now, idle)| now.as_secs_f64() / idle.as_secs_f64());
    Pressure { refused: status.rq_blocked, latency }
}

impl Front for Caps {
    fn arrive(&mut self, request: Arrival, now: u64) -> Outcome {
        let now = Monotonic::from_nanos(now);
        if !self.is_fair(request, now) {
            return Outcome::Refused;
        }
        let reserve = self.reserves.get(request.tier).copied().flatten();
        match self.cap.try_acquire_for(reserve, request.class, now) {
            Admission::Admitted(begun) | Admission::WouldRefuse(begun) => Outcome::Sent(begun),
            Admission::Refused => Outcome::Refused,
        }
    }

    fn end(&mut self, _: Arrival, begun: Begun, now: u64) {
        self.cap.release(begun, Monotonic::from_nanos(now), RequestEnd::Answered);
    }

    fn lowered(&self) -> f64 {
        self.fairness.as_ref().map_or(0.0, |fairness| fairness.status().amount)
    }
}

/// Spreads numbers over all hashes.
pub(crate) fn hash(number: u64) -> u64 {
    let mixed = (number.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb)
}
