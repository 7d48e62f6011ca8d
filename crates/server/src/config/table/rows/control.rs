//! The store of record.

use super::{Secrecy, Setting, SettingKind, row};

pub(super) fn rows() -> Vec<Setting> {
    const GROUP: &str = "Control plane";
    vec![
        Setting {
            secret: Secrecy::Password,
            ..row(
                GROUP,
                "control",
                SettingKind::Control,
                "auto",
                "Where tenants, quotas and rules by API are stored: postgres://… for a fleet, sqlite:PATH for one server, or off; auto is \
                 control.db in the data directory, and off without one",
            )
        },
        row(
            GROUP,
            "control_snapshots",
            SettingKind::Path,
            "none",
            "A directory that servers share: a snapshot of the store of record is written to it every 60 s, and a server without access \
             to the database and without a copy of its own starts from it; it is created if it is missing",
        ),
        row(
            GROUP,
            "control_required",
            SettingKind::Switch,
            "false",
            "Be ready only when a state of the store of record is known: from the database, from this server's copy or from a snapshot; \
             otherwise a server that has none of them serves with the rule files alone",
        ),
    ]
}
