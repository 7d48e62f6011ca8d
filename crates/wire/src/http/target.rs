//! The attributes that describe the target of a request: `path`, `method` and `endpoint`.

use std::borrow::Cow;

use tollgate_http::request_target::PathNormalization;

/// The value of an attribute in its one spelling, if it has another one.
pub(super) fn normalize(name: &str, value: &[u8], normalization: PathNormalization) -> Option<Vec<u8>> {
    let normal = match name {
        "path" => normalization.path(value),
        "method" => normalization.method(value),
        "endpoint" => normalization.endpoint(value),
        _ => return None,
    };
    match normal {
        Cow::Borrowed(same) if same.len() == value.len() => None,
        normal => Some(normal.into_owned()),
    }
}
