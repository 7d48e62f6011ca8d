//! The result of the last reload.

use tollgate::Timestamp;

/// The result of the last reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadStatus {
    /// The generation in force.
    pub generation: u64,
    /// Why the current files and layer are not in force; `None` if they are.
    pub error: Option<String>,
    /// The time of the last successful reload.
    pub at: Option<Timestamp>,
}
