//! Events.

use super::{Setting, SettingKind, row, time};

pub(super) fn rows() -> Vec<Setting> {
    const GROUP: &str = "Events";
    vec![
        row(
            GROUP,
            "events",
            SettingKind::Path,
            "none",
            "The file of the webhooks that events are sent to, read again when it changes; none: events are only in the data directory",
        ),
        row(
            GROUP,
            "events_size",
            SettingKind::Size { min: 64 << 10, max: 16 << 30 },
            "16MiB",
            "The maximum size of events in the data directory, those that wait to be sent included",
        ),
        row(
            GROUP,
            "events_keep",
            time(60_000, 366 * 86_400_000),
            "7d",
            "How long events are retained in the data directory",
        ),
    ]
}
