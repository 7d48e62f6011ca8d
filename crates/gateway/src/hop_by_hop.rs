//! Fields that are for one connection only, and are not forwarded (RFC 9110 7.6.1).

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE,
    HOST, SET_COOKIE, TE, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use smallvec::SmallVec;

use crate::field_marks::FieldMarks;
use crate::field_names::{is_left_out, is_of_connection, is_of_proxies, is_own};

/// Fields that `Connection` can't remove. RFC 9110 7.6.1 lets a proxy remove every field that is named there, and forbids
/// senders to name what is for the final recipient. One that names these would have the upstream see another request than
/// the one that was checked: without its credentials, its framing, or the address of the client, which a proxy before the
/// gateway may have added. So these names have no effect.
const FOR_RECIPIENTS: [HeaderName; 11] = [
    HOST,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    CONTENT_RANGE,
    AUTHORIZATION,
    COOKIE,
    SET_COOKIE,
    CACHE_CONTROL,
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("traceparent"),
];

/// Whether a request is to become a WebSocket: `GET` of HTTP/1.1 with `Upgrade: websocket` and `Connection: upgrade`. Other
/// upgrades, such as `h2c`, are not forwarded.
pub fn is_websocket(parts: &Parts, marks: FieldMarks) -> bool {
    marks.has(FieldMarks::UPGRADE)
        && parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && options(&parts.headers, UPGRADE).any(|protocol| protocol.eq_ignore_ascii_case("websocket"))
        && options(&parts.headers, CONNECTION).any(|option| option.eq_ignore_ascii_case("upgrade"))
}

/// Removes from a request with fields of these kinds what is not forwarded: the fields of its connection, and fields that only the
/// gateway may send. Those of an upgrade to a WebSocket stay.
pub fn clean_request(headers: &mut HeaderMap, marks: FieldMarks, is_websocket: bool) {
    if !marks.has(FieldMarks::LEFT_OUT) {
        return;
    }
    // Of `TE` only `trailers` concerns the upstream, whose trailers are forwarded; gRPC requires it.
    let has_trailers = options(headers, TE).any(|option| option.eq_ignore_ascii_case("trailers"));
    clean(headers, is_websocket, is_left_out);
    if has_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Removes from the trailers of a request what only the gateway or a proxy may say. Servers may merge trailers with headers.
pub fn clean_trailers(trailers: &mut HeaderMap) {
    let is_foreign = |name: &&HeaderName| is_for_recipients(name) || is_of_connection(name) || is_own(name);
    let removed: SmallVec<[HeaderName; 4]> = trailers.keys().filter(is_foreign).cloned().collect();
    for name in removed {
        trailers.remove(name);
    }
}

/// Removes the fields of its connection from a response. Those of a connection that became a WebSocket stay.
pub fn clean_response(headers: &mut HeaderMap, is_websocket: bool) {
    clean(headers, is_websocket, is_of_connection);
}

/// Removes the fields that are left out, and those that `Connection` names.
fn clean(headers: &mut HeaderMap, is_websocket: bool, is_left_out: impl Fn(&HeaderName) -> bool) {
    // Most options, such as `keep-alive`, name no field that is there.
    let named: SmallVec<[HeaderName; 4]> = options(headers, CONNECTION)
        .filter(|option| headers.contains_key(*option))
        .filter_map(|option| option.parse::<HeaderName>().ok())
        .filter(|name| !is_for_recipients(name))
        .collect();
    // Looking at the few fields that are there is cheaper than looking for each one that may be.
    let is_removed = |name: &&HeaderName| is_left_out(name) || named.contains(name);
    let removed: SmallVec<[HeaderName; 4]> = headers.keys().filter(is_removed).cloned().collect();
    for name in removed {
        headers.remove(name);
    }
    if is_websocket {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
}

fn is_for_recipients(name: &HeaderName) -> bool {
    FOR_RECIPIENTS.contains(name) || is_of_proxies(name)
}

/// The members of a list, from all fields of a name.
fn options(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let texts = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim).filter(|option| !option.is_empty())
}

#[cfg(test)]
mod tests;
