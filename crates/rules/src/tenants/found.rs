//! What is known of the caller of one request.

use std::sync::{Arc, RwLockReadGuard};

use arc_swap::Guard;
use tollgate_core::Timestamp;

use super::held::{InForce, OverrideRef};
use super::table::Table;
use super::wide::Wide;
use super::{Block, ResolvedBy, Selector, Tenants};
use crate::compiled::Domain;

/// What is known of the caller of one request. It is read while the request is resolved, and no longer.
pub(crate) struct Found<'t> {
    domain: u64,
    caller: Option<&'t str>,
    identity: u64,
    entry: Option<RwLockReadGuard<'t, Table>>,
    wide: Option<Guard<Arc<Wide>>>,
    now: &'t dyn Fn() -> Timestamp,
}

impl<'t> Found<'t> {
    /// What is known of a caller of a domain; `None` if that is nothing.
    #[inline]
    pub(crate) fn of(
        tenants: &'t Tenants,
        domain: &Domain,
        caller: Option<&'t str>,
        now: &'t dyn Fn() -> Timestamp,
    ) -> Option<Found<'t>> {
        let domain = domain.digest;
        let (mut identity, mut entry) = (0, None);
        if let Some(caller) = caller
            && tenants.has_entries()
        {
            identity = tenants.identity(domain, caller);
            entry = tenants.may_know(identity).then(|| tenants.shard(identity));
        }
        let wide = tenants.has_wide().then(|| tenants.wide.load());
        (entry.is_some() || wide.is_some()).then_some(Found { domain, caller, identity, entry, wide, now })
    }

    fn own(&self) -> Option<InForce<'_>> {
        self.entry.as_ref()?.get(self.identity)?.in_force(self.now)
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
        let own = self.entry.as_ref().and_then(|entry| entry.get(self.identity)?.block());
        let own = own.filter(|block| block.during.holds_at(self.now));
        own.or_else(|| {
            let wide = self.wide.as_ref()?;
            let caller = self.caller.and_then(|caller| wide.block_of_caller(self.domain, caller, self.now));
            caller.or_else(|| addresses.find_map(|address| wide.block_of_address(self.domain, address, self.now)))
        })
    }
}
