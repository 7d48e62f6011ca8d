//! Responses for blocked callers, and the header for callers that are only marked.

use http::{HeaderName, StatusCode};
use tollgate_rules::tenants::BlockAction;

use super::headers::Denial;
use crate::writer::{member, number_member};
use tollgate::Decision;

/// Tells the gateway why a request that passes is suspicious.
pub static MARKED: HeaderName = HeaderName::from_static("x-ratelimit-marked");

/// The registered name of the problem type, and the value of [`MARKED`].
pub const ABNORMAL_USAGE: &str = "abnormal-usage-detected";

/// The status of a request that is refused because its caller or address is blocked.
pub(super) fn status(decision: &Decision) -> Option<StatusCode> {
    match decision.block()?.action {
        BlockAction::Forbidden | BlockAction::Banned => Some(StatusCode::FORBIDDEN),
        BlockAction::TooMany => Some(StatusCode::TOO_MANY_REQUESTS),
        BlockAction::Marked | BlockAction::Admitted => None,
    }
}

/// Whether a request passes although its caller or address is marked.
pub fn is_marked(decision: &Decision) -> bool {
    decision.block().is_some_and(|block| !block.action.refuses())
}

/// Writes the body of a refusal.
pub(super) fn write_body(out: &mut Vec<u8>, decision: &Decision, status: Option<StatusCode>, denial: &Denial<'_>) {
    const BLOCKED: &[u8] = br#""Requests from this caller are blocked.""#;
    const BANNED: &[u8] =
        br#""Requests from this caller are blocked for a time, because too many of them were refused.""#;
    let is_ban = decision.block().is_some_and(|block| block.action == BlockAction::Banned);
    let (source, code, detail) = if is_ban { ("ban", "BANNED", BANNED) } else { ("block", "BLOCKED", BLOCKED) };
    out.extend_from_slice(
        br#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal usage detected""#,
    );
    if let Some(status) = status {
        number_member(out, "status", status.as_u16().into());
    }
    out.extend_from_slice(br#","detail":"#);
    out.extend_from_slice(detail);
    out.extend_from_slice(br#","violated-policies":[],"allowed":false"#);
    write_wait(out, denial);
    member(out, "source", source);
    out.extend_from_slice(br#","error":{"code":""#);
    out.extend_from_slice(code.as_bytes());
    out.extend_from_slice(br#"","message":"#);
    out.extend_from_slice(detail);
    if let Some(seconds) = denial.retry_after {
        number_member(out, "retry_after", seconds);
    }
    out.extend_from_slice(b"}}");
}

fn write_wait(out: &mut Vec<u8>, denial: &Denial<'_>) {
    if let Some(seconds) = denial.retry_after {
        number_member(out, "retry_after", seconds);
    }
    out.extend_from_slice(br#","retryable":"#);
    out.extend_from_slice(if denial.retry_after.is_some() { b"true" } else { b"false" });
}
