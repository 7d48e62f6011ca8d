//! Spans, with a collector that receives them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue as Attribute;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as Received;
use tokio::sync::oneshot;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::*;

/// How long a test waits for the collector.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const NOT_SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// A collector that passes its requests to the test.
struct Collector(mpsc::Sender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.0.send(request.into_inner()).map_err(|_| tonic::Status::unavailable("the test is over"))?;
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector that runs until it is dropped.
struct RunningCollector {
    address: SocketAddr,
    received: mpsc::Receiver<ExportTraceServiceRequest>,
    _stop: oneshot::Sender<()>,
}

fn collector() -> RunningCollector {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (sender, received) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let (send_address, address) = mpsc::channel();
    let serve = async move {
        let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        send_address.send(incoming.local_addr().unwrap()).unwrap();
        let server = Server::builder().add_service(TraceServiceServer::new(Collector(sender)));
        tokio::select! {
            served = server.serve_with_incoming(incoming) => served.unwrap(),
            _ = stopped => {}
        }
    };
    std::thread::spawn(move || runtime.block_on(serve));
    RunningCollector { address: address.recv_timeout(TEST_TIMEOUT).unwrap(), received, _stop: stop }
}

impl RunningCollector {
    /// The attributes of the resource, and the next spans.
    fn next(&self, count: usize) -> (BTreeMap<String, Value>, Vec<Received>) {
        let (mut resource, mut spans) = (BTreeMap::new(), Vec::new());
        while spans.len() < count {
            for group in self.received.recv_timeout(TEST_TIMEOUT).unwrap().resource_spans {
                resource = attributes(group.resource.unwrap().attributes);
                spans.extend(group.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        assert_eq!(spans.len(), count);
        (resource, spans)
    }
}

fn attributes(list: Vec<Attribute>) -> BTreeMap<String, Value> {
    list.into_iter().map(|one| (one.key, one.value.unwrap().value.unwrap())).collect()
}

fn text(text: &str) -> Value {
    Value::StringValue(text.to_owned())
}

fn settings(address: SocketAddr, ratio: f64) -> OtlpSettings {
    OtlpSettings { endpoint: format!("http://{address}"), ratio, service_name: "tollgate".to_owned() }
}

#[test]
fn a_span_arrives_with_its_parent_and_the_decision() {
    let collector = collector();
    let metrics = TraceMetrics::default();
    let (tracer, guard) = Tracer::start(&settings(collector.address, 0.0), &metrics).unwrap();
    let allowed = CheckOutcome { domain: "shop", allowed: true, source: "store", level: None, denied_by: None };
    let denied = CheckOutcome { allowed: false, level: Some("degraded"), denied_by: Some("strict"), ..allowed };
    for outcome in [allowed, denied] {
        tracer.check_span("grpc", || Some(PARENT)).unwrap().decided(&outcome);
    }
    tracer.check_span("http", || Some(PARENT)).unwrap().failed();
    let (resource, spans) = collector.next(3);
    assert_eq!(resource["service.name"], text("tollgate"));
    assert_eq!(resource["service.version"], text(env!("CARGO_PKG_VERSION")));
    for span in &spans {
        assert_eq!(span.name, "tollgate.check");
        assert_eq!(span.trace_id, 0x0af7651916cd43dd8448eb211c80319c_u128.to_be_bytes());
        assert_eq!(span.parent_span_id, 0xb7ad6b7169203331_u64.to_be_bytes());
        assert!(span.start_time_unix_nano > 0 && span.end_time_unix_nano >= span.start_time_unix_nano);
    }
    let [allowed, denied, failed] = spans.try_into().unwrap();
    assert_eq!(failed.status.unwrap().code, 2);
    assert_eq!(attributes(failed.attributes), [("tollgate.wire".to_owned(), text("http"))].into());
    let allowed = attributes(allowed.attributes);
    assert_eq!((&allowed["tollgate.wire"], &allowed["tollgate.domain"]), (&text("grpc"), &text("shop")));
    assert_eq!((&allowed["tollgate.allowed"], &allowed["tollgate.source"]), (&Value::BoolValue(true), &text("store")));
    assert_eq!((allowed.get("tollgate.rule"), allowed.get("tollgate.level")), (None, None));
    let denied = attributes(denied.attributes);
    assert_eq!((&denied["tollgate.allowed"], &denied["tollgate.rule"]), (&Value::BoolValue(false), &text("strict")));
    assert_eq!(denied["tollgate.level"], text("degraded"));
    drop(guard);
    assert_eq!((metrics.exported.get(), metrics.failed.get(), metrics.dropped.get()), (3, 0, 0));
}

#[test]
fn a_settlement_has_a_span_of_its_own() {
    let collector = collector();
    let (tracer, _guard) = Tracer::start(&settings(collector.address, 0.0), &TraceMetrics::default()).unwrap();
    assert!(tracer.settle_span("http", || Some(NOT_SAMPLED)).is_none());
    tracer.settle_span("http", || Some(PARENT)).unwrap().settled("failed", true);
    tracer.settle_span("http", || Some(PARENT)).unwrap().failed("already_settled");
    let [settled, refused] = collector.next(2).1.try_into().unwrap();
    for span in [&settled, &refused] {
        assert_eq!(span.name, "tollgate.settle");
        assert_eq!(span.parent_span_id, 0xb7ad6b7169203331_u64.to_be_bytes());
    }
    let settled = attributes(settled.attributes);
    assert_eq!((&settled["tollgate.wire"], &settled["tollgate.outcome"]), (&text("http"), &text("failed")));
    assert_eq!(settled["tollgate.stored"], Value::BoolValue(true));
    let status = refused.status.unwrap();
    assert_eq!((status.code, status.message.as_str()), (2, "already_settled"));
}

#[test]
fn shutdown_exports_queued_spans() {
    let collector = collector();
    let metrics = TraceMetrics::default();
    let (tracer, guard) = Tracer::start(&settings(collector.address, 1.0), &metrics).unwrap();
    (0..100).for_each(|_| drop(tracer.check_span("grpc", || None).unwrap()));
    drop(guard);
    assert_eq!(metrics.exported.get(), 100);
    let (_, spans) = collector.next(100);
    assert!(spans.iter().all(|span| span.parent_span_id.is_empty() && span.trace_id.iter().any(|byte| *byte != 0)));
    // The export has stopped; finishing a span does not block.
    (0..10).for_each(|_| drop(tracer.check_span("grpc", || None).unwrap()));
    assert_eq!(metrics.dropped.get(), 10);
}

#[test]
fn the_caller_decides_about_sampling_else_the_ratio() {
    let collector = collector();
    let metrics = TraceMetrics::default();
    let traced = |ratio: f64, traceparent: Option<&str>| {
        let (tracer, _guard) = Tracer::start(&settings(collector.address, ratio), &metrics).unwrap();
        (0..1_000).filter(|_| tracer.check_span("grpc", || traceparent).is_some()).count()
    };
    assert_eq!(traced(0.0, None), 0);
    assert_eq!(traced(1.0, None), 1_000);
    assert_eq!(traced(1.0, Some(NOT_SAMPLED)), 0);
    assert_eq!(traced(0.0, Some(PARENT)), 1_000);
    assert_eq!(traced(0.0, Some("nonsense")), 0);
    let some = traced(0.1, None);
    assert!((40..200).contains(&some), "{some}");
}

#[test]
fn without_a_collector_nothing_blocks_and_lost_spans_are_counted() {
    // Nobody listens on a port that was just free.
    let at = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let metrics = TraceMetrics::default();
    let (tracer, guard) = Tracer::start(&settings(at, 1.0), &metrics).unwrap();
    let lost = || (metrics.dropped.get(), metrics.failed.get());
    // More spans than the queue holds; only its bound limits the memory.
    (0..100_000).for_each(|_| drop(tracer.check_span("grpc", || None).unwrap()));
    assert!(lost().0 > 0, "{:?}", lost());
    drop(guard);
    assert_eq!(metrics.exported.get(), 0);
}

#[test]
fn a_silent_collector_blocks_nobody() {
    // It accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = TraceMetrics::default();
    let (tracer, guard) = Tracer::start(&settings(silent.local_addr().unwrap(), 1.0), &metrics).unwrap();
    (0..20_000).for_each(|_| drop(tracer.check_span("grpc", || None).unwrap()));
    assert!(metrics.dropped.get() >= 20_000 - 2 * 4_096, "{}", metrics.dropped.get());
    // Waits two seconds, not the five of an export.
    drop(guard);
    assert_eq!(metrics.exported.get(), 0);
}

#[test]
fn off_is_off() {
    let is_read = std::cell::Cell::new(false);
    let span = Tracer::off().check_span("grpc", || {
        is_read.set(true);
        Some(PARENT)
    });
    assert!(span.is_none() && !is_read.get());
}

#[test]
fn invalid_settings_are_rejected() {
    let metrics = TraceMetrics::default();
    let error = |endpoint: &str, ratio| {
        let settings = OtlpSettings { endpoint: endpoint.to_owned(), ratio, service_name: "tollgate".to_owned() };
        Tracer::start(&settings, &metrics).unwrap_err()
    };
    for ratio in [-0.1, 1.1, f64::NAN] {
        assert!(error("http://127.0.0.1:4317", ratio).contains("write a number from 0 to 1"));
    }
    for endpoint in ["", "127.0.0.1:4317", "https://collector:4317", "grpc://collector"] {
        assert!(error(endpoint, 1.0).contains("write http://HOST:PORT"), "{endpoint}");
    }
    assert!(error("http://a b", 1.0).contains("can't be sent to"));
}
