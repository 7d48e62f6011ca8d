//! The operators' settings for callers: tiers, individual limits, emergencies, blocks.
//!
//! A decision never waits for the store of record: its records are here in memory and change one caller at a time. A
//! request reads the entry of one caller, so it never sees a partial change. The names of callers are not stored,
//! only keyed hashes of them: without the secret nobody can choose a name that collides with another.

mod arena;
mod comparison;
mod entry;
mod filter;
mod table;
mod tenant;
mod wildcards;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use arc_swap::ArcSwap;
use siphasher::sip::SipHasher13;
use tollgate_core::{KeySecret, Period, Timestamp};

use crate::limit_text::LimitText;
use crate::model::Network;
use crate::pattern::Pattern;
use entry::TenantEntry;
use filter::TenantFilter;
use table::TenantTable;
use wildcards::Wildcards;

pub use arena::LimitArena;
pub use comparison::{DifferenceCount, TenantsDifference};
pub(crate) use entry::OverrideRef;
pub(crate) use tenant::{Tenant, TenantLookup};

/// All tenants.
pub struct Tenants {
    shards: Box<[RwLock<TenantTable>]>,
    /// Whether a caller may have an entry. Most callers have none and need no lookup.
    filter: TenantFilter,
    entries: AtomicUsize,
    wildcards: ArcSwap<Wildcards>,
    /// Whether there is anything in `wildcards`.
    has_wildcards: AtomicBool,
    /// Serialises changes.
    interned: Mutex<Interned>,
    secret: (u64, u64),
    filter_hasher: foldhash::fast::RandomState,
}

/// The terms of overrides by their text, shared so that a million overrides need only a few.
type Interned = HashMap<String, Arc<OverrideTerms>>;

/// A time range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The first moment.
    pub from: Timestamp,
    /// The first moment after the range.
    pub until: Timestamp,
}

/// A caller's quota: its stages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quota {
    /// The last stage that is active applies.
    pub stages: Vec<QuotaStage>,
}

/// A caller's tier and limits for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaStage {
    /// When the stage is active.
    pub during: TimeRange,
    /// The name of the tier. `None`: as if the caller had no entry.
    pub tier: Option<String>,
    /// The region that owns the caller's counters. `None`: as if the caller had no entry.
    pub home: Option<String>,
    /// The caller's own limits.
    pub overrides: Vec<Override>,
}

/// A limit that replaces a rule's limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The rules that it applies to.
    pub selector: Selector,
    /// The limit.
    pub cap: OverrideCap,
    /// When it is active.
    pub during: TimeRange,
}

/// The limit of an override.
#[derive(Clone, Debug, PartialEq)]
pub enum OverrideCap {
    /// No limit.
    Unlimited,
    /// Units, or holds, over the rule's own period.
    Amount(u64),
    /// Units over another period. If the rule has calendar months and this is a month, it is the rule's period.
    Rate {
        /// The units.
        amount: u64,
        /// The period.
        period: Period,
        /// The burst of a bucket; by default in proportion to the rule's.
        burst: Option<u64>,
    },
    /// Basis points of the rule's limit.
    Scaled(u32),
}

/// Selects rules: a digest of a rule's name or of a descriptor in its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selector(Option<NonZeroU64>);

/// A limit that takes precedence over all others, for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Emergency {
    /// The callers.
    pub callers: Pattern,
    /// The limit.
    pub limit: Override,
}

/// A block of a caller or an address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// When the block is active.
    pub during: TimeRange,
    /// What happens to a blocked request.
    pub action: BlockAction,
}

/// What happens to a blocked request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockAction {
    /// It is refused with 403.
    Forbidden,
    /// It is refused with 429.
    TooMany,
    /// It is served, and marked for the gateway.
    Marked,
    /// It is refused with 403: too many of the caller's requests were refused.
    Banned,
    /// It is served whatever its limits say, and marked for the gateway: a ban that the caller does not notice.
    Admitted,
}

/// The target of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockSubject {
    /// A caller of a domain.
    Caller {
        /// The domain.
        domain: String,
        /// The caller; with `*`, all that match.
        caller: String,
    },
    /// A caller of a domain, by the digest of its name: the name is private.
    Masked {
        /// The domain.
        domain: String,
        /// The digest under the secret of [`Tenants::use_secret`].
        digest: u128,
    },
    /// Addresses, in one domain or in all.
    Range {
        /// The domain.
        domain: Option<String>,
        /// The range.
        network: Network,
    },
}

/// The number of settings that apply to several callers, active or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WildcardCounts {
    /// Quotas of globs.
    pub quotas: usize,
    /// Emergencies.
    pub emergencies: usize,
    /// Blocks of globs.
    pub blocks: usize,
    /// Blocked address ranges.
    pub ranges: usize,
    /// Blocks of callers by digests of their names.
    pub masked: usize,
}

/// How a limit was chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResolvedBy {
    /// The rule has the same limit for all tiers.
    #[default]
    Default,
    /// The rule has a limit for the caller's tier.
    Tier,
    /// The caller has its own limit.
    Override,
    /// A glob that matches the caller has a limit.
    OverrideGlob,
    /// There is a limit for all callers.
    OverrideAll,
    /// There is an emergency.
    Emergency,
    /// The limit came with the request.
    Request,
}

/// The terms that overrides share.
#[derive(Debug, PartialEq)]
pub(crate) struct OverrideTerms {
    pub(crate) cap: OverrideKind,
    /// The burst of a bucket.
    pub(crate) burst: Option<u64>,
}

/// The meaning of an override's number.
#[derive(Debug, PartialEq)]
pub(crate) enum OverrideKind {
    Unlimited,
    /// Units over the rule's own period.
    Amount,
    /// Units over this period.
    Rate(Period),
    /// Basis points.
    Scaled,
}

/// A change locks the callers of one shard for a moment.
const SHARDS: usize = 256;
/// The maximum number of globs, of emergencies and of blocks of globs: they are tried one by one.
pub const MAX_WILDCARDS: usize = 1_000;

/// Not a secret: names of rules and tiers come from operators.
const NAMES: (u64, u64) = (0x746f_6c6c_6761_7465, 0x7365_6c65_6374_2f31);

fn digest(key: (u64, u64), kind: u8, text: &str) -> NonZeroU64 {
    let mut hasher = SipHasher13::new_with_keys(key.0, key.1);
    hasher.write_u8(kind);
    hasher.write(text.as_bytes());
    non_zero(hasher.finish())
}

/// A hash is 0 once in 2^64; it then counts as 1.
fn non_zero(hash: u64) -> NonZeroU64 {
    NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN)
}

/// A digest of the name of a domain, a tier or a region.
pub(crate) fn name_digest(name: &str) -> NonZeroU64 {
    digest(NAMES, 0, name)
}

// === impl During, Selector ===

impl TimeRange {
    /// Without beginning or end.
    pub const ALWAYS: TimeRange = TimeRange { from: Timestamp::from_micros(0), until: Timestamp::MAX };

    /// Whether the range contains a moment.
    pub fn holds(self, now: Timestamp) -> bool {
        self.from <= now && (now < self.until || self.until == Timestamp::MAX)
    }

    fn is_always(self) -> bool {
        self == TimeRange::ALWAYS
    }

    /// The same, reading the clock only if it matters.
    pub(crate) fn holds_at(self, now: &dyn Fn() -> Timestamp) -> bool {
        self.is_always() || self.holds(now())
    }
}

impl Selector {
    /// Every rule.
    pub const EVERY: Selector = Selector(None);

    /// The rule of this name.
    pub fn rule(name: &str) -> Selector {
        Selector(Some(digest(NAMES, 1, name)))
    }

    /// The rules with exactly this condition: `attribute:value`.
    pub fn descriptor(text: &str) -> Selector {
        Selector(Some(digest(NAMES, 2, text)))
    }

    /// The rule that a caller's quota refers to if it names no other.
    pub fn default_rule() -> Selector {
        Selector(Some(digest(NAMES, 3, "")))
    }
}

impl BlockAction {
    /// All of them.
    pub const ALL: [BlockAction; 5] =
        [BlockAction::Forbidden, BlockAction::TooMany, BlockAction::Marked, BlockAction::Banned, BlockAction::Admitted];

    /// The name in records and responses.
    pub fn name(self) -> &'static str {
        match self {
            BlockAction::Forbidden => "forbidden",
            BlockAction::TooMany => "too_many",
            BlockAction::Marked => "marked",
            BlockAction::Banned => "banned",
            BlockAction::Admitted => "shadow_banned",
        }
    }

    /// Whether the request is refused before its limits are looked at.
    #[inline]
    pub fn refuses(self) -> bool {
        match self {
            BlockAction::Forbidden | BlockAction::TooMany | BlockAction::Banned => true,
            BlockAction::Marked | BlockAction::Admitted => false,
        }
    }
}

impl ResolvedBy {
    /// The name in responses and logs.
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
    /// The cap of a limit's text.
    pub fn from_text(text: LimitText, burst: Option<u64>) -> OverrideCap {
        match text {
            LimitText::Unlimited => OverrideCap::Unlimited,
            LimitText::Concurrent(amount) => OverrideCap::Amount(amount),
            LimitText::Rate { amount, period } => OverrideCap::Rate { amount, period, burst },
        }
    }
}

// === impl Tenants ===

impl Default for Tenants {
    /// Without tenants.
    fn default() -> Tenants {
        let random = std::collections::hash_map::RandomState::new();
        Tenants {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            filter: TenantFilter::default(),
            entries: AtomicUsize::new(0),
            wildcards: ArcSwap::default(),
            has_wildcards: AtomicBool::new(false),
            interned: Mutex::default(),
            secret: (random.hash_one(1_u8), random.hash_one(2_u8)),
            filter_hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl Tenants {
    /// Sets or removes the quota of a caller. A name with `*` matches several callers.
    pub fn set_quota(&self, domain: &str, caller: &str, quota: Option<&Quota>) {
        let mut interned = self.interned();
        let stages: Vec<entry::StoredStage> =
            quota.iter().flat_map(|quota| &quota.stages).map(|stage| intern(stage, &mut interned)).collect();
        match Pattern::new(caller) {
            Pattern::Exact(_) => self.change(domain, caller, |entry| entry.set_stages(stages)),
            pattern => self.change_wildcards(|wildcards| wildcards.set_quota(name_digest(domain), pattern, stages)),
        }
    }

    /// Sets or removes the emergency of this name, in a domain or in all domains. Each domain has its own names.
    pub fn set_emergency(&self, domain: Option<&str>, name: &str, emergency: Option<&Emergency>) {
        let mut interned = self.interned();
        let limit = emergency.map(|one| wildcards::EmergencyLimit {
            domain: domain.map(name_digest),
            callers: one.callers.clone(),
            limit: intern_override(&one.limit, &mut interned),
        });
        self.change_wildcards(|wildcards| wildcards.set_emergency(domain, name, limit));
    }

    /// Sets or removes a block.
    pub fn set_block(&self, who: &BlockSubject, block: Option<Block>) {
        let _locked = self.interned();
        match who {
            BlockSubject::Range { domain, network } => {
                let domain = domain.as_deref().map(name_digest);
                self.change_wildcards(|wildcards| wildcards.ranges.set(domain, *network, block));
            }
            BlockSubject::Masked { domain, digest } => {
                self.change_wildcards(|wildcards| wildcards.masked.set(name_digest(domain), *digest, block));
            }
            BlockSubject::Caller { domain, caller } => match Pattern::new(caller) {
                Pattern::Exact(_) => self.change(domain, caller, |entry| entry.set_block(block)),
                pattern => self.change_wildcards(|wildcards| wildcards.set_block(name_digest(domain), pattern, block)),
            },
        }
    }

    /// The secret of the digests by which callers with private names are blocked. Without it no such block has an effect.
    pub fn use_secret(&self, secret: Option<KeySecret>) {
        if self.wildcards.load().masked.secret != secret {
            let _locked = self.interned();
            self.change_wildcards(|wildcards| wildcards.masked.secret = secret);
        }
    }

    /// The number of callers with an entry of their own.
    pub fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// The number of settings that apply to several callers.
    pub fn wildcard_counts(&self) -> WildcardCounts {
        self.wildcards.load().counts()
    }

    /// Whether there are no settings at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !self.has_wildcards.load(Ordering::Relaxed)
    }

    /// Visits the periods of all overrides that have one.
    pub(crate) fn for_each_period(&self, mut visit: impl FnMut(&Period)) {
        for terms in self.interned().values() {
            if let OverrideKind::Rate(period) = &terms.cap {
                visit(period);
            }
        }
    }

    #[inline]
    pub(crate) fn has_entries(&self) -> bool {
        self.entries.load(Ordering::Relaxed) > 0
    }

    #[inline]
    pub(crate) fn has_wildcards(&self) -> bool {
        self.has_wildcards.load(Ordering::Relaxed)
    }

    /// The caller's hash in the filter. It is fast and not secure: a collision costs a lookup, which finds nothing.
    #[inline]
    pub(crate) fn trace(&self, domain: NonZeroU64, caller: &str) -> u64 {
        let mut hasher = self.filter_hasher.build_hasher();
        hasher.write_u64(domain.get());
        hasher.write(caller.as_bytes());
        hasher.finish()
    }

    /// The caller's hash in the table.
    #[inline]
    pub(crate) fn identity(&self, domain: NonZeroU64, caller: &str) -> NonZeroU64 {
        let hasher = SipHasher13::new_with_keys(self.secret.0 ^ domain.get(), self.secret.1);
        non_zero(hasher.hash(caller.as_bytes()))
    }

    #[inline]
    pub(crate) fn shard(&self, identity: NonZeroU64) -> RwLockReadGuard<'_, TenantTable> {
        self.shards[identity.get() as usize % SHARDS].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, domain: &str, caller: &str, change: impl FnOnce(TenantEntry) -> TenantEntry) {
        let identity = self.identity(name_digest(domain), caller);
        self.filter.add(self.trace(name_digest(domain), caller));
        let mut shard = write(&self.shards[identity.get() as usize % SHARDS]);
        let (before, entry) = (shard.len(), change(shard.take(identity)));
        shard.put(identity, entry);
        let after = shard.len();
        drop(shard);
        self.entries.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    fn change_wildcards(&self, change: impl FnOnce(&mut Wildcards)) {
        let mut wildcards = Wildcards::clone(&self.wildcards.load());
        change(&mut wildcards);
        let has_wildcards = !wildcards.is_empty();
        self.wildcards.store(Arc::new(wildcards));
        self.has_wildcards.store(has_wildcards, Ordering::Release);
    }

    fn interned(&self) -> MutexGuard<'_, Interned> {
        self.interned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenants").field("entries", &self.len()).finish_non_exhaustive()
    }
}

fn write(shard: &RwLock<TenantTable>) -> RwLockWriteGuard<'_, TenantTable> {
    shard.write().unwrap_or_else(PoisonError::into_inner)
}

fn intern(stage: &QuotaStage, interned: &mut Interned) -> entry::StoredStage {
    entry::StoredStage {
        during: stage.during,
        tier: stage.tier.as_deref().map(name_digest),
        home: stage.home.as_deref().map(name_digest),
        overrides: stage.overrides.iter().map(|one| intern_override(one, interned)).collect(),
    }
}

fn intern_override(one: &Override, interned: &mut Interned) -> entry::StoredOverride {
    let (number, cap, burst) = match &one.cap {
        OverrideCap::Unlimited => (0, OverrideKind::Unlimited, None),
        OverrideCap::Amount(amount) => (*amount, OverrideKind::Amount, None),
        OverrideCap::Rate { amount, period, burst } => (*amount, OverrideKind::Rate(period.clone()), *burst),
        OverrideCap::Scaled(share) => (u64::from(*share), OverrideKind::Scaled, None),
    };
    let text = format!("{cap:?} {burst:?}");
    let terms = interned.entry(text).or_insert_with(|| Arc::new(OverrideTerms { cap, burst })).clone();
    entry::StoredOverride { selector: one.selector, number, terms, during: one.during }
}
