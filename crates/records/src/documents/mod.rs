//! The documents of records: the JSON of the admin API and of the database, and its meaning to a limiter.
//!
//! A document is read in two steps. Serde checks its shape. Its `to_…` method turns its texts into the limiter's types and reports
//! all faults at once. Whether the rules and tiers that it names exist is checked against the rules in force before it is written,
//! and not afterwards: rules change under it.

mod block;
mod emergency;
mod files;
mod limit_terms;
mod quota;
mod rule;
mod shares;
mod switch;

pub use block::{BanDocument, BlockDocument, masked_name};
pub use emergency::EmergencyDocument;
pub use files::{FilesDocument, FilesState};
pub use limit_terms::{BillingAnchor, LimitTerms};
pub use quota::{OverrideDocument, QuotaDocument};
pub use rule::{RuleDocument, RuleState};
pub use shares::SharesDocument;
pub use switch::{SwitchDocument, SwitchMode};

use std::fmt;

use serde::Serialize;
use tollgate_core::Timestamp;
use tollgate_rules::tenants::TimeRange;

use crate::Rfc3339;

/// A fault in a field of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldFault {
    /// The path of the field: `overrides[0].unit`. Empty for the document as a whole.
    pub at: String,
    /// What is wrong, and what to write instead.
    pub what: String,
}

/// All faults of a document, collected while it is read.
#[derive(Debug, Default)]
pub struct FieldFaults(pub Vec<FieldFault>);

/// The longest text of a document, such as a tier's name or a reason, in bytes.
pub const MAX_TEXT_BYTES: usize = 512;

impl FieldFaults {
    /// Adds a fault.
    pub fn add(&mut self, at: impl Into<String>, what: impl Into<String>) {
        self.0.push(FieldFault { at: at.into(), what: what.into() });
    }

    /// The value, if there are no faults.
    ///
    /// # Errors
    /// All faults, if there are any.
    pub fn into_result<T>(self, value: T) -> Result<T, Vec<FieldFault>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }

    /// The period from `from` until `until`; a fault if it ends before it begins.
    fn during(&mut self, at: &str, from: Option<Rfc3339>, until: Option<Rfc3339>) -> TimeRange {
        if let (Some(from), Some(until)) = (from, until)
            && until <= from
        {
            self.add(format!("{at}expires_at"), format!("it ends at {until}, before it begins at {from}"));
        }
        during(from, until)
    }

    /// Adds a fault if a text is too long.
    fn check_length(&mut self, at: &str, text: Option<&str>) {
        if text.is_some_and(|text| text.len() > MAX_TEXT_BYTES) {
            self.add(at, format!("it is longer than {MAX_TEXT_BYTES} bytes"));
        }
    }

    /// Adds a fault if a reason is missing or too long.
    pub fn check_reason(&mut self, reason: &str) {
        if reason.trim().is_empty() {
            self.add("reason", "it is missing; say why, for those who find it in the audit log");
        }
        self.check_length("reason", Some(reason));
    }
}

/// The period from `from` until `until`; without them it has no beginning and no end.
pub(crate) fn during(from: Option<Rfc3339>, until: Option<Rfc3339>) -> TimeRange {
    TimeRange {
        from: from.map_or(TimeRange::ALWAYS.from, |from| from.0),
        // `TimeRange` takes the last timestamp for "no end".
        until: until.map_or(Timestamp::MAX, |until| until.0),
    }
}

impl fmt::Display for FieldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.at.is_empty() { f.write_str(&self.what) } else { write!(f, "{}: {}", self.at, self.what) }
    }
}
