//! What decisions come to, kept in memory and bounded: no clock is read here, nothing is sent or written.
//!
//! An [`Observer`] is the [`Witness`](tollgate::Witness) of a limiter. What it saw is read by whoever shows it: metrics, pages, logs.

mod history;
mod latency;
mod observer;
mod ruling;
mod stripe;
mod tally;

pub use history::{
    Activity, History, MOST_SECONDS, Met, Quantiles, RATES_OVER, STEP, Second, Sparkline, TIMES_OVER, TierActivity,
};
pub use latency::{Latency, Times};
pub use observer::{Observer, ObserverConfig};
pub use ruling::{Ruled, Ruling};
pub use tally::{Count, Counts, Peak, Row, RowName, Tally, TallyLimits};
