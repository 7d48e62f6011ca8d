//! What one who is blocked is told, and what the gateway is told of one who is only marked.

use http::{HeaderName, StatusCode};
use tollgate_rules::tenants::BlockedAs;

use super::fields::Refusal;
use super::sheet::{member, number_member};
use crate::Decision;

/// Names, for the gateway, why a request that is served should be looked at.
pub static MARKED: HeaderName = HeaderName::from_static("x-ratelimit-marked");

/// The registered name of the problem, and the value of [`MARKED`].
pub const ABNORMAL_USAGE: &str = "abnormal-usage-detected";

/// The status of a request that is refused because its caller or its address is blocked.
pub(super) fn status(decision: &Decision) -> Option<StatusCode> {
    match decision.block()?.told {
        BlockedAs::Forbidden => Some(StatusCode::FORBIDDEN),
        BlockedAs::TooMany => Some(StatusCode::TOO_MANY_REQUESTS),
        BlockedAs::Marked => None,
    }
}

/// Whether a request is served, and its caller or its address is to be looked at.
pub fn is_marked(decision: &Decision) -> bool {
    decision.block().is_some_and(|block| block.told == BlockedAs::Marked)
}

/// The body.
pub(super) fn body(out: &mut Vec<u8>, status: StatusCode, refusal: &Refusal<'_>) {
    const DETAIL: &[u8] = br#""Requests from this caller are blocked.""#;
    out.extend_from_slice(
        br#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal usage detected""#,
    );
    number_member(out, "status", status.as_u16().into());
    out.extend_from_slice(br#","detail":"#);
    out.extend_from_slice(DETAIL);
    out.extend_from_slice(br#","violated-policies":[],"allowed":false"#);
    wait(out, refusal);
    member(out, "source", "block");
    out.extend_from_slice(br#","error":{"code":"BLOCKED","message":"#);
    out.extend_from_slice(DETAIL);
    if let Some(seconds) = refusal.retry_after {
        number_member(out, "retry_after", seconds);
    }
    out.extend_from_slice(b"}}");
}

fn wait(out: &mut Vec<u8>, refusal: &Refusal<'_>) {
    if let Some(seconds) = refusal.retry_after {
        number_member(out, "retry_after", seconds);
    }
    out.extend_from_slice(br#","retryable":"#);
    out.extend_from_slice(if refusal.retry_after.is_some() { b"true" } else { b"false" });
}
