//! What a server is made of, built from its settings. Everything that can fail has failed before anything runs.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate::told::{Jitter, Told};
use tollgate::{Clock as _, Limiter, LoadOptions, Problem, Span, SystemClock};
use tollgate_store::Tending;

use super::receipts::Signing;
use super::store;
use super::who::{self, Guards};
use crate::admin::Admin;
use crate::config::{self, Data, DataAuth, Listen, RulesSettings, Settings, Workers};
use crate::control;
use crate::counters::redis::InRedis;
use crate::counters::{Counters, Shared, watch};
use crate::data_dir::{DataDir, OpenError};
use crate::decisions::Decisions;
use crate::gate::Gate;
use crate::health::Health;
use crate::net::Closing;
use crate::net::listener::Listener;
use crate::net::tls::{self, Tls, TlsFiles};
use crate::net::workers::{Door, Wire};
use crate::observe::log::{LogFormat, LogSettings};
use crate::observe::metrics::Metrics;
use crate::observe::trace::{OtlpSettings, TraceGuard, Tracer};
use crate::observe::{Sight, fleet, pulse};
use crate::receipts::Receipts;
use crate::receipts::keys::Agreement;
use crate::rules_watch::{self, Follower, LastGood, LayerHandle, RulesSource, Waker};
use crate::snapshots::{Snapshots, Watched};
use crate::tokens::Keys;
use crate::wire::envoy::{self, Envoy, Extras, HeaderNames};
use crate::wire::grpc::{self, Grpc, GrpcConfig, Others};
use crate::wire::http::{self, Http, HttpConfig};
use crate::wire::resp::Resp;

/// All that runs.
pub(super) struct Parts {
    /// Served by the workers.
    pub(super) doors: Vec<Door>,
    /// Served beside them.
    pub(super) admin: Option<Door>,
    /// Where all of these listen, in the order of the banner.
    pub(super) addresses: Vec<(&'static str, String)>,
    pub(super) rules: Rules,
    pub(super) health: Arc<Health>,
    /// What goes on beside serving, until the server is about to stop.
    pub(super) background: Vec<Task>,
    /// What other servers are told last.
    pub(super) farewell: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(super) kept: Kept,
    /// Where the counters are, if they are not in memory.
    pub(super) redis: Option<Arc<InRedis>>,
    /// With those who share them, on the key of receipts.
    pub(super) agreement: Option<Arc<Agreement>>,
    /// What is logged of decisions: the last of it is written when all connections have ended.
    pub(super) decisions: Arc<Decisions>,
    /// Redis is spoken to as long as this is held: until the last connection has ended.
    pub(super) tending: Option<Tending>,
    /// Spans are sent as long as this is held.
    pub(super) traces: Option<TraceGuard>,
}

pub(super) type Task = Box<dyn FnOnce(Closing) -> Pin<Box<dyn Future<Output = ()> + Send>>>;

/// The rules, not yet followed.
pub(super) struct Rules {
    follower: Follower,
    poll: Duration,
}

/// What is kept when the server has stopped.
#[derive(Clone)]
pub(super) struct Kept {
    limiter: Arc<Limiter<Counters>>,
    snapshots: Option<Snapshots>,
    /// Held until all is written.
    _data: Option<Arc<DataDir>>,
}

impl Parts {
    /// Builds everything and binds all listeners.
    ///
    /// # Errors
    /// All reasons that could be found, each with what to do.
    pub(super) fn build(settings: &Settings, metrics: Arc<Metrics>, runtime: &Runtime) -> Result<Parts, Vec<String>> {
        let data = data_dir(&settings.data).map_err(|reason| vec![reason])?.map(Arc::new);
        let health = Arc::new(Health::default());
        let last_good = data.as_deref().map(LastGood::new);
        let loaded = super::control::loaded(settings, data.as_deref(), runtime).map_err(|reason| vec![reason])?;
        let clock = SystemClock::default();
        let layer = LayerHandle::new(loaded.controls.layer(clock.now()));
        let source = rules_source(settings, layer.clone());
        let started = source.start(last_good.as_ref()).map_err(|problems| refused_rules(&problems))?;
        for warning in &started.warnings {
            tracing::warn!("{warning}");
        }
        let store = store::Kept::build(settings, data.as_ref().map(|data| data.path()), &health);
        let store::Kept { counters, snapshots, redis } = store.map_err(|reason| vec![reason])?;
        let keep_once = Span::from_micros(u64::try_from(settings.idempotency.ttl.as_micros()).unwrap_or(u64::MAX));
        let sink =
            super::decisions::sink(settings, loaded.db.as_ref(), data.as_deref()).map_err(|reason| vec![reason])?;
        let sight = Sight::new(&settings.observe, (settings.shadow_mode, counters.wait()), sink, clock.now());
        let sight = Arc::new(sight);
        let limiter = Limiter::new(started.rules, counters).keeping_once(keep_once);
        let limiter = Arc::new(limiter.with_witness(sight.observer.clone()));
        let shared = redis.clone().map(|redis| redis as Arc<dyn Shared>);
        let signing = Signing::build(settings, data.as_deref(), shared, metrics.receipts().clone());
        let Signing { receipts, agreement } = signing.map_err(|reason| vec![reason])?;
        metrics.watch(limiter.clone(), health.clone(), receipts.clone(), sight.clone());
        let (seen, now) = (sight.clone(), SystemClock::default());
        metrics.ask_for_top_denied(move || seen.top_denied(now.now()));
        let logged = sight.decisions.clone();
        metrics.ask_for_log_entries(move || logged.counts());
        let control = control::Control::new(
            loaded,
            control::Parts {
                limiter: limiter.clone(),
                rules: source.clone(),
                layer,
                health: health.clone(),
                metrics: metrics.control().clone(),
                clock: Box::new(clock),
            },
        );
        let follower = Follower::new(
            source,
            started.seen,
            &started.errors,
            limiter.clone(),
            last_good,
            health.clone(),
            metrics.rules().clone(),
        );

        let (tracer, traces) = tracer(settings, &metrics).map_err(|reason| vec![reason])?;
        let mut doors = Doors { metrics: &metrics, addresses: Vec::new(), errors: Vec::new(), secured: Vec::new() };
        let mut background: Vec<Task> = Vec::new();
        let gate = |wire, most| {
            let gate = Gate::new(limiter.clone(), settings.shadow_mode, most, metrics.wire(wire));
            Arc::new(gate.traced(wire, tracer.clone()).seen_by(sight.observer.clone()))
        };
        let Guards { keys, auth } =
            who::build(settings, &control, &metrics, &health, &mut background).map_err(|reason| vec![reason])?;
        let keys_of = |auth| (auth == DataAuth::Token).then(|| keys.clone());
        let grpc = grpc(settings, gate("grpc", settings.grpc.max_in_flight), &health, &mut background)?;
        let grpc = Arc::new(grpc.guarded_by(keys_of(settings.grpc.auth)));
        let grpc = doors.open("grpc", &settings.grpc.listen, grpc);
        let http =
            http(settings, gate("http", settings.http.max_in_flight), receipts, &health, keys_of(settings.http.auth));
        let http = doors.open("http", &settings.http.listen, http);
        let decisions = sight.decisions.clone();
        let admin = Admin::new(metrics.clone(), health.clone(), control.clone(), auth, sight.clone());
        let admin = doors.open("admin", &settings.admin.listen, admin);
        let resp = Resp::new(gate("resp", settings.resp.max_in_flight));
        let resp = doors.open("resp", &settings.resp.listen, resp);
        let Doors { addresses, errors, secured, .. } = doors;
        for tls in secured {
            let health = health.clone();
            background.push(Box::new(move |closing| Box::pin(tls.follow(tls::LOOK_EVERY, health, closing))));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        if let Some(snapshots) = snapshots.clone() {
            let watched = Watched { health: health.clone(), metrics: metrics.snapshots().clone() };
            let (limiter, interval) = (limiter.clone(), settings.snapshot_interval);
            background.push(Box::new(move |closing| Box::pin(snapshots.keep(limiter, interval, watched, closing))));
        }
        let (following, copying) = (control.clone(), control.clone());
        let (telling, watched) = (control.clone(), control.clone());
        let seen = sight.clone();
        background.push(Box::new(move |closing| Box::pin(pulse::watch(seen, watched, closing))));
        let shared = settings.control.snapshots.clone();
        background.push(Box::new(move |closing| Box::pin(following.follow(closing))));
        background.push(Box::new(move |closing| Box::pin(copying.keep_copy(closing))));
        background.push(Box::new(move |closing| Box::pin(control.keep(shared, closing))));
        let farewell = Box::pin(fleet::leave(sight.clone(), telling.clone()));
        background.push(Box::new(move |closing| Box::pin(fleet::keep(sight, telling, closing))));
        let (logging, logged) = (decisions.clone(), health.clone());
        background
            .push(Box::new(move |closing| Box::pin(logging.keep_writing(logged, SystemClock::default(), closing))));
        let mut tending = None;
        if let Some(redis) = redis.clone() {
            let started = redis.tend().map_err(|error| vec![format!("no thread for Redis: {error}")])?;
            tending = Some(started);
            let health = health.clone();
            background.push(Box::new(move |closing| Box::pin(watch::watch(redis, health, closing))));
        }
        if let Some(agreement) = agreement.clone() {
            background.push(Box::new(move |closing| Box::pin(agreement.keep(closing))));
        }
        Ok(Parts {
            doors: [grpc, http, resp].into_iter().flatten().collect(),
            admin,
            addresses,
            rules: Rules { follower, poll: settings.rules.poll },
            health,
            background,
            farewell,
            kept: Kept { limiter, snapshots, _data: data },
            redis,
            agreement,
            decisions,
            tending,
            traces,
        })
    }
}

impl Rules {
    /// Follows the files from now on.
    pub(super) fn watch(self) -> io::Result<(Waker, JoinHandle<()>)> {
        rules_watch::watch(self.follower, self.poll)
    }
}

impl Kept {
    /// Writes it, for the last time.
    pub(super) fn save(&self) {
        let Some(snapshots) = &self.snapshots else { return };
        if let Err(error) = snapshots.save_of(&*self.limiter) {
            let path = snapshots.path();
            tracing::error!(path = %path.display(), %error, "the counters could not be kept");
        }
    }
}

/// Binds listeners, and remembers what could not be bound.
struct Doors<'m> {
    metrics: &'m Metrics,
    addresses: Vec<(&'static str, String)>,
    errors: Vec<String>,
    secured: Vec<Arc<Tls>>,
}

fn files(tls: &config::Tls) -> TlsFiles {
    let clients = tls.clients.as_ref();
    TlsFiles {
        cert: tls.cert.clone(),
        key: tls.key.clone(),
        client_ca: clients.map(|clients| clients.ca.clone()),
        client_sans: clients.map(|clients| clients.sans.clone()).unwrap_or_default(),
    }
}

/// What clients may agree on with us to speak.
fn protocols(listener: &str) -> &'static [&'static [u8]] {
    match listener {
        "grpc" => &[b"h2"],
        "resp" => &[],
        _ => &[b"http/1.1"],
    }
}

impl Doors<'_> {
    fn open(&mut self, name: &'static str, listen: &Listen, wire: Arc<dyn Wire>) -> Option<Door> {
        let tls = match listen.tls.as_ref().map(|tls| Tls::load(files(tls), protocols(name))).transpose() {
            Ok(tls) => tls.map(Arc::new),
            Err(error) => {
                self.errors.push(format!("{name} can't have TLS: {error}"));
                return None;
            }
        };
        self.secured.extend(tls.clone());
        match Listener::bind(&listen.address) {
            Ok(None) => None,
            Ok(Some(listener)) => {
                self.addresses.push((name, listener.to_string()));
                Some(Door {
                    listener,
                    wire,
                    tls,
                    max_connections: listen.max_connections,
                    metrics: self.metrics.listener(name),
                })
            }
            Err(error) => {
                let address = &listen.address;
                let remedy = format!("stop what listens there, or choose another with --{name}");
                self.errors.push(format!("{name} can't listen on {address}: {error}; {remedy}"));
                None
            }
        }
    }
}

fn data_dir(data: &Data) -> Result<Option<DataDir>, String> {
    let Data::Directory { path, asked_for } = data else { return Ok(None) };
    match DataDir::open(path) {
        Ok(data) => Ok(Some(data)),
        Err(OpenError::InUse(reason)) => Err(reason),
        Err(OpenError::Unusable(reason)) if *asked_for => Err(reason),
        Err(OpenError::Unusable(reason)) => {
            tracing::warn!("{reason}; counters and rules are not kept for a restart");
            Ok(None)
        }
    }
}

fn rules_source(settings: &Settings, layer: LayerHandle) -> RulesSource {
    let RulesSettings { paths, merge_domains, every_file, .. } = &settings.rules;
    if paths.is_empty() {
        tracing::warn!("no rules were given: these are the built-in example; name your own with --rules PATH");
    }
    let options = LoadOptions { merge_domains: *merge_domains, every_file: *every_file };
    RulesSource::new(paths.clone(), options, layer)
}

fn refused_rules(problems: &[Problem]) -> Vec<String> {
    let told = problems.iter().map(ToString::to_string);
    let end = "the rule files have errors, and there are no last good rules to run on; correct them and start again";
    told.chain([end.to_owned()]).collect()
}

fn grpc(
    settings: &Settings,
    gate: Arc<Gate>,
    health: &Arc<Health>,
    background: &mut Vec<Task>,
) -> Result<Grpc, Vec<String>> {
    let grpc = &settings.grpc;
    let (others, reporter) = Others::new().map_err(|error| vec![format!("reflection: {error}")])?;
    let health = health.clone();
    background.push(Box::new(move |_| Box::pin(grpc::follow_health(health, reporter))));
    let config = GrpcConfig {
        max_message: grpc.max_message,
        max_streams: grpc.max_streams,
        max_age: grpc.max_connection_age,
        age_grace: grpc.max_connection_age_grace,
        keepalive: grpc.keepalive,
        keepalive_timeout: grpc.keepalive_timeout,
        body_timeout: settings.http.body_timeout,
    };
    Ok(Grpc::new(Arc::new(Envoy::new(gate, extras(settings))), others, config))
}

fn extras(settings: &Settings) -> Extras {
    let headers = settings.grpc.response_headers.as_ref().map(|names| HeaderNames {
        limit: names.limit.clone(),
        remaining: names.remaining.clone(),
        reset: names.reset.clone(),
    });
    Extras { headers, metadata: settings.grpc.dynamic_metadata }
}

fn http(
    settings: &Settings,
    gate: Arc<Gate>,
    receipts: Arc<Receipts>,
    health: &Arc<Health>,
    keys: Option<Arc<Keys>>,
) -> Arc<Http> {
    let envoy = Arc::new(Envoy::new(gate.clone(), extras(settings)));
    HttpConfig {
        gate,
        receipts,
        health: health.clone(),
        told: told(settings),
        authorize: settings.http.authorize.clone(),
        times: http::Times { idle: settings.http.idle_timeout, body: settings.http.body_timeout },
        keys,
        extra: Some(envoy::routes(envoy, settings.http.body_timeout)),
        extra_docs: Some(envoy::description()),
    }
    .build()
}

fn tracer(settings: &Settings, metrics: &Metrics) -> Result<(Tracer, Option<TraceGuard>), String> {
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

fn told(settings: &Settings) -> Told {
    Told {
        dialects: settings.http.headers,
        jitter: settings.http.retry_jitter.map_or(Jitter::Off, |share| Jitter::Of10000(share.parts)),
        scope_values: settings.http.scope_values,
    }
}

/// How to log.
pub(super) fn log_settings(settings: &Settings) -> LogSettings {
    let format = match settings.observe.log_format {
        config::LogFormat::Text => LogFormat::Text,
        config::LogFormat::Json => LogFormat::Json,
    };
    LogSettings { filter: settings.observe.log_level.parse().unwrap_or_default(), format }
}

/// How many threads serve connections.
pub(super) fn workers(settings: &Settings) -> usize {
    match settings.workers {
        Workers::Count(count) => count.get(),
        Workers::Auto => std::thread::available_parallelism().map_or(1, usize::from),
    }
}
