//! What a change of rules or tenants would do to recorded traffic.
//!
//! [`compare`] replays the same requests in two [`World`]s, before and after a change, and compares the decisions request by
//! request. Each world has the real rules, counters in memory and a clock that follows the requests. There is no I/O.
//!
//! Recorded traffic is a sample. A counter whose requests are all in the sample is counted; one that others use as well is
//! judged by what it was when the request was decided.

mod compare;
mod json;
mod player;
mod report;
#[cfg(test)]
mod tests;
mod timeline;
mod traffic;
mod world;

pub use compare::{MAX_CALLERS, MAX_EXAMPLES, MAX_RULES, compare};
pub use json::{NameForm, report_json};
pub use report::{CallerImpact, Impact, PlanExample, PlanReport, RuleImpact, TierImpact, Uncertainty};
pub use timeline::MAX_EVENTS;
pub use traffic::{RecordedCaller, RecordedLimit, TrafficDescriptor, TrafficRecord, tenants_of};
pub use world::World;
