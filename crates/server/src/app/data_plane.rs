//! Builds the protocols of gateways and applications, each with its own gate.

use std::sync::Arc;

use tollgate::Limiter;
use tollgate_admin::observe::Observability;
use tollgate_admin::tokens::TokenIndex;
use tollgate_http::response::{Jitter, ResponseStyle};
use tollgate_net::Address;
use tollgate_store::Counters;
use tollgate_telemetry::metrics::Metrics;
use tollgate_telemetry::trace::{OtlpSettings, TraceGuard, Tracer};
use tollgate_wire::envoy::{self, Envoy, HeaderNames, ResponseExtras};
use tollgate_wire::grpc::{self, AuxiliaryServices, Grpc, GrpcConfig};
use tollgate_wire::http::{self, Http, HttpConfig};
use tollgate_wire::resp::Resp;
use tollgate_wire::{AccessControl, Gate, Receipts, UnknownDomains};

use super::access::is_local;
use super::component::{Foundation, Tasks};
use super::gateway::GatewayListeners;
use crate::config::{DataAuth, ServerSettings};

/// The protocols, ready to be served.
pub(super) struct DataPlane {
    pub(super) grpc: Arc<Grpc>,
    pub(super) http: Arc<Http>,
    pub(super) resp: Arc<Resp>,
    pub(super) gateway: Option<GatewayListeners>,
    /// Spans are exported as long as this guard lives.
    pub(super) traces: Option<TraceGuard>,
}

/// The components that the protocols use.
pub(super) struct DataPlaneDeps<'d> {
    pub(super) limiter: &'d Arc<Limiter<Counters>>,
    pub(super) observability: &'d Observability,
    pub(super) receipts: Arc<Receipts>,
    pub(super) keys: &'d Arc<TokenIndex>,
}

impl DataPlane {
    /// # Errors
    /// If traces can't be exported, reflection can't be described, or the gateway's file has errors.
    pub(super) fn build(
        foundation: &Foundation<'_>,
        deps: DataPlaneDeps<'_>,
        tasks: &mut Tasks,
    ) -> Result<DataPlane, Vec<String>> {
        let one = |reason: String| vec![reason];
        let Foundation { settings, metrics, .. } = foundation;
        let DataPlaneDeps { limiter, observability, receipts, keys } = deps;
        let (tracer, traces) = tracer(settings, metrics).map_err(one)?;
        let (unknown_domains, health) = (Arc::new(UnknownDomains::default()), foundation.health.clone());
        let followed = unknown_domains.clone();
        tasks.add(move |_| followed.follow(health));
        let gate = |wire, max_in_flight| {
            let gate = Gate::new(limiter.clone(), settings.shadow_mode, max_in_flight, metrics.wire(wire));
            let gate = gate.with_tracer(wire, tracer.clone()).with_observer(observability.observer.clone());
            Arc::new(gate.with_unknown_domains(unknown_domains.clone()))
        };
        let access = |auth| (auth == DataAuth::Token).then(|| keys.clone() as Arc<dyn AccessControl>);
        let grpc = grpc(foundation, gate("grpc", settings.grpc.max_in_flight), tasks).map_err(one)?;
        let grpc = Arc::new(grpc.with_access_control(access(settings.grpc.auth)));
        let http_gate = gate("http", settings.http.max_in_flight);
        let http = http(foundation, http_gate, receipts, access(settings.http.auth));
        let resp = Resp::new(gate("resp", settings.resp.max_in_flight), settings.http.body_timeout);
        let gateway = GatewayListeners::build(
            foundation,
            response_style(settings),
            || gate("gateway", settings.http.max_in_flight),
            tasks,
        )?;
        Ok(DataPlane { grpc, http, resp, gateway, traces })
    }
}

fn grpc(foundation: &Foundation<'_>, gate: Arc<Gate>, tasks: &mut Tasks) -> Result<Grpc, String> {
    let settings = foundation.settings;
    let (others, reporter) = AuxiliaryServices::new().map_err(|error| format!("reflection: {error}"))?;
    let health = foundation.health.clone();
    tasks.add(move |_| grpc::follow_health(health, reporter));
    let config = GrpcConfig {
        max_message: settings.grpc.max_message,
        max_streams: settings.grpc.max_streams,
        max_age: settings.grpc.max_connection_age,
        age_grace: settings.grpc.max_connection_age_grace,
        keepalive: settings.grpc.keepalive,
        keepalive_timeout: settings.grpc.keepalive_timeout,
        body_timeout: settings.http.body_timeout,
    };
    Ok(Grpc::new(Arc::new(Envoy::new(gate, extras(settings))), others, config))
}

fn extras(settings: &ServerSettings) -> ResponseExtras {
    let headers = settings.grpc.response_headers.as_ref().map(|names| HeaderNames {
        limit: names.limit.clone(),
        remaining: names.remaining.clone(),
        reset: names.reset.clone(),
    });
    let client = settings.grpc.full_responses.then(|| response_style(settings));
    ResponseExtras { client, headers, metadata: settings.grpc.dynamic_metadata }
}

fn http(
    foundation: &Foundation<'_>,
    gate: Arc<Gate>,
    receipts: Arc<Receipts>,
    keys: Option<Arc<dyn AccessControl>>,
) -> Arc<Http> {
    let settings = foundation.settings;
    // Over /json, statuses and codes are what clients read.
    let extras = ResponseExtras { client: None, ..extras(settings) };
    let envoy = Arc::new(Envoy::new(gate.clone(), extras));
    HttpConfig {
        gate,
        receipts,
        health: foundation.health.clone(),
        style: response_style(settings),
        authorize: settings.http.authorize.clone(),
        normalization: settings.http.normalization,
        timeouts: http::HttpTimeouts { idle: settings.http.idle_timeout, body: settings.http.body_timeout },
        hosts: http::HostSettings {
            // Pages can't reach a Unix socket.
            is_loopback: matches!(settings.http.listen.address, Address::Tcp { .. })
                && is_local(&settings.http.listen.address),
            allowed: settings.http.allowed_hosts.clone(),
        },
        access: keys,
        extra: Some(envoy::routes(envoy, settings.http.body_timeout)),
    }
    .build()
}

fn response_style(settings: &ServerSettings) -> ResponseStyle {
    ResponseStyle {
        dialects: settings.http.headers,
        jitter: settings.http.retry_jitter.map_or(Jitter::Off, |share| Jitter::Bps(share.bps)),
        scope_values: settings.http.scope_values,
    }
}

fn tracer(settings: &ServerSettings, metrics: &Metrics) -> Result<(Tracer, Option<TraceGuard>), String> {
    let observe = &settings.observe;
    let Some(endpoint) = &observe.otlp_endpoint else { return Ok((Tracer::off(), None)) };
    let otlp = OtlpSettings {
        endpoint: endpoint.as_str().to_owned(),
        ratio: observe.otlp_sample.as_fraction(),
        service_name: observe.service_name.clone(),
    };
    let (tracer, guard) = Tracer::start(&otlp, metrics.traces())?;
    Ok((tracer, Some(guard)))
}
