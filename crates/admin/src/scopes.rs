//! Callers of the admin API, and their scopes.

use http::StatusCode;

use crate::problem::ApiProblem;
use crate::store_of_record::Author;

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Its name in the audit log: `token billing`, `certificate spiffe://…`, `loopback`.
    pub name: String,
    /// Its address.
    pub from: String,
    pub scopes: AccessScopes,
}

/// A permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessScope {
    /// Read quotas, usage, rules and switches.
    Read,
    /// Change quotas, tiers and counters of single callers.
    Quota,
    /// Change rules and switches.
    Rules,
    /// Change emergencies, kill switches and blocks.
    Emergency,
    /// Read the audit log.
    Audit,
    /// Request decisions on the data plane.
    Check,
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessScopes(u8);

impl AccessScope {
    /// All scopes.
    pub const ALL: [AccessScope; 6] = [
        AccessScope::Read,
        AccessScope::Quota,
        AccessScope::Rules,
        AccessScope::Emergency,
        AccessScope::Audit,
        AccessScope::Check,
    ];

    /// The scopes of the admin API. A caller with all of them may manage tokens.
    pub const ADMIN: [AccessScope; 5] =
        [AccessScope::Read, AccessScope::Quota, AccessScope::Rules, AccessScope::Emergency, AccessScope::Audit];

    /// Parses the name of a scope.
    pub fn parse(word: &str) -> Option<AccessScope> {
        AccessScope::ALL.into_iter().find(|scope| scope.name() == word)
    }

    /// Its name in tokens, settings and the API.
    pub fn name(self) -> &'static str {
        match self {
            AccessScope::Read => "read",
            AccessScope::Quota => "quota",
            AccessScope::Rules => "rules",
            AccessScope::Emergency => "emergency",
            AccessScope::Audit => "audit",
            AccessScope::Check => "check",
        }
    }
}

impl AccessScopes {
    /// All scopes of the admin API.
    pub fn all() -> AccessScopes {
        AccessScope::ADMIN.into_iter().collect()
    }

    /// Whether these include all scopes of the admin API.
    pub fn is_full_admin(self) -> bool {
        AccessScope::ADMIN.into_iter().all(|scope| self.contains(scope))
    }

    /// The union of two sets.
    pub fn union(self, others: AccessScopes) -> AccessScopes {
        AccessScopes(self.0 | others.0)
    }

    pub fn contains(self, scope: AccessScope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }
}

impl FromIterator<AccessScope> for AccessScopes {
    fn from_iter<I: IntoIterator<Item = AccessScope>>(scopes: I) -> AccessScopes {
        AccessScopes(scopes.into_iter().fold(0, |all, scope| all | 1 << scope as u8))
    }
}

impl Principal {
    /// Fails if the caller lacks the scope.
    pub(super) fn require(&self, scope: AccessScope) -> Result<(), ApiProblem> {
        if self.scopes.contains(scope) {
            return Ok(());
        }
        let detail = format!("{} lacks the scope `{}`", self.name, scope.name());
        Err(ApiProblem::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }

    pub fn author(&self) -> Author {
        Author { name: self.name.clone(), from: self.from.clone() }
    }
}
