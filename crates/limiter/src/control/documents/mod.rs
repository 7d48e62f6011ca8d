//! What records say: the JSON of the admin API and of the store of record, and what it means to a limiter.
//!
//! A document is read in two steps. Its shape is serde's business; what its texts mean is found out by `meaning`, which tells all
//! faults at once. Whether the rules and tiers that it names exist is asked of the rules in force before it is written, and not
//! after: rules change under it.

mod block;
mod emergency;
mod limited;
mod quota;
mod rule;
mod switch;

pub use block::BlockDocument;
pub use emergency::EmergencyDocument;
pub use limited::{Anchor, Limited};
pub use quota::{OverrideDocument, QuotaDocument};
pub use rule::{RuleDocument, RuleState};
pub use switch::{SwitchDocument, SwitchMode};

use serde::Serialize;
use tollgate_core::Timestamp;
use tollgate_rules::tenants::During;

use super::Moment;

/// What is wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Where: `overrides[0].unit`.
    pub at: String,
    /// What, and what to write instead.
    pub what: String,
}

/// All that is wrong, gathered on the way.
#[derive(Debug, Default)]
pub struct Faults(pub Vec<Fault>);

/// The longest name or reason.
pub const LONGEST_TEXT: usize = 512;

impl Faults {
    /// One more.
    pub fn add(&mut self, at: impl Into<String>, what: impl Into<String>) {
        self.0.push(Fault { at: at.into(), what: what.into() });
    }

    /// What was made, if nothing is wrong.
    ///
    /// # Errors
    /// All that is.
    pub fn unless<T>(self, made: T) -> Result<T, Vec<Fault>> {
        if self.0.is_empty() { Ok(made) } else { Err(self.0) }
    }

    /// When something holds.
    fn during(&mut self, at: &str, from: Option<Moment>, until: Option<Moment>) -> During {
        if let (Some(from), Some(until)) = (from, until)
            && until <= from
        {
            self.add(format!("{at}expires_at"), format!("it ends at {until}, before it begins at {from}"));
        }
        during(from, until)
    }

    fn text(&mut self, at: &str, text: Option<&str>) {
        if text.is_some_and(|text| text.len() > LONGEST_TEXT) {
            self.add(at, format!("it is longer than {LONGEST_TEXT} bytes"));
        }
    }
}

/// When something holds that begins and ends like this.
pub(crate) fn during(from: Option<Moment>, until: Option<Moment>) -> During {
    During {
        from: from.map_or(During::ALWAYS.from, |from| from.0),
        // The last moment of all stands for none.
        until: until.map_or(Timestamp::MAX, |until| until.0),
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.at.is_empty() { f.write_str(&self.what) } else { write!(f, "{}: {}", self.at, self.what) }
    }
}
