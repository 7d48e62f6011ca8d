//! The admin API in this process: requests, answers, and what decisions are like then. A real store of record, in a file of its own.

mod audit;
mod blocks;
mod counters;
mod decisions;
mod emergencies;
mod expired;
mod gateway;
mod guardrails;
mod leases;
mod observability;
mod openapi;
mod plans;
mod region_pages;
mod regions;
mod rules;
mod switches;
mod top;
mod writes;

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::{Extension, Router};
use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;
use tempfile::TempDir;
use tollgate::{
    Clock as _, Decision, Descriptor, KnownRegions, Limiter, LoadOptions, ManualClock, MemoryConfig, RegionNames,
    Request as Asking, Span, Timestamp,
};
use tollgate_control::DbLocation;
use tollgate_gateway::Gateway;
use tower::ServiceExt as _;

use crate::auth::Auth;
use crate::guardrails::Guardrails;
use crate::observe::Observability;
use crate::rule_source::{LayerHandle, RuleReloader, RuleSource};
use crate::scopes::{AccessScope, AccessScopes, Principal};
use crate::store_of_record::{ControlPlane, ControlPlaneParts, Sources, load};
use tollgate_events::{Journal, Subscriptions};
use tollgate_store::Counters;
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::Metrics;

/// The rules of most tests. Their windows are long, so that none ends while a test runs.
pub(crate) const SHOP: &str = "\
domain: shop
entity: api_key
tiers: {free: {paid: false}, pro: {}}
default_tier: free
rules:
- {name: per-key, key: [api_key], limit: {free: 10/year, pro: 1000/year}, algorithm: fixed_window}
- {name: orders, match: {endpoint: POST /orders}, key: [api_key, endpoint], limit: 5/year, algorithm: fixed_window}
- {name: busy, match: {slow: present}, key: [api_key], limit: 3 concurrent}
";

/// When tests begin.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_750_000_000);

/// A server's control plane, as far as its API needs one.
pub(crate) struct Bench {
    home: TempDir,
    pub control: Arc<ControlPlane>,
    pub clock: ManualClock,
    pub observability: Arc<Observability>,
    pub health: Arc<Health>,
    pub sinks: Arc<Subscriptions>,
    router: Router,
    reloader: Mutex<RuleReloader>,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Bench {
    pub(crate) async fn new(file: &str) -> Bench {
        Bench::on(file, Counters::Memory(MemoryConfig::default().build())).await
    }

    /// One whose counters are these.
    pub(crate) async fn on(file: &str, counters: Counters) -> Bench {
        Bench::with(file, counters, None, LoadOptions::default()).await
    }

    /// One of several regions.
    pub(crate) async fn in_regions(file: &str, counters: Counters, regions: RegionNames) -> Bench {
        let options = LoadOptions { regions: KnownRegions::All(regions), ..LoadOptions::default() };
        Bench::with(file, counters, None, options).await
    }

    /// One with a gateway.
    pub(crate) async fn with_gateway(file: &str, gateway: Arc<Gateway>) -> Bench {
        Bench::with(file, Counters::Memory(MemoryConfig::default().build()), Some(gateway), LoadOptions::default())
            .await
    }

    async fn with(file: &str, counters: Counters, gateway: Option<Arc<Gateway>>, options: LoadOptions) -> Bench {
        let home = TempDir::new().unwrap();
        let path = home.path().join("rules.yaml");
        std::fs::write(&path, file).unwrap();
        let place = Some(DbLocation::File(home.path().join("control.db")));
        let loaded = load(&Sources { place, copy: None, snapshots: None }).await.unwrap();
        let (clock, layer) = (ManualClock::at(START), LayerHandle::default());
        let rules = RuleSource::new(vec![path], options, layer.clone());
        let started = rules.start(None).unwrap();
        let observability = Observability::for_tests_at(START);
        let limiter = Limiter::new(started.rules, counters).with_clock(clock.clone());
        let limiter = Arc::new(limiter.with_witness(observability.observer.clone()));
        let (metrics, health) = (Metrics::new(), Arc::new(Health::default()));
        let parts = ControlPlaneParts {
            limiter: limiter.clone(),
            rules: rules.clone(),
            layer,
            health: health.clone(),
            metrics: metrics.control().clone(),
            changes: metrics.changes().clone(),
            clock: Box::new(clock.clone()),
        };
        let control = ControlPlane::new(loaded, parts);
        let reloader = RuleReloader::new(rules, started.state, &[], limiter, None, health.clone(), &metrics);
        let auth = Auth::local(&control, &metrics);
        let sinks = Arc::new(Subscriptions::new(Arc::new(Journal::in_memory()), Arc::new(clock.clone())));
        let guardrails = Guardrails::for_tests(&control, &observability, &metrics);
        let state = super::observability::AdminState::new(
            observability.clone(),
            metrics,
            health.clone(),
            control.clone(),
            auth,
            sinks.clone(),
        )
        .with_gateway(gateway);
        let router = super::routes(control.clone()).merge(super::observability::routes(state));
        let router = router.layer(Extension(guardrails));
        Bench { home, control, clock, observability, health, sinks, router, reloader: Mutex::new(reloader) }
    }

    /// The folder of the rules and of the database.
    pub(crate) fn directory(&self) -> &std::path::Path {
        self.home.path()
    }

    /// Sends a request, and has what it changed compiled.
    pub(crate) async fn send(&self, who: Principal, mut request: Request) -> Response {
        request.extensions_mut().insert(who);
        let response = self.router.clone().oneshot(request).await.unwrap();
        self.reloader.lock().unwrap().reload(false);
        response
    }

    /// A request with a body and further headers, by one who may do these things.
    pub(crate) async fn ask_as(
        &self,
        scopes: &[AccessScope],
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answered {
        let principal = Principal {
            name: "token tests".to_owned(),
            from: "192.0.2.1".to_owned(),
            scopes: scopes.iter().copied().collect::<AccessScopes>(),
        };
        self.ask_by(principal, (method, path), headers, body).await
    }

    /// A request by a certain caller.
    pub(crate) async fn ask_by(
        &self,
        principal: Principal,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answered {
        let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(path);
        if !body.is_empty() && headers.iter().all(|(name, _)| *name != "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.send(principal, request.body(Body::from(body.to_owned())).unwrap()).await;
        Answered::of(response).await
    }

    /// The same by one who may do everything.
    pub(crate) async fn ask(&self, what: (&str, &str), headers: &[(&str, &str)], body: &str) -> Answered {
        self.ask_as(&AccessScope::ALL, what, headers, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        self.ask(("GET", path), &[], "").await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answered {
        self.ask(("PUT", path), &[], &body.to_string()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answered {
        self.ask(("POST", path), &[], &body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answered {
        self.ask(("DELETE", path), &[], "").await
    }

    /// What is decided about a request with these attributes, at this cost.
    pub(crate) async fn decide(&self, attributes: &[(&str, &str)], cost: u64) -> Decision {
        self.decide_in("shop", attributes, cost).await
    }

    /// The same in another domain than the usual one.
    pub(crate) async fn decide_in(&self, domain: &str, attributes: &[(&str, &str)], cost: u64) -> Decision {
        let descriptors = [Descriptor::new(attributes)];
        let request = Asking { domain: Some(domain), cost, descriptors: &descriptors, ..Asking::default() };
        self.control.limiter().check_request(&request).await.unwrap()
    }

    /// Puts another rule file in the place of the one that is there.
    pub(crate) fn rewrite(&self, file: &str) {
        std::fs::write(self.home.path().join("rules.yaml"), file).unwrap();
        self.reloader.lock().unwrap().reload(false);
    }

    /// Looks at what was counted, as the server does each second.
    pub(crate) fn look(&self) {
        self.observability.sampler.sample(&self.observability.observer, &self.control);
    }

    /// Moves the clock.
    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.set(self.clock.now().after(Span::from_secs(seconds)));
    }
}

impl Answered {
    async fn of(response: Response) -> Answered {
        let (head, body) = response.into_parts();
        let body = axum::body::to_bytes(body, 64 << 20).await.unwrap();
        let body = serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned().into());
        Answered { status: head.status.as_u16(), headers: head.headers, body }
    }

    /// The answer to what must succeed.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, StatusCode::OK.as_u16(), "{}", self.body);
        self.body
    }

    /// The code of what must not.
    #[track_caller]
    pub(crate) fn code(&self, status: u16) -> &str {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json", "{}", self.body);
        self.body["code"].as_str().unwrap()
    }

    /// Where the faults are of a body that must have some.
    #[track_caller]
    pub(crate) fn faults(&self) -> Vec<(&str, &str)> {
        assert_eq!(self.code(422), "invalid", "{}", self.body);
        let faults = self.body["faults"].as_array().unwrap().iter();
        faults.map(|fault| (fault["at"].as_str().unwrap(), fault["what"].as_str().unwrap())).collect()
    }

    pub(crate) fn tag(&self) -> &str {
        self.headers["etag"].to_str().unwrap()
    }
}
