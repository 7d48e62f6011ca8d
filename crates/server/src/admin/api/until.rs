//! When something ends, as bodies say it: `expires_at`, or `for` so long.

use std::time::Duration;

use tollgate::control::Moment;
use tollgate::control::documents::Faults;
use tollgate::{Span, Timestamp};
use tollgate_rules::limit_text;

/// The two ways to say it.
pub(super) struct Until<'b> {
    pub(super) expires_at: Option<Moment>,
    pub(super) lasts: Option<&'b str>,
}

/// How far in the past something may lie and still mean now: clocks differ.
pub(super) const NOW_IS: Duration = Duration::from_secs(1);

impl Until<'_> {
    /// The moment that is meant, if one is. What has ended already is a fault.
    pub(super) fn moment(&self, now: Timestamp, faults: &mut Faults) -> Option<Moment> {
        match (self.expires_at, self.lasts) {
            (Some(_), Some(_)) => {
                faults.add("for", "write either `for` or `expires_at`");
                None
            }
            (Some(end), None) => {
                not_over(end, now, faults);
                Some(end)
            }
            (None, Some(text)) => match limit_text::duration(text) {
                Ok(Span::ZERO) => {
                    faults.add("for", "it is over at once; write for instance 1h");
                    None
                }
                Ok(length) => Some(Moment(now.after(length))),
                Err(fault) => {
                    faults.add("for", fault.to_string());
                    None
                }
            },
            (None, None) => None,
        }
    }
}

/// Tells of an end that has been.
pub(super) fn not_over(end: Moment, now: Timestamp, faults: &mut Faults) {
    let late = Timestamp::from_micros(now.as_micros().saturating_sub(NOW_IS.as_micros() as u64));
    if end.0 <= late {
        faults.add("expires_at", "it is over already");
    }
}

/// Tells of a reason that is too long.
pub(super) fn reason_fits(reason: &str, faults: &mut Faults) {
    if reason.len() > tollgate_control::LONGEST_REASON {
        faults.add("reason", format!("it is longer than {} bytes", tollgate_control::LONGEST_REASON));
    }
}
