//! Tests of fields of a connection.

use http::Request;

use super::*;

/// A request head from lines such as `name: value`.
fn headers(lines: &str) -> HeaderMap {
    let fields = lines.lines().map(|line| line.trim().split_once(": ").unwrap());
    let parsed = fields.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()));
    let mut headers = HeaderMap::new();
    for (name, value) in parsed {
        headers.append(name, value);
    }
    headers
}

fn lines(headers: &HeaderMap) -> String {
    let mut lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines.join("\n")
}

fn cleaned(given: &str, is_websocket: bool) -> String {
    let mut headers = headers(given);
    let marks = FieldMarks::of(&headers);
    clean_request(&mut headers, marks, is_websocket);
    lines(&headers)
}

#[test]
fn fields_of_the_connection_are_removed() {
    for (given, expected) in [
        ("accept: */*\nhost: a", "accept: */*\nhost: a"),
        ("connection: keep-alive\nkeep-alive: timeout=5\nhost: a", "host: a"),
        ("connection: X-Secret, close\nconnection: x-other\nx-secret: 1\nx-other: 2\nx-third: 3", "x-third: 3"),
        ("connection: x-twice\nx-twice: 1\nx-twice: 2", ""),
        ("connection: ,, no field ,x\nhost: a", "host: a"),
        ("proxy: h\nproxy-connection: a\nproxy-authorization: b\nproxy-authenticate: c\nhost: a", "host: a"),
        ("proxy-client-ip: a\nproxy-support: b\nProxy_Authorization: c\nproxyx: d\npragma: e", "pragma: e\nproxyx: d"),
        ("transfer-encoding: chunked\ntrailer: x\ncontent-type: text/plain", "content-type: text/plain"),
        ("upgrade: h2c\nhttp2-settings: x\nconnection: Upgrade, HTTP2-Settings", ""),
        ("te: trailers", "te: trailers"),
        ("te: gzip;q=0.5, Trailers\nconnection: TE", "te: trailers"),
        ("te: gzip\nconnection: te", ""),
        ("expect: 100-continue\nhost: a", "host: a"),
        ("x-tollgate-caller: root\nX-Tollgate-Anything: 1\nx-tollgate: 2", "x-tollgate: 2"),
        ("X_Tollgate_Caller: root\nx-tollgate_tier: 1\nx_tollgate: 2", "x_tollgate: 2"),
    ] {
        assert_eq!(cleaned(given, false), expected, "{given}");
    }
}

#[test]
fn fields_for_the_recipient_can_not_be_named() {
    let fields = "authorization: b\ncontent-length: 2\ncontent-type: c\ncookie: d\nforwarded: for=e\nhost: a\n\
                  traceparent: f\nx-forwarded-for: 10.0.0.1\nx-forwarded-proto: https\nx-real-ip: 10.0.0.1\nx-request-id: g";
    for name in fields.lines().filter_map(|line| line.split(':').next()) {
        assert_eq!(cleaned(&format!("connection: {name}\n{fields}"), false), fields, "{name}");
    }
}

#[test]
fn an_ordinary_request_is_cleaned_without_allocating() {
    let mut given = headers("host: a\naccept: */*\nx-api-key: k\nconnection: keep-alive");
    let marks = FieldMarks::of(&given);
    assert_eq!(allocation_counter::measure(|| clean_request(&mut given, marks, false)).count_total, 0);
    assert_eq!(lines(&given), "accept: */*\nhost: a\nx-api-key: k");
}

#[test]
fn responses_lose_theirs() {
    let mut response = headers("connection: x-a\nx-a: 1\nkeep-alive: timeout=5\nset-cookie: a\nx-tollgate-cost: 7");
    clean_response(&mut response, false);
    assert_eq!(lines(&response), "set-cookie: a\nx-tollgate-cost: 7");
}

#[test]
fn only_websockets_are_upgraded() {
    let is = |method: &str, version, fields: &str| {
        let mut request = Request::builder().method(method).version(version).body(()).unwrap();
        *request.headers_mut() = headers(fields);
        let marks = FieldMarks::of(request.headers());
        is_websocket(&request.into_parts().0, marks)
    };
    let both = "upgrade: WebSocket\nconnection: keep-alive, Upgrade";
    assert!(is("GET", Version::HTTP_11, both));
    assert!(!is("POST", Version::HTTP_11, both));
    assert!(!is("GET", Version::HTTP_10, both));
    assert!(!is("GET", Version::HTTP_2, both));
    assert!(!is("GET", Version::HTTP_11, "upgrade: websocket"));
    assert!(!is("GET", Version::HTTP_11, "upgrade: h2c\nconnection: upgrade"));
    assert!(!is("GET", Version::HTTP_11, "connection: upgrade"));
    assert_eq!(
        cleaned(&format!("{both}\nsec-websocket-key: k\nx-a: 1"), true),
        "connection: upgrade\nsec-websocket-key: k\nupgrade: websocket\nx-a: 1"
    );
}
