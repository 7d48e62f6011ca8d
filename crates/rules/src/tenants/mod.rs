//! What operators decided about callers: their tiers, the limits that are theirs alone, emergencies, blocks.
//!
//! Counting never waits for the store of record: what it says is here, in memory, changed one caller at a time. A request reads
//! one caller's entry, so it never sees half a change. Names of callers are not kept, only keyed hashes of them: who does not know
//! the secret can't choose a name that is taken for another.

mod filter;
mod found;
mod held;
mod overridden;
mod room;
mod table;
mod wide;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use arc_swap::ArcSwap;
use siphasher::sip::SipHasher13;
use tollgate_core::{Period, Timestamp};

use crate::compiled::Ruleset;
use crate::limit_text::LimitText;
use crate::model::Network;
use crate::pattern::Pattern;
use filter::Filter;
use held::Held;
use table::Table;
use wide::Wide;

pub(crate) use found::{Found, Sought};
pub(crate) use overridden::{CapRef, OtherScopes};
pub use room::Room;

/// All that is known of callers.
pub struct Tenants {
    shards: Box<[RwLock<Table>]>,
    /// Whether a caller may have an entry: most have none, and need not be looked for.
    filter: Filter,
    entries: AtomicUsize,
    wide: ArcSwap<Wide>,
    /// Whether there is anything in `wide`.
    has_wide: AtomicBool,
    /// Changed by one at a time.
    writing: Mutex<Interned>,
    secret: (u64, u64),
    quick: foldhash::fast::RandomState,
}

/// Terms that overrides share, by their text, so that a million of them are a few.
type Interned = HashMap<String, Arc<Terms>>;

/// When something holds: from a moment on, up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct During {
    /// Its first moment.
    pub from: Timestamp,
    /// The first moment at which it does not hold any more.
    pub until: Timestamp,
}

/// What a caller has: one stage after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quota {
    /// The one in force is the last that holds.
    pub stages: Vec<Stage>,
}

/// What a caller has for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// When.
    pub during: During,
    /// Its tier, by name; where there is none, as if there were no entry.
    pub tier: Option<String>,
    /// Limits of its own.
    pub overrides: Vec<Override>,
}

/// A limit that takes the place of a rule's.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// Of which rules.
    pub selector: Selector,
    /// What it is.
    pub cap: OverrideCap,
    /// When.
    pub during: During,
}

/// What an override holds a caller to.
#[derive(Clone, Debug, PartialEq)]
pub enum OverrideCap {
    /// Nothing.
    Unlimited,
    /// So many units, or holds, over the rule's own period.
    Amount(u64),
    /// So many units over a period. Where the rule counts by calendar months and this is a month, it is the rule's.
    Rate {
        /// The units.
        amount: u64,
        /// The period.
        period: Period,
        /// The burst of a bucket; by default in the rule's proportion.
        burst: Option<u64>,
    },
    /// So many ten-thousandths of what the rule says.
    Scaled(u32),
}

/// Which rules are meant: a digest of a rule's name or of a descriptor that its conditions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selector(u64);

/// A limit that goes before all others, for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Emergency {
    /// Of which domain; all, if of none.
    pub domain: Option<String>,
    /// For which callers.
    pub callers: Pattern,
    /// What.
    pub limit: Override,
}

/// A caller or an address range that is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// When.
    pub during: During,
    /// What it is told.
    pub told: BlockedAs,
}

/// What one who is blocked is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockedAs {
    /// That it may not: 403.
    Forbidden,
    /// That it comes too often: 429.
    TooMany,
    /// Nothing: it is served, and marked for the gateway.
    Marked,
}

/// Who is blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// A caller of a domain.
    Caller {
        /// The domain.
        domain: String,
        /// Its name; with `*`, all that match.
        caller: String,
    },
    /// Addresses, in one domain or in all.
    Range {
        /// The domain.
        domain: Option<String>,
        /// The range.
        network: Network,
    },
}

/// How much there is that holds for many callers, ended or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WideCounts {
    /// Quotas of globs.
    pub quotas: usize,
    /// Emergencies.
    pub emergencies: usize,
    /// Blocks of globs.
    pub blocks: usize,
    /// Blocked address ranges.
    pub ranges: usize,
}

/// How a limit came to be the one that applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResolvedBy {
    /// The rule has one for all.
    #[default]
    Default,
    /// The rule has one for the caller's tier.
    Tier,
    /// The caller has one of its own.
    Override,
    /// Callers with names like this one's have one.
    OverrideGlob,
    /// All callers have one.
    OverrideAll,
    /// An emergency.
    Emergency,
    /// It came with the request.
    Request,
}

/// What overrides have in common, once.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) cap: TermsCap,
    /// The burst of a bucket.
    pub(crate) burst: Option<u64>,
}

/// What the number of an override means.
#[derive(Debug)]
pub(crate) enum TermsCap {
    Unlimited,
    /// Units over the rule's own period.
    Amount,
    /// Units over this one.
    Rate(Period),
    /// Ten-thousandths.
    Scaled,
}

/// A change locks the callers of one shard for a moment.
const SHARDS: usize = 256;
/// The most globs, emergencies and blocks of globs, each: they are looked at one by one.
pub const MOST_WIDE: usize = 1_000;

/// Not a secret: names of rules and tiers come from operators.
const NAMES: (u64, u64) = (0x746f_6c6c_6761_7465, 0x7365_6c65_6374_2f31);

fn digest(key: (u64, u64), kind: u8, text: &str) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(key.0, key.1);
    hasher.write_u8(kind);
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// A digest of a domain's or a tier's name. None is 0.
pub(crate) fn name_digest(name: &str) -> u64 {
    digest(NAMES, 0, name).max(1)
}

// === impl During, Selector ===

impl During {
    /// Always.
    pub const ALWAYS: During = During { from: Timestamp::from_micros(0), until: Timestamp::MAX };

    /// Whether it holds.
    pub fn holds(self, now: Timestamp) -> bool {
        self.from <= now && (now < self.until || self.until == Timestamp::MAX)
    }

    fn is_always(self) -> bool {
        self == During::ALWAYS
    }

    /// The same, asked of a clock only if it matters.
    pub(crate) fn holds_at(self, now: &dyn Fn() -> Timestamp) -> bool {
        self.is_always() || self.holds(now())
    }
}

impl Selector {
    /// Every rule.
    pub const EVERY: Selector = Selector(0);

    /// The rule of this name.
    pub fn rule(name: &str) -> Selector {
        Selector(digest(NAMES, 1, name).max(1))
    }

    /// The rules whose conditions have exactly this: `attribute:value`.
    pub fn descriptor(text: &str) -> Selector {
        Selector(digest(NAMES, 2, text).max(1))
    }

    /// The rule that a caller's quota means when no other is named.
    pub fn default_rule() -> Selector {
        Selector(digest(NAMES, 3, "").max(1))
    }
}

impl BlockedAs {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            BlockedAs::Forbidden => "forbidden",
            BlockedAs::TooMany => "too_many",
            BlockedAs::Marked => "marked",
        }
    }
}

impl ResolvedBy {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            ResolvedBy::Default => "default",
            ResolvedBy::Tier => "tier",
            ResolvedBy::Override => "override",
            ResolvedBy::OverrideGlob => "override_glob",
            ResolvedBy::OverrideAll => "override_all",
            ResolvedBy::Emergency => "emergency",
            ResolvedBy::Request => "request",
        }
    }
}

impl OverrideCap {
    /// What a limit's text says.
    pub fn of(text: LimitText, burst: Option<u64>) -> OverrideCap {
        match text {
            LimitText::Unlimited => OverrideCap::Unlimited,
            LimitText::Concurrent(amount) => OverrideCap::Amount(amount),
            LimitText::Rate { amount, period } => OverrideCap::Rate { amount, period, burst },
        }
    }
}

// === impl Tenants ===

impl Default for Tenants {
    /// Nobody is known.
    fn default() -> Tenants {
        let random = std::collections::hash_map::RandomState::new();
        Tenants {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            filter: Filter::default(),
            entries: AtomicUsize::new(0),
            wide: ArcSwap::default(),
            has_wide: AtomicBool::new(false),
            writing: Mutex::default(),
            secret: (random.hash_one(1_u8), random.hash_one(2_u8)),
            quick: foldhash::fast::RandomState::default(),
        }
    }
}

impl Tenants {
    /// Says what a caller has, or that it has nothing. A name with `*` stands for all that match.
    pub fn set_quota(&self, domain: &str, caller: &str, quota: Option<&Quota>) {
        let mut interned = self.writing();
        let stages: Vec<held::Stage> =
            quota.iter().flat_map(|quota| &quota.stages).map(|stage| intern(stage, &mut interned)).collect();
        match Pattern::new(caller) {
            Pattern::Exact(_) => self.change(domain, caller, |held| held.set_stages(stages)),
            pattern => self.widen(|wide| wide.set_quota(name_digest(domain), pattern, stages)),
        }
    }

    /// Puts an emergency in force, or ends it.
    pub fn set_emergency(&self, name: &str, emergency: Option<&Emergency>) {
        let mut interned = self.writing();
        let limit = emergency.map(|one| wide::Limit {
            domain: one.domain.as_deref().map_or(0, name_digest),
            callers: one.callers.clone(),
            limit: intern_override(&one.limit, &mut interned),
        });
        self.widen(|wide| wide.set_emergency(name, limit));
    }

    /// Blocks somebody, or ends that.
    pub fn set_block(&self, who: &Blocked, block: Option<Block>) {
        let _writing = self.writing();
        match who {
            Blocked::Range { domain, network } => {
                let domain = domain.as_deref().map_or(0, name_digest);
                self.widen(|wide| wide.ranges.set(domain, *network, block));
            }
            Blocked::Caller { domain, caller } => match Pattern::new(caller) {
                Pattern::Exact(_) => self.change(domain, caller, |held| held.set_block(block)),
                pattern => self.widen(|wide| wide.set_block(name_digest(domain), pattern, block)),
            },
        }
    }

    /// How many callers have an entry of their own.
    pub fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// How much there is that holds for many callers.
    pub fn wide(&self) -> WideCounts {
        self.wide.load().counts()
    }

    /// Whether nobody is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !self.has_wide.load(Ordering::Relaxed)
    }

    /// Makes ready what overrides need of rules that are about to be in force: scopes for periods that no file gave.
    pub fn prepare(&self, rules: &Ruleset) {
        for terms in self.writing().values() {
            if let TermsCap::Rate(period) = &terms.cap {
                rules.prepare(period);
            }
        }
    }

    #[inline]
    pub(crate) fn has_entries(&self) -> bool {
        self.entries.load(Ordering::Relaxed) > 0
    }

    #[inline]
    pub(crate) fn has_wide(&self) -> bool {
        self.has_wide.load(Ordering::Relaxed)
    }

    /// What the filter knows a caller by: a quick hash. One that is chosen to be taken for another costs a look, and finds nothing.
    #[inline]
    pub(crate) fn trace(&self, domain: u64, caller: &str) -> u64 {
        let mut hasher = self.quick.build_hasher();
        hasher.write_u64(domain);
        hasher.write(caller.as_bytes());
        hasher.finish()
    }

    /// The name of a caller's entry.
    #[inline]
    pub(crate) fn identity(&self, domain: u64, caller: &str) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.secret.0 ^ domain, self.secret.1);
        hasher.write(caller.as_bytes());
        hasher.finish().max(1)
    }

    #[inline]
    pub(crate) fn shard(&self, identity: u64) -> RwLockReadGuard<'_, Table> {
        self.shards[identity as usize % SHARDS].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, domain: &str, caller: &str, change: impl FnOnce(Held) -> Held) {
        let identity = self.identity(name_digest(domain), caller);
        self.filter.add(self.trace(name_digest(domain), caller));
        let mut shard = write(&self.shards[identity as usize % SHARDS]);
        let (before, held) = (shard.len(), change(shard.take(identity)));
        shard.put(identity, held);
        let after = shard.len();
        drop(shard);
        self.entries.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    fn widen(&self, change: impl FnOnce(&mut Wide)) {
        let mut wide = Wide::clone(&self.wide.load());
        change(&mut wide);
        let has_wide = !wide.is_empty();
        self.wide.store(Arc::new(wide));
        self.has_wide.store(has_wide, Ordering::Release);
    }

    fn writing(&self) -> MutexGuard<'_, Interned> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenants").field("entries", &self.len()).finish_non_exhaustive()
    }
}

fn write(shard: &RwLock<Table>) -> RwLockWriteGuard<'_, Table> {
    shard.write().unwrap_or_else(PoisonError::into_inner)
}

fn intern(stage: &Stage, interned: &mut Interned) -> held::Stage {
    held::Stage {
        during: stage.during,
        tier: stage.tier.as_deref().map_or(0, name_digest),
        overrides: stage.overrides.iter().map(|one| intern_override(one, interned)).collect(),
    }
}

fn intern_override(one: &Override, interned: &mut Interned) -> held::Limited {
    let (number, cap, burst) = match &one.cap {
        OverrideCap::Unlimited => (0, TermsCap::Unlimited, None),
        OverrideCap::Amount(amount) => (*amount, TermsCap::Amount, None),
        OverrideCap::Rate { amount, period, burst } => (*amount, TermsCap::Rate(period.clone()), *burst),
        OverrideCap::Scaled(share) => (u64::from(*share), TermsCap::Scaled, None),
    };
    let text = format!("{cap:?} {burst:?}");
    let terms = interned.entry(text).or_insert_with(|| Arc::new(Terms { cap, burst })).clone();
    held::Limited { selector: one.selector, number, terms, during: one.during }
}
