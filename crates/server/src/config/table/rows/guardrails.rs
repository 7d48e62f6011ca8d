//! When writes by API are held.

use super::super::GUARDED_FILES;
use super::{Setting, SettingKind, row};

pub(super) fn rows() -> Vec<Setting> {
    const GROUP: &str = "Guardrails";
    vec![
        row(
            GROUP,
            "guardrails",
            SettingKind::Switch,
            "true",
            "Try writes of rules, quotas and switches by API on recent traffic, and hold those that would refuse much until they are \
             confirmed",
        ),
        row(
            GROUP,
            "guardrail_confirm",
            SettingKind::Percent { off: false },
            "5%",
            "The share of newly refused requests above which a write needs a confirmation",
        ),
        row(
            GROUP,
            "guardrail_paid",
            SettingKind::Percent { off: false },
            "50%",
            "The same, of the requests of one caller in a paid tier",
        ),
        row(
            GROUP,
            "guardrail_approve",
            SettingKind::Percent { off: false },
            "50%",
            "The share of newly refused requests above which a write needs the approval of a second identity",
        ),
        row(
            GROUP,
            "guardrail_requests",
            SettingKind::Number { min: 1, max: 1_000_000 },
            "20",
            "With fewer recorded requests in the last 15 minutes nothing is known, and writes are made",
        ),
        row(
            GROUP,
            "guardrail_files",
            SettingKind::Word(GUARDED_FILES),
            "warn",
            "What happens to changed rule files that exceed the same shares: they are put in force with a warning, held until they change \
             or are released, or not judged",
        ),
    ]
}
