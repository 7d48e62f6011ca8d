//! Messages to requests.

use smallvec::SmallVec;
use tollgate::{Descriptor, Limit, ReceiptWish, Request, Span};
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tollgate_telemetry::metrics::{Repair, WireMetrics};

use super::InvalidRequest;
use crate::attributes::as_sent;
use crate::gate::Gate;
use crate::instructions::{InstructionError, Instructions, is_instruction};

/// The limits that came with a request, one place per descriptor; empty if there are none.
pub(super) type RequestLimits = Vec<Option<Limit>>;

/// A message with its attributes and instructions.
pub(super) struct EnvoyRequest<'a> {
    request: &'a RateLimitRequest,
    limits: &'a RequestLimits,
    /// The attributes of all descriptors, concatenated.
    entries: SmallVec<[(&'a str, &'a str); 8]>,
    /// The instructions among the entries.
    instructions: Instructions<'a>,
}

/// Checks the protocol's requirements, and reads the limits that came with the request.
pub(super) fn limits(request: &RateLimitRequest, gate: &Gate) -> Result<RequestLimits, InvalidRequest> {
    if request.domain.is_empty() {
        return Err(InvalidRequest("rate limit domain must not be empty".to_owned()));
    }
    if request.descriptors.is_empty() {
        return Err(InvalidRequest("rate limit descriptor list must not be empty".to_owned()));
    }
    if request.descriptors.iter().all(|descriptor| descriptor.limit.is_none()) {
        return Ok(RequestLimits::new());
    }
    let rules = gate.limiter().rules();
    let Some(domain) = rules.domain_number(Some(&request.domain)).and_then(|number| rules.domains().get(number)) else {
        // A domain without rules has no limits: the response is the same for all descriptors.
        return Ok(RequestLimits::new());
    };
    let limit = |descriptor: &RateLimitDescriptor| {
        let Some(limit) = &descriptor.limit else { return Ok(None) };
        let counted = domain.requested(u64::from(limit.requests_per_unit), unit_span(limit)?);
        counted.map(Some).map_err(|_| {
            let RateLimitOverride { requests_per_unit, unit } = limit;
            let unit = Unit::try_from(*unit).map_or("UNKNOWN", |unit| unit.as_str_name());
            InvalidRequest(format!(
                "a limit of {requests_per_unit} per {unit} is too large to count exactly; write a smaller number or a shorter unit"
            ))
        })
    };
    request.descriptors.iter().take(Request::MAX_DESCRIPTORS).map(limit).collect()
}

/// The length of a unit. It uses the response's units: those of requests are the same, but lack the week.
fn unit_span(limit: &RateLimitOverride) -> Result<Span, InvalidRequest> {
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
            return Err(InvalidRequest(format!(
                "the unit of a limit in the request is {}; it must be SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR",
                limit.unit
            )));
        }
    };
    Ok(Span::from_secs(seconds))
}

impl<'a> EnvoyRequest<'a> {
    /// Splits the entries into attributes and instructions. `None` if the request must be repaired first.
    ///
    /// # Errors
    /// If an instruction is invalid.
    pub(super) fn new(
        request: &'a RateLimitRequest,
        limits: &'a RequestLimits,
    ) -> Result<Option<EnvoyRequest<'a>>, InvalidRequest> {
        let is_bounded = |descriptor: &RateLimitDescriptor| descriptor.entries.len() <= Request::MAX_ENTRIES;
        if request.descriptors.len() > Request::MAX_DESCRIPTORS || !request.descriptors.iter().all(is_bounded) {
            return Ok(None);
        }
        EnvoyRequest::parse(request, limits, as_sent)
    }

    /// The same for a request that was repaired.
    pub(super) fn repaired(
        request: &'a RateLimitRequest,
        limits: &'a RequestLimits,
    ) -> Result<EnvoyRequest<'a>, InvalidRequest> {
        let parsed = EnvoyRequest::parse(request, limits, |_, value| str::from_utf8(value).ok())?;
        parsed.ok_or_else(|| InvalidRequest("a value is not text".to_owned()))
    }

    #[inline]
    fn parse(
        request: &'a RateLimitRequest,
        limits: &'a RequestLimits,
        text: impl Fn(&str, &'a [u8]) -> Option<&'a str>,
    ) -> Result<Option<EnvoyRequest<'a>>, InvalidRequest> {
        let mut parsed =
            EnvoyRequest { request, limits, entries: SmallVec::new(), instructions: Instructions::default() };
        for entry in request.descriptors.iter().flat_map(|descriptor| &descriptor.entries) {
            let Some(value) = text(&entry.key, &entry.value) else { return Ok(None) };
            if !parsed.instructions.take(&entry.key, value)? {
                parsed.entries.push((&entry.key, value));
            }
        }
        if request.descriptors.iter().any(|descriptor| descriptor.is_negative_hits) {
            parsed.request_return()?;
        }
        Ok(Some(parsed))
    }

    /// Counts instructions that were ignored.
    pub(super) fn count_ignored(&self, metrics: &WireMetrics) {
        if self.instructions.ignored() > 0 {
            metrics.repaired(Repair::BadName);
        }
    }

    /// Negative hits return units. A request has one ask, so all of its descriptors must have them.
    fn request_return(&mut self) -> Result<(), InvalidRequest> {
        let counts =
            |descriptor: &&RateLimitDescriptor| self.attribute_count(descriptor) > 0 || self.entries.is_empty();
        if !self.request.descriptors.iter().filter(counts).all(|descriptor| descriptor.is_negative_hits) {
            return Err(InvalidRequest(
                "is_negative_hits is set on some descriptors; set it on all of them or on none".into(),
            ));
        }
        match self.instructions.request_return() {
            true => Ok(()),
            false => Err(InvalidRequest(
                "is_negative_hits returns units, but tollgate.ask is debit; send only one of the two".into(),
            )),
        }
    }

    /// How many of a descriptor's entries are attributes.
    fn attribute_count(&self, descriptor: &RateLimitDescriptor) -> usize {
        match self.instructions.is_empty() {
            true => descriptor.entries.len(),
            false => descriptor.entries.iter().filter(|entry| !is_instruction(&entry.key)).count(),
        }
    }

    /// The descriptors of the request. The caller owns them, since the request borrows them.
    pub(super) fn descriptors(&self) -> SmallVec<[Descriptor<'_>; 4]> {
        let mut rest = &self.entries[..];
        let mut limits = self.limits.iter();
        let descriptor = |descriptor: &'a RateLimitDescriptor| {
            let (entries, after) = rest.split_at(self.attribute_count(descriptor));
            rest = after;
            // A descriptor with only instructions keeps its place and costs nothing; otherwise the cost of the request
            // could not be below 1.
            let instructs = entries.len() < descriptor.entries.len() && entries.is_empty() && !self.entries.is_empty();
            Descriptor {
                entries,
                hits: descriptor.hits_addend.or(instructs.then_some(0)),
                limit: limits.next().and_then(Option::as_ref),
            }
        };
        self.request.descriptors.iter().map(descriptor).collect()
    }

    pub(super) fn request<'d>(&'d self, descriptors: &'d [Descriptor<'d>]) -> Request<'d> {
        self.instructions.apply_to(Request {
            domain: Some(&self.request.domain),
            descriptors,
            // Zero means unset here; only a descriptor's own number can peek.
            cost: u64::from(self.request.hits_addend.max(1)),
            // The protocol has no field for a receipt.
            receipt: ReceiptWish::Never,
            ..Request::default()
        })
    }
}

impl From<InstructionError> for InvalidRequest {
    fn from(InstructionError(reason): InstructionError) -> InvalidRequest {
        InvalidRequest(reason)
    }
}
