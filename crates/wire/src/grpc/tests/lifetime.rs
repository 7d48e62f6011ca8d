//! How connections end.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::calls::{answer, check, decided, h2_client, start};
use super::hostile::{PREFACE, frame, headers};
use super::*;

const PING: u8 = 6;
const GOAWAY: u8 = 7;
const SECOND: Duration = Duration::from_secs(1);

/// The kinds of the frames.
fn kinds(mut received: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let [high, middle, low, kind, ..] = *received {
        kinds.push(kind);
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        received = received.get(9 + length..).unwrap_or_default();
    }
    kinds
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_answer_a_ping_is_left() {
    // Without a call, and with one after some time.
    for last_heard in [Duration::ZERO, CONFIG.keepalive * 5 / 6] {
        let mut served = serve(in_memory(CONFIG));
        served.ours.write_all(PREFACE).await.unwrap();
        if !last_heard.is_zero() {
            tokio::time::sleep(last_heard).await;
            served.ours.write_all(&frame(1, 4, 1, &headers())).await.unwrap();
        }
        let mut received = Vec::new();
        let least = CONFIG.keepalive + CONFIG.keepalive_timeout;
        let most = least + CONFIG.keepalive / 4 + SECOND;
        within(least, most, served.ours.read_to_end(&mut received)).await.unwrap();
        let kinds = kinds(&received);
        assert!(kinds.contains(&PING) && kinds.ends_with(&[GOAWAY]), "{kinds:?}");
        served.server.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_pings_stays() {
    let served = serve(in_memory(CONFIG));
    let client = h2_client(served.ours).await;
    assert_eq!(check(&client, b"u").await, decided(Code::Ok));
    tokio::time::sleep(CONFIG.keepalive * 20).await;
    assert_eq!(check(&client, b"u").await, decided(Code::Ok));
    assert!(!served.server.is_finished());
}

#[tokio::test]
async fn calls_finish_when_the_server_stops() {
    let store = GatedStore::new();
    let served = serve(grpc(Counters::Shared(store.clone()), CONFIG));
    let client = h2_client(served.ours).await;
    let (waiting, mut stream) = start(&client).await;
    stream.send_data(message_for(b"u"), true).unwrap();
    let (arriving, mut late) = start(&client).await;
    store.timeouts(1).await;
    served.closer.close();
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    late.send_data(message_for(b"u"), true).unwrap();
    store.timeouts(2).await;
    assert!(!served.server.is_finished());
    store.open();
    for call in [waiting, arriving] {
        assert_eq!(answer(call).await.unwrap(), decided(Code::Ok));
    }
    served.server.await.unwrap();
    assert!(client.ready().await.is_err(), "the client has to go elsewhere");
}

#[tokio::test(start_paused = true)]
async fn calls_that_take_too_long_are_cut_off_when_the_server_stops() {
    for with_preface in [true, false] {
        let mut served = serve(grpc(Counters::Shared(GatedStore::new()), CONFIG));
        let mut call = None;
        if with_preface {
            let client = h2_client(served.ours).await;
            call = Some(start(&client).await);
        } else {
            served.ours.write_all(b"PRI").await.unwrap();
        }
        tokio::task::yield_now().await;
        served.closer.close();
        within(CONFIG.age_grace, CONFIG.age_grace + SECOND, served.server).await.unwrap();
        if let Some((response, _)) = call {
            assert!(response.await.is_err());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_connection_is_left() {
    let age = Duration::from_secs(100);
    let served = serve(in_memory(GrpcConfig { max_age: Some(age), ..CONFIG }));
    let client = h2_client(served.ours).await;
    assert_eq!(check(&client, b"u").await, decided(Code::Ok));
    within(age.mul_f64(0.89), age.mul_f64(1.11) + CONFIG.age_grace, served.server).await.unwrap();
}
