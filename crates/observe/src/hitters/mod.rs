//! Who: the keys with the most decisions, the most refusals and the fullest counters, without a label for each.
//!
//! All limits that had a say are counted for their rule and key, minute by minute, in lists of a bounded number of keys
//! ([`summary`] says how, and how far off they may be). A window is the minute under way and those before it, put together.
//! The lists of one rule are those of all rules, filtered: what a count may be off is that of the whole.
//!
//! Each thread counts in a shard of its own, as long as there are enough, behind a lock that nobody else wants but who reads. A key that
//! several threads meet is in several shards: put together, counts and errors add up.

mod live;
mod name;
mod past;
mod summary;
#[cfg(test)]
mod tests;
mod top;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::{Ask, ResolvedBy, Seen, SeenLimit, Source, Timestamp};
use tollgate_core::key::{Key, Secret, Value};
use tollgate_rules::{AppliedTerms, Domain};

use crate::ruling::{Ruled, Ruling};
use crate::stripe;
use crate::sustained::{Streaks, Sustained};
use crate::tally::{RowName, used};
use live::{Live, Said, Turned};
use past::Past;

pub(crate) use live::NEAR;
pub use name::Name;
pub(crate) use summary::{ByHash, Cell};
pub use summary::{Summary, Terms};
pub use top::{By, Filter, ListedKey, Top, TopKey};

/// The heaviest keys.
#[derive(Debug)]
pub struct Hitters {
    shards: Box<[Shard]>,
    past: Mutex<Past>,
    streaks: Mutex<Streaks>,
    secret: Secret,
}

/// On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<Live>);

/// A stretch of time up to now. It begins at a full minute: it is as long as it says, and up to a minute (an hour: up to five) longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// A minute.
    Minute,
    /// Five minutes.
    FiveMinutes,
    /// An hour.
    Hour,
}

/// Threads that count without waiting for each other. Those past them share.
const SHARDS: usize = 8;

/// No more bytes than this are taken, whatever keys come: 20 lists of 1,376 keys and 8 shards of 1,792, all with names as long as they
/// may be. A few MB, where names are short.
pub const MOST_BYTES: usize = 24 << 20;

/// How many of `n` decisions a count may be above the truth: one in so many.
pub const ERROR_ONE_IN: u64 = 512;

/// Looks at the same moment of all shards before one is taken as it is.
const MOST_TRIES: usize = 4;

const MINUTE: u64 = 60_000_000;

/// Where a blocked address is told, if the caller is not.
const ADDRESS: &str = "remote_address";

impl Window {
    /// All of them.
    pub const ALL: [Window; 3] = [Window::Minute, Window::FiveMinutes, Window::Hour];

    /// The text for it.
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

impl Default for Hitters {
    fn default() -> Hitters {
        let random = RandomState::new();
        Hitters {
            shards: (0..SHARDS).map(|_| Shard(Mutex::new(Live::new()))).collect(),
            past: Mutex::default(),
            streaks: Mutex::default(),
            secret: Secret(random.hash_one(0u8), random.hash_one(1u8)),
        }
    }
}

impl Hitters {
    /// Counts a decision for the key of every limit that had a say.
    pub fn count(&self, seen: &Seen<'_, '_>, ruled: Ruled) {
        let minute = minute(seen.settlement.at);
        if ruled.ruling == Ruling::Blocked {
            return self.turned_away(seen, minute);
        }
        let refused_by = ruled.decider.filter(|_| ruled.ruling == Ruling::Deny);
        if seen.matched.applied.is_empty() {
            return;
        }
        let mut before: Option<(&Key<'_>, u128)> = None;
        let mut live = self.at(minute);
        for at in 0..seen.matched.applied.len() {
            let Some(limit) = seen.limit(at).filter(|limit| limit.charge.ask == Ask::Exactly) else { continue };
            let key = &limit.charge.key;
            // Limits of one caller that follow each other hash it once.
            let partition = match before {
                Some((other, partition)) if key.is_beside(other) => partition,
                _ => key.partition(self.secret),
            };
            before = Some((key, partition));
            let hash = key.whole(self.secret, partition);
            let said = said(&limit, seen.domain(), refused_by == Some(at));
            live.met(hash, said);
        }
    }

    /// What a window comes to. Somebody must ask now and then, or else nobody is seen to be near a limit for long.
    pub fn summary(&self, window: Window, now: Timestamp) -> Summary {
        let minute = minute(now);
        self.turn(minute);
        let (mut live, mut past) = (Summary::default(), Vec::new());
        // A shard whose minute ends meanwhile would be in both, or in none.
        for _ in 0..MOST_TRIES {
            let turns = lock(&self.past).turns();
            let shards: Vec<_> = self.shards.iter().map(|shard| lock(&shard.0).summary()).collect();
            live = Summary::together(&shards);
            let now = lock(&self.past);
            past = now.within(window, minute);
            if now.turns() == turns {
                break;
            }
        }
        Summary::together(past.iter().map(|summary| &**summary).chain([&live]))
    }

    /// The heaviest keys of a window.
    pub fn top(&self, by: By, window: Window, filter: Filter<'_>, limit: usize, now: Timestamp) -> Top {
        self.summary(window, now).top(by, filter, limit)
    }

    /// The keys that have been near their limit for long, those that are so for the longest time first.
    pub fn sustained(&self, now: Timestamp) -> Vec<Sustained> {
        self.turn(minute(now));
        lock(&self.streaks).sustained(minute(now))
    }

    /// Those that have become so since the event of this number, with the number of the last event.
    pub fn sustained_since(&self, event: u64, now: Timestamp) -> (u64, Vec<Sustained>) {
        self.turn(minute(now));
        lock(&self.streaks).since(event)
    }

    /// Bytes that all of it takes.
    pub fn bytes(&self) -> usize {
        let live = self.shards.iter().map(|shard| size_of::<Shard>() + lock(&shard.0).bytes()).sum::<usize>();
        live + lock(&self.past).bytes() + lock(&self.streaks).bytes()
    }

    /// Ends the minutes before this one.
    fn turn(&self, minute: u64) {
        for shard in &self.shards {
            drop(self.turned(shard, minute));
        }
        let (past, mut streaks) = (lock(&self.past), lock(&self.streaks));
        streaks.turn(minute, |minute| past.minute(minute));
    }

    /// This thread's shard, in this minute.
    #[inline]
    fn at(&self, minute: u64) -> MutexGuard<'_, Live> {
        self.turned(&self.shards[stripe::number() % SHARDS], minute)
    }

    #[inline]
    fn turned<'h>(&'h self, shard: &'h Shard, minute: u64) -> MutexGuard<'h, Live> {
        let mut live = lock(&shard.0);
        match live.turn(minute) {
            Turned::Not => {}
            Turned::Over(over, summary) => lock(&self.past).add(over, summary),
            Turned::Back => lock(&self.past).forget_ahead(minute),
        }
        live
    }

    /// Counts one who is blocked, by its own name or address.
    #[cold]
    fn turned_away(&self, seen: &Seen<'_, '_>, minute: u64) {
        let domain = seen.domain();
        let entries = || seen.request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
        let told = |name| entries().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let caller = domain.entity().and_then(told);
        let Some(key) = caller.or_else(|| told(ADDRESS)) else { return };
        let begun = Value::Text(domain.name()).digest(self.secret, 0);
        let hash = Value::Text(key).digest(self.secret, begun);
        self.at(minute).turned_away(hash, || Name::new(domain.name(), RowName::BLOCK, key, caller));
    }
}

/// What a limit said.
#[inline]
fn said<'s, 'a>(limit: &SeenLimit<'s, 'a>, domain: &'s Domain, refused: bool) -> Said<'s, 'a> {
    let reading = limit.reading;
    let used = match reading.source {
        Source::Assumed | Source::Shed => None,
        _ => Some(u32::try_from(used(limit.limit().quota(), reading.remaining)).unwrap_or(u32::MAX)),
    };
    let over = if reading.admits { 0 } else { limit.charge.units };
    Said { charge: limit.charge, refused, over, used, tier: tier(limit, domain) }
}

/// The tier behind a limit, or what stands for it.
fn tier<'s>(limit: &SeenLimit<'s, '_>, domain: &'s Domain) -> &'s str {
    match (limit.applied.terms, limit.applied.by) {
        (AppliedTerms::Tier(tier), _) if limit.rule.is_by_tier() => {
            domain.tiers().get(usize::from(tier)).map_or(RowName::DEFAULT, |tier| &tier.name)
        }
        (AppliedTerms::Tier(_), _) => RowName::DEFAULT,
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
