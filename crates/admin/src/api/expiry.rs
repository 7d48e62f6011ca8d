//! Expiry in request bodies: `expires_at`, or `for` a duration.

use std::time::Duration;

use tollgate::{Span, Timestamp};
use tollgate_records::Rfc3339;
use tollgate_records::documents::FieldFaults;
use tollgate_rules::limit_text;

/// Both forms of an expiry.
pub(super) struct Expiry<'b> {
    pub(super) expires_at: Option<Rfc3339>,
    pub(super) lasts: Option<&'b str>,
}

/// How far in the past a time may be and still count as now: clocks differ.
pub(super) const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

impl Expiry<'_> {
    /// The time of expiry, if any. A past one is a fault.
    pub(super) fn moment(&self, now: Timestamp, faults: &mut FieldFaults) -> Option<Rfc3339> {
        match (self.expires_at, self.lasts) {
            (Some(_), Some(_)) => {
                faults.add("for", "set either `for` or `expires_at`");
                None
            }
            (Some(end), None) => {
                check_not_past(end, now, faults);
                Some(end)
            }
            (None, Some(text)) => match limit_text::duration(text) {
                Ok(Span::ZERO) => {
                    faults.add("for", "it must be longer than zero, for instance 1h");
                    None
                }
                Ok(length) => Some(Rfc3339(now.after(length))),
                Err(fault) => {
                    faults.add("for", fault.to_string());
                    None
                }
            },
            (None, None) => None,
        }
    }
}

/// Adds a fault if the time is past.
pub(super) fn check_not_past(end: Rfc3339, now: Timestamp, faults: &mut FieldFaults) {
    let earliest = Timestamp::from_micros(now.as_micros().saturating_sub(CLOCK_TOLERANCE.as_micros() as u64));
    if end.0 <= earliest {
        faults.add("expires_at", "it is in the past");
    }
}

/// Adds a fault if the reason is too long.
pub(super) fn check_reason(reason: &str, faults: &mut FieldFaults) {
    if reason.len() > tollgate_control::MAX_REASON_BYTES {
        faults.add("reason", format!("it is longer than {} bytes", tollgate_control::MAX_REASON_BYTES));
    }
}
