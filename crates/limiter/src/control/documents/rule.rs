//! A rule above the files.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A version of a rule above the files.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RuleDocument {
    /// Which of its versions this is, from 1.
    pub version: u64,
    /// Whether it is in force.
    pub state: RuleState,
    /// The rule as rule files write it, in JSON.
    pub rule: Box<RawValue>,
    /// Who wrote it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub author: String,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Whether a rule above the files is in force.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleState {
    /// It is being written.
    Draft,
    /// It is proposed, and waits for somebody to activate it.
    Pending,
    /// It counts, and refuses nobody.
    Shadow,
    /// It is in force.
    Active,
    /// It is switched off, and so is the rule of that name in the files.
    Off,
}

impl RuleState {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            RuleState::Draft => "draft",
            RuleState::Pending => "pending",
            RuleState::Shadow => "shadow",
            RuleState::Active => "active",
            RuleState::Off => "off",
        }
    }
}
