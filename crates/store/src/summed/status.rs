//! What is counted, for metrics and health.

use tollgate_core::{OwnedKey, Span};

/// The state of all summed counters of a server.
#[derive(Clone, Debug, Default)]
pub struct SummedStatus {
    /// The counters that this server publishes.
    pub counters: Vec<SummedCounter>,
    /// The time since the last report that was answered. `None` if none was.
    pub age: Option<Span>,
    /// Whether that is too long: this server enforces its share of each limit.
    pub is_stale: bool,
    /// The number of servers that published counts at the last answer, including this one.
    pub servers: u64,
    /// Notes for other servers that were dropped, because too many waited.
    pub dropped_notes: u64,
    /// Claims whose counter found no place, so that the inner store counted them.
    pub without_place: u64,
}

/// One counter.
#[derive(Clone, Debug)]
pub struct SummedCounter {
    /// The key.
    pub key: OwnedKey,
    /// The requests in flight that this server admitted.
    pub here: u64,
    /// Those of the other servers, by the last answer. `None` if there was none yet.
    pub others: Option<u64>,
}
