//! The keys with the most decisions, the most refusals and the fullest counters, without a metric label per key.
//!
//! Every limit of a decision is counted for its rule and key, minute by minute, in lists of a bounded number of keys
//! ([`summary`] describes the algorithm and its error bound). A window is the current minute merged with those before it.
//! Lists of one rule are filtered from those of all rules, so their error bound is that of the whole.
//!
//! Each thread counts in its own shard, as long as there are enough, behind a lock that only readers contend for. A key that
//! several threads count is in several shards: merging adds up counts and errors.
//!
//! The completed minutes also say which keys have been near their limit for long ([`sustained`]).

mod current;
mod key_name;
mod past_minutes;
mod summary;
mod sustained;
#[cfg(test)]
mod tests;
mod top;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate::{Ask, DecisionEvent, KeyPrivacy, LimitEvent, ResolvedBy, Source, Timestamp};
use tollgate_core::key::{HashSecret, Key, Value};
use tollgate_rules::{AppliedTerms, Domain};

use crate::outcome::{DecisionOutcome, DecisionResult};
use crate::stripe;
use crate::tally::{RowName, used};
use current::{CurrentMinute, Observation, Rollover};
use past_minutes::PastMinutes;
use sustained::Streaks;

pub use key_name::KeyName;
pub use summary::{KeyTerms, Summary};
pub use sustained::{SustainedKey, TierFit};
pub use top::{KeyFilter, KeySearch, RankBy, SummaryKey, TopKey, TopKeys};

/// The heaviest keys of the last hour.
#[derive(Debug)]
pub struct HeavyHitters {
    shards: Box<[PaddedShard]>,
    past_minutes: Mutex<PastMinutes>,
    streaks: Mutex<Streaks>,
    secret: HashSecret,
    privacy: Arc<KeyPrivacy>,
}

/// A shard on its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct PaddedShard(Mutex<CurrentMinute>);

/// A time window up to now. It begins at a full minute, so it is up to a minute (an hour: up to five) longer than its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// One minute.
    Minute,
    /// Five minutes.
    FiveMinutes,
    /// One hour.
    Hour,
}

/// Threads that count without contention. Any more share shards.
const SHARDS: usize = 8;

/// Upper bound of the memory used, whatever keys arrive: 20 lists of 1,376 keys and 8 shards of 1,792, all with names of
/// maximal length, masked and in clear. A few MB with short names.
pub const MAX_BYTES: usize = 40 << 20;

/// A count exceeds the truth by at most one in this many decisions.
pub const ERROR_ONE_IN: u64 = 512;

/// Attempts at a consistent read of all shards before an inconsistent one is accepted.
const MAX_READ_ATTEMPTS: usize = 4;

const MINUTE: u64 = 60_000_000;

/// The descriptor entry that names a blocked caller without an entity.
const ADDRESS_ENTRY: &str = "remote_address";

impl Window {
    /// All windows.
    pub const ALL: [Window; 3] = [Window::Minute, Window::FiveMinutes, Window::Hour];

    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Window::Minute => "1m",
            Window::FiveMinutes => "5m",
            Window::Hour => "1h",
        }
    }

    fn minutes(self) -> u64 {
        match self {
            Window::Minute => 1,
            Window::FiveMinutes => 5,
            Window::Hour => 60,
        }
    }
}

impl HeavyHitters {
    /// Nothing counted yet. Names have private values in this form.
    pub fn new(privacy: Arc<KeyPrivacy>) -> HeavyHitters {
        let random = RandomState::new();
        HeavyHitters {
            shards: (0..SHARDS).map(|_| PaddedShard(Mutex::new(CurrentMinute::new(privacy.clone())))).collect(),
            past_minutes: Mutex::default(),
            streaks: Mutex::default(),
            secret: HashSecret(random.hash_one(0u8), random.hash_one(1u8)),
            privacy,
        }
    }

    /// The name of a key, as in the lists.
    pub fn name_of(&self, key: &Key<'_>) -> KeyName {
        KeyName::from_key(&mut String::new(), key.scope().rule(), key, self.privacy.log_secret())
    }

    /// Counts a decision for the key of every limit that had a say.
    pub fn count(&self, event: &DecisionEvent<'_, '_>, result: DecisionResult) {
        let minute = minute(event.settlement.at);
        if result.outcome == DecisionOutcome::Blocked {
            return self.count_blocked(event, minute);
        }
        let refused_by = result.decider.filter(|_| result.outcome == DecisionOutcome::Deny);
        if event.matched.applied.is_empty() {
            return;
        }
        let mut before: Option<(&Key<'_>, u128)> = None;
        let mut current = self.at(minute);
        for at in 0..event.matched.applied.len() {
            let Some(limit) = event.limit(at).filter(|limit| limit.charge.ask == Ask::Exactly) else { continue };
            let key = &limit.charge.key;
            // Limits of one caller that follow each other hash it once.
            let partition = match before {
                Some((other, partition)) if key.shares_partition_with(other) => partition,
                _ => key.partition(self.secret),
            };
            before = Some((key, partition));
            let hash = key.hash(self.secret, partition);
            let observation = observe(&limit, event.domain(), refused_by == Some(at));
            current.count(hash, observation);
        }
    }

    /// The summary of a window. It must be called regularly: minutes are rolled over, and sustained use is detected, on reads.
    pub fn summary(&self, window: Window, now: Timestamp) -> Summary {
        let minute = minute(now);
        self.roll_over(minute);
        let (mut current, mut past_minutes) = (Summary::default(), Vec::new());
        // A shard that rolls over meanwhile would be counted twice or not at all.
        for _ in 0..MAX_READ_ATTEMPTS {
            let rollovers = lock(&self.past_minutes).rollovers();
            let shards: Vec<_> = self.shards.iter().map(|shard| lock(&shard.0).summary()).collect();
            current = Summary::merge(&shards);
            let now = lock(&self.past_minutes);
            past_minutes = now.in_window(window, minute);
            if now.rollovers() == rollovers {
                break;
            }
        }
        Summary::merge(past_minutes.iter().map(|summary| &**summary).chain([&current]))
    }

    /// The heaviest keys of a window.
    pub fn top(&self, by: RankBy, window: Window, filter: KeyFilter<'_>, limit: usize, now: Timestamp) -> TopKeys {
        self.summary(window, now).top(by, filter, limit)
    }

    /// The keys that have been near their limit for long, longest first.
    pub fn sustained(&self, now: Timestamp) -> Vec<SustainedKey> {
        self.roll_over(minute(now));
        lock(&self.streaks).sustained(minute(now))
    }

    /// Keys that became sustained after event number `event`, and the number of the last event.
    pub fn sustained_since(&self, event: u64, now: Timestamp) -> (u64, Vec<SustainedKey>) {
        self.roll_over(minute(now));
        lock(&self.streaks).since(event)
    }

    /// The memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        let current = self.shards.iter().map(|shard| size_of::<PaddedShard>() + lock(&shard.0).bytes()).sum::<usize>();
        current + lock(&self.past_minutes).bytes() + lock(&self.streaks).bytes()
    }

    /// Rolls all shards over to this minute.
    fn roll_over(&self, minute: u64) {
        for shard in &self.shards {
            drop(self.lock_at(shard, minute));
        }
        let (past_minutes, mut streaks) = (lock(&self.past_minutes), lock(&self.streaks));
        streaks.roll_over(minute, |minute| past_minutes.minute(minute));
    }

    /// This thread's shard, at this minute.
    #[inline]
    fn at(&self, minute: u64) -> MutexGuard<'_, CurrentMinute> {
        self.lock_at(&self.shards[stripe::number() % SHARDS], minute)
    }

    #[inline]
    fn lock_at<'h>(&'h self, shard: &'h PaddedShard, minute: u64) -> MutexGuard<'h, CurrentMinute> {
        let mut current = lock(&shard.0);
        match current.roll_over(minute) {
            Rollover::None => {}
            Rollover::Completed(over, summary) => lock(&self.past_minutes).add(over, summary),
            Rollover::ClockSetBack => lock(&self.past_minutes).drop_future(minute),
        }
        current
    }

    /// Counts a blocked caller by its name or address.
    #[cold]
    fn count_blocked(&self, event: &DecisionEvent<'_, '_>, minute: u64) {
        let domain = event.domain();
        let entries = || event.request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
        let value_of = |name| entries().find(|(entry, _)| *entry == name).map(|(_, value)| *value);
        let caller = domain.entity().and_then(value_of);
        let Some(key) = caller.or_else(|| value_of(ADDRESS_ENTRY)) else { return };
        let seed = Value::Text(domain.name()).digest(self.secret, 0);
        let hash = Value::Text(key).digest(self.secret, seed);
        self.at(minute).count_blocked(hash, || {
            let is_private = caller.is_some() && domain.entity().is_some_and(|entity| domain.is_private(entity));
            match self.privacy.log_secret().filter(|_| is_private) {
                Some(secret) => {
                    let masked = secret.mask(key).to_string();
                    KeyName::new(domain.name(), RowName::BLOCK, &masked, Some(&masked)).with_clear_caller(key)
                }
                None => KeyName::new(domain.name(), RowName::BLOCK, key, caller),
            }
        });
    }
}

/// Describes the result of one limit.
#[inline]
fn observe<'s, 'a>(limit: &LimitEvent<'s, 'a>, domain: &'s Domain, refused: bool) -> Observation<'s, 'a> {
    let reading = limit.reading;
    let used = match reading.source {
        Source::Assumed | Source::Shed => None,
        _ => Some(u32::try_from(used(limit.quota, reading.remaining)).unwrap_or(u32::MAX)),
    };
    let over = if reading.admits { 0 } else { limit.charge.units };
    Observation { charge: limit.charge, rule: limit.rule.name(), refused, over, used, tier: tier(limit, domain) }
}

/// The tier of a limit, or its placeholder.
fn tier<'s>(limit: &LimitEvent<'s, '_>, domain: &'s Domain) -> &'s str {
    match (limit.applied.terms, limit.applied.by) {
        (AppliedTerms::Tier(row), _) => limit.rule.row_name(domain, row),
        (_, ResolvedBy::Emergency) => RowName::EMERGENCY,
        (AppliedTerms::Requested(_), _) => RowName::REQUEST,
        (AppliedTerms::Override(_), _) => RowName::OVERRIDE,
    }
}

fn minute(at: Timestamp) -> u64 {
    at.as_micros() / MINUTE
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
