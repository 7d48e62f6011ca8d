//! Versions of rule files that operators released.

use serde::{Deserialize, Serialize};

use crate::Rfc3339;

/// A version of the rule files that guardrails held. The record's name is the version.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FilesDocument {
    /// What was decided of it.
    pub state: FilesState,
    /// The operator's reason.
    #[serde(default)]
    pub reason: String,
    /// When the record may be deleted.
    pub expires_at: Rfc3339,
}

/// What was decided of a version of the rule files.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FilesState {
    /// It may be put in force.
    Released,
}
