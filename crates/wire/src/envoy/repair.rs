//! Messages with values that rules can't use as they were sent.

use tollgate::Request;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_rules::Domain;
use tollgate_telemetry::metrics::{Repair, Repairs};

use crate::attributes::{self, Undecided, repaired, shortened};
use crate::gate::Gate;

/// The request with all values as rules see them, and without what it has too much of.
///
/// # Errors
/// If something is left out that might be what refuses the request.
#[cold]
pub(super) fn repair(request: &RateLimitRequest, gate: &Gate) -> Result<RateLimitRequest, Undecided> {
    let rules = gate.limiter().rules();
    let mut repairs = Repairs::default();
    let domain = rules.domain(Some(&request.domain)).ok();
    if request.descriptors.len() > Request::MAX_DESCRIPTORS {
        repairs.add(Repair::TooMany);
    }
    let first = request.descriptors.iter().take(Request::MAX_DESCRIPTORS);
    let descriptors = first.map(|one| descriptor(one, domain, &mut repairs)).collect::<Result<_, _>>();
    gate.metrics().repaired_all(repairs);
    Ok(RateLimitRequest { domain: request.domain.clone(), descriptors: descriptors?, hits_addend: request.hits_addend })
}

fn descriptor(
    given: &RateLimitDescriptor,
    domain: Option<&Domain>,
    repairs: &mut Repairs,
) -> Result<RateLimitDescriptor, Undecided> {
    let mut descriptor = given.clone();
    if descriptor.entries.len() > Request::MAX_ENTRIES {
        attributes::trim(&mut descriptor.entries, |entry| &entry.key, domain, repairs)?;
    }
    for entry in &mut descriptor.entries {
        let key = shortened(entry.key.as_str().into(), Request::MAX_TEXT_BYTES, Repair::LongText, repairs).into_owned();
        let value = repaired(&entry.key, &entry.value, repairs).into_owned().into();
        *entry = Entry { key, value };
    }
    Ok(descriptor)
}
