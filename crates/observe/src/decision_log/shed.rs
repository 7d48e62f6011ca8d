//! Requests that were refused to protect the service: by a gateway before their limits were checked, or by a rule.

use tollgate::{DecisionEvent, Descriptor, RegionLink, Source, Span, Timestamp, Wait};
use tollgate_core::KeySecret;
use tollgate_rules::Domain;

use super::entry::{AttributeMask, copy_descriptors};
use super::sample::{caller_digest, hash_bytes};
use super::truncate::{truncate, truncate_to};
use super::{DecisionEntry, MAX_VALUE_BYTES};
use crate::outcome::{DecisionOutcome, DecisionResult};

/// Why a shedder refused a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryShed {
    /// The shedder: `adaptive`, `worker` or `fleet`.
    pub by: String,
    /// The priority class of the request, if it has one.
    pub class: Option<String>,
    /// The route of a gateway.
    pub route: Option<String>,
    /// The upstream that was protected.
    pub upstream: Option<String>,
}

/// A request that a shedder of a gateway refused, before its limits were checked.
#[derive(Clone, Copy, Debug)]
pub struct ShedRequest<'r> {
    /// The shedder.
    pub by: &'static str,
    /// The priority class.
    pub class: &'static str,
    /// The route.
    pub route: &'r str,
    /// The upstream of the route.
    pub upstream: &'r str,
    /// The domain of its rules. Without one, the log has no attributes: which of them are private is not known.
    pub domain: Option<&'r Domain>,
    /// What is known of the request.
    pub descriptors: &'r [Descriptor<'r>],
    /// The generation of the rules in force.
    pub rules_generation: u64,
    /// The time of the refusal.
    pub at: Timestamp,
    /// When the caller may retry.
    pub wait: Span,
}

/// The shedder that a rule is.
const FLEET: &str = "fleet";
/// The attribute with the priority class.
const PRIORITY: &str = "priority";
/// The attribute with the route of a gateway.
const ROUTE: &str = "route";

impl EntryShed {
    /// The reason of a decision, if a rule refused it to protect the service.
    pub(super) fn from_event(event: &DecisionEvent<'_, '_>, result: DecisionResult) -> Option<EntryShed> {
        let is_shed = result.outcome == DecisionOutcome::Deny
            && result.decider.and_then(|at| event.limit(at)).is_some_and(|limit| limit.rule.sheds());
        let attribute = |name: &str| {
            let mut entries = event.request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
            entries.find(|(key, _)| *key == name).map(|(_, value)| truncate_to(value, MAX_VALUE_BYTES))
        };
        is_shed.then(|| EntryShed {
            by: FLEET.to_owned(),
            class: attribute(PRIORITY),
            route: attribute(ROUTE),
            upstream: None,
        })
    }
}

impl ShedRequest<'_> {
    /// Identifies requests of which a few are entries of their own: not their callers, of which an overload has many.
    pub(super) fn repeat_digest(&self) -> u64 {
        let of_route = caller_digest(self.by, self.route);
        hash_bytes(of_route, self.class.as_bytes())
    }

    /// Builds the entry. Private values are masked with the secret, if there is one.
    pub(super) fn entry(&self, secret: Option<KeySecret>) -> DecisionEntry {
        let mask = self.domain.map(|domain| AttributeMask { domain, secret });
        let (descriptors, is_cut) = match &mask {
            Some(mask) => copy_descriptors(self.descriptors, mask),
            None => (Vec::new(), false),
        };
        let entity = self.domain.and_then(Domain::entity);
        let entries = || self.descriptors.iter().flat_map(|descriptor| descriptor.entries);
        let caller = entity.and_then(|entity| entries().find(|(name, _)| *name == entity));
        let caller = caller.zip(mask.as_ref()).map(|((name, value), mask)| truncate(&mask.value(name, value)));
        DecisionEntry {
            at: self.at,
            domain: self.domain.map_or_else(String::new, |domain| domain.name().to_owned()),
            caller,
            descriptors,
            is_cut,
            cost: 1,
            outcome: DecisionOutcome::Deny,
            source: Source::Shed,
            link: RegionLink::Together,
            is_replay: false,
            wait: Wait::For(self.wait),
            rules_generation: self.rules_generation,
            rule_version: None,
            is_decided: false,
            limits: Vec::new(),
            block: None,
            shed: Some(EntryShed {
                by: self.by.to_owned(),
                class: Some(self.class.to_owned()),
                route: Some(truncate_to(self.route, MAX_VALUE_BYTES)),
                upstream: Some(truncate_to(self.upstream, MAX_VALUE_BYTES)),
            }),
            repetition: None,
        }
    }
}
