//! From a message to a request.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use smallvec::SmallVec;
use tollgate::{Descriptor, Limit, ReceiptWish, Request, Span};

use super::Refusal;
use crate::gate::Gate;
use crate::wire::instructions::{Instructions, Misread, is_instruction};

/// The limits that came with a request, a place for each descriptor; empty where none came.
pub(super) type Limits = Vec<Option<Limit>>;

/// A request's entries as the limiter wants them.
pub(super) struct Asked<'a> {
    request: &'a RateLimitRequest,
    limits: &'a Limits,
    /// Of all descriptors, one after the other.
    entries: SmallVec<[(&'a str, &'a str); 8]>,
    /// What stood among them.
    instructions: Instructions<'a>,
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
    /// What it says of the request, and what it says to the limiter.
    ///
    /// # Errors
    /// An instruction that can't be followed.
    pub(super) fn new(request: &'a RateLimitRequest, limits: &'a Limits) -> Result<Asked<'a>, Refusal> {
        let mut asked = Asked { request, limits, entries: SmallVec::new(), instructions: Instructions::default() };
        for entry in request.descriptors.iter().flat_map(|descriptor| &descriptor.entries) {
            if !asked.instructions.take(&entry.key, &entry.value)? {
                asked.entries.push((&entry.key, &entry.value));
            }
        }
        if request.descriptors.iter().any(|descriptor| descriptor.is_negative_hits) {
            asked.give_back()?;
        }
        Ok(asked)
    }

    /// Negative hits are units to give back. A request does one thing, so all of its descriptors must have them.
    fn give_back(&mut self) -> Result<(), Refusal> {
        let counts = |descriptor: &&RateLimitDescriptor| self.kept(descriptor) > 0 || self.entries.is_empty();
        if !self.request.descriptors.iter().filter(counts).all(|descriptor| descriptor.is_negative_hits) {
            return Err(Refusal(
                "is_negative_hits is set on some descriptors; set it on all of them or on none".into(),
            ));
        }
        match self.instructions.give_back() {
            true => Ok(()),
            false => Err(Refusal("is_negative_hits gives back and tollgate.ask is debit; say one of the two".into())),
        }
    }

    /// How many of a descriptor's entries are no instructions.
    fn kept(&self, descriptor: &RateLimitDescriptor) -> usize {
        match self.instructions.is_empty() {
            true => descriptor.entries.len(),
            false => descriptor.entries.iter().filter(|entry| !is_instruction(&entry.key)).count(),
        }
    }

    /// Hands out the request: it borrows lists that can't leave this function's caller.
    pub(super) fn descriptors(&self) -> SmallVec<[Descriptor<'_>; 4]> {
        let mut rest = &self.entries[..];
        let mut limits = self.limits.iter();
        let descriptor = |descriptor: &'a RateLimitDescriptor| {
            let (entries, after) = rest.split_at(self.kept(descriptor));
            rest = after;
            // One that only instructs keeps its place and costs nothing, else the cost of the others could not be below 1.
            let instructs = entries.len() < descriptor.entries.len() && entries.is_empty() && !self.entries.is_empty();
            Descriptor {
                entries,
                hits: descriptor.hits_addend.as_ref().map(|hits| hits.value).or(instructs.then_some(0)),
                limit: limits.next().and_then(Option::as_ref),
            }
        };
        self.request.descriptors.iter().map(descriptor).collect()
    }

    pub(super) fn request<'d>(&'d self, descriptors: &'d [Descriptor<'d>]) -> Request<'d> {
        self.instructions.applied_to(Request {
            domain: Some(&self.request.domain),
            descriptors,
            // Zero is how the protocol says nothing here; only a descriptor's own number can make a look.
            cost: u64::from(self.request.hits_addend.max(1)),
            // The protocol has no place for one.
            receipt: ReceiptWish::Never,
            ..Request::default()
        })
    }
}

impl From<Misread> for Refusal {
    fn from(Misread(reason): Misread) -> Refusal {
        Refusal(reason)
    }
}
