//! Looks up the tenant of a request.

use std::num::NonZeroU64;
use std::sync::{Arc, RwLockReadGuard};

use arc_swap::Guard;
use tollgate_core::Timestamp;

use super::entry::{ActiveSettings, OverrideRef, TenantEntry};
use super::filter::FilterWord;
use super::table::TenantTable;
use super::wildcards::Wildcards;
use super::{Block, ResolvedBy, Selector, Tenants};

/// The settings for the caller of one request. It holds a read lock, so it lives only while the request is resolved.
pub(crate) struct Tenant<'t> {
    domain: NonZeroU64,
    caller: Option<&'t str>,
    entry: Option<TenantEntryGuard<'t>>,
    wildcards: Option<Guard<Arc<Wildcards>>>,
    now: &'t dyn Fn() -> Timestamp,
}

/// A lookup in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenantLookup<'t> {
    domain: NonZeroU64,
    caller: Option<&'t str>,
    /// The caller's hash and its filter word, if there may be an entry.
    trace: Option<(u64, FilterWord)>,
}

impl<'t> TenantLookup<'t> {
    /// Starts the lookup in the domain with this digest of its name. The filter word is loaded from memory while the caller does other work.
    #[inline]
    pub(crate) fn new(tenants: &Tenants, domain: NonZeroU64, caller: Option<&'t str>) -> TenantLookup<'t> {
        let trace = caller.filter(|_| tenants.has_entries()).map(|caller| {
            let trace = tenants.trace(domain, caller);
            (trace, tenants.filter.word(trace))
        });
        TenantLookup { domain, caller, trace }
    }
}

/// The caller's own entry, which does not change while the lock is held.
struct TenantEntryGuard<'t> {
    table: RwLockReadGuard<'t, TenantTable>,
    index: usize,
}

impl<'t> Tenant<'t> {
    /// The settings for a caller of a domain. `None` if there are none.
    #[inline]
    pub(crate) fn find(
        tenants: &'t Tenants,
        lookup: &TenantLookup<'t>,
        now: &'t dyn Fn() -> Timestamp,
    ) -> Option<Tenant<'t>> {
        let may_exist = lookup.trace.is_some_and(|(trace, word)| word.may_have(trace));
        if may_exist || tenants.has_wildcards() { Tenant::look_up(tenants, lookup, may_exist, now) } else { None }
    }

    #[inline(never)]
    fn look_up(
        tenants: &'t Tenants,
        lookup: &TenantLookup<'t>,
        may_exist: bool,
        now: &'t dyn Fn() -> Timestamp,
    ) -> Option<Tenant<'t>> {
        let TenantLookup { domain, caller, .. } = *lookup;
        let entry = caller.filter(|_| may_exist).and_then(|caller| {
            let identity = tenants.identity(domain, caller);
            let table = tenants.shard(identity);
            let index = table.index_of(identity)?;
            Some(TenantEntryGuard { table, index })
        });
        let wildcards = tenants.has_wildcards().then(|| tenants.wildcards.load());
        (entry.is_some() || wildcards.is_some()).then_some(Tenant { domain, caller, entry, wildcards, now })
    }

    #[inline]
    fn entry(&self) -> Option<&TenantEntry> {
        let TenantEntryGuard { table, index } = self.entry.as_ref()?;
        table.at(*index)
    }

    fn own(&self) -> Option<ActiveSettings<'_>> {
        self.entry()?.active(self.now)
    }

    /// The digest of the name of the caller's tier.
    pub(crate) fn tier(&self) -> Option<NonZeroU64> {
        let own = self.own().and_then(ActiveSettings::tier);
        own.or_else(|| {
            let mut quotas = self.wildcards.as_ref()?.quotas(self.domain, self.caller?, self.now);
            quotas.find_map(|(stage, _)| stage.tier)
        })
    }

    /// The digest of the name of the region that owns the caller's counters.
    pub(crate) fn home(&self) -> Option<NonZeroU64> {
        let own = self.own().and_then(ActiveSettings::home);
        own.or_else(|| {
            let mut quotas = self.wildcards.as_ref()?.quotas(self.domain, self.caller?, self.now);
            quotas.find_map(|(stage, _)| stage.home)
        })
    }

    /// The limit that takes precedence over a rule's own, for a rule with these selectors.
    pub(crate) fn limit(&self, names: &[Selector]) -> Option<(OverrideRef<'_>, ResolvedBy)> {
        let wildcards = self.wildcards.as_deref();
        let emergency =
            || Some((wildcards?.emergency(self.domain, self.caller, names, self.now)?, ResolvedBy::Emergency));
        let own = || Some((self.own()?.limit(names, self.now)?, ResolvedBy::Override));
        let by_wildcard = || {
            let mut quotas = wildcards?.quotas(self.domain, self.caller?, self.now);
            quotas.find_map(|(stage, by)| Some((ActiveSettings::Stage(stage).limit(names, self.now)?, by)))
        };
        emergency().or_else(own).or_else(by_wildcard)
    }

    /// The block of the caller or of one of these addresses.
    pub(crate) fn block<'v>(&self, mut addresses: impl Iterator<Item = &'v str>) -> Option<Block> {
        let own = self.entry().and_then(TenantEntry::block).filter(|block| block.during.holds_at(self.now));
        own.or_else(|| {
            let wildcards = self.wildcards.as_ref()?;
            let caller = self.caller.and_then(|caller| wildcards.block_of_caller(self.domain, caller, self.now));
            caller.or_else(|| addresses.find_map(|address| wildcards.block_of_address(self.domain, address, self.now)))
        })
    }
}
