//! The recorded requests as of a moment, with an index of callers.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate::{Span, Timestamp};
use tollgate_observe::TrafficExcerpt;
use tollgate_plan::TrafficRecord;
use tollgate_rules::Ruleset;

/// Recorded requests, copied so that many writes can be judged by one copy.
pub(super) struct TrafficSnapshot {
    pub(super) excerpt: TrafficExcerpt,
    /// The requests that they stand for.
    pub(super) requests: u64,
    /// The records of each caller, by domain and name.
    callers: HashMap<(String, String), Vec<u32>>,
    /// How many requests had been recorded.
    recorded: u64,
    rules: Arc<Ruleset>,
    at: Timestamp,
}

/// Older copies are replaced.
const MAX_AGE: Span = Span::from_secs(10);
/// A copy is replaced when one request in so many is missing.
const MAX_MISSING_ONE_IN: u64 = 64;

impl TrafficSnapshot {
    pub(super) fn new(excerpt: TrafficExcerpt, recorded: u64, rules: Arc<Ruleset>, at: Timestamp) -> TrafficSnapshot {
        let mut callers: HashMap<(String, String), Vec<u32>> = HashMap::new();
        for (number, record) in excerpt.records.iter().enumerate() {
            if let Some((domain, name)) = record.caller(&rules) {
                callers.entry((domain.to_owned(), name.to_owned())).or_default().push(number as u32);
            }
        }
        let requests = excerpt.records.iter().map(TrafficRecord::requests).sum();
        TrafficSnapshot { excerpt, requests, callers, recorded, rules, at }
    }

    /// Whether it has nearly all requests that are recorded now, by the same rules.
    pub(super) fn is_recent(&self, recorded: u64, rules: &Arc<Ruleset>, now: Timestamp) -> bool {
        let missing = recorded.saturating_sub(self.recorded);
        let few = self.excerpt.records.len() as u64 / MAX_MISSING_ONE_IN;
        missing <= few && now.since(self.at) <= MAX_AGE && Arc::ptr_eq(rules, &self.rules)
    }

    /// Whether requests of a caller are among them.
    pub(super) fn has_caller(&self, domain: &str, name: &str) -> bool {
        self.callers.contains_key(&(domain.to_owned(), name.to_owned()))
    }

    /// The requests of one caller, who stands for nobody else.
    pub(super) fn of_caller(&self, domain: &str, name: &str) -> Vec<TrafficRecord> {
        let numbers = self.callers.get(&(domain.to_owned(), name.to_owned()));
        let records = numbers.into_iter().flatten().filter_map(|number| self.excerpt.records.get(*number as usize));
        records.map(|record| TrafficRecord { callers: 1, ..record.clone() }).collect()
    }
}
