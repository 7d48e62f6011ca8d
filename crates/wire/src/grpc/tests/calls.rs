//! Calls on counters in memory, frame by frame.

use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};

use super::*;

/// The status of a call, and what was decided.
pub(super) type Answer = (String, Option<Code>);

pub(super) async fn h2_client(ours: UnixStream) -> SendRequest<Bytes> {
    let (client, connection) = h2::client::handshake(ours).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(super) fn head() -> Request<()> {
    Request::post(format!("http://t{SHOULD_RATE_LIMIT}")).header("content-type", "application/grpc").body(()).unwrap()
}

/// Starts a call, of which only the headers are sent.
pub(super) async fn start(client: &SendRequest<Bytes>) -> (ResponseFuture, SendStream<Bytes>) {
    client.clone().ready().await.unwrap().send_request(head(), false).unwrap()
}

pub(super) async fn answer(response: ResponseFuture) -> Result<Answer, h2::Error> {
    let (head, mut body) = response.await?.into_parts();
    assert_eq!(head.headers["content-type"], "application/grpc");
    let text = |headers: &HeaderMap| headers["grpc-status"].to_str().unwrap().to_owned();
    if body.is_end_stream() {
        return Ok((text(&head.headers), None));
    }
    let mut message = BytesMut::new();
    while let Some(data) = body.data().await {
        message.extend_from_slice(&data?);
    }
    let trailers = body.trailers().await?.unwrap();
    let response = RateLimitResponse::decode(message.freeze().split_off(PREFIX_BYTES)).unwrap();
    Ok((text(&trailers), Some(response.overall_code())))
}

/// Sends a whole call and returns its answer.
pub(super) async fn check(client: &SendRequest<Bytes>, user: &[u8]) -> Answer {
    let (response, mut stream) = start(client).await;
    stream.send_data(message_for(user), true).unwrap();
    answer(response).await.unwrap()
}

pub(super) fn decided(code: Code) -> Answer {
    ("0".to_owned(), Some(code))
}

#[tokio::test]
async fn calls_that_come_alone_or_together_are_decided_in_order() {
    let served = serve(in_memory(CONFIG));
    let client = h2_client(served.ours).await;
    for (round, together) in [1, 3, 1, 1, 10].into_iter().enumerate() {
        let user = round.to_string();
        let mut calls = Vec::new();
        for _ in 0..together {
            let (response, mut stream) = start(&client).await;
            stream.send_data(message_for(user.as_bytes()), true).unwrap();
            calls.push(response);
        }
        let mut answers = Vec::new();
        for call in calls {
            answers.push(answer(call).await.unwrap());
        }
        let expected = |at| decided(if at < 2 { Code::Ok } else { Code::OverLimit });
        assert_eq!(answers, (0..together).map(expected).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_message_may_come_in_pieces() {
    let served = serve(in_memory(CONFIG));
    let client = h2_client(served.ours).await;
    for end_by_trailers in [false, true] {
        // Two calls take turns.
        let (mut first, mut second) = (start(&client).await, start(&client).await);
        let message = message_for(b"u");
        for at in 0..message.len() {
            let is_end = at + 1 == message.len() && !end_by_trailers;
            for (_, stream) in [&mut first, &mut second] {
                stream.send_data(message.slice(at..=at), is_end).unwrap();
                // So that the server reads this piece alone.
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
            }
        }
        for (response, mut stream) in [first, second] {
            if end_by_trailers {
                stream.send_trailers(HeaderMap::new()).unwrap();
            }
            let expected = decided(if end_by_trailers { Code::OverLimit } else { Code::Ok });
            assert_eq!(answer(response).await.unwrap(), expected);
        }
    }
    assert!(served.grpc.arriving.reserve(MAX_ARRIVING_BYTES).is_some(), "no memory is in use");
}

#[tokio::test]
async fn a_message_may_be_longer_than_the_windows() {
    let served = serve(in_memory(GrpcConfig { max_message: 1024 * 1024, ..CONFIG }));
    let client = h2_client(served.ours).await;
    for _ in 0..3 {
        let (response, mut stream) = start(&client).await;
        stream.send_data(message_for(&vec![b'x'; 300_000]), true).unwrap();
        // Only the beginning of a long value counts, and a digest.
        assert_eq!(answer(response).await.unwrap().0, "0");
    }
    assert_eq!(check(&client, b"u").await, decided(Code::Ok));
}

#[tokio::test]
async fn calls_that_are_not_one_message_are_refused() {
    let served = serve(in_memory(CONFIG));
    let client = h2_client(served.ours).await;
    let whole = message_for(b"u");
    let twice = [&whole[..], &whole[..]].concat();
    let mut compressed = whole.to_vec();
    compressed[0] = 1;
    for (bytes, expected) in [
        (&b""[..], "3"),
        (&[0, 0], "3"),
        (&whole[..whole.len() - 1], "3"),
        (&twice, "3"),
        (&[0, 0, 0, 0, 1, 0xff], "3"),
        (&compressed, "12"),
    ] {
        let (response, mut stream) = start(&client).await;
        stream.send_data(Bytes::copy_from_slice(bytes), true).unwrap();
        assert_eq!(answer(response).await.unwrap(), (expected.to_owned(), None), "{bytes:?}");
    }
    // Without a body.
    let (response, _) = client.clone().ready().await.unwrap().send_request(head(), true).unwrap();
    assert_eq!(answer(response).await.unwrap().0, "3");
    let mut other = head();
    other.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    let (response, _) = client.clone().ready().await.unwrap().send_request(other, true).unwrap();
    assert_eq!(answer(response).await.unwrap().0, "3");
    assert_eq!(check(&client, b"u").await, decided(Code::Ok));
}

#[tokio::test]
async fn calls_that_wait_for_the_store_keep_no_others_from_arriving() {
    let store = GatedStore::new();
    let served = serve(grpc(Counters::Shared(store.clone()), GrpcConfig { max_message: 1024 * 1024, ..CONFIG }));
    let client = h2_client(served.ours).await;
    let mut calls = Vec::new();
    for _ in 0..CONFIG.max_streams {
        // Together more than the window of the connection.
        let (response, mut stream) = start(&client).await;
        stream.send_data(message_for(&[b'x'; 10_000]), true).unwrap();
        calls.push(response);
    }
    store.timeouts(CONFIG.max_streams as usize).await;
    store.open();
    for call in calls {
        assert_eq!(answer(call).await.unwrap().0, "0");
    }
}
