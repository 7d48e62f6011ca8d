//! Statistics about decisions, held in bounded memory. The crate reads no clock and does no I/O.
//!
//! An [`Observer`] is the [`Witness`](tollgate::Witness) of a limiter. Metrics, pages and logs read what it recorded.

mod bans;
mod decision_log;
pub mod display;
mod heavy_hitters;
mod history;
mod latency;
mod observer;
mod outcome;
mod signals;
mod stripe;
mod tally;
mod traffic;

pub use bans::{BanCounts, BanEvent, BanRule, MAX_BAN_RULES, MAX_REFUSED, RefusalTable, Refusals, SubjectKind};
pub use decision_log::{
    DecisionEntry, DecisionLog, EntryDescriptor, EntryLimit, EntryShed, LogConfig, LogCounts, MAX_DESCRIPTOR_BYTES,
    MAX_LIMITS, MAX_REPEATING, MAX_TEXT_BYTES, MAX_VALUE_BYTES, Repetition, SUMMARY_INTERVAL, SampleRate, ShedRequest,
    truncate, truncate_attribute,
};
pub use heavy_hitters::{
    ERROR_ONE_IN, HeavyHitters, KeyFilter, KeyName, KeySearch, KeyTerms, MAX_BYTES, RankBy, Summary, SummaryKey,
    SustainedKey, TierFit, TopKey, TopKeys, Window,
};
pub use history::{
    Activity, History, HistoryLine, HistoryPoint, HistoryRange, LATENCY_WINDOW, LimitResults, Quantiles, RATE_WINDOW,
    RefusingRule, RuleLine, STEP, SavedAxis, SavedRule, SavedRules, Sparkline, TierActivity,
};
pub use latency::{LatencyHistogram, LatencySnapshot};
pub use observer::{Observer, ObserverConfig};
pub use outcome::{DecisionOutcome, DecisionResult};
pub use signals::{
    DistinctSketch, MAX_EXAMPLES, MAX_FEW, MAX_RAISED, MAX_REPORTED, MAX_SIGNAL_KEYS, MAX_TABLE_BYTES, RaisedSignal,
    SignalBoard, SignalChange, SignalReport, SignalStatus,
};
pub use tally::{CountKind, Peak, RowCounts, RowName, Tally, TallyLimits, TallyRow};
pub use traffic::{
    MAX_BUSY_CALLERS, MAX_NAMES, MAX_SAMPLED_TIME, MIN_BUSY_RATE, SAMPLED_TIME, TrafficConfig, TrafficExcerpt,
    TrafficSample, TrafficStatus,
};
