//! Whether the rules in force are the ones that are written, for those who watch.

use tollgate::Timestamp;

/// How rules were last put in force, or were not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reload {
    /// The generation in force.
    pub(crate) generation: u64,
    /// Why the rules as they are written are not in force; `None` if they are.
    pub(crate) error: Option<String>,
    /// When rules were last put in force as they were written.
    pub(crate) at: Option<Timestamp>,
}
