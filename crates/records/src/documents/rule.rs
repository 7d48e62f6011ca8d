//! Rules above the files.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tollgate_rules::limit_text::{self, LimitText};

/// A version of a rule above the files.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RuleDocument {
    /// The number of the version, from 1.
    pub version: u64,
    /// Whether the rule is in force.
    pub state: RuleState,
    /// The rule with the keys of rule files, in JSON.
    pub rule: Box<RawValue>,
    /// The caller of the admin API that wrote this version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub author: String,
    /// The author's reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Whether a rule above the files is in force.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleState {
    /// Not in force, and still being written.
    Draft,
    /// Not in force, and proposed for activation.
    Pending,
    /// In force in shadow mode: it counts and refuses nothing.
    Shadow,
    /// In force.
    Active,
    /// Switched off, together with the rule of that name in the files.
    Off,
}

impl RuleState {
    /// Its name in JSON.
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

impl RuleDocument {
    /// Whether it puts a rule out of force: by its state, by its mode, or without a limit for anybody.
    pub fn is_off(&self) -> bool {
        if matches!(self.state, RuleState::Draft | RuleState::Pending) {
            return false;
        }
        let rule: Value = serde_json::from_str(self.rule.get()).unwrap_or_default();
        let is_unlimited = match &rule["limit"] {
            Value::Object(tiers) => !tiers.is_empty() && tiers.values().all(is_unlimited),
            limit => is_unlimited(limit),
        };
        self.state == RuleState::Off || rule["mode"] == "off" || is_unlimited
    }
}

fn is_unlimited(limit: &Value) -> bool {
    limit.as_str().is_some_and(|text| matches!(limit_text::limit(text), Ok(LimitText::Unlimited)))
}
