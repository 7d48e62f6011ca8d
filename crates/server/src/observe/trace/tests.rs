//! Spans, and a collector that gets them.

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
use tollgate::{Descriptor, Limiter, LoadOptions, MemoryConfig, Request, Ruleset, now};
use tollgate_rules::{Source as RuleSource, load_sources};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::*;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const NOT_SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// A collector that hands on what it gets.
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

/// It runs until this is dropped.
struct Running {
    at: SocketAddr,
    got: mpsc::Receiver<ExportTraceServiceRequest>,
    _stop: oneshot::Sender<()>,
}

fn collector() -> Running {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (sender, got) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let (tell_address, address) = mpsc::channel();
    let serve = async move {
        let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        tell_address.send(incoming.local_addr().unwrap()).unwrap();
        let server = Server::builder().add_service(TraceServiceServer::new(Collector(sender)));
        tokio::select! {
            served = server.serve_with_incoming(incoming) => served.unwrap(),
            _ = stopped => {}
        }
    };
    std::thread::spawn(move || runtime.block_on(serve));
    Running { at: address.recv_timeout(PATIENCE).unwrap(), got, _stop: stop }
}

impl Running {
    /// The next spans, this many, and who they are said to be of.
    fn next(&self, many: usize) -> (BTreeMap<String, Value>, Vec<Received>) {
        let (mut resource, mut spans) = (BTreeMap::new(), Vec::new());
        while spans.len() < many {
            for of in self.got.recv_timeout(PATIENCE).unwrap().resource_spans {
                resource = attributes(of.resource.unwrap().attributes);
                spans.extend(of.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        assert_eq!(spans.len(), many);
        (resource, spans)
    }
}

fn attributes(list: Vec<Attribute>) -> BTreeMap<String, Value> {
    list.into_iter().map(|one| (one.key, one.value.unwrap().value.unwrap())).collect()
}

fn text(text: &str) -> Value {
    Value::StringValue(text.to_owned())
}

fn settings(at: SocketAddr, ratio: f64) -> OtlpSettings {
    OtlpSettings { endpoint: format!("http://{at}"), ratio, service_name: "tollgate".to_owned() }
}

/// The decisions on two requests in a row, of which the rule admits one.
fn decisions() -> [Decision; 2] {
    let text = "domain: shop\nrules:\n- {name: strict, key: [api_key], limit: 1/hour}\n";
    let source = RuleSource { name: "shop.yaml".into(), text: text.into() };
    let loaded = load_sources(&[source], &LoadOptions::default()).unwrap();
    let limiter = Limiter::new(Ruleset::compile(loaded.domains, 1).unwrap(), MemoryConfig::default().build());
    let entries = [("api_key", "sk_live_secret_value")];
    let descriptors = [Descriptor::new(&entries)];
    let request = Request { domain: Some("shop"), descriptors: &descriptors, cost: 1, ..Request::default() };
    [(); 2].map(|()| now(limiter.check(&request)).unwrap().unwrap())
}

#[test]
fn a_span_arrives_with_its_parent_and_what_was_decided() {
    let collector = collector();
    let metrics = TraceMetrics::default();
    let (tracer, guard) = Tracer::start(&settings(collector.at, 0.0), &metrics).unwrap();
    let [allowed, denied] = decisions();
    for (decision, level) in [(&allowed, None), (&denied, Some("degraded"))] {
        tracer.check_span("grpc", || Some(PARENT)).unwrap().decided(decision, level);
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
        assert!(!format!("{span:?}").contains("secret"), "{span:?}");
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
    let (tracer, _guard) = Tracer::start(&settings(collector.at, 0.0), &TraceMetrics::default()).unwrap();
    assert!(tracer.settle_span("http", || Some(NOT_SAMPLED)).is_none());
    tracer.settle_span("http", || Some(PARENT)).unwrap().settled(Ending::Failed, true);
    tracer.settle_span("http", || Some(PARENT)).unwrap().failed("already_settled");
    let [settled, refused] = collector.next(2).1.try_into().unwrap();
    for span in [&settled, &refused] {
        assert_eq!(span.name, "tollgate.settle");
        assert_eq!(span.parent_span_id, 0xb7ad6b7169203331_u64.to_be_bytes());
    }
    let told = attributes(settled.attributes);
    assert_eq!((&told["tollgate.wire"], &told["tollgate.outcome"]), (&text("http"), &text("failed")));
    assert_eq!(told["tollgate.stored"], Value::BoolValue(true));
    let status = refused.status.unwrap();
    assert_eq!((status.code, status.message.as_str()), (2, "already_settled"));
}

#[test]
fn the_end_sends_what_waits() {
    let collector = collector();
    let metrics = TraceMetrics::default();
    let (tracer, guard) = Tracer::start(&settings(collector.at, 1.0), &metrics).unwrap();
    (0..100).for_each(|_| drop(tracer.check_span("grpc", || None).unwrap()));
    drop(guard);
    assert_eq!(metrics.exported.get(), 100);
    let (_, spans) = collector.next(100);
    assert!(spans.iter().all(|span| span.parent_span_id.is_empty() && span.trace_id.iter().any(|byte| *byte != 0)));
    // Nobody sends any more; who ends a span is not held up.
    (0..10).for_each(|_| drop(tracer.check_span("grpc", || None).unwrap()));
    assert_eq!(metrics.dropped.get(), 10);
}

#[test]
fn the_caller_decides_and_where_there_is_none_the_ratio_does() {
    let collector = collector();
    let metrics = TraceMetrics::default();
    let traced = |ratio: f64, traceparent: Option<&str>| {
        let (tracer, _guard) = Tracer::start(&settings(collector.at, ratio), &metrics).unwrap();
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
fn without_a_collector_nothing_waits_and_what_is_lost_is_counted() {
    // Nobody listens on a port that was just free.
    let at = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let metrics = TraceMetrics::default();
    let (tracer, guard) = Tracer::start(&settings(at, 1.0), &metrics).unwrap();
    let lost = || (metrics.dropped.get(), metrics.failed.get());
    // More than can wait and be tried: with every refusal immediate, only the bound keeps this from growing.
    (0..100_000).for_each(|_| drop(tracer.check_span("grpc", || None).unwrap()));
    assert!(lost().0 > 0, "{:?}", lost());
    drop(guard);
    assert_eq!(metrics.exported.get(), 0);
}

#[test]
fn a_collector_that_says_nothing_holds_up_nobody() {
    // It takes connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = TraceMetrics::default();
    let (tracer, guard) = Tracer::start(&settings(silent.local_addr().unwrap(), 1.0), &metrics).unwrap();
    (0..20_000).for_each(|_| drop(tracer.check_span("grpc", || None).unwrap()));
    assert!(metrics.dropped.get() >= 20_000 - 2 * 4_096, "{}", metrics.dropped.get());
    // Two seconds, not the five that the collector has.
    drop(guard);
    assert_eq!(metrics.exported.get(), 0);
}

#[test]
fn off_is_off() {
    let asked = std::cell::Cell::new(false);
    let span = Tracer::off().check_span("grpc", || {
        asked.set(true);
        Some(PARENT)
    });
    assert!(span.is_none() && !asked.get());
}

#[test]
fn what_cannot_be_meant_is_told() {
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
