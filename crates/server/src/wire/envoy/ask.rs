//! From a message to a request.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use smallvec::SmallVec;
use tollgate::{Descriptor, Limit, Request, Span};

use super::Refusal;
use crate::gate::Gate;

/// The limits that came with a request, a place for each descriptor; empty where none came.
pub(super) type Limits = Vec<Option<Limit>>;

/// A request's entries as the limiter wants them.
pub(super) struct Asked<'a> {
    request: &'a RateLimitRequest,
    limits: &'a Limits,
    entries: SmallVec<[(&'a str, &'a str); 8]>,
}

/// Checks what the protocol demands, and reads the limits that came with the request.
pub(super) fn limits(request: &RateLimitRequest, gate: &Gate) -> Result<Limits, Refusal> {
    if request.domain.is_empty() {
        return Err(Refusal("rate limit domain must not be empty".to_owned()));
    }
    if request.descriptors.is_empty() {
        return Err(Refusal("rate limit descriptor list must not be empty".to_owned()));
    }
    if request.descriptors.len() > Request::MOST_DESCRIPTORS {
        return Err(Refusal(format!("too many descriptors; at most {}", Request::MOST_DESCRIPTORS)));
    }
    if request.descriptors.iter().any(|descriptor| descriptor.is_negative_hits) {
        return Err(Refusal("is_negative_hits is not supported; leave it unset".to_owned()));
    }
    if request.descriptors.iter().all(|descriptor| descriptor.limit.is_none()) {
        return Ok(Limits::new());
    }
    let rules = gate.limiter().rules();
    let Some(domain) = rules.domain_number(Some(&request.domain)).and_then(|number| rules.domains().get(number)) else {
        // Without rules of its own a domain has no limits, and says so for all descriptors alike.
        return Ok(Limits::new());
    };
    let limit = |descriptor: &RateLimitDescriptor| {
        let Some(limit) = &descriptor.limit else { return Ok(None) };
        let counted = domain.requested(u64::from(limit.requests_per_unit), length(limit)?);
        counted.map(Some).map_err(|_| {
            let RateLimitOverride { requests_per_unit, unit } = limit;
            let unit = Unit::try_from(*unit).map_or("UNKNOWN", |unit| unit.as_str_name());
            Refusal(format!(
                "a limit of {requests_per_unit} per {unit} is too large to count exactly; write a smaller number or a shorter unit"
            ))
        })
    };
    request.descriptors.iter().map(limit).collect()
}

/// The length of a unit. By the units of answers: those of requests are the same, and lack the week.
fn length(limit: &RateLimitOverride) -> Result<Span, Refusal> {
    const DAY: u64 = 86_400;
    let seconds = match Unit::try_from(limit.unit) {
        Ok(Unit::Second) => 1,
        Ok(Unit::Minute) => 60,
        Ok(Unit::Hour) => 3_600,
        Ok(Unit::Day) => DAY,
        Ok(Unit::Week) => 7 * DAY,
        Ok(Unit::Month) => 30 * DAY,
        Ok(Unit::Year) => 365 * DAY,
        Ok(Unit::Unknown) | Err(_) => {
            return Err(Refusal(format!(
                "the unit of a limit in the request is {}; it must be SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR",
                limit.unit
            )));
        }
    };
    Ok(Span::from_secs(seconds))
}

impl<'a> Asked<'a> {
    pub(super) fn new(request: &'a RateLimitRequest, limits: &'a Limits) -> Asked<'a> {
        let entries = request.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
        Asked { request, limits, entries: entries.map(|entry| (&*entry.key, &*entry.value)).collect() }
    }

    /// Hands out the request: it borrows lists that can't leave this function's caller.
    pub(super) fn descriptors(&self) -> SmallVec<[Descriptor<'_>; 4]> {
        let mut rest = &self.entries[..];
        let mut limits = self.limits.iter();
        let descriptor = |descriptor: &'a RateLimitDescriptor| {
            let (entries, after) = rest.split_at(descriptor.entries.len());
            rest = after;
            Descriptor {
                entries,
                hits: descriptor.hits_addend.as_ref().map(|hits| hits.value),
                limit: limits.next().and_then(Option::as_ref),
            }
        };
        self.request.descriptors.iter().map(descriptor).collect()
    }

    pub(super) fn request<'d>(&'d self, descriptors: &'d [Descriptor<'d>]) -> Request<'d> {
        Request {
            domain: Some(&self.request.domain),
            descriptors,
            // Zero is how the protocol says nothing here; only a descriptor's own number can make a look.
            cost: u64::from(self.request.hits_addend.max(1)),
            ..Request::default()
        }
    }
}
