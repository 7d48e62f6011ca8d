//! What an operator sees of a cap.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{AdaptiveCap, ReserveStatus};
use crate::class::ByClass;
use crate::mode::ShedMode;

/// The numbers of a cap at one moment. Those that Envoy's adaptive concurrency filter has too are named as there.
#[derive(Clone, Debug, PartialEq)]
pub struct CapStatus {
    /// What the cap does with what it decides.
    pub mode: ShedMode,
    /// Requests in flight.
    pub in_flight: u32,
    /// The limit, that of a probe included.
    pub concurrency_limit: u32,
    /// The idle latency over the current one, with the buffer: below 1 the limit falls.
    pub gradient: f64,
    /// The queue that the limit allows.
    pub burst_queue_size: f64,
    /// The idle latency, when it is known.
    pub min_rtt: Option<Duration>,
    /// The smoothed latency, when it is known.
    pub sample_rtt: Option<Duration>,
    /// Whether a probe measures the idle latency.
    pub min_rtt_calculation_active: bool,
    /// Requests that were refused, or would have been in mode `shadow`.
    pub rq_blocked: u64,
    /// The same by class.
    pub refused: ByClass<u64>,
    /// Each tier with a reserve, by number, and last all others; empty if nothing is reserved.
    pub reserves: Vec<ReserveStatus>,
}

impl AdaptiveCap {
    /// The numbers of this moment. It may wait for the end of a window's evaluation, a few microseconds.
    pub fn status(&self) -> CapStatus {
        let state = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let control = &state.control;
        let time = |nanos: f64| Duration::from_nanos(nanos as u64);
        let refused = self.refused.map(|count| count.load(Ordering::Relaxed));
        let limit = state.next.map_or(control.limit(), |next| next.limit);
        CapStatus {
            mode: self.mode(),
            in_flight: self.in_flight.0.load(Ordering::Relaxed).saturating_add(self.burst.0.in_flight()),
            concurrency_limit: limit.round() as u32,
            gradient: control.gradient(),
            burst_queue_size: control.queue(),
            min_rtt: control.min_rtt().map(time),
            sample_rtt: control.sample_rtt().map(time),
            min_rtt_calculation_active: control.is_probing(),
            rq_blocked: refused.iter().map(|(_, count)| *count).sum(),
            refused,
            reserves: self.reserved.as_ref().map_or_else(Vec::new, |reserved| reserved.status()),
        }
    }
}
