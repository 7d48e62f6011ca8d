//! Rules that shed load: they protect the service, so they must never refuse because something failed.

use tollgate_core::OnFailure;

use crate::load::reader::{Fields, FileReader};
use crate::model::Policy;

/// `shed: true`, and the lines of keys that don't fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shed {
    headers_line: Option<usize>,
    policy_line: Option<usize>,
    on_failure_line: Option<usize>,
}

impl Shed {
    /// `None` if the rule does not shed.
    pub(super) fn read(reader: &mut FileReader<'_>, fields: &Fields<'_>) -> Option<Shed> {
        let line = |key| fields.get(key).map(|value| value.line);
        let sheds = fields.get("shed").and_then(|value| reader.boolean(value, "shed"))?;
        sheds.then(|| Shed {
            headers_line: line("headers"),
            policy_line: line("policy"),
            on_failure_line: line("on_failure"),
        })
    }

    /// Whether the rule's other keys fit. Each that does not is reported.
    pub(super) fn is_possible(
        self,
        policy: Option<Policy>,
        on_failure: Option<OnFailure>,
        reader: &mut FileReader<'_>,
    ) -> bool {
        const FAILS_CLOSED: &str = "a rule with `shed` can't refuse requests because the store does not answer";
        let other_policy = policy.is_some_and(|policy| policy != Policy::Comfort);
        let problems = [
            (self.headers_line, "`headers` has no effect with `shed`: clients see no numbers of the rule", "remove it"),
            (self.policy_line.filter(|_| other_policy), FAILS_CLOSED, "remove `policy`: the rule's is comfort"),
            (
                self.on_failure_line.filter(|_| on_failure == Some(OnFailure::Deny)),
                FAILS_CLOSED,
                "write `on_failure: allow`, or remove it",
            ),
        ];
        let mut is_possible = true;
        for (line, message, remedy) in problems {
            if let Some(line) = line {
                reader.error(line, message, remedy);
                is_possible = false;
            }
        }
        is_possible
    }
}
