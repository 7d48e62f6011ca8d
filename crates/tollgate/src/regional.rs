//! Counters of `region: global` in all regions.
//!
//! Requests count in the region where they are made. What operators look at and change is meant for all: the claim is
//! settled once more in each other region, on the counters of the same names there.

use tollgate_core::{Charge, Claim, RegionNames, Settlement};
use tollgate_rules::Domain;
use tollgate_store::{Store, join_all};

use crate::explain::RegionCounter;
use crate::ids;
use crate::limiter::Limiter;

impl<S: Store> Limiter<S> {
    /// Settles a claim, and its charges of `region: global` at the same time in all other regions. No region waits longer
    /// than the store allows for it. Returns the counters of each charge, this region's first; none of a charge whose
    /// counter is in one region.
    pub(crate) async fn settle_in_all_regions(
        &self,
        claim: &Claim<'_>,
        domain: &Domain,
        settlement: &mut Settlement,
    ) -> Vec<Vec<RegionCounter>> {
        let Some(names) = domain.regions().all().filter(|_| claim.charges.iter().any(Charge::is_global)) else {
            self.settle(claim, settlement).await;
            return vec![Vec::new(); claim.charges.len()];
        };
        let claims: Vec<Claim<'_>> = claims_elsewhere(claim, names);
        let mut settlements: Vec<Settlement> = claims.iter().map(|_| Settlement::default()).collect();
        let here = std::iter::once((claim, &mut *settlement));
        join_all(here.chain(claims.iter().zip(&mut settlements)).map(|(claim, to)| self.settle(claim, to))).await;
        // The charges of the other claims are those that count in all regions, in the same order.
        let mut elsewhere: Vec<_> = settlements.iter().map(|settlement| settlement.readings.iter()).collect();
        let counters = claim.charges.iter().zip(&settlement.readings).map(|(charge, here)| {
            if !charge.is_global() {
                return Vec::new();
            }
            let readings = std::iter::once(here).chain(elsewhere.iter_mut().filter_map(Iterator::next));
            names.iter().zip(readings).map(|((_, name), reading)| RegionCounter::new(name, *reading)).collect()
        });
        counters.collect()
    }
}

/// A claim for each other region, with the charges that count in all.
fn claims_elsewhere<'a>(claim: &Claim<'a>, names: &RegionNames) -> Vec<Claim<'a>> {
    let there = |region| {
        let charges = claim.charges.iter().filter(|charge| charge.is_global());
        let charges = charges.map(|charge| Charge { key: charge.key.clone().in_region(region), ..charge.clone() });
        Claim { id: ids::next(), charges: charges.collect(), once: None, timeout: claim.timeout }
    };
    names.others().map(|(region, _)| there(region)).collect()
}
