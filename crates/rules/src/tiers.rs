//! The tiers of callers, for those who need them without a claim.

use tollgate_core::Timestamp;

use crate::model::Tier;
use crate::ruleset::Domain;
use crate::tenants::{Tenant, TenantLookup, Tenants};

impl Domain {
    /// The index of a caller's tier, as for its requests: the tenant's, otherwise the one of this name, otherwise the default
    /// one.
    pub fn tier_of(
        &self,
        caller: Option<&str>,
        named: Option<&str>,
        tenants: &Tenants,
        now: &dyn Fn() -> Timestamp,
    ) -> usize {
        let lookup = TenantLookup::new(tenants, self.digest, caller);
        let own = Tenant::find(tenants, &lookup, now).and_then(|tenant| tenant.tier());
        own.and_then(|digest| self.tier_digests.iter().position(|tier| *tier == digest))
            .or_else(|| named.and_then(|name| self.tiers.iter().position(|tier| tier.name == name)))
            .unwrap_or(self.default_tier)
    }

    /// How many tiers give way before this one under overload: those of a lower priority, and those of the same that are
    /// before it in the file.
    pub fn tier_rank(&self, tier: usize) -> usize {
        let Some(own) = self.tiers.get(tier) else { return 0 };
        let is_before = |(number, other): &(usize, &Tier)| (other.priority, *number) < (own.priority, tier);
        self.tiers.iter().enumerate().filter(is_before).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ruleset;
    use crate::tenants::{Quota, QuotaStage, TimeRange};

    fn rules(settings: &str) -> Ruleset {
        let text = format!("domain: shop\nentity: user\n{settings}rules:\n  - {{name: a, key: [user], limit: 1/s}}\n");
        Ruleset::from_text(&text, 1).unwrap().0
    }

    fn tenants() -> Tenants {
        let tenants = Tenants::default();
        let pro =
            QuotaStage { during: TimeRange::ALWAYS, tier: Some("pro".to_owned()), home: None, overrides: Vec::new() };
        tenants.set_quota("shop", "u1", Some(&Quota { stages: vec![pro] }));
        tenants
    }

    #[test]
    fn a_tenant_decides_before_the_request_and_that_before_the_default() {
        let (rules, tenants) = (rules("default_tier: free\n"), tenants());
        let domain = rules.domain(None).unwrap();
        let tier = |caller, named| {
            let tier = domain.tier_of(caller, named, &tenants, &|| Timestamp::from_micros(0));
            &*domain.tiers()[tier].name
        };
        assert_eq!(tier(Some("u1"), Some("enterprise")), "pro");
        assert_eq!(tier(Some("u2"), Some("enterprise")), "enterprise");
        assert_eq!(tier(Some("u2"), Some("gold")), "free");
        assert_eq!(tier(None, None), "free");
    }

    #[test]
    fn tiers_give_way_by_priority_and_then_in_the_order_of_the_file() {
        let ranks = |settings| {
            let rules = rules(settings);
            let domain = rules.domain(None).unwrap();
            (0..domain.tiers().len()).map(|tier| domain.tier_rank(tier)).collect::<Vec<_>>()
        };
        assert_eq!(ranks(""), [0, 1, 2, 3]);
        assert_eq!(ranks("tiers: {gold: {priority: 9}, free: {}, silver: {priority: 5}, trial: {}}\n"), [3, 0, 2, 1]);
    }
}
