//! Who asks the admin API, and what they may.

use crate::control::Author;

/// One who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    /// As the audit log names it: `token billing`, `certificate spiffe://…`, `loopback`.
    pub(crate) name: String,
    /// The address that it came from.
    pub(crate) from: String,
    pub(crate) scopes: Scopes,
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Scope {
    /// See quotas, usage, rules, switches.
    Read,
    /// Change quotas, tiers, and single callers' counters.
    Quota,
    /// Change rules and switches.
    Rules,
    /// Emergencies, kill switches and blocks.
    Emergency,
    /// Read the audit log.
    Audit,
    /// Ask for decisions, on the data plane.
    Check,
}

/// Some scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scopes(u8);

impl Scope {
    /// All of them.
    pub(crate) const ALL: [Scope; 6] =
        [Scope::Read, Scope::Quota, Scope::Rules, Scope::Emergency, Scope::Audit, Scope::Check];

    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Quota => "quota",
            Scope::Rules => "rules",
            Scope::Emergency => "emergency",
            Scope::Audit => "audit",
            Scope::Check => "check",
        }
    }
}

impl Scopes {
    /// Everything.
    pub(crate) fn all() -> Scopes {
        Scope::ALL.into_iter().collect()
    }

    pub(crate) fn has(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        Scopes(scopes.into_iter().fold(0, |all, scope| all | 1 << scope as u8))
    }
}

impl Who {
    pub(crate) fn author(&self) -> Author {
        Author { name: self.name.clone(), from: self.from.clone() }
    }
}
