//! The outcome of a decision, and the limit that decided it.

use tollgate::{DecisionEvent, Mode, Source};

/// The outcome of a decision. Where several apply, the most specific one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DecisionOutcome {
    /// Allowed.
    Allow,
    /// Refused by a limit.
    Deny,
    /// Allowed, but a limit in shadow mode would have refused it.
    Shadow,
    /// Allowed beyond a soft limit.
    Soft,
    /// Allowed because too many checks were in flight to ask the store.
    Shed,
    /// Refused because the caller is blocked.
    Blocked,
    /// Allowed because the store could not answer.
    Assumed,
}

/// An outcome, and the limit that decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionResult {
    /// The outcome.
    pub outcome: DecisionOutcome,
    /// The index of the deciding limit in the claim: the one that refused, else one that would have, else the tightest.
    pub decider: Option<usize>,
}

impl DecisionOutcome {
    /// All outcomes, by number.
    pub const ALL: [DecisionOutcome; 7] = [
        DecisionOutcome::Allow,
        DecisionOutcome::Deny,
        DecisionOutcome::Shadow,
        DecisionOutcome::Soft,
        DecisionOutcome::Shed,
        DecisionOutcome::Blocked,
        DecisionOutcome::Assumed,
    ];

    /// Its name in metrics and in the API.
    pub fn name(self) -> &'static str {
        match self {
            DecisionOutcome::Allow => "allow",
            DecisionOutcome::Deny => "deny",
            DecisionOutcome::Shadow => "shadow",
            DecisionOutcome::Soft => "soft",
            DecisionOutcome::Shed => "shed",
            DecisionOutcome::Blocked => "blocked",
            DecisionOutcome::Assumed => "assumed",
        }
    }

    /// Whether the request was refused.
    pub fn is_refusal(self) -> bool {
        matches!(self, DecisionOutcome::Deny | DecisionOutcome::Blocked)
    }
}

impl DecisionResult {
    /// The result of a decision. In `shadow` mode refusals are only reported.
    #[inline]
    pub fn from_event(event: &DecisionEvent<'_, '_>, shadow: bool) -> DecisionResult {
        let verdict = event.verdict;
        if !verdict.allowed {
            let blocked = event.matched.block.is_some_and(|block| block.action.refuses());
            let outcome = match blocked {
                _ if shadow => DecisionOutcome::Shadow,
                true => DecisionOutcome::Blocked,
                false => DecisionOutcome::Deny,
            };
            return DecisionResult { outcome, decider: verdict.denied_by };
        }
        let passed = |mode| {
            let limits = event.matched.applied.iter().zip(&event.settlement.readings);
            limits.into_iter().position(|(applied, reading)| applied.mode == mode && !reading.admits)
        };
        let tightest = || verdict.tightest.or((!event.matched.applied.is_empty()).then_some(0));
        match verdict.source {
            Source::Shed => return DecisionResult { outcome: DecisionOutcome::Shed, decider: tightest() },
            Source::Assumed => return DecisionResult { outcome: DecisionOutcome::Assumed, decider: tightest() },
            Source::Store | Source::Lease | Source::Cache | Source::Summed | Source::Local => {}
        }
        // Nearly all limits have room.
        if event.settlement.readings.iter().all(|reading| reading.admits) {
            return DecisionResult { outcome: DecisionOutcome::Allow, decider: tightest() };
        }
        match (passed(Mode::Shadow), passed(Mode::Soft)) {
            (Some(at), _) => DecisionResult { outcome: DecisionOutcome::Shadow, decider: Some(at) },
            (None, Some(at)) => DecisionResult { outcome: DecisionOutcome::Soft, decider: Some(at) },
            (None, None) => DecisionResult { outcome: DecisionOutcome::Allow, decider: tightest() },
        }
    }
}
