//! How one caller stands.

use tollgate_core::{Descriptor, Settlement, Timestamp};
use tollgate_rules::model::Headers;
use tollgate_rules::{Known, RequestError, Room, Rule};
use tollgate_store::Store;

use crate::explain::{Counter, shown};
use crate::ids;
use crate::limiter::Limiter;

/// A caller's counters. Nothing was consumed.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The domain.
    pub domain: String,
    /// The attribute that names the caller.
    pub entity: String,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// Every counter that the caller's name leads to, in the order of the rules.
    pub counters: Vec<(RuleName, Counter)>,
    /// The rules that have none for it, and why.
    pub left_out: Vec<(RuleName, String)>,
}

/// A rule, and who may know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleName {
    /// Its name.
    pub name: String,
    /// What of it clients are shown.
    pub headers: Headers,
}

impl<S: Store> Limiter<S> {
    /// How a caller stands under every rule whose key has it: those keyed by it alone, and those whose other attributes are in
    /// `others`. `entity` is the attribute that names the caller; by default the domain's. None if neither says which.
    ///
    /// # Errors
    /// If there is no such domain, or more is said than a request may.
    pub async fn standing(
        &self,
        domain: Option<&str>,
        entity: Option<&str>,
        caller: &str,
        others: &[(&str, &str)],
    ) -> Result<Option<Standing>, RequestError> {
        let rules = self.rules();
        let domain = rules.domain(domain)?;
        let Some(entity) = entity.or(domain.entity()) else { return Ok(None) };
        let mut known = vec![(entity, caller)];
        known.extend(others);
        let ways = domain.ways(&known);
        let descriptors = [Descriptor::new(&known)];
        let room = Room::default();
        let looks = {
            let known = Known { tenants: &self.tenants(), now: &|| self.clock().now(), room: &room };
            domain.looks(&descriptors, &ways, ids::next(), &known)?
        };
        let mut settlement = Settlement::default();
        self.settle(&looks.claim, &mut settlement).await;
        let read = looks.rules.iter().zip(&looks.claim.charges).zip(&settlement.readings);
        let counters = read.map(|(((rule, by), charge), reading)| {
            let key = charge.key.values().iter().map(shown).collect();
            let (limit, mode) = (charge.limit.clone(), charge.mode);
            let counter = Counter { key, limit, by: *by, units: 0, mode, reading: *reading };
            (RuleName::of(rule), counter)
        });
        Ok(Some(Standing {
            domain: domain.name().to_owned(),
            entity: entity.to_owned(),
            at: settlement.at,
            counters: counters.collect(),
            left_out: looks.left_out.into_iter().map(|(rule, why)| (RuleName::of(rule), why)).collect(),
        }))
    }
}

impl RuleName {
    pub(crate) fn of(rule: &Rule) -> RuleName {
        RuleName { name: rule.name().to_owned(), headers: rule.headers() }
    }
}
