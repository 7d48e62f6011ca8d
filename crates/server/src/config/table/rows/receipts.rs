//! Receipts and idempotency keys.

use super::{Secrecy, Setting, SettingKind, row, time};

pub(super) fn rows() -> Vec<Setting> {
    const GROUP: &str = "Receipts and idempotency";
    const MONTH: u64 = 30 * 86_400_000;
    vec![
        Setting {
            secret: Secrecy::Everything,
            ..row(
                GROUP,
                "receipt_keys",
                SettingKind::Texts,
                "none",
                "Secrets of the fleet, at most 8 of at least 16 bytes: the first signs receipts, all verify them; none generates one \
                 that is stored with the counters",
            )
        },
        row(GROUP, "receipt_keys_file", SettingKind::Path, "none", "The file with these secrets, one per line"),
        row(
            GROUP,
            "idempotency_ttl",
            time(1_000, MONTH),
            "24h",
            "How long the response to an allowed request with an idempotency key is stored",
        ),
        row(
            GROUP,
            "idempotency_max",
            SettingKind::Number { min: 1, max: 10_000_000_000 },
            "1000000",
            "The maximum number of such responses in memory, including settled receipts; beyond it those that expire first are evicted",
        ),
        row(
            GROUP,
            "idempotency_max_per_caller",
            SettingKind::Number { min: 1, max: 10_000_000_000 },
            "10000",
            "The maximum number of such responses of one caller in memory, and at most 1/32 of all; beyond it the caller's own are \
             evicted",
        ),
    ]
}
