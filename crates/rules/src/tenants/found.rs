//! What is known of the caller of one request.

use std::sync::{Arc, RwLockReadGuard};

use arc_swap::Guard;
use tollgate_core::Timestamp;

use super::filter::Word;
use super::held::{Held, InForce, OverrideRef};
use super::table::Table;
use super::wide::Wide;
use super::{Block, ResolvedBy, Selector, Tenants};
use crate::compiled::Domain;

/// What is known of the caller of one request. It is read while the request is resolved, and no longer.
pub(crate) struct Found<'t> {
    domain: u64,
    caller: Option<&'t str>,
    entry: Option<Entry<'t>>,
    wide: Option<Guard<Arc<Wide>>>,
    now: &'t dyn Fn() -> Timestamp,
}

/// A caller that is about to be looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sought<'t> {
    domain: u64,
    caller: Option<&'t str>,
    /// Whether there may be an entry.
    trace: Option<(u64, Word)>,
}

impl<'t> Sought<'t> {
    /// Begins to look. What is done before it is asked what was found costs no time.
    #[inline]
    pub(crate) fn of(tenants: &Tenants, domain: &Domain, caller: Option<&'t str>) -> Sought<'t> {
        let trace = caller.filter(|_| tenants.has_entries()).map(|caller| {
            let trace = tenants.trace(domain.digest, caller);
            (trace, tenants.filter.word(trace))
        });
        Sought { domain: domain.digest, caller, trace }
    }
}

/// The caller's own entry, which does not change while it is held.
struct Entry<'t> {
    table: RwLockReadGuard<'t, Table>,
    place: usize,
}

impl<'t> Found<'t> {
    /// What is known of a caller of a domain; `None` if that is nothing.
    #[inline]
    pub(crate) fn of(tenants: &'t Tenants, sought: &Sought<'t>, now: &'t dyn Fn() -> Timestamp) -> Option<Found<'t>> {
        let Sought { domain, caller, trace } = *sought;
        let may_know = trace.is_some_and(|(trace, word)| word.may_have(trace));
        let entry = caller.filter(|_| may_know).and_then(|caller| {
            let identity = tenants.identity(domain, caller);
            let table = tenants.shard(identity);
            let place = table.place(identity)?;
            Some(Entry { table, place })
        });
        let wide = tenants.has_wide().then(|| tenants.wide.load());
        (entry.is_some() || wide.is_some()).then_some(Found { domain, caller, entry, wide, now })
    }

    #[inline]
    fn held(&self) -> Option<&Held> {
        let Entry { table, place } = self.entry.as_ref()?;
        table.at(*place)
    }

    fn own(&self) -> Option<InForce<'_>> {
        self.held()?.in_force(self.now)
    }

    /// The digest of the name of the caller's tier.
    pub(crate) fn tier(&self) -> Option<u64> {
        let own = self.own().map(InForce::tier).filter(|tier| *tier != 0);
        own.or_else(|| {
            let mut quotas = self.wide.as_ref()?.quotas(self.domain, self.caller?, self.now);
            quotas.find_map(|(stage, _)| (stage.tier != 0).then_some(stage.tier))
        })
    }

    /// The limit that goes before a rule's own, for a rule that goes by these names.
    pub(crate) fn limit(&self, names: &[Selector]) -> Option<(OverrideRef<'_>, ResolvedBy)> {
        let wide = self.wide.as_deref();
        let emergency = || Some((wide?.emergency(self.domain, self.caller, names, self.now)?, ResolvedBy::Emergency));
        let own = || Some((self.own()?.limit(names, self.now)?, ResolvedBy::Override));
        let like_it = || {
            let mut quotas = wide?.quotas(self.domain, self.caller?, self.now);
            quotas.find_map(|(stage, by)| Some((InForce::Stage(stage).limit(names, self.now)?, by)))
        };
        emergency().or_else(own).or_else(like_it)
    }

    /// Whether the caller, or one of these addresses, is not to be served.
    pub(crate) fn block<'v>(&self, mut addresses: impl Iterator<Item = &'v str>) -> Option<Block> {
        let own = self.held().and_then(Held::block).filter(|block| block.during.holds_at(self.now));
        own.or_else(|| {
            let wide = self.wide.as_ref()?;
            let caller = self.caller.and_then(|caller| wide.block_of_caller(self.domain, caller, self.now));
            caller.or_else(|| addresses.find_map(|address| wide.block_of_address(self.domain, address, self.now)))
        })
    }
}
