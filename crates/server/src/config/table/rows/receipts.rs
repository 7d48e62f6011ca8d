//! Receipts, and requests that are decided once.

use super::{Kind, Secret, Setting, row, time};

pub(super) fn rows() -> Vec<Setting> {
    const GROUP: &str = "Receipts and idempotency";
    const MONTH: u64 = 30 * 86_400_000;
    vec![
        Setting {
            secret: Secret::Everything,
            ..row(
                GROUP,
                "receipt_keys",
                Kind::Texts,
                "none",
                "Secrets of the fleet, at most 8 of at least 16 bytes: the first signs receipts, all verify them; none makes one \
                 that is kept with the counters",
            )
        },
        row(GROUP, "receipt_keys_file", Kind::Path, "none", "The file that has these secrets, one in a line"),
        row(
            GROUP,
            "idempotency_ttl",
            time(1_000, MONTH),
            "24h",
            "How long the answer to a request with an idempotency key is kept; a refusal no longer than its wait",
        ),
        row(
            GROUP,
            "idempotency_max",
            Kind::Number { least: 1, most: 10_000_000_000 },
            "1000000",
            "The most such answers in memory, endings of receipts among them; past it the oldest go",
        ),
    ]
}
