//! The wires of a server on counters in memory, as the binary builds them, and connections to them.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tollgate::{Counters, Limiter, MemoryConfig};
use tollgate_http::request_target::PathNormalization;
use tollgate_http::response::{Dialects, Jitter, ResponseStyle, ScopeValues};
use tollgate_net::closing::Closer;
use tollgate_net::workers::Wire;
use tollgate_net::{Closing, Stream};
use tollgate_observe::{Observer, ObserverConfig};
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::Metrics;
use tollgate_wire::envoy::{Envoy, ResponseExtras};
use tollgate_wire::grpc::{AuxiliaryServices, Grpc, GrpcConfig};
use tollgate_wire::http::{AuthorizeSettings, HostSettings, Http, HttpConfig, HttpTimeouts};
use tollgate_wire::resp::Resp;
use tollgate_wire::{Gate, Receipts};

use crate::client::RawClient;

/// A runtime with one thread, and what ends its connections.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) runtime: Runtime,
    _closer: Closer,
    closing: Closing,
}

const RULES: &str = "
domain: api
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: 1000000/day, algorithm: gcra}
";

const MAX_IN_FLIGHT: usize = 1024;

impl Server {
    pub(crate) fn new() -> Rc<Server> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let (closer, closing) = Closer::new();
        let runtime = runtime.unwrap_or_else(|error| unreachable!("{error}"));
        Rc::new(Server { runtime, _closer: closer, closing })
    }

    /// A client of this wire. Its connection is served by the runtime.
    pub(crate) fn connect<W: Wire>(&self, wire: &Arc<W>) -> RawClient {
        let _entered = self.runtime.enter();
        let (ours, theirs) = UnixStream::pair().unwrap_or_else(|error| unreachable!("{error}"));
        self.runtime.spawn(wire.clone().serve(Stream::Unix(theirs), self.closing.clone(), Arc::default()));
        RawClient::new(ours)
    }

    pub(crate) fn grpc(&self) -> Arc<Grpc> {
        let _entered = self.runtime.enter();
        let Ok((others, _)) = AuxiliaryServices::new() else { unreachable!("reflection is described") };
        let config = GrpcConfig {
            max_message: 256 * 1024,
            max_streams: 1_024,
            max_age: None,
            age_grace: Duration::from_secs(1),
            keepalive: Duration::from_secs(3_600),
            keepalive_timeout: Duration::from_secs(3_600),
            body_timeout: Duration::from_secs(60),
        };
        let extras = ResponseExtras { client: Some(style()), ..ResponseExtras::default() };
        Arc::new(Grpc::new(Arc::new(Envoy::new(gate("grpc"), extras)), others, config))
    }

    pub(crate) fn http(&self) -> Arc<Http> {
        let Ok(receipts) = Receipts::ephemeral() else { unreachable!("the system has randomness") };
        HttpConfig {
            gate: gate("http"),
            receipts,
            health: Arc::new(Health::default()),
            style: style(),
            authorize: AuthorizeSettings::default(),
            normalization: PathNormalization::default(),
            timeouts: HttpTimeouts { idle: Duration::from_secs(3_600), body: Duration::from_secs(60) },
            hosts: HostSettings::default(),
            access: None,
            extra: None,
        }
        .build()
    }

    pub(crate) fn resp(&self) -> Arc<Resp> {
        Resp::new(gate("resp"), Duration::from_secs(60))
    }
}

/// Responses as the binary has them, without randomness.
pub(crate) fn style() -> ResponseStyle {
    ResponseStyle { dialects: Dialects::default(), jitter: Jitter::Off, scope_values: ScopeValues::Shortened }
}

/// A gate as the binary has it: decisions are observed.
fn gate(wire: &'static str) -> Arc<Gate> {
    gate_with(wire, RULES)
}

pub(crate) fn gate_with(wire: &'static str, rules: &str) -> Arc<Gate> {
    let rules = match tollgate::Ruleset::from_text(rules, 1) {
        Ok((rules, _)) => rules,
        Err(problems) => unreachable!("the rules are sound: {problems:?}"),
    };
    let observer = Arc::new(Observer::new(ObserverConfig::default(), Arc::default()));
    let limiter = Limiter::new(rules, Counters::from(MemoryConfig::default().build()));
    let limiter = limiter.with_witness(observer.clone());
    Arc::new(Gate::new(Arc::new(limiter), false, MAX_IN_FLIGHT, Metrics::new().wire(wire)).with_observer(observer))
}
