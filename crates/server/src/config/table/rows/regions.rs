//! Regions.

use super::{Secrecy, Setting, SettingKind, row, time};

pub(super) fn rows() -> Vec<Setting> {
    const GROUP: &str = "Regions";
    vec![
        row(
            GROUP,
            "region",
            SettingKind::Text,
            "none",
            "The region of this server: for rules with `region`, in the decision log and on the dashboard",
        ),
        Setting {
            secret: Secrecy::Password,
            ..row(
                GROUP,
                "regions",
                SettingKind::Regions,
                "none",
                "The Redis of each other region; this region may be among them, and is ignored",
            )
        },
        row(GROUP, "region_user", SettingKind::Text, "none", "The user name for the Redis of other regions"),
        Setting {
            secret: Secrecy::Everything,
            ..row(
                GROUP,
                "region_password",
                SettingKind::Text,
                "none",
                "The password for the Redis of other regions; a file keeps it out of `ps`",
            )
        },
        row(
            GROUP,
            "region_password_file",
            SettingKind::Path,
            "none",
            "The file with the password for the Redis of other regions, and nothing else",
        ),
        row(
            GROUP,
            "region_ca",
            SettingKind::Path,
            "none",
            "The CAs of the Redis of other regions, in PEM; none uses those of the system",
        ),
        row(
            GROUP,
            "region_cert",
            SettingKind::Path,
            "none",
            "The client certificate for the Redis of other regions, in PEM",
        ),
        row(GROUP, "region_key", SettingKind::Path, "none", "The private key of that certificate, in PEM"),
        row(
            GROUP,
            "region_deadline",
            time(1, 1_000),
            "50ms",
            "How long a check waits for the Redis of another region; less if its caller's timeout is shorter",
        ),
        row(
            GROUP,
            "region_beat",
            time(10, 300),
            "100ms",
            "How often units of rules with `region: global` are debited in other regions",
        ),
        row(
            GROUP,
            "region_share_interval",
            time(500, 3_600_000),
            "30s",
            "How often shares of rules with `region: {split: moving}` may change",
        ),
    ]
}
