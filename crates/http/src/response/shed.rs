//! Responses to requests that a rule refuses to protect the service (`shed: true`). They have no numbers: the limit is the
//! service's, not the caller's.

use http::{HeaderName, StatusCode};
use tollgate_shed::{RetryAfter, Shedder};

use super::Jitter;
use super::headers::{Denial, RETRY_AFTER};
use super::respond::write_problem;
use crate::problem::REDUCED_CAPACITY;
use crate::writer::{ResponseWriter, json_text, member, number, number_member};

/// Names the shedder that refused a request, so that nobody takes the response for the upstream's.
pub static SHED: HeaderName = HeaderName::from_static("x-tollgate-shed");

const DETAIL: &[u8] = br#""The service is under too much load to answer this request now.""#;

/// Seconds until a retry. The wait of the limit says when a slot expires, not when there is room.
pub(super) fn retry_after(jitter: Jitter) -> u64 {
    let random = match jitter {
        Jitter::Off => 0,
        Jitter::Bps(_) => fastrand::u64(..),
    };
    RetryAfter::default().draw_seconds(random)
}

/// Writes the headers of a refusal.
pub(super) fn write_headers(writer: &mut ResponseWriter, denial: &Denial<'_>) {
    writer.field(&SHED, |out| out.extend_from_slice(Shedder::Fleet.name().as_bytes()));
    if let Some(seconds) = denial.retry_after {
        writer.field(&RETRY_AFTER, |out| number(out, seconds));
    }
}

/// Writes the body of a refusal.
pub(super) fn write_body(out: &mut Vec<u8>, status: Option<StatusCode>, denial: &Denial<'_>) {
    write_problem(out, REDUCED_CAPACITY, status);
    out.extend_from_slice(br#","detail":"#);
    out.extend_from_slice(DETAIL);
    out.extend_from_slice(br#","violated-policies":["#);
    if let Some(label) = denial.label() {
        json_text(out, label);
    }
    out.extend_from_slice(br#"],"allowed":false"#);
    write_wait(out, denial);
    out.extend_from_slice(br#","retryable":true"#);
    member(out, "shed", Shedder::Fleet.name());
    if let Some(label) = denial.label() {
        member(out, "denied_by", label);
    }
    member(out, "source", denial.source().name());
    out.extend_from_slice(br#","error":{"code":"REDUCED_CAPACITY","message":"#);
    out.extend_from_slice(DETAIL);
    write_wait(out, denial);
    out.extend_from_slice(b"}}");
}

fn write_wait(out: &mut Vec<u8>, denial: &Denial<'_>) {
    if let Some(seconds) = denial.retry_after {
        number_member(out, "retry_after", seconds);
    }
}
