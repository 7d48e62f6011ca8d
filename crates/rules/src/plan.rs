//! Plans: what the names of a request's attributes decide, whatever their values are.
//!
//! Requests of one kind have the same names in the same order. So where each attribute is, and which rules may apply, is
//! worked out for the first of them, and the others only compare their names with those of the plan.

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use smallvec::SmallVec;
use tollgate_core::{Claim, Request};

use crate::attributes::{Attribute, AttributeNumbers, AttributePlaces, Outline, attribute_places};
use crate::index::Id;
use crate::lookup::Index;
use crate::rule::Rule;

/// What the names of a request decide.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The names by descriptor. A request with the same names has this plan.
    names: Box<[Box<[Box<str>]>]>,
    /// Where the attributes are that some rule uses.
    pub(crate) places: AttributePlaces,
    /// The rules that the names lead to, in order.
    pub(crate) rules: SmallVec<[PlannedRule; 4]>,
    /// The attributes whose values lead to more rules.
    pub(crate) by_value: SmallVec<[Attribute; 4]>,
}

/// A rule that may apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedRule {
    pub(crate) number: Id,
    /// Whether it applies whatever the values are.
    pub(crate) is_certain: bool,
}

/// The plans of a domain. A place is filled by the first request that needs it and then stays, so that reading one takes
/// no lock.
#[derive(Debug)]
pub(crate) struct PlanTable {
    places: Box<[OnceLock<Box<Plan>>]>,
}

/// The maximum number of plans of a domain. Names come from gateways, which have few kinds of requests.
const MAX_PLANS: usize = 128;
/// The places in which a plan may be.
const PROBES: usize = 4;
/// The maximum number of entries of a request with a plan.
const MAX_PLANNED_ENTRIES: usize = 32;
/// The maximum length of all their names.
const MAX_PLANNED_NAME_BYTES: usize = 1024;

impl Default for PlanTable {
    fn default() -> PlanTable {
        PlanTable { places: (0..MAX_PLANS).map(|_| OnceLock::new()).collect() }
    }
}

impl PlanTable {
    /// The plan of a request, which is made if there is none. `None` if there are too many, or if the request or its plan
    /// is too large.
    #[inline]
    pub(crate) fn get(
        &self,
        request: &Request<'_>,
        outline: &Outline,
        make: impl Fn() -> Option<Plan>,
    ) -> Option<&Plan> {
        // The upper bits depend on every name.
        let home = (outline.names >> 32) as usize % MAX_PLANS;
        match self.places.get(home)?.get() {
            Some(plan) if plan.is_for(request) => Some(plan),
            _ => self.find(home, request, outline, make),
        }
    }

    #[inline(never)]
    fn find(
        &self,
        home: usize,
        request: &Request<'_>,
        outline: &Outline,
        make: impl Fn() -> Option<Plan>,
    ) -> Option<&Plan> {
        if outline.entries > MAX_PLANNED_ENTRIES || outline.name_bytes > MAX_PLANNED_NAME_BYTES {
            return None;
        }
        for place in (home..home + PROBES).map(|place| &self.places[place % MAX_PLANS]) {
            let plan = match place.get() {
                Some(plan) => plan,
                None => {
                    let made = make()?;
                    // Another thread may have been faster.
                    place.get_or_init(|| Box::new(made))
                }
            };
            if plan.is_for(request) {
                return Some(plan);
            }
        }
        None
    }

    /// A table without room: no request has a plan.
    #[cfg(test)]
    pub(crate) fn without_room() -> PlanTable {
        PlanTable { places: Box::default() }
    }
}

impl Plan {
    /// The plan of requests with the names of this one, by rules with this index. `None` if more rules may apply than a
    /// claim has charges.
    pub(crate) fn new(
        request: &Request<'_>,
        numbers: &AttributeNumbers,
        index: &Index,
        rules: &[Rule],
    ) -> Option<Plan> {
        let places = attribute_places(request, numbers);
        let attributes = || places.iter().map(|place| place.attribute);
        let mut found = SmallVec::new();
        index.find_by_names(attributes(), &mut found);
        found.sort_unstable();
        let rules = found.iter().filter_map(|number| {
            let has = |attribute| attributes().any(|one| one == attribute);
            match rules[*number as usize].is_decided_by_names(has) {
                Some(false) => None,
                decided => Some(PlannedRule { number: *number, is_certain: decided.is_some() }),
            }
        });
        let rules: SmallVec<_> = rules.take(Claim::MAX_CHARGES + 1).collect();
        if rules.len() > Claim::MAX_CHARGES {
            return None;
        }
        let by_value = attributes().filter(|attribute| index.reads_value(*attribute)).collect();
        let names = request.descriptors.iter().map(|one| one.entries.iter().map(|(name, _)| (*name).into()).collect());
        Some(Plan { names: names.collect(), places, rules, by_value })
    }

    #[inline]
    fn is_for(&self, request: &Request<'_>) -> bool {
        self.names.len() == request.descriptors.len()
            && self.names.iter().zip(request.descriptors).all(|(names, one)| {
                names.len() == one.entries.len()
                    && names.iter().zip(one.entries).all(|(name, (other, _))| **name == **other)
            })
    }
}
