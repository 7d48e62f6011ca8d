//! How a decision came out, in one word, and which of its limits decided it.

use tollgate::{Mode, Seen, Source};
use tollgate_rules::tenants::BlockedAs;

/// How a decision came out. Each has one ruling: of several that would fit, the one that is most to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ruling {
    /// It passed.
    Allow,
    /// It was refused by a limit.
    Deny,
    /// It passed, and a limit that is only tried would have refused it.
    Shadow,
    /// It passed, beyond a soft limit.
    Soft,
    /// It passed, since there were too many checks at once to ask the store.
    Shed,
    /// It was refused, since the caller is blocked.
    Blocked,
    /// It passed, since the store could not answer.
    Assumed,
}

/// A ruling, and the limit behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruled {
    /// How it came out.
    pub ruling: Ruling,
    /// The place in the claim of the limit that decided it: the one that refused, else one that would have, else the tightest.
    pub decider: Option<usize>,
}

impl Ruling {
    /// All of them, by their numbers.
    pub const ALL: [Ruling; 7] =
        [Ruling::Allow, Ruling::Deny, Ruling::Shadow, Ruling::Soft, Ruling::Shed, Ruling::Blocked, Ruling::Assumed];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Ruling::Allow => "allow",
            Ruling::Deny => "deny",
            Ruling::Shadow => "shadow",
            Ruling::Soft => "soft",
            Ruling::Shed => "shed",
            Ruling::Blocked => "blocked",
            Ruling::Assumed => "assumed",
        }
    }

    /// Whether the request was refused.
    pub fn is_refusal(self) -> bool {
        matches!(self, Ruling::Deny | Ruling::Blocked)
    }
}

impl Ruled {
    /// How a decision came out, where refusals are only told if `shadow`.
    pub fn of(seen: &Seen<'_, '_>, shadow: bool) -> Ruled {
        let verdict = seen.verdict;
        if !verdict.allowed {
            let blocked = seen.matched.block.is_some_and(|block| block.told != BlockedAs::Marked);
            let ruling = match blocked {
                _ if shadow => Ruling::Shadow,
                true => Ruling::Blocked,
                false => Ruling::Deny,
            };
            return Ruled { ruling, decider: verdict.denied_by };
        }
        let passed = |mode| {
            let limits = seen.matched.applied.iter().zip(&seen.settlement.readings);
            limits.into_iter().position(|(applied, reading)| applied.mode == mode && !reading.admits)
        };
        let usual = || verdict.tightest.or((!seen.matched.applied.is_empty()).then_some(0));
        match verdict.source {
            Source::Shed => return Ruled { ruling: Ruling::Shed, decider: usual() },
            Source::Assumed => return Ruled { ruling: Ruling::Assumed, decider: usual() },
            Source::Store | Source::Cache | Source::Local => {}
        }
        // Nearly all limits have room.
        if seen.settlement.readings.iter().all(|reading| reading.admits) {
            return Ruled { ruling: Ruling::Allow, decider: usual() };
        }
        match (passed(Mode::Shadow), passed(Mode::Soft)) {
            (Some(at), _) => Ruled { ruling: Ruling::Shadow, decider: Some(at) },
            (None, Some(at)) => Ruled { ruling: Ruling::Soft, decider: Some(at) },
            (None, None) => Ruled { ruling: Ruling::Allow, decider: usual() },
        }
    }
}
