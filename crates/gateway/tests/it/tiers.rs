//! Callers of several tiers in front of an upstream with too little room.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tollgate_gateway::model::SheddingMode;

use crate::support::{Raw, TestGateway, everything_to, read_message, scripted, within};

const RULES: &str = "
domain: api
entity: api_key
tier_from: plan
rules:
  - {name: per-key, key: [api_key], limit: 1000000/hour}
";

/// An upstream that holds all requests until the semaphore has room.
async fn holding() -> (std::net::SocketAddr, Arc<Semaphore>) {
    let room = Arc::new(Semaphore::new(0));
    let held = room.clone();
    let address = scripted(move |mut stream, _| {
        let held = held.clone();
        async move {
            loop {
                if read_message(&mut stream).await.is_empty() {
                    return;
                }
                let Ok(permit) = held.acquire().await else { return };
                permit.forget();
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                if tokio::io::AsyncWriteExt::write_all(&mut stream, response).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    (address, room)
}

fn config(address: std::net::SocketAddr, shedders: &str) -> String {
    everything_to(&[address])
        .replace("servers:", &format!("{shedders}, servers:"))
        .replace("upstreams:", "attributes:\n  api_key: {header: X-Api-Key}\n  plan: {header: X-Plan}\nupstreams:")
}

fn get(key: &str, plan: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: x\r\nX-Api-Key: {key}\r\nX-Plan: {plan}\r\n\r\n")
}

/// Sends a request that stays in flight.
async fn hold(gateway: &TestGateway, plan: &str, in_flight: u32) -> Raw {
    let mut raw = gateway.connect().await;
    raw.send(&get("k", plan)).await;
    within(async {
        while gateway.gateway.status().upstreams[0].cap.in_flight < in_flight {
            tokio::task::yield_now().await;
        }
    })
    .await;
    raw
}

#[tokio::test]
async fn what_is_reserved_for_a_tier_is_admitted_beyond_the_limit() {
    let (address, room) = holding().await;
    let shedders = "adaptive: {mode: enforce, min: 10, max: 10, reserve: {pro: 20%, enterprise: 30%}}";
    let gateway = TestGateway::start(&config(address, shedders), RULES).await;
    // Reads may use 8 of 10.
    let mut held = Vec::new();
    for number in 1..=8 {
        held.push(hold(&gateway, "free", number).await);
    }
    let refused = gateway.request(&get("k", "free")).await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("x-tollgate-shed: adaptive"), "{refused}");
    assert!(gateway.request(&get("k", "no such plan")).await.starts_with("HTTP/1.1 503 "), "of the default tier");
    held.push(hold(&gateway, "pro", 9).await);
    held.push(hold(&gateway, "pro", 10).await);
    assert!(gateway.request(&get("k", "pro")).await.starts_with("HTTP/1.1 503 "));
    held.push(hold(&gateway, "enterprise", 11).await);
    let cap = &gateway.gateway.status().upstreams[0].cap;
    let numbers: Vec<_> =
        cap.reserves.iter().map(|one| (one.tier.as_deref(), one.reserved, one.in_flight, one.refused)).collect();
    assert_eq!(numbers, [(Some("pro"), 2, 2, 1), (Some("enterprise"), 3, 1, 0), (None, 0, 0, 2)]);
    room.add_permits(100);
    for mut raw in held {
        assert!(raw.response().await.starts_with("HTTP/1.1 200 "));
    }
    assert!(gateway.request(&get("k", "free")).await.starts_with("HTTP/1.1 200 "));
}

/// Sends requests of a caller one after the other until it is stopped by being dropped.
async fn keep_sending(gateway: &TestGateway, key: &str, seen: &mut Vec<String>) {
    let mut raw = gateway.connect().await;
    loop {
        raw.send(&get(key, "free")).await;
        let response = raw.response().await;
        if response.contains("x-tollgate-shed: fairness") {
            seen.push(response);
            return;
        }
    }
}

/// A caller with a request now and then, which is never lowered.
async fn send_seldom(gateway: &TestGateway) {
    loop {
        let response = gateway.request(&get("other", "free")).await;
        assert!(!response.contains("x-tollgate-shed: fairness"), "{response}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn the_busiest_caller_gives_way_while_the_upstream_is_overloaded() {
    let address = scripted(async |mut stream, _| {
        while !read_message(&mut stream).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            if tokio::io::AsyncWriteExt::write_all(&mut stream, response).await.is_err() {
                return;
            }
        }
    })
    .await;
    // One request at a time, and four that compete for it.
    let shedders = "adaptive: {mode: enforce, min: 1, max: 1}, fairness: {mode: enforce, grace: 0s, ramp: 1s}";
    let gateway = TestGateway::start(&config(address, shedders), RULES).await;
    let mut seen: [Vec<String>; 4] = Default::default();
    let [one, two, three, four] = &mut seen;
    let busy = async {
        tokio::select! {
            () = keep_sending(&gateway, "busy", one) => {}
            () = keep_sending(&gateway, "busy", two) => {}
            () = keep_sending(&gateway, "busy", three) => {}
            () = keep_sending(&gateway, "busy", four) => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(60), async {
        tokio::select! {
            () = busy => {}
            () = send_seldom(&gateway) => {}
        }
    })
    .await
    .unwrap();
    let fair = seen.iter().flatten().next().unwrap();
    assert!(fair.starts_with("HTTP/1.1 503 ") && fair.contains("retry-after: "), "{fair}");
    assert!(!fair.contains("x-ratelimit"), "{fair}");
    let fairness = gateway.gateway.status().upstreams[0].fairness.clone().unwrap();
    assert!(fairness.refused() > 0 && fairness.tiers[0].refused > 0, "{fairness:?}");
    assert_eq!(
        fairness.tiers.iter().map(|tier| &*tier.tier).collect::<Vec<_>>(),
        ["free", "pro", "enterprise", "custom"]
    );
    assert_eq!(gateway.gateway.set_shedding(tollgate_shed::Shedder::Fairness, None, SheddingMode::Off), ["app"]);
    assert_eq!(gateway.gateway.status().upstreams[0].fairness.as_ref().unwrap().mode, "off");
}
