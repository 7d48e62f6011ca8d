//! Who a caller is to the shedders of an upstream: its tier, and what tells it from other callers.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use http::HeaderValue;
use http::request::Parts;
use tollgate::Clock as _;
use tollgate_rules::Domain;
use tollgate_shed::{FairnessVerdict, guarded};

use crate::admission::{AboveFairRate, Limits};
use crate::client::Client;
use crate::forwarded;
use crate::identity::{IdentityValues, header_value};
use crate::plan::GatewayPlan;
use crate::upstream::Upstream;

/// A caller, as the shedders of an upstream see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Standing {
    /// The number of its tier's reserve, if it has one.
    reserve: Option<usize>,
    /// How many tiers give way before its own.
    rank: usize,
}

/// The attribute with the tier of a caller, unless the rules name another.
const TIER: &str = "tier";

/// Hashes callers with keys of this process: nobody can choose a caller that is taken for another.
static CALLERS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Limits {
    /// The number of the reserve of a caller's tier, if it has one.
    ///
    /// # Errors
    /// If the caller sends more than its fair part of an upstream that is overloaded.
    pub(crate) fn reserve(
        &self,
        plan: &GatewayPlan,
        upstream: &Upstream,
        values: &IdentityValues<'_>,
        parts: &Parts,
        client: &Client,
    ) -> Result<Option<usize>, AboveFairRate> {
        let fairness = upstream.watching_fairness();
        // Nobody needs the tier.
        if fairness.is_none() && upstream.config.adaptive.reserve.is_empty() {
            return Ok(None);
        }
        let rules = self.gate.limiter().rules();
        let domain = rules.domain(plan.config.domain.as_deref()).ok();
        let standing = match domain {
            Some(domain) => {
                let tier = self.tier_in(domain, values);
                let name = domain.tiers().get(tier).map(|tier| &*tier.name);
                Standing { reserve: upstream.reserve_of(name), rank: domain.tier_rank(tier) }
            }
            None => Standing { reserve: upstream.reserve_of(values.get(TIER)), rank: 0 },
        };
        let Some(fairness) = fairness else { return Ok(standing.reserve) };
        let entity = domain.and_then(|domain| domain.entity()).and_then(|entity| values.get(entity));
        let caller = match entity.or_else(|| values.iter().next().map(|(_, value)| value)) {
            Some(caller) => CALLERS.hash_one(caller),
            None => {
                CALLERS.hash_one(forwarded::client_address(client.peer, &plan.config.trusted_proxies, &parts.headers))
            }
        };
        within_fair_rate(|| fairness.admit(standing.rank, caller, fastrand::u32(..)))?;
        Ok(standing.reserve)
    }

    /// The tier of a caller, as upstreams get it. Without rules it is the one that the request names.
    pub(crate) fn tier_header(&self, plan: &GatewayPlan, values: &IdentityValues<'_>) -> Option<HeaderValue> {
        let rules = self.gate.limiter().rules();
        match rules.domain(plan.config.domain.as_deref()) {
            Ok(domain) => domain.tiers().get(self.tier_in(domain, values)).map(|tier| header_value(&tier.name)),
            Err(_) => values.get(TIER).map(header_value),
        }
    }

    /// The number of a caller's tier.
    fn tier_in(&self, domain: &Domain, values: &IdentityValues<'_>) -> usize {
        let caller = domain.entity().and_then(|entity| values.get(entity));
        let named = values.get(domain.tier_attribute().unwrap_or(TIER));
        domain.tier_of(caller, named, &self.gate.limiter().tenants(), &|| self.clock.now())
    }
}

/// What the fairness shedder decides. A fault of it refuses nothing.
fn within_fair_rate(decide: impl FnOnce() -> FairnessVerdict) -> Result<(), AboveFairRate> {
    match guarded(decide, FairnessVerdict::Admitted) {
        FairnessVerdict::Admitted | FairnessVerdict::WouldRefuse => Ok(()),
        FairnessVerdict::Refused => Err(AboveFairRate),
    }
}

impl Upstream {
    /// The number of the reserve of a tier.
    fn reserve_of(&self, tier: Option<&str>) -> Option<usize> {
        let tier = tier?;
        self.config.adaptive.reserve.iter().position(|(name, _)| name == tier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_the_fairness_shedder_refuses_nothing() {
        assert!(within_fair_rate(|| panic!("a fault")).is_ok());
        assert!(within_fair_rate(|| FairnessVerdict::WouldRefuse).is_ok());
        assert!(within_fair_rate(|| FairnessVerdict::Refused).is_err());
    }
}
