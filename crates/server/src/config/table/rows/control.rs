//! The store of record, and who may write to it.

use super::{Kind, Secret, Setting, row};

pub(super) fn rows() -> Vec<Setting> {
    const GROUP: &str = "Control plane";
    vec![
        Setting {
            secret: Secret::Password,
            ..row(
                GROUP,
                "control",
                Kind::Control,
                "auto",
                "Where tenants, quotas and rules by API are kept: postgres://… for a fleet, sqlite:PATH for one server, or off; auto is \
                 control.db in the data directory, and off without one",
            )
        },
        row(
            GROUP,
            "control_snapshots",
            Kind::Path,
            "none",
            "A directory that servers share: a snapshot of the store of record is written to it every 60 s, and a server that finds \
             neither the database nor its own copy starts from it",
        ),
    ]
}
