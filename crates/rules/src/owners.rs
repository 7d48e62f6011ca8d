//! The region that owns a counter.

use std::net::IpAddr;

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{Algorithm, Key, Period, RegionId, Scope, Span, Value};

use crate::regions::{HomeOf, RegionMode};
use crate::rule::Rule;
use crate::ruleset::Domain;
use crate::tenants::{Tenant, name_digest};

impl HomeOf {
    /// The region that owns a counter.
    ///
    /// It must follow from the key alone, so what is recorded of the request's caller counts only if the counter is the
    /// caller's. A region that is recorded and does not exist is as none.
    fn region_of(&self, key: &Key<'_>, tenant: Option<&Tenant<'_>>) -> RegionId {
        match self {
            HomeOf::Fixed(_, region) => *region,
            HomeOf::Caller(None) => RegionId::HERE,
            HomeOf::Caller(Some(names)) => {
                let recorded = tenant.filter(|_| key.caller().is_some()).and_then(Tenant::home);
                let named = |digest| names.iter().find(|(_, name)| name_digest(name) == digest);
                match recorded.and_then(named) {
                    Some((region, _)) => region,
                    None => names.home_of(key.home_hash()),
                }
            }
        }
    }
}

impl Domain {
    /// The name of the region that owns the counters of a caller under rules with `region: home`: the recorded one if it
    /// exists, else the one that follows from the caller's name. `None` if there is no such rule, or if the region is not
    /// known.
    pub fn home_of_caller(&self, caller: &str, recorded: Option<&str>) -> Option<&str> {
        let is_by_caller = |rule: &Rule| matches!(rule.region, RegionMode::Home(HomeOf::Caller(_)));
        let names = self.regions().all().filter(|_| self.rules().iter().any(is_by_caller))?;
        let recorded = recorded.and_then(|home| names.id(home));
        // Keys have the networks of addresses, as rules define them, and not their text.
        let is_text = caller.parse::<IpAddr>().is_err();
        let derived = || {
            let period = Period::fixed(Span::from_secs(1)).ok()?;
            let scope = Scope::new(self.name(), "", Algorithm::FixedWindow, &period, Home::Caller(0));
            let key = Key::new(&scope, smallvec![Value::Text(caller)]);
            is_text.then(|| names.home_of(key.home_hash()))
        };
        names.name(recorded.or_else(derived)?)
    }
}

impl Rule {
    /// The name of the region that owns a counter, if one of them does and its name is known.
    pub fn owner(&self, region: RegionId) -> Option<&str> {
        match &self.region {
            RegionMode::Home(HomeOf::Fixed(name, _)) => Some(name),
            RegionMode::Home(HomeOf::Caller(names)) => names.as_ref()?.name(region),
            RegionMode::Each | RegionMode::Split(_) | RegionMode::Global(_) => None,
        }
    }

    /// The same counter in the region that owns it.
    #[inline]
    pub(crate) fn in_its_region<'a>(&self, key: Key<'a>, tenant: Option<&Tenant<'_>>) -> Key<'a> {
        match &self.region {
            RegionMode::Home(home) => {
                let region = home.region_of(&key, tenant);
                key.in_region(region)
            }
            RegionMode::Each | RegionMode::Split(_) | RegionMode::Global(_) => key,
        }
    }
}
