//! Decisions to messages.

use std::cmp::Reverse;

use prost_types::value::Kind;
use prost_types::{Duration, ListValue, Struct, Value};
use tollgate::{Algorithm, Ask, Decision, Limit, Outcome, RegionLink, Request, Source, Wait};
use tollgate_core::calendar::CalendarUnit;
use tollgate_http::response::{self, Detail};
use tollgate_proto::envoy::config::core::v3::HeaderValue;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitResponse;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use tollgate_rules::model::Headers;

use super::client::{self, EnvoyResponse};
use super::{HeaderNames, ResponseExtras};
use crate::gate::Gate;

/// The remaining units of an unlimited descriptor.
const UNLIMITED: u32 = u32::MAX;

/// The response to a decided request.
pub(super) fn respond(
    request: &Request<'_>,
    decision: &Decision,
    gate: &Gate,
    extras: &ResponseExtras,
) -> EnvoyResponse {
    let mut response = RateLimitResponse {
        overall_code: code(gate.passes(decision)),
        statuses: (0..request.descriptors.len()).map(|number| status(decision, number)).collect(),
        ..RateLimitResponse::default()
    };
    if request.ask != Ask::Exactly {
        // Debits and returns need no room: an unreadable limit does not refuse them.
        response.statuses.iter_mut().for_each(|status| status.code = code(true));
    }
    if !decision.allowed() && decision.block().is_some() {
        // No limit was checked.
        response.statuses.iter_mut().for_each(|status| status.code = response.overall_code);
    }
    if response::is_marked(decision) {
        response.request_headers_to_add = vec![marked()];
    }
    let client = extras.client.as_ref().map(|style| {
        let context = gate.response_context(decision);
        client::encode_fields(&response::respond(style, request, decision, context, Detail::ChosenStatus))
    });
    if let Some(names) = &extras.headers {
        response.response_headers_to_add.extend(headers(&response.statuses, names));
        if extras.client.is_none() {
            response.response_headers_to_add.extend(signal(decision));
        }
    }
    if extras.metadata {
        response.dynamic_metadata = metadata(decision, gate.level());
    }
    EnvoyResponse { message: response, client: client.unwrap_or_default() }
}

/// The response if there are no rules to apply.
pub(super) fn nothing_applies(descriptors: usize) -> RateLimitResponse {
    without_limits(true, descriptors)
}

/// A response without the state of any limit.
pub(super) fn without_limits(passes: bool, descriptors: usize) -> RateLimitResponse {
    let status = DescriptorStatus { code: code(passes), ..DescriptorStatus::default() };
    let statuses = vec![status; descriptors.min(Request::MAX_DESCRIPTORS)];
    RateLimitResponse { overall_code: code(passes), statuses, ..RateLimitResponse::default() }
}

fn code(passes: bool) -> i32 {
    if passes { Code::Ok } else { Code::OverLimit }.into()
}

/// The status of a descriptor: that of its tightest limit.
fn status(decision: &Decision, number: usize) -> DescriptorStatus {
    let bit = 1u64.checked_shl(number as u32).unwrap_or(0);
    let touching = || decision.outcomes().filter(|outcome| outcome.touches & bit != 0);
    let code = code(!touching().any(|outcome| outcome.is_exhausted()));
    // A hidden limit decides but is not shown: Envoy's clients may see the status in headers.
    let shown = touching().filter(|outcome| outcome.rule.headers() != Headers::Hidden);
    match shown.min_by_key(tightness) {
        Some(outcome) => DescriptorStatus {
            code,
            current_limit: Some(current_limit(&outcome)),
            limit_remaining: if outcome.reading.admits { remaining(&outcome) } else { 0 },
            // Whole seconds, rounded up: Envoy's header has only seconds.
            duration_until_reset: Some(Duration { seconds: reset_seconds(&outcome), nanos: 0 }),
            quota: None,
        },
        None => {
            let unlimited = decision.unlimited().any(|(_, touches)| touches & bit != 0);
            DescriptorStatus {
                code,
                limit_remaining: if unlimited { UNLIMITED } else { 0 },
                ..DescriptorStatus::default()
            }
        }
    }
}

/// The order of limits: those that refuse, the longest wait first; then other enforced ones, the fewest units first;
/// then shadow and soft limits.
fn tightness(outcome: &Outcome<'_>) -> (u8, Reverse<Wait>, u64) {
    let rank = match (outcome.is_enforced(), outcome.reading.admits) {
        (true, false) => 0,
        (true, true) => 1,
        (false, _) => 2,
    };
    (rank, Reverse(outcome.reading.wait), outcome.reading.remaining)
}

/// The remaining units, at most the units of a period: the burst of a bucket may leave more, which clients would take for
/// an error.
fn remaining(outcome: &Outcome<'_>) -> u32 {
    clamped(outcome.reading.remaining.min(outcome.limit.amount()))
}

fn reset_seconds(outcome: &Outcome<'_>) -> i64 {
    i64::try_from(outcome.reading.reset_after.as_micros().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

fn current_limit(outcome: &Outcome<'_>) -> RateLimit {
    RateLimit {
        name: outcome.rule.given_name().unwrap_or_default().to_owned(),
        requests_per_unit: clamped(outcome.whole_limit.amount()),
        unit: unit(outcome.limit).into(),
    }
}

/// The protocol's unit for a limit's period, if there is one.
fn unit(limit: &Limit) -> Unit {
    if limit.algorithm() == Algorithm::Concurrency {
        return Unit::Unknown;
    }
    if let Some(calendar) = limit.period().as_calendar() {
        return match calendar.unit() {
            CalendarUnit::Day => Unit::Day,
            CalendarUnit::Week => Unit::Week,
            CalendarUnit::Month { .. } => Unit::Month,
            CalendarUnit::Year => Unit::Year,
        };
    }
    match limit.period().span().as_micros() / 1_000 {
        1_000 => Unit::Second,
        60_000 => Unit::Minute,
        3_600_000 => Unit::Hour,
        86_400_000 => Unit::Day,
        604_800_000 => Unit::Week,
        2_592_000_000 => Unit::Month,
        31_536_000_000 => Unit::Year,
        _ => Unit::Unknown,
    }
}

fn clamped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Headers for the client, from the descriptor that refuses, else from the one with the fewest units left.
fn headers(statuses: &[DescriptorStatus], names: &HeaderNames) -> Vec<HeaderValue> {
    let limited = statuses.iter().filter_map(|status| Some((status, status.current_limit.as_ref()?)));
    let is_ok = |status: &DescriptorStatus| status.code != i32::from(Code::OverLimit);
    let Some((status, limit)) = limited.min_by_key(|(status, _)| (is_ok(status), status.limit_remaining)) else {
        return Vec::new();
    };
    let reset = status.duration_until_reset.as_ref().map_or(0, |reset| reset.seconds);
    vec![
        header(&names.limit, limit.requests_per_unit.to_string().as_bytes()),
        header(&names.remaining, status.limit_remaining.to_string().as_bytes()),
        header(&names.reset, reset.to_string().as_bytes()),
    ]
}

/// A header of printable ASCII.
fn header(key: &str, value: &[u8]) -> HeaderValue {
    let value = String::from_utf8_lossy(value).into_owned();
    HeaderValue { key: key.to_owned(), value, ..HeaderValue::default() }
}

/// The header that marks a suspicious caller for the upstream service.
fn marked() -> HeaderValue {
    header(response::MARKED.as_str(), response::ABNORMAL_USAGE.as_bytes())
}

/// The header that lists the soft limits that the request exceeded.
fn signal(decision: &Decision) -> Option<HeaderValue> {
    let names: Vec<&str> = response::signals(decision).collect();
    (!names.is_empty()).then(|| header(response::SIGNAL.as_str(), names.join(", ").as_bytes()))
}

/// The metadata of the limits that the request passed, the first of each name; the exceeded soft limits; the delay; and
/// the source of the decision, if it is not the store.
fn metadata(decision: &Decision, level: Option<&'static str>) -> Option<Struct> {
    let passed = decision.outcomes().filter(|outcome| !outcome.is_exhausted()).map(|outcome| outcome.rule);
    let rules = passed.chain(decision.unlimited().map(|(rule, _)| rule));
    let mut fields = Struct::default().fields;
    let value = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    for (name, text) in rules.flat_map(|rule| rule.metadata()) {
        fields.entry(name.clone()).or_insert_with(|| value(text));
    }
    let source = Some(decision.source()).filter(|source| *source != Source::Store).map(Source::name);
    let link = Some(decision.region_link()).filter(|link| *link != RegionLink::Together).map(RegionLink::name);
    for (name, text) in [("tollgate_source", source), ("tollgate_level", level), ("tollgate_regions", link)] {
        fields.extend(text.map(|text| (name.to_owned(), value(text))));
    }
    if let Some(block) = decision.block() {
        fields.insert("tollgate_block".to_owned(), value(block.action.name()));
    }
    if decision.denied_by().is_some_and(|by| by.rule.sheds()) {
        // Envoy has one status for all refusals; an access log or another filter can tell them apart by this.
        fields.insert("tollgate_shed".to_owned(), value("fleet"));
    }
    let values: Vec<Value> = response::signals(decision).map(value).collect();
    if !values.is_empty() {
        fields.insert("tollgate_signals".to_owned(), Value { kind: Some(Kind::ListValue(ListValue { values })) });
    }
    let delay = decision.delay().as_micros().div_ceil(1_000);
    if delay > 0 {
        // The protocol's numbers are floats; this one is small enough to be exact.
        fields.insert("tollgate_delay_ms".to_owned(), Value { kind: Some(Kind::NumberValue(delay as f64)) });
    }
    (!fields.is_empty()).then_some(Struct { fields })
}
