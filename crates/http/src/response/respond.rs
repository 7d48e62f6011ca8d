//! Responses to checks.

use http::StatusCode;
use smallvec::SmallVec;
use tollgate_core::{RegionLink, Replay, Request, Source};
use tollgate_rules::model::Headers;

use super::blocked;
use super::display;
use super::headers::{self, Denial, VisibleLimits};
use super::shed;
use super::{JSON, REPLAYED, ResponseStyle, ScopeValues, SignedReceipt};
use crate::problem::{PROBLEM_JSON, REDUCED_CAPACITY};
use crate::writer::{ResponseWriter, WrittenResponse, json_part, json_text, member, number, number_member};
use tollgate::{Decision, Outcome};

/// What of a response is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The whole decision.
    Full,
    /// No body if the request passes: proxies read the status and the headers only.
    HeadersOnly,
    /// The same for a gateway that chooses the status of refusals itself: bodies do not have it.
    ChosenStatus,
}

/// What a response needs besides the decision.
#[derive(Clone, Copy, Debug)]
pub struct ResponseContext<'a> {
    /// Whether the request passes. In shadow mode refused requests pass too.
    pub passes: bool,
    /// The level of the store, if it is not fully available.
    pub level: StoreLevel,
    /// The receipt for the caller.
    pub receipt: Option<SignedReceipt<'a>>,
}

/// The level of the store, if it is not fully available.
type StoreLevel = Option<&'static str>;

/// The maximum length of an endpoint in messages, in bytes.
const MAX_ENDPOINT_BYTES: usize = 256;
/// The largest number of policies in a refusal.
const MAX_VIOLATED: usize = 16;

/// The first members of a problem.
const QUOTA_EXCEEDED: &[u8] =
    br#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded""#;

/// The response to a decided request.
pub fn respond(
    style: &ResponseStyle,
    request: &Request<'_>,
    decision: &Decision,
    context: ResponseContext<'_>,
    detail: Detail,
) -> WrittenResponse {
    let ResponseContext { passes, level, .. } = context;
    let mut writer = ResponseWriter::new();
    let visible = VisibleLimits::new(decision);
    let denial = Denial::new(decision, style.jitter).filter(|_| !passes);
    headers::write(&mut writer, style.dialects, request, decision, &visible, denial.as_ref());
    if matches!(decision.replay(), Replay::Again { .. }) {
        writer.field(&REPLAYED, |out| out.extend_from_slice(b"true"));
    }
    if blocked::is_marked(decision) {
        writer.field(&blocked::MARKED, |out| out.extend_from_slice(blocked::ABNORMAL_USAGE.as_bytes()));
    }
    let written = |status| (detail != Detail::ChosenStatus).then_some(status);
    if let (Some(denial), Some(status)) = (&denial, blocked::status(decision)) {
        return writer
            .finish(status, Some(&PROBLEM_JSON), |out| blocked::write_body(out, decision, written(status), denial));
    }
    match denial {
        None if detail != Detail::Full => writer.finish(StatusCode::OK, None, |_| {}),
        None => writer.finish(StatusCode::OK, Some(&JSON), |out| allowed(out, decision, context, &visible, style)),
        Some(denial) if denial.is_shed() => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            writer.finish(status, Some(&PROBLEM_JSON), |out| shed::write_body(out, written(status), &denial))
        }
        Some(denial) if denial.is_assumed() => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            writer.finish(status, Some(&PROBLEM_JSON), |out| unavailable(out, written(status), &denial, level))
        }
        Some(denial) => {
            let status = StatusCode::TOO_MANY_REQUESTS;
            writer.finish(status, Some(&PROBLEM_JSON), |out| {
                write_problem(out, QUOTA_EXCEEDED, written(status));
                refused(out, style.scope_values, request, decision, &denial, level);
            })
        }
    }
}

/// Writes the body of a 200.
fn allowed(
    out: &mut Vec<u8>,
    decision: &Decision,
    context: ResponseContext<'_>,
    visible: &VisibleLimits<'_>,
    style: &ResponseStyle,
) {
    out.extend_from_slice(br#"{"allowed":true"#);
    if let Some(one) = &visible.standard {
        numbers(out, decision, one);
        member(out, "rule", one.rule.name());
        member(out, "resolved_by", one.resolved_by.name());
        number_member(out, "burst", one.whole_limit.quota());
    }
    match decision.outcomes().next() {
        Some(_) => source(out, decision.source(), context.level, decision.region_link()),
        None if decision.unlimited().next().is_some() => out.extend_from_slice(br#","unlimited":true"#),
        None => {}
    }
    let delay = decision.delay().as_micros().div_ceil(1_000);
    if delay > 0 {
        number_member(out, "delay_ms", delay);
    }
    if let Some(receipt) = context.receipt {
        signed_receipt(out, receipt);
    }
    signals(out, decision);
    if let Some(denial) = Denial::new(decision, style.jitter) {
        out.extend_from_slice(br#","shadow":true"#);
        if let Some(label) = denial.label() {
            member(out, "denied_by", label);
        }
    }
    out.push(b'}');
}

/// Writes a receipt, and the whole seconds within which it must be settled.
pub(super) fn signed_receipt(out: &mut Vec<u8>, receipt: SignedReceipt<'_>) {
    member(out, "receipt", receipt.text);
    number_member(out, "settle_within", receipt.settle_within.as_micros() / 1_000_000);
}

/// Writes the soft limits that the request exceeded.
fn signals(out: &mut Vec<u8>, decision: &Decision) {
    let mut names = headers::signals(decision).peekable();
    if names.peek().is_none() {
        return;
    }
    out.extend_from_slice(br#","signals":["#);
    for (at, name) in names.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json_text(out, name);
    }
    out.push(b']');
}

/// Begins a problem.
pub(super) fn write_problem(out: &mut Vec<u8>, kind: &[u8], status: Option<StatusCode>) {
    out.extend_from_slice(kind);
    if let Some(status) = status {
        number_member(out, "status", status.as_u16().into());
    }
}

/// Writes the body of a 429 from its detail on: the members of a problem, and those of a check's response.
fn refused(
    out: &mut Vec<u8>,
    values: ScopeValues,
    request: &Request<'_>,
    decision: &Decision,
    denial: &Denial<'_>,
    level: StoreLevel,
) {
    out.extend_from_slice(br#","detail":"#);
    write_message(out, request, denial);
    violated(out, decision, denial);
    out.extend_from_slice(br#","allowed":false"#);
    if let Some(by) = denial.shown() {
        numbers(out, decision, by);
        member(out, "resolved_by", by.resolved_by.name());
    }
    write_common(out, denial, level);
    out.extend_from_slice(br#","error":{"code":"RATE_LIMITED","message":"#);
    write_message(out, request, denial);
    retry_after(out, denial);
    if let Some(by) = denial.shown() {
        number_member(out, "limit", by.whole_limit.quota());
        member(out, "window", &display::window(by.limit));
        out.extend_from_slice(br#","scope":"#);
        scope(out, values, request, by);
    }
    out.extend_from_slice(b"}}");
}

/// Writes the body of a 503. The counters are unknown, so it has no numbers.
fn unavailable(out: &mut Vec<u8>, status: Option<StatusCode>, denial: &Denial<'_>, level: StoreLevel) {
    const DETAIL: &[u8] =
        br#""The limiter can't count requests at the moment, and the rules of this request refuse it in that case.""#;
    write_problem(out, REDUCED_CAPACITY, status);
    out.extend_from_slice(br#","detail":"#);
    out.extend_from_slice(DETAIL);
    out.extend_from_slice(br#","violated-policies":["#);
    if let Some(label) = denial.label() {
        json_text(out, label);
    }
    out.extend_from_slice(br#"],"allowed":false"#);
    write_common(out, denial, level);
    out.extend_from_slice(br#","error":{"code":"REDUCED_CAPACITY","message":"#);
    out.extend_from_slice(DETAIL);
    retry_after(out, denial);
    out.extend_from_slice(b"}}");
}

/// Writes the members that all refusals have.
fn write_common(out: &mut Vec<u8>, denial: &Denial<'_>, level: StoreLevel) {
    retry_after(out, denial);
    out.extend_from_slice(br#","retryable":"#);
    out.extend_from_slice(if denial.retry_after.is_some() { b"true" } else { b"false" });
    if let Some(label) = denial.label() {
        member(out, "denied_by", label);
    }
    source(out, denial.source(), level, denial.link);
}

/// Writes the source of the decision, the level of the store, and how other regions are doing.
fn source(out: &mut Vec<u8>, source: Source, level: StoreLevel, link: RegionLink) {
    member(out, "source", source.name());
    if let Some(level) = level {
        member(out, "level", level);
    }
    if link != RegionLink::Together {
        member(out, "regions", link.name());
    }
}

fn retry_after(out: &mut Vec<u8>, denial: &Denial<'_>) {
    if let Some(seconds) = denial.retry_after {
        number_member(out, "retry_after", seconds);
    }
}

fn numbers(out: &mut Vec<u8>, decision: &Decision, one: &Outcome<'_>) {
    number_member(out, "limit", one.whole_limit.quota());
    number_member(out, "remaining", one.reading.remaining);
    if let Some(at) = headers::reset_at(one.reading, decision.at()) {
        number_member(out, "reset_at", at);
    }
}

/// Writes the policies without room, named as in `RateLimit-Policy`.
fn violated(out: &mut Vec<u8>, decision: &Decision, denial: &Denial<'_>) {
    out.extend_from_slice(br#","violated-policies":["#);
    let first = denial.shown().map_or_else(|| denial.label(), |by| Some(by.rule.name()));
    if let Some(name) = first {
        json_text(out, name);
    }
    let mut listed: SmallVec<[usize; MAX_VIOLATED]> = denial.by.iter().map(|by| by.rule.number()).collect();
    for one in decision.outcomes() {
        let is_shown = one.rule.headers() != Headers::Hidden && !listed.contains(&one.rule.number());
        if one.is_exhausted() && is_shown && listed.len() < MAX_VIOLATED {
            if first.is_some() || listed.len() > 1 {
                out.push(b',');
            }
            listed.push(one.rule.number());
            json_text(out, one.rule.name());
        }
    }
    out.push(b']');
}

/// Writes a sentence or two as a JSON string.
fn write_message(out: &mut Vec<u8>, request: &Request<'_>, denial: &Denial<'_>) {
    out.extend_from_slice(b"\"Rate limit exceeded");
    let entries = || request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
    if let Some((_, endpoint)) = entries().find(|(name, _)| *name == "endpoint") {
        out.extend_from_slice(b" for ");
        json_part(out, display::truncate(endpoint, MAX_ENDPOINT_BYTES));
    }
    match denial.retry_after {
        None => out.extend_from_slice(b". The request exceeds what the limit ever allows: retrying does not help."),
        Some(1) => out.extend_from_slice(b". Retry after 1 second."),
        Some(seconds) => {
            out.extend_from_slice(b". Retry after ");
            number(out, seconds);
            out.extend_from_slice(b" seconds.");
        }
    }
    out.push(b'"');
}

/// Writes the scope: `api_key:abc1…:endpoint:POST /orders`.
fn scope(out: &mut Vec<u8>, values: ScopeValues, request: &Request<'_>, one: &Outcome<'_>) {
    out.push(b'"');
    let named = one.rule.scope_of(request, one.touches);
    if named.is_empty() {
        out.extend_from_slice(b"global");
    }
    for (at, (name, value)) in named.into_iter().enumerate() {
        if at > 0 {
            out.push(b':');
        }
        json_part(out, name);
        out.push(b':');
        let value = value.unwrap_or_default();
        match values {
            ScopeValues::Full => json_part(out, value),
            ScopeValues::Hidden => out.push(b'*'),
            ScopeValues::Shortened if display::is_public(name) => json_part(out, value),
            ScopeValues::Shortened => match display::shorten(value) {
                Some(prefix) => {
                    json_part(out, prefix);
                    out.extend_from_slice("…".as_bytes());
                }
                None => json_part(out, value),
            },
        }
    }
    out.push(b'"');
}
