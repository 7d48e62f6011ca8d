//! How rules refuse, whatever their files say.

use serde::{Deserialize, Serialize};
use tollgate_rules::model::RuleMode;

use super::Faults;
use crate::control::Moment;

/// How a rule refuses, or all of a domain, or all: which, its record's domain and name say.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchDocument {
    /// How.
    pub mode: SwitchMode,
    /// Until when; by default for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Moment>,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What a switch can be set to.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchMode {
    /// The rule is not there: the kill switch.
    Off,
    /// It only says what it would do.
    Shadow,
    /// It admits past the limit, and says so.
    Soft,
    /// It refuses.
    Enforce,
}

impl SwitchMode {
    /// What it means to a rule.
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
    /// What is wrong with it.
    pub fn check(&self, faults: &mut Faults) {
        faults.text("reason", Some(&self.reason));
    }
}
