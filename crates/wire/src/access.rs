//! Access to the data plane.

use std::fmt::Debug;

use ::http::HeaderMap;

/// Decides who may use the data plane where it requires tokens.
pub trait AccessControl: Debug + Send + Sync {
    /// Whether the headers of a request show a token that may check, as `X-Tollgate-Token` or `Authorization: Bearer`.
    fn may_check(&self, headers: &HeaderMap) -> bool;

    /// As [`may_check`](AccessControl::may_check), for a request whose `Authorization` is meant for the application: only
    /// `X-Tollgate-Token` counts.
    fn may_check_by_own_header(&self, headers: &HeaderMap) -> bool;
}
