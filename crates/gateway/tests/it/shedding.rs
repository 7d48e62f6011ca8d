//! The fleet shedder: a rule that answers 503 and has a reserve for critical work.

use tokio::io::AsyncWriteExt as _;

use crate::support::{App, TestGateway, everything_to, read_message, scripted, within};

const RULES: &str = "
domain: api
rules:
  - {name: fleet, key: [], limit_by: priority, limit: {critical: 2 concurrent, default: 1 concurrent}, shed: true}
";

/// Requests with `X-Kind: charge` are critical, and callers may lower their class.
fn with_classes(config: &str) -> String {
    let priority = "priority:\n  header: X-Priority\n  critical: [{header: {X-Kind: charge}}]\nupstreams:";
    config.replace("upstreams:", priority)
}

fn get(more: &str) -> String {
    format!("GET /slow HTTP/1.1\r\nHost: x\r\n{more}\r\n")
}

#[tokio::test]
async fn at_capacity_critical_requests_pass_and_others_are_shed() {
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = tokio::sync::watch::channel(false);
    let upstream = scripted(move |mut stream, _| {
        let (arrived, mut released) = (arrived.clone(), released.clone());
        async move {
            read_message(&mut stream).await;
            arrived.send(()).unwrap();
            released.wait_for(|is_released| *is_released).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let gateway = TestGateway::start(&with_classes(&everything_to(&[upstream])), RULES).await;
    let mut first = gateway.connect().await;
    first.send(&get("")).await;
    within(arrivals.recv()).await.unwrap();
    let shed = gateway.request(&get("")).await;
    assert!(shed.starts_with("HTTP/1.1 503 ") && shed.contains("x-tollgate-shed: fleet\r\n"), "{shed}");
    assert!(shed.contains("retry-after: ") && shed.contains("#temporary-reduced-capacity"), "{shed}");
    assert!(!shed.to_ascii_lowercase().contains("ratelimit"), "{shed}");
    // A caller can give up its importance, and can't claim it.
    let lowered = gateway.request(&get("X-Kind: charge\r\nX-Priority: test\r\n")).await;
    assert!(lowered.starts_with("HTTP/1.1 503 "), "{lowered}");
    let raised = gateway.request(&get("X-Priority: critical\r\n")).await;
    assert!(raised.starts_with("HTTP/1.1 503 "), "{raised}");
    let mut critical = gateway.connect().await;
    critical.send(&get("X-Kind: charge\r\n")).await;
    within(arrivals.recv()).await.unwrap();
    let beyond = gateway.request(&get("X-Kind: charge\r\n")).await;
    assert!(beyond.starts_with("HTTP/1.1 503 "), "critical requests have a limit too: {beyond}");
    release.send(true).unwrap();
    assert!(first.response().await.starts_with("HTTP/1.1 200 "));
    assert!(critical.response().await.starts_with("HTTP/1.1 200 "));
    let status = gateway.gateway.status();
    let fleet = status.shed.iter().find(|shed| shed.by == "fleet").unwrap();
    assert_eq!(fleet.refused.by_class(), [("test", 1), ("get", 2), ("post", 0), ("critical", 1)]);
    assert_eq!((status.routes[0].shed, status.routes[0].limited), (4, 0));
}

#[tokio::test]
async fn a_call_over_grpc_is_unavailable() {
    let app = App::start().await;
    let rules = RULES.replace("1 concurrent", "0 concurrent").replace("2 concurrent", "0 concurrent");
    let gateway = TestGateway::start(&everything_to(&[app.address]), &rules).await;
    let call = "POST /a.B/C HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n";
    let refused = gateway.request(call).await;
    assert!(refused.starts_with("HTTP/1.1 200 ") && refused.contains("grpc-status: 14\r\n"), "{refused}");
    assert!(refused.contains("grpc-message: the service is under too much load"), "{refused}");
    assert!(app.seen().is_empty());
}
