//! Who may ask.

use super::super::DATA_AUTH;
use super::{Kind, Setting, row};

pub(super) fn rows() -> Vec<Setting> {
    const GROUP: &str = "Who may";
    vec![
        row(
            GROUP,
            "admin_token_file",
            Kind::Path,
            "none",
            "The file that has a token with every scope of the admin API, at least 16 bytes, and nothing else; it is followed",
        ),
        row(
            GROUP,
            "admin_identities",
            Kind::Texts,
            "none",
            "What names in clients' certificates may on the admin API: NAME=all, or NAME=SCOPE+SCOPE of read, quota, rules, \
             emergency, audit",
        ),
        row(
            GROUP,
            "http_auth",
            Kind::Word(DATA_AUTH),
            "off",
            "Whether checks over HTTP need a token with the scope check; health stays open",
        ),
        row(
            GROUP,
            "grpc_auth",
            Kind::Word(DATA_AUTH),
            "off",
            "Whether checks over gRPC need a token with the scope check; health stays open",
        ),
    ]
}
