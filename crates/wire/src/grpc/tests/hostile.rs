//! Clients that do not finish what they begin.

use h2::Reason;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use super::calls::{answer, check, decided, h2_client, head, start};
use super::*;

/// Timers are that precise.
const MOMENT: Duration = Duration::from_millis(10);

/// Has an h2 client announce such a window for each stream.
async fn client_with_window(
    ours: UnixStream,
    window: u32,
) -> (h2::client::SendRequest<Bytes>, h2::client::Connection<UnixStream>) {
    h2::client::Builder::new().initial_window_size(window).handshake(ours).await.unwrap()
}

/// Waits until the calls of a connection have been dropped: each holds the server.
async fn until_held_by(grpc: &Arc<Grpc>, holders: usize) {
    for _ in 0..10_000 {
        if Arc::strong_count(grpc) == holders {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} hold the server", Arc::strong_count(grpc));
}

fn no_memory_is_in_use(grpc: &Grpc) -> bool {
    grpc.arriving.reserve(MAX_ARRIVING_BYTES).is_some()
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_message_end_in_time() {
    let served = serve(in_memory(CONFIG));
    let client = h2_client(served.ours).await;
    let mut calls = Vec::new();
    for _ in 0..CONFIG.max_streams {
        calls.push(start(&client).await);
    }
    within(CONFIG.body_timeout - MOMENT, CONFIG.body_timeout + MOMENT, async {
        for (response, _) in &mut calls {
            assert_eq!(response.await.unwrap().headers()["grpc-status"], "4");
        }
    })
    .await;
    drop(calls);
    assert_eq!(check(&client, b"u").await, decided(Code::Ok));
    assert!(no_memory_is_in_use(&served.grpc));
}

#[tokio::test(start_paused = true)]
async fn each_call_has_its_own_time() {
    let served = serve(in_memory(CONFIG));
    let client = h2_client(served.ours).await;
    let first = start(&client).await;
    tokio::time::sleep(CONFIG.body_timeout / 2).await;
    let (second, mut stream) = start(&client).await;
    let rest = CONFIG.body_timeout / 2;
    let first = within(rest - MOMENT, rest + MOMENT, first.0).await.unwrap();
    assert_eq!(first.headers()["grpc-status"], "4");
    stream.send_data(message_for(b"u"), true).unwrap();
    assert_eq!(answer(second).await.unwrap(), decided(Code::Ok));
}

#[tokio::test]
async fn a_call_that_is_reset_frees_everything() {
    let store = GatedStore::new();
    for counters in [Counters::from(MemoryConfig::default().build()), Counters::Shared(store.clone())] {
        let served = serve(grpc(counters, CONFIG));
        let client = h2_client(served.ours).await;
        // More often than the connection may have streams at a time.
        for round in 0..100 {
            let (_, mut stream) = start(&client).await;
            let message = message_for(b"u");
            match round % 3 {
                0 => {}
                1 => stream.send_data(message.slice(..7), false).unwrap(),
                _ => stream.send_data(message, true).unwrap(),
            }
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            stream.send_reset(Reason::CANCEL);
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
        // The test and the connection.
        until_held_by(&served.grpc, 2).await;
        assert!(no_memory_is_in_use(&served.grpc));
        store.open();
        assert_eq!(check(&client, b"v").await, decided(Code::Ok));
    }
}

#[tokio::test]
async fn a_client_that_goes_away_frees_everything() {
    let served = serve(grpc(Counters::Shared(GatedStore::new()), CONFIG));
    let (client, connection) = h2::client::handshake(served.ours).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut calls = Vec::new();
    for number in 0..CONFIG.max_streams {
        let (response, mut stream) = start(&client).await;
        if number % 2 == 0 {
            stream.send_data(message_for(b"u"), true).unwrap();
        }
        calls.push((response, stream));
    }
    // Those that wait for the store are tasks.
    until_held_by(&served.grpc, 2 + CONFIG.max_streams as usize / 2).await;
    connection.abort();
    served.server.await.unwrap();
    until_held_by(&served.grpc, 1).await;
    assert!(no_memory_is_in_use(&served.grpc));
}

/// A frame of HTTP/2.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a call, as literals.
pub(super) fn headers() -> Vec<u8> {
    let literal = |name: &[u8], value: &str| [name, &[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    [
        vec![0x83, 0x86],
        literal(&[0x04], SHOULD_RATE_LIMIT),
        literal(&[0x01], "t"),
        literal(&[0x0f, 0x10], "application/grpc"),
    ]
    .concat()
}

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn a_flood_of_resets_ends_the_connection() {
    let served = serve(in_memory(CONFIG));
    let mut ours = served.ours;
    let mut flood = PREFACE.to_vec();
    for stream in (1..2_000).step_by(2) {
        flood.extend(frame(1, 4, stream, &headers()));
        flood.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    // The server stops reading.
    let _ = ours.write_all(&flood).await;
    let mut received = Vec::new();
    let _ = ours.read_to_end(&mut received).await;
    let calm = u32::from(Reason::ENHANCE_YOUR_CALM).to_be_bytes();
    let too_many = [&calm[..], b"too_many_resets"].concat();
    assert!(received.windows(too_many.len()).any(|bytes| bytes == too_many), "{received:?}");
    served.server.await.unwrap();
    assert!(no_memory_is_in_use(&served.grpc));
}

#[tokio::test]
async fn responses_wait_for_the_window_and_count_as_streams() {
    let served = serve(in_memory(CONFIG));
    let (client, mut connection) = client_with_window(served.ours, 0).await;
    let (open, opened) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        tokio::select! {
            _ = &mut connection => {}
            _ = opened => {
                connection.set_initial_window_size(65_535).unwrap();
                let _ = connection.await;
            }
        }
    });
    let mut bodies = Vec::new();
    for _ in 0..CONFIG.max_streams {
        let (response, mut stream) = start(&client).await;
        stream.send_data(message_for(b"u"), true).unwrap();
        // The head needs no window.
        bodies.push(response.await.unwrap().into_body());
    }
    let (response, mut stream) = start(&client).await;
    stream.send_data(message_for(b"v"), true).unwrap();
    let mut another = Box::pin(answer(response));
    for _ in 0..100 {
        tokio::task::yield_now().await;
        let polled = poll_fn(|context| Poll::Ready(another.as_mut().poll(context).is_pending()));
        assert!(polled.await, "there is no stream left");
    }
    open.send(()).unwrap();
    assert_eq!(another.await.unwrap(), decided(Code::Ok));
    for mut body in bodies {
        assert!(body.data().await.unwrap().is_ok());
    }
}

/// A request for a file descriptor of several kilobytes, with its prefix.
fn reflection_request() -> Bytes {
    let symbol = MessageRequest::FileContainingSymbol("envoy.service.ratelimit.v3.RateLimitService".to_owned());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(symbol) };
    let mut bytes = BytesMut::new();
    put_prefix(&mut bytes, request.encoded_len());
    request.encode(&mut bytes).unwrap();
    bytes.freeze()
}

fn reflection_head() -> Request<()> {
    let mut head = head();
    *head.uri_mut() = "http://t/grpc.reflection.v1.ServerReflection/ServerReflectionInfo".parse().unwrap();
    head
}

#[tokio::test]
async fn a_stream_of_another_service_waits_for_the_window() {
    let served = serve(in_memory(CONFIG));
    let (client, connection) = client_with_window(served.ours, 100).await;
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let (response, mut stream) = client.send_request(reflection_head(), false).unwrap();
    stream.send_data(reflection_request(), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    let mut received = 0;
    while let Some(data) = body.data().await {
        let length = data.unwrap().len();
        assert!(length <= 100);
        received += length;
        body.flow_control().release_capacity(length).unwrap();
    }
    assert!(received > 1_000, "{received}");
    assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    until_held_by(&served.grpc, 2).await;
}

#[tokio::test]
async fn a_stream_of_another_service_that_is_reset_frees_everything() {
    let served = serve(in_memory(CONFIG));
    let (client, connection) = client_with_window(served.ours, 100).await;
    tokio::spawn(connection);
    for with_window in [true, false] {
        let mut client = client.clone().ready().await.unwrap();
        let (response, mut stream) = client.send_request(reflection_head(), false).unwrap();
        if with_window {
            // It waits for the window, otherwise for the request.
            stream.send_data(reflection_request(), false).unwrap();
        }
        let body = response.await.unwrap().into_body();
        until_held_by(&served.grpc, 3).await;
        stream.send_reset(Reason::CANCEL);
        until_held_by(&served.grpc, 2).await;
        drop(body);
    }
    assert_eq!(check(&client, b"u").await.0, "0");
}

/// Panics for some clients.
#[derive(Debug)]
struct BrokenAccess;

impl AccessControl for BrokenAccess {
    fn may_check(&self, headers: &HeaderMap) -> bool {
        assert!(!headers.contains_key("broken"), "broken");
        true
    }

    fn may_check_by_own_header(&self, headers: &HeaderMap) -> bool {
        self.may_check(headers)
    }
}

#[tokio::test]
async fn a_panic_ends_one_call() {
    let served = serve(in_memory(CONFIG).with_access_control(Some(Arc::new(BrokenAccess))));
    let client = h2_client(served.ours).await;
    let (waiting, mut stream) = start(&client).await;
    for _ in 0..2 * CONFIG.max_streams {
        let mut broken = head();
        broken.headers_mut().insert("broken", HeaderValue::from_static("1"));
        let (response, _) = client.clone().ready().await.unwrap().send_request(broken, true).unwrap();
        assert_eq!(response.await.unwrap_err().reason(), Some(Reason::CANCEL));
        assert_eq!(check(&client, b"v").await.0, "0");
    }
    stream.send_data(message_for(b"u"), true).unwrap();
    assert_eq!(answer(waiting).await.unwrap(), decided(Code::Ok));
    assert!(no_memory_is_in_use(&served.grpc));
}
