//! Who asks the admin API, and what they may.

use http::StatusCode;

use super::api::Problem;
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

    /// Those of the admin API. Who has all of them may manage tokens.
    pub(crate) const ADMIN: [Scope; 5] = [Scope::Read, Scope::Quota, Scope::Rules, Scope::Emergency, Scope::Audit];

    /// What a word means.
    pub(crate) fn parse(word: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.name() == word)
    }

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
    /// Everything on the admin API.
    pub(crate) fn all() -> Scopes {
        Scope::ADMIN.into_iter().collect()
    }

    /// Whether nothing on the admin API is kept from who has these.
    pub(crate) fn are_all_of_admin(self) -> bool {
        Scope::ADMIN.into_iter().all(|scope| self.has(scope))
    }

    /// These and those.
    pub(crate) fn and(self, others: Scopes) -> Scopes {
        Scopes(self.0 | others.0)
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
    /// Refuses one who may not.
    pub(super) fn may(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.has(scope) {
            return Ok(());
        }
        let detail = format!("{} lacks the scope `{}`", self.name, scope.name());
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }

    pub(crate) fn author(&self) -> Author {
        Author { name: self.name.clone(), from: self.from.clone() }
    }
}
