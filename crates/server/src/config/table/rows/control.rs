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
             to the database and without a copy of its own starts from it",
        ),
    ]
}
