//! Tests of what is read from servers. Connections are tested with real servers in `tests/it`.

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use proptest::prelude::*;

use super::head::{RequestLength, ResponseHead, ResponseLength, parse, write};
use crate::http1::{ChunkEvent, ChunkReader};
use crate::upstream::sender::RequestHead;

fn response(text: &str, method: &Method) -> Result<Option<ResponseHead>, &'static str> {
    parse(&mut BytesMut::from(text), method)
}

fn get(text: &str) -> Result<Option<ResponseHead>, &'static str> {
    response(text, &Method::GET)
}

/// The length of the body and whether the connection can be used again, of a response to GET.
fn framing(fields: &str) -> Result<(ResponseLength, bool), &'static str> {
    framing_of("HTTP/1.1 200 OK", fields, &Method::GET)
}

fn framing_of(line: &str, fields: &str, method: &Method) -> Result<(ResponseLength, bool), &'static str> {
    let head = response(&format!("{line}\r\n{fields}\r\n"), method)?.expect("a head that is complete");
    Ok((head.length, head.is_persistent))
}

#[test]
fn takes_the_head_and_leaves_the_body() {
    let mut input = BytesMut::from("HTTP/1.1 201 Created\r\nContent-Length: 5\r\nX-A: 1\r\nx-a: \u{e4}\r\n\r\nhello");
    let head = parse(&mut input, &Method::POST).expect("a sound head").expect("a head that is complete");
    assert_eq!(head.status, 201);
    assert_eq!(head.length, ResponseLength::Known(5));
    let values: Vec<&[u8]> = head.headers.get_all("x-a").iter().map(HeaderValue::as_bytes).collect();
    assert_eq!(values, [b"1".as_slice(), "\u{e4}".as_bytes()]);
    assert_eq!(&input[..], b"hello");
}

#[test]
fn waits_for_the_rest_of_a_head() {
    let whole = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    for end in 0..whole.len() {
        assert!(get(&whole[..end]).expect("the beginning of a sound head").is_none(), "{end}");
    }
    assert!(get(whole).expect("a sound head").is_some());
}

#[test]
fn finds_the_length_of_bodies() {
    assert_eq!(framing("content-length: 7\r\n"), Ok((ResponseLength::Known(7), true)));
    assert_eq!(framing("content-length: 7\r\ncontent-length: 7\r\n"), Ok((ResponseLength::Known(7), true)));
    assert_eq!(framing("Transfer-Encoding: Chunked\r\n"), Ok((ResponseLength::Chunked, true)));
    assert_eq!(framing(""), Ok((ResponseLength::Close, false)));
    let none = Ok((ResponseLength::Known(0), true));
    assert_eq!(framing_of("HTTP/1.1 200 OK", "content-length: 7\r\n", &Method::HEAD), none);
    assert_eq!(framing_of("HTTP/1.1 204 No Content", "", &Method::GET), none);
    assert_eq!(framing_of("HTTP/1.1 304 Not Modified", "content-length: 7\r\n", &Method::GET), none);
    let upgrade = framing_of("HTTP/1.1 101 Switching Protocols", "upgrade: websocket\r\n", &Method::GET);
    assert_eq!(upgrade, Ok((ResponseLength::Upgrade, false)));
}

#[test]
fn closes_connections_that_the_server_closes() {
    assert_eq!(framing("content-length: 7\r\nconnection: X, Close\r\n"), Ok((ResponseLength::Known(7), false)));
    let old = |fields| framing_of("HTTP/1.0 200 OK", fields, &Method::GET);
    assert_eq!(old("content-length: 7\r\n"), Ok((ResponseLength::Known(7), false)));
    assert_eq!(old("content-length: 7\r\nconnection: keep-alive\r\n"), Ok((ResponseLength::Known(7), true)));
}

#[test]
fn refuses_responses_that_could_be_read_in_two_ways() {
    for fields in [
        "content-length: 7\r\ncontent-length: 8\r\n",
        "content-length: 7, 7\r\n",
        "content-length: +7\r\n",
        "content-length: -7\r\n",
        "content-length:\r\n",
        "content-length: 0x7\r\n",
        "content-length: 99999999999999999999\r\n",
        "content-length: 7\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: identity\r\n",
        "x : 1\r\n",
        "x: 1\r\n y\r\n",
        "x\r\n",
        "x: a\0b\r\n",
    ] {
        assert!(framing(fields).is_err(), "{fields:?}");
    }
    assert!(framing_of("HTTP/1.0 200 OK", "transfer-encoding: chunked\r\n", &Method::GET).is_err());
    for text in ["HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "SSH-2.0-OpenSSH\r\n", "\0"] {
        assert!(get(text).is_err(), "{text:?}");
    }
    let many = "x: 1\r\n".repeat(101);
    assert!(framing(&many).is_err());
}

/// All that a reader finds, if its input arrives in these parts.
fn read(parts: &[&[u8]]) -> Result<(Vec<u8>, Option<HeaderMap>, BytesMut), &'static str> {
    let (mut input, mut reader, mut body, mut parts) = (BytesMut::new(), ChunkReader::Size, Vec::new(), parts.iter());
    loop {
        match reader.next(&mut input)? {
            ChunkEvent::Data(data) => body.extend_from_slice(&data),
            ChunkEvent::Trailers(trailers) => return Ok((body, Some(trailers), input)),
            ChunkEvent::End => return Ok((body, None, input)),
            ChunkEvent::Incomplete => input.extend_from_slice(parts.next().ok_or("it ends in the middle")?),
        }
    }
}

#[test]
fn reads_chunks_split_at_every_byte() {
    let whole = b"5\r\nhello\r\n1;a=b\r\n \r\nA\r\n0123456789\r\n0\r\nX-Sum: 7\r\n\r\nnext";
    for at in 0..whole.len() {
        let (body, trailers, rest) = read(&[&whole[..at], &whole[at..]]).expect("a sound body");
        assert_eq!(body, b"hello 0123456789", "{at}");
        assert_eq!(trailers.expect("trailers")["x-sum"], "7");
        assert!(b"next".starts_with(&rest), "{at}: {rest:?}");
    }
}

#[test]
fn refuses_broken_chunks() {
    for text in [
        "5\r\nhello!\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5\nhello\n0\n\n",
        "11111111111111111\r\n",
        "0\r\nno trailer\r\n\r\n",
    ] {
        assert!(read(&[text.as_bytes()]).is_err(), "{text:?}");
    }
    let long = format!("5;{}", "a".repeat(5_000));
    assert_eq!(read(&[long.as_bytes()]), Err("a chunk's length is too long"));
    let trailers = format!("0\r\n{}", "a: b\r\n".repeat(40).repeat(100));
    assert!(read(&[trailers.as_bytes()]).is_err());
}

#[test]
fn writes_heads_with_one_length() {
    let mut headers = HeaderMap::new();
    for (name, value) in
        [("host", "other"), ("content-length", "9"), ("transfer-encoding", "chunked"), ("x-a", "1"), ("x-a", "2")]
    {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let head = RequestHead {
        method: Method::POST,
        target: Uri::from_static("/a?b=c"),
        authority: HeaderValue::from_static("api:8080"),
        headers,
        is_tls: false,
        interim: None,
    };
    let written = |length| {
        let mut output = Vec::new();
        write(&head, length, &mut output);
        String::from_utf8(output).expect("text")
    };
    let begin = "POST /a?b=c HTTP/1.1\r\nhost: api:8080\r\nx-a: 1\r\nx-a: 2\r\n";
    assert_eq!(written(RequestLength::None), format!("{begin}\r\n"));
    assert_eq!(written(RequestLength::Known(12)), format!("{begin}content-length: 12\r\n\r\n"));
    assert_eq!(written(RequestLength::Chunked), format!("{begin}transfer-encoding: chunked\r\n\r\n"));
}

proptest! {
    #[test]
    fn any_bytes_are_a_head_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut input = BytesMut::from(&bytes[..]);
        let _ = parse(&mut input, &Method::GET);
        let mut input = BytesMut::from([b"HTTP/1.1 200 OK\r\n", &bytes[..], b"\r\n\r\n"].concat().as_slice());
        let _ = parse(&mut input, &Method::GET);
    }

    #[test]
    fn any_bytes_are_chunks_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&[&bytes]);
    }

    #[test]
    fn chunks_of_any_size_are_read(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..600), 0..8),
        parts in 1_usize..100,
    ) {
        let mut text = Vec::new();
        for chunk in &chunks {
            text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            text.extend_from_slice(chunk);
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"0\r\n\r\n");
        let parts: Vec<&[u8]> = text.chunks(parts).collect();
        let (body, trailers, rest) = read(&parts).expect("a sound body");
        prop_assert_eq!(body, chunks.concat());
        prop_assert!(trailers.is_none() && rest.is_empty());
    }
}
