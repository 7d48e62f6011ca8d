//! From a decision to an answer.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use smallvec::SmallVec;
use tollgate_core::{Mode, Replay, Request, Source};
use tollgate_rules::model::Headers;

use super::blocked;
use super::fields::{self, Refusal, Shown};
use super::sheet::{Sheet, json_part, json_text, member, number, number_member};
use super::words;
use super::{Carried, JSON, PROBLEM_JSON, REPLAYED, ScopeValues, Told};
use crate::{Decision, Outcome};

/// How much of a 200's body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What the decision says.
    Whole,
    /// Nothing: a proxy looks at the status and the headers.
    Bare,
}

/// What an answer says that the decision does not.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// Whether the request passes: more may than was decided, where refusals are only told.
    pub passes: bool,
    /// How much of the store answers, where that is not all of it.
    pub level: Level,
    /// The receipt, as the caller carries it.
    pub receipt: Option<Carried<'a>>,
}

/// How much of the store answers, where that is not all of it.
type Level = Option<&'static str>;

/// The longest part of an endpoint that a message repeats, in bytes.
const LONGEST_ENDPOINT: usize = 256;
/// The most policies that a refusal names.
const MOST_VIOLATED: usize = 16;

/// The answer to a request that was decided.
pub fn answer(
    told: &Told,
    request: &Request<'_>,
    decision: &Decision,
    beside: Beside<'_>,
    detail: Detail,
) -> Response<Full<Bytes>> {
    let Beside { passes, level, .. } = beside;
    let mut sheet = Sheet::new();
    let shown = Shown::of(decision);
    let refusal = Refusal::of(decision, told.jitter).filter(|_| !passes);
    fields::write(&mut sheet, told.dialects, decision, &shown, refusal.as_ref());
    if matches!(decision.replay(), Replay::Again { .. }) {
        sheet.field(&REPLAYED, |out| out.extend_from_slice(b"true"));
    }
    if blocked::is_marked(decision) {
        sheet.field(&blocked::MARKED, |out| out.extend_from_slice(blocked::ABNORMAL_USAGE.as_bytes()));
    }
    if let (Some(refusal), Some(status)) = (&refusal, blocked::status(decision)) {
        return sheet.finish(status, Some(&PROBLEM_JSON), |out| blocked::body(out, status, refusal));
    }
    match refusal {
        None if detail == Detail::Bare => sheet.finish(StatusCode::OK, None, |_| {}),
        None => sheet.finish(StatusCode::OK, Some(&JSON), |out| allowed(out, decision, beside, &shown, told)),
        Some(refusal) if refusal.is_assumed() => {
            sheet.finish(StatusCode::SERVICE_UNAVAILABLE, Some(&PROBLEM_JSON), |out| unavailable(out, &refusal, level))
        }
        Some(refusal) => sheet.finish(StatusCode::TOO_MANY_REQUESTS, Some(&PROBLEM_JSON), |out| {
            refused(out, told.scope_values, request, decision, &refusal, level);
        }),
    }
}

/// The body of a 200.
fn allowed(out: &mut Vec<u8>, decision: &Decision, beside: Beside<'_>, shown: &Shown<'_>, told: &Told) {
    out.extend_from_slice(br#"{"allowed":true"#);
    if let Some(one) = &shown.standard {
        numbers(out, decision, one);
        member(out, "rule", one.rule.name());
        member(out, "resolved_by", one.resolved_by.name());
        number_member(out, "burst", one.limit.quota());
    }
    match decision.outcomes().next() {
        Some(_) => source(out, decision.source(), beside.level),
        None if decision.unlimited().next().is_some() => out.extend_from_slice(br#","unlimited":true"#),
        None => {}
    }
    let delay = decision.delay().as_micros().div_ceil(1_000);
    if delay > 0 {
        number_member(out, "delay_ms", delay);
    }
    if let Some(receipt) = beside.receipt {
        carried(out, receipt);
    }
    signals(out, decision);
    if let Some(refusal) = Refusal::of(decision, told.jitter) {
        out.extend_from_slice(br#","shadow":true"#);
        if let Some(label) = refusal.label() {
            member(out, "denied_by", label);
        }
    }
    out.push(b'}');
}

/// A receipt, and how many seconds there are to settle it: no more than there are.
pub(super) fn carried(out: &mut Vec<u8>, receipt: Carried<'_>) {
    member(out, "receipt", receipt.text);
    number_member(out, "settle_within", receipt.settle_within.as_micros() / 1_000_000);
}

/// The soft limits that the request went past.
fn signals(out: &mut Vec<u8>, decision: &Decision) {
    let mut told = fields::signals(decision).peekable();
    if told.peek().is_none() {
        return;
    }
    out.extend_from_slice(br#","signals":["#);
    for (at, name) in told.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json_text(out, name);
    }
    out.push(b']');
}

/// The body of a 429: the members of a problem, and beside them those of a check's answer.
fn refused(
    out: &mut Vec<u8>,
    values: ScopeValues,
    request: &Request<'_>,
    decision: &Decision,
    refusal: &Refusal<'_>,
    level: Level,
) {
    out.extend_from_slice(
        br#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded","status":429,"detail":"#,
    );
    message(out, request, refusal);
    violated(out, decision, refusal);
    out.extend_from_slice(br#","allowed":false"#);
    if let Some(by) = refusal.shown() {
        numbers(out, decision, by);
        member(out, "resolved_by", by.resolved_by.name());
    }
    rest(out, refusal, level);
    out.extend_from_slice(br#","error":{"code":"RATE_LIMITED","message":"#);
    message(out, request, refusal);
    retry_after(out, refusal);
    if let Some(by) = refusal.shown() {
        number_member(out, "limit", by.limit.amount());
        member(out, "window", &words::window(by.limit));
        out.extend_from_slice(br#","scope":"#);
        scope(out, values, request, by);
    }
    out.extend_from_slice(b"}}");
}

/// The body of a 503: nobody knows how the caller stands, so no number is told.
fn unavailable(out: &mut Vec<u8>, refusal: &Refusal<'_>, level: Level) {
    const DETAIL: &[u8] = br#""The limiter can't count this request at the moment, and its rules refuse it then.""#;
    out.extend_from_slice(
        br#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":503,"detail":"#,
    );
    out.extend_from_slice(DETAIL);
    out.extend_from_slice(br#","violated-policies":["#);
    if let Some(label) = refusal.label() {
        json_text(out, label);
    }
    out.extend_from_slice(br#"],"allowed":false"#);
    rest(out, refusal, level);
    out.extend_from_slice(br#","error":{"code":"REDUCED_CAPACITY","message":"#);
    out.extend_from_slice(DETAIL);
    retry_after(out, refusal);
    out.extend_from_slice(b"}}");
}

/// What all refusals say: when to come back, who refused, who says so.
fn rest(out: &mut Vec<u8>, refusal: &Refusal<'_>, level: Level) {
    retry_after(out, refusal);
    out.extend_from_slice(br#","retryable":"#);
    out.extend_from_slice(if refusal.retry_after.is_some() { b"true" } else { b"false" });
    if let Some(label) = refusal.label() {
        member(out, "denied_by", label);
    }
    source(out, refusal.source(), level);
}

/// Who says so, and how much of the store could have.
fn source(out: &mut Vec<u8>, source: Source, level: Level) {
    member(out, "source", source.name());
    if let Some(level) = level {
        member(out, "level", level);
    }
}

fn retry_after(out: &mut Vec<u8>, refusal: &Refusal<'_>) {
    if let Some(seconds) = refusal.retry_after {
        number_member(out, "retry_after", seconds);
    }
}

fn numbers(out: &mut Vec<u8>, decision: &Decision, one: &Outcome<'_>) {
    number_member(out, "limit", one.limit.amount());
    number_member(out, "remaining", one.reading.remaining);
    if let Some(at) = fields::reset_at(one.reading, decision.at()) {
        number_member(out, "reset_at", at);
    }
}

/// The policies without room, by the names that `RateLimit-Policy` has for them.
fn violated(out: &mut Vec<u8>, decision: &Decision, refusal: &Refusal<'_>) {
    out.extend_from_slice(br#","violated-policies":["#);
    let first = refusal.shown().map_or_else(|| refusal.label(), |by| Some(by.rule.name()));
    if let Some(name) = first {
        json_text(out, name);
    }
    let mut told: SmallVec<[usize; MOST_VIOLATED]> = refusal.by.iter().map(|by| by.rule.number()).collect();
    for one in decision.outcomes() {
        let refuses = matches!(one.mode, Mode::Enforce | Mode::AnyOf) && !one.reading.admits;
        let is_shown = one.rule.headers() != Headers::Hidden && !told.contains(&one.rule.number());
        if refuses && is_shown && told.len() < MOST_VIOLATED {
            if first.is_some() || told.len() > 1 {
                out.push(b',');
            }
            told.push(one.rule.number());
            json_text(out, one.rule.name());
        }
    }
    out.push(b']');
}

/// One sentence or two, as a JSON string.
fn message(out: &mut Vec<u8>, request: &Request<'_>, refusal: &Refusal<'_>) {
    out.extend_from_slice(b"\"Rate limit exceeded");
    let entries = || request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
    if let Some((_, endpoint)) = entries().find(|(name, _)| *name == "endpoint") {
        out.extend_from_slice(b" for ");
        json_part(out, words::beginning(endpoint, LONGEST_ENDPOINT));
    }
    match refusal.retry_after {
        None => out.extend_from_slice(b". It asks for more than the limit ever allows: retrying does not help."),
        Some(1) => out.extend_from_slice(b". Retry after 1 second."),
        Some(seconds) => {
            out.extend_from_slice(b". Retry after ");
            number(out, seconds);
            out.extend_from_slice(b" seconds.");
        }
    }
    out.push(b'"');
}

/// `api_key:abc1…:endpoint:POST /orders`.
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
            ScopeValues::Shortened if words::is_what(name) => json_part(out, value),
            ScopeValues::Shortened => match words::shortened(value) {
                Some(beginning) => {
                    json_part(out, beginning);
                    out.extend_from_slice("…".as_bytes());
                }
                None => json_part(out, value),
            },
        }
    }
    out.push(b'"');
}
