//! Access control.

use super::super::DATA_AUTH;
use super::{Setting, SettingKind, row};

pub(super) fn rows() -> Vec<Setting> {
    const GROUP: &str = "Access control";
    vec![
        row(
            GROUP,
            "admin_token_file",
            SettingKind::Path,
            "none",
            "The file with a token that has every scope of the admin API, at least 16 bytes, and nothing else; it is watched",
        ),
        row(
            GROUP,
            "admin_identities",
            SettingKind::Texts,
            "none",
            "Scopes on the admin API for names in client certificates: NAME=all, or NAME=SCOPE+SCOPE of read, quota, rules, \
             emergency, audit",
        ),
        row(
            GROUP,
            "http_auth",
            SettingKind::Word(DATA_AUTH),
            "off",
            "Whether checks over HTTP need a token with the scope check; health stays open",
        ),
        row(
            GROUP,
            "grpc_auth",
            SettingKind::Word(DATA_AUTH),
            "off",
            "Whether checks over gRPC need a token with the scope check; health stays open",
        ),
    ]
}
