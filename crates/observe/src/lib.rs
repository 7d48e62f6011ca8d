//! What decisions come to, kept in memory and bounded: no clock is read here, nothing is sent or written.
//!
//! An [`Observer`] is the [`Witness`](tollgate::Witness) of a limiter. What it saw is read by whoever shows it: metrics, pages, logs.

mod history;
mod hitters;
mod latency;
mod log;
mod observer;
mod ruling;
mod stripe;
mod sustained;
mod tally;
pub mod words;

pub use history::{
    Activity, History, MOST_SECONDS, Met, Quantiles, RATES_OVER, STEP, Second, Sparkline, TIMES_OVER, TierActivity,
};
pub use hitters::{
    By, ERROR_ONE_IN, Filter, Hitters, ListedKey, MOST_BYTES, Name, Summary, Terms, Top, TopKey, Window,
};
pub use latency::{Latency, Times};
pub use log::{
    DecisionLog, Entry, EntryDescriptor, EntryLimit, LONGEST_TEXT, LogConfig, Logged, MOST_LIMITS, MOST_TEXT, Share,
    cut,
};
pub use observer::{Observer, ObserverConfig};
pub use ruling::{Ruled, Ruling};
pub use sustained::{Fit, Sustained};
pub use tally::{Count, Counts, Peak, Row, RowName, Tally, TallyLimits};
