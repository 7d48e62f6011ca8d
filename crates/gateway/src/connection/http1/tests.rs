//! Tests of what is read from clients. Connections are tested with real clients in `tests/it`.

use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Version};
use proptest::prelude::*;

use super::head::{RequestError, RequestHead, parse};
use crate::http1::{BodyRest, BodySource, ChunkReader, FedBody};

fn head_of(text: &str) -> Result<RequestHead, RequestError> {
    parse(&mut BytesMut::from(text)).map(|head| head.expect("a head that is complete"))
}

/// What the fields of a POST say of its body.
fn body_of(fields: &str) -> Result<Option<BodyRest>, RequestError> {
    head_of(&format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n")).map(|head| head.body)
}

#[test]
fn takes_the_head_and_leaves_what_follows() {
    let mut input = BytesMut::from("\r\nGET /a?b HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a: \u{e4}\r\n\r\nGET");
    let head = parse(&mut input).expect("a sound head").expect("a head that is complete");
    assert_eq!((head.parts.method.as_str(), head.parts.uri.to_string()), ("GET", "/a?b".to_owned()));
    assert_eq!(head.parts.version, Version::HTTP_11);
    let values: Vec<&[u8]> = head.parts.headers.get_all("x-a").iter().map(HeaderValue::as_bytes).collect();
    assert_eq!(values, [b"1".as_slice(), "\u{e4}".as_bytes()]);
    assert_eq!((head.body, &input[..]), (None, b"GET".as_slice()));
}

#[test]
fn waits_for_the_rest_of_a_head() {
    let whole = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    for end in 0..whole.len() {
        assert!(parse(&mut BytesMut::from(&whole[..end])).expect("the beginning of a head").is_none(), "{end}");
    }
}

#[test]
fn a_body_has_one_length_or_is_in_chunks() {
    assert_eq!(body_of(""), Ok(None));
    assert_eq!(body_of("Content-Length: 0\r\n"), Ok(None));
    assert_eq!(body_of("Content-Length:   05   \r\n"), Ok(Some(BodyRest::Known(5))));
    assert_eq!(body_of("Transfer-Encoding: Chunked\r\n"), Ok(Some(BodyRest::Chunks(ChunkReader::Size))));
    // Names that look alike are others.
    assert_eq!(body_of("Content_Length: 5\r\n"), Ok(None));
}

#[test]
fn what_has_two_meanings_is_ambiguous() {
    let length = |value: &str| body_of(&format!("Content-Length:{value}\r\n"));
    for odd in ["5\t", "\t5", "+5", "-5", "5 5", "5, 5", "", "0x5", "18446744073709551616"] {
        assert_eq!(length(odd), Err(RequestError::Ambiguous), "{odd:?}");
    }
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\ncontent-length: 5\r\n",
        "Content-Length: 5\r\nX: y\r\nCONTENT-LENGTH: 5\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\tchunked\r\n",
        "Transfer-Encoding: chunked\t\r\n",
    ] {
        assert_eq!(body_of(fields), Err(RequestError::Ambiguous), "{fields:?}");
    }
    assert_eq!(length(&format!("{}5", " ".repeat(200))), Ok(Some(BodyRest::Known(5))));
}

#[test]
fn only_chunked_is_an_encoding() {
    let encoding = |value: &str| body_of(&format!("Transfer-Encoding: {value}\r\n"));
    assert_eq!(encoding("gzip, chunked"), Err(RequestError::Encoding));
    assert_eq!(encoding("identity,CHUNKED"), Err(RequestError::Encoding));
    for malformed in ["gzip", "chunked, gzip", "chunked,", "\"chunked\"", "chunked;q=1", "", "identity"] {
        assert_eq!(encoding(malformed), Err(RequestError::Malformed), "{malformed:?}");
    }
    let old = head_of("POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert!(matches!(old, Err(RequestError::Malformed)), "{old:?}");
}

#[test]
fn connections_persist_as_the_client_says() {
    let is_persistent = |version, fields| {
        let head = head_of(&format!("GET / HTTP/{version}\r\nHost: x\r\n{fields}\r\n"));
        head.expect("a sound head").is_persistent
    };
    assert!(is_persistent("1.1", ""));
    assert!(!is_persistent("1.1", "Connection: X, Close\r\n"));
    assert!(!is_persistent("1.0", ""));
    assert!(is_persistent("1.0", "Connection: keep-alive\r\n"));
}

#[test]
fn heads_have_bounds() {
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(101));
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(70_000));
    let endless = format!("GET /{}", "y".repeat(70_000));
    for text in [many, long, endless] {
        assert!(matches!(parse(&mut BytesMut::from(&text[..])), Err(RequestError::TooLarge)));
    }
}

/// What a request gets of its body, if its input arrives in these parts.
fn fed(rest: BodyRest, parts: &[&[u8]]) -> Result<Vec<u8>, &'static str> {
    let (mut source, body) = BodySource::new(rest);
    let (mut input, mut parts, mut all) = (BytesMut::new(), parts.iter(), Vec::new());
    let context = Context::from_waker(Waker::noop());
    loop {
        match body.poll_frame(&context) {
            Poll::Ready(None) => return Ok(all),
            Poll::Ready(Some(frame)) => all.extend_from_slice(frame?.data_ref().unwrap_or(&Bytes::new())),
            Poll::Pending => {
                assert!(source.poll_demand(&context).is_ready());
                while !source.feed(&mut input) {
                    match parts.next() {
                        Some(part) => input.extend_from_slice(part),
                        None => source.fail("the end"),
                    }
                    if source.poll_demand(&context).is_pending() {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn a_body_arrives_in_its_parts() {
    assert_eq!(fed(BodyRest::Known(5), &[b"he", b"l", b"lo GET"]), Ok(b"hello".to_vec()));
    let chunks = BodyRest::Chunks(ChunkReader::Size);
    assert_eq!(fed(chunks, &[b"5\r", b"\nhel", b"lo\r\n0\r\n", b"X-A: 1\r\n\r\n"]), Ok(b"hello".to_vec()));
    assert_eq!(fed(BodyRest::Known(5), &[b"hell"]), Err("the end"));
    assert!(fed(chunks, &[b"5\r\nhello!\r\n"]).is_err());
}

#[test]
fn a_body_that_came_whole_is_taken_at_once() {
    let whole = |rest: BodyRest, text: &str| {
        let mut input = BytesMut::from(text);
        rest.take_whole(&mut input).map(|whole| (whole, input))
    };
    let taken = |body: &'static str, rest: &str| Ok((Some(Bytes::from(body)), BytesMut::from(rest)));
    let chunks = BodyRest::Chunks(ChunkReader::Size);
    assert_eq!(whole(BodyRest::Known(2), "abGET"), taken("ab", "GET"));
    assert_eq!(whole(BodyRest::Known(6), "abGET"), Ok((None, BytesMut::from("abGET"))));
    assert_eq!(whole(chunks, "1\r\na\r\n1\r\nb\r\n0\r\n\r\nGET"), taken("ab", "GET"));
    let with_trailer = "1\r\na\r\n0\r\nX: y\r\n\r\n";
    assert_eq!(whole(chunks, with_trailer), Ok((None, BytesMut::from(with_trailer))));
    assert!(whole(chunks, "1\r\nab\r\n").is_err());
}

#[test]
fn a_dropped_body_is_noticed() {
    let (mut source, body): (BodySource, FedBody) = BodySource::new(BodyRest::Known(4));
    assert!(!source.is_dropped());
    drop(body);
    assert!(source.is_dropped());
    assert!(!source.discard(&mut BytesMut::from("ab")));
    assert!(source.discard(&mut BytesMut::from("cd")));
}

proptest! {
    #[test]
    fn any_bytes_are_a_head_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&mut BytesMut::from(&bytes[..]));
        let _ = parse(&mut BytesMut::from([b"POST / HTTP/1.1\r\n", &bytes[..], b"\r\n\r\n"].concat().as_slice()));
    }

    #[test]
    fn a_body_is_the_same_however_it_is_split(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8),
        size in 1_usize..100,
    ) {
        let mut text = Vec::new();
        for chunk in &chunks {
            text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            text.extend_from_slice(chunk);
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"0\r\n\r\n");
        let parts: Vec<&[u8]> = text.chunks(size).collect();
        prop_assert_eq!(fed(BodyRest::Chunks(ChunkReader::Size), &parts), Ok(chunks.concat()));
        let mut input = BytesMut::from(&text[..]);
        let whole = BodyRest::Chunks(ChunkReader::Size).take_whole(&mut input);
        prop_assert_eq!(whole, Ok(Some(Bytes::from(chunks.concat()))));
    }
}
