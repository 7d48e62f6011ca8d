//! Switches: modes that override those of the rule files.

use serde::{Deserialize, Serialize};
use tollgate_rules::model::RuleMode;

use super::FieldFaults;
use crate::Rfc3339;

/// The mode of a rule, of a domain, or of everything: the record's domain and name say of which.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchDocument {
    /// The mode.
    pub mode: SwitchMode,
    /// The end of the switch; by default it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
    /// The operator's reason, which the audit log shows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The mode that a switch sets.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchMode {
    /// Rules do not apply: the kill switch.
    Off,
    /// Rules count, and report what they would refuse.
    Shadow,
    /// Rules admit requests over the limit, and report that.
    Soft,
    /// Rules refuse.
    Enforce,
}

impl SwitchMode {
    /// The same as a rule's mode.
    pub fn mode(self) -> RuleMode {
        match self {
            SwitchMode::Off => RuleMode::Off,
            SwitchMode::Shadow => RuleMode::Shadow,
            SwitchMode::Soft => RuleMode::Soft,
            SwitchMode::Enforce => RuleMode::Enforce,
        }
    }
}

impl SwitchDocument {
    /// Adds its faults.
    pub fn check(&self, faults: &mut FieldFaults) {
        faults.check_length("reason", Some(&self.reason));
    }
}
