//! Which requests are plain.

use super::head::{PlainEndpoint, PlainHead};

const LINE: &str = "POST /v1/ratelimit/check HTTP/1.1\r\n";

/// The length of the head and of the body, and the names of the headers that are read.
fn parse(request: &str) -> Option<(usize, usize, Vec<String>)> {
    let head = PlainHead::parse(request.as_bytes())?;
    let mut names: Vec<String> = head.headers.keys().map(ToString::to_string).collect();
    names.sort();
    Some((head.bytes, head.body_bytes, names))
}

#[test]
fn plain_requests_are_read() {
    let rows: [(&str, usize, &[&str]); 6] = [
        ("content-length: 2\r\n\r\n{}", 2, &[]),
        ("Host: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}POST", 2, &[]),
        ("Connection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", 0, &[]),
        ("User-Agent: a\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nCONTENT-LENGTH: 2\r\n\r\n{}", 2, &[]),
        ("Idempotency-Key: a\r\nIdempotency-Key: b\r\nContent-Length: 2\r\n\r\n{}", 2, &["idempotency-key"]),
        (
            "Traceparent: 00-a\r\nAuthorization: Bearer x\r\nContent-Length: 2\r\n\r\n{}",
            2,
            &["authorization", "traceparent"],
        ),
    ];
    for (rest, body, names) in rows {
        let request = format!("{LINE}{rest}");
        let head = LINE.len() + rest.find("\r\n\r\n").unwrap() + 4;
        assert_eq!(parse(&request), Some((head, body, names.iter().map(ToString::to_string).collect())), "{rest}");
    }
    for (path, endpoint) in [("check", PlainEndpoint::Check), ("settle", PlainEndpoint::Settle)] {
        let request = format!("POST /v1/ratelimit/{path} HTTP/1.1\r\ncontent-length: 2\r\n\r\n{{}}");
        let head = PlainHead::parse(request.as_bytes()).unwrap();
        assert_eq!((head.endpoint, head.bytes, head.body_bytes), (endpoint, request.len() - 2, 2));
    }
}

#[test]
fn what_is_not_certain_is_not_plain() {
    let rows = [
        "",
        "content-length: 2\r\n\r\n{",
        "content-length: 2\r\n",
        "\r\n{}",
        "content-length: 2\r\ncontent-length: 2\r\n\r\n{}",
        "content-length: 2\r\ncontent-length: 3\r\n\r\n{}}",
        "content-length: 2, 2\r\n\r\n{}",
        "content-length: +2\r\n\r\n{}",
        "content-length: 0x2\r\n\r\n{}",
        "content-length:\r\n\r\n{}",
        "content-length: 9999999\r\n\r\n{}",
        "content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
        "transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "content-length: 2\r\ntransfer-encoding : chunked\r\n\r\n{}",
        "content-length: 2\r\nexpect: 100-continue\r\n\r\n{}",
        "content-length: 2\r\nupgrade: h2c\r\n\r\n{}",
        "content-length: 2\r\nconnection: close\r\n\r\n{}",
        "content-length: 2\r\nconnection: keep-alive, upgrade\r\n\r\n{}",
        "content-length: 2\r\norigin: http://a.example\r\n\r\n{}",
        "content-length: 2\r\nbad name: x\r\n\r\n{}",
        "content-length: 2\r\nfolded: a\r\n b\r\n\r\n{}",
        "content-length: 2\r\nx: a\0b\r\n\r\n{}",
    ];
    for rest in rows {
        assert_eq!(parse(&format!("{LINE}{rest}")), None, "{rest:?}");
    }
    for line in [
        "post /v1/ratelimit/check HTTP/1.1\r\n",
        "POST /v1/ratelimit/check HTTP/1.0\r\n",
        "POST /v1/ratelimit/check?x HTTP/1.1\r\n",
        "POST /v1/ratelimit/settle/ HTTP/1.1\r\n",
        "POST /v1/ratelimit/authorize HTTP/1.1\r\n",
        "POST  /v1/ratelimit/check HTTP/1.1\r\n",
        "POST /v1/ratelimit/check HTTP/1.1\n",
        " POST /v1/ratelimit/check HTTP/1.1\r\n",
    ] {
        assert_eq!(parse(&format!("{line}content-length: 2\r\n\r\n{{}}")), None, "{line:?}");
    }
    let many: String = (0..30).map(|number| format!("x-{number}: a\r\n")).collect();
    assert_eq!(parse(&format!("{LINE}{many}content-length: 2\r\n\r\n{{}}")), None);
}
