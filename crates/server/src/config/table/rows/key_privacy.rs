//! Private values.

use super::super::KEY_PRIVACY;
use super::{Setting, SettingKind, row};

pub(super) fn rows() -> Vec<Setting> {
    const GROUP: &str = "Private values";
    vec![
        row(
            GROUP,
            "key_privacy",
            SettingKind::Word(KEY_PRIVACY),
            "auto",
            "How API keys and other private values appear in the names of counters in Redis and in the decision log: hashed or \
             clear; auto hashes, but keeps names in Redis as the fleet has them. A change starts new counters",
        ),
        row(
            GROUP,
            "key_secret_file",
            SettingKind::Path,
            "none",
            "The file with the secrets of these hashes, one per line, at most 8 of at least 16 bytes: the first hashes, all find \
             entries of the log; none uses one that is agreed on in Redis and stored in the data directory",
        ),
    ]
}
