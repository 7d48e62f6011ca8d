//! What a gateway does at the moment, for operators.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use serde::Serialize;
use tollgate_shed::{ByClass, Class, ShedMode, Shedder};

use crate::gateway::Gateway;
use crate::keys::KeyDocument;
use crate::model::{HostPattern, RouteConfig, Segment};
use crate::plan::RouteCounts;
use crate::tier_status::{FairnessStatusOf, ReserveStatusOf};
use crate::upstream::{Upstream, UpstreamServer};

/// The routes and upstreams of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GatewayStatus {
    pub routes: Vec<RouteStatus>,
    pub upstreams: Vec<UpstreamStatus>,
    /// `None` if there is no gateway.
    pub worker: Option<WorkerSheddingStatus>,
    /// Refused requests by shedder.
    pub shed: Vec<ShedStatus>,
    /// What tokens are verified with.
    pub keys: Vec<KeysStatus>,
}

/// The keys of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeysStatus {
    /// The file, or the URL.
    pub source: String,
    pub keys: usize,
    /// Attempts to load them that failed.
    pub failures: u64,
    /// Why the last attempt failed, if it did.
    pub error: Option<String>,
    /// Tokens that were not accepted, by the reason.
    pub refused: BTreeMap<&'static str, u64>,
}

/// The shedder of an overloaded process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorkerSheddingStatus {
    pub mode: &'static str,
    /// How busy this process is, from 0 to 1.
    pub utilisation: f64,
    /// The share of the requests that is shed, from 0 to 1.
    pub amount: f64,
    /// Requests that were refused, or would be in mode `shadow`.
    pub refused: RefusedByClass,
}

/// The requests that a shedder refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ShedStatus {
    /// `adaptive`, `fairness`, `worker` or `fleet`.
    pub by: &'static str,
    pub refused: RefusedByClass,
}

/// A route, and the responses to its requests so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteStatus {
    pub name: String,
    /// `GET,POST api.example.com/v1/orders/*`
    pub matches: String,
    pub upstream: String,
    /// Responses by the first digit of their status: `2xx` and so on.
    pub informational: u64,
    pub successful: u64,
    pub redirected: u64,
    pub client_errors: u64,
    pub server_errors: u64,
    /// Of the client errors, those by limits.
    pub limited: u64,
    /// Of the server errors, those to protect the upstream or this server.
    pub shed: u64,
    /// Requests whose cost was estimated, because their responses did not say it.
    pub estimated: u64,
}

/// An upstream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UpstreamStatus {
    pub name: String,
    pub requests: u64,
    pub retries: u64,
    pub failures: u64,
    pub timeouts: u64,
    pub servers: Vec<ServerStatus>,
    pub cap: CapStatusOf,
    /// `None` if it is not configured.
    pub fairness: Option<FairnessStatusOf>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerStatus {
    pub address: String,
    /// By health checks.
    #[serde(rename = "healthy")]
    pub is_healthy: bool,
    /// Whether it is not used for a while, because too many requests failed.
    #[serde(rename = "ejected")]
    pub is_ejected: bool,
    pub in_flight: usize,
    pub connections: usize,
}

/// The adaptive cap of an upstream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CapStatusOf {
    pub mode: &'static str,
    pub limit: u32,
    pub in_flight: u32,
    /// The idle latency over the current one: below 1 the limit falls.
    pub gradient: f64,
    /// The queue that the limit allows.
    pub burst_queue_size: f64,
    pub min_rtt_ms: Option<f64>,
    pub sample_rtt_ms: Option<f64>,
    #[serde(rename = "probing")]
    pub is_probing: bool,
    /// Requests that were refused, or would be in mode `shadow`.
    pub refused: RefusedByClass,
    /// Tiers with a reserve, and last all others; empty if nothing is reserved.
    pub reserves: Vec<ReserveStatusOf>,
}

/// Refused requests by class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedByClass {
    pub test: u64,
    pub get: u64,
    pub post: u64,
    pub critical: u64,
}

impl Gateway {
    /// What the gateway does at the moment.
    pub fn status(&self) -> GatewayStatus {
        let plan = self.plan();
        let tiers = self.tiers();
        let upstreams = plan.upstreams.iter().map(|upstream| upstream.status(&tiers));
        let routes = plan
            .config
            .routes
            .iter()
            .zip(&plan.route_counts)
            .map(|(route, counts)| RouteStatus::new(route, &plan.config.upstreams[route.upstream].name, counts));
        let worker = self.worker_status();
        let shed = Shedder::ALL.into_iter();
        let shed = shed.map(|by| ShedStatus { by: by.name(), refused: RefusedByClass::new(&self.shed_by(by)) });
        GatewayStatus {
            routes: routes.collect(),
            upstreams: upstreams.collect(),
            worker: Some(WorkerSheddingStatus {
                mode: worker.mode.name(),
                utilisation: worker.utilisation,
                amount: worker.shed_amount,
                refused: RefusedByClass::new(&worker.refused),
            }),
            shed: shed.collect(),
            keys: plan.keys.iter().map(|document| KeysStatus::new(document)).collect(),
        }
    }

    /// Changes what a shedder of an upstream, or of all, does with what it decides, from the next request on. It holds until
    /// the configuration of the upstream changes. Returns the upstreams: none, if the name is unknown or none has the shedder.
    pub fn set_shedding(&self, shedder: Shedder, upstream: Option<&str>, mode: ShedMode) -> Vec<String> {
        let plan = self.plan();
        let selected = plan.upstreams.iter().filter(|one| upstream.is_none_or(|name| one.config.name == name));
        let changed = selected.filter(|one| one.set_shedding(shedder, mode));
        changed.map(|one| one.config.name.clone()).collect()
    }
}

impl KeysStatus {
    /// Several sources as one.
    pub fn sum(name: &str, sources: &[&KeysStatus]) -> KeysStatus {
        let mut refused = BTreeMap::new();
        for (reason, count) in sources.iter().flat_map(|one| &one.refused) {
            *refused.entry(*reason).or_default() += count;
        }
        KeysStatus {
            source: name.to_owned(),
            keys: sources.iter().map(|one| one.keys).sum(),
            failures: sources.iter().map(|one| one.failures).sum(),
            error: sources.iter().find_map(|one| one.error.clone()),
            refused,
        }
    }

    fn new(document: &KeyDocument) -> KeysStatus {
        KeysStatus {
            source: document.source.to_string(),
            keys: document.keys.len(),
            failures: document.failures(),
            error: document.fault(),
            refused: document.keys.refused().map(|(fault, count)| (fault.name(), count)).collect(),
        }
    }
}

impl ServerStatus {
    /// Whether it gets requests.
    pub fn is_usable(&self) -> bool {
        self.is_healthy && !self.is_ejected
    }

    /// `healthy`, `unhealthy` or `ejected`. Health checks outlast an ejection, so they come first.
    pub fn state(&self) -> &'static str {
        match (self.is_healthy, self.is_ejected) {
            (false, _) => "unhealthy",
            (true, true) => "ejected",
            (true, false) => "healthy",
        }
    }
}

impl RefusedByClass {
    /// Of all classes.
    pub fn total(&self) -> u64 {
        self.by_class().iter().map(|(_, refused)| refused).sum()
    }

    /// With the names of the classes, the least important first.
    pub fn by_class(&self) -> [(&'static str, u64); 4] {
        let RefusedByClass { test, get, post, critical } = *self;
        [("test", test), ("get", get), ("post", post), ("critical", critical)]
    }
}

impl RouteStatus {
    fn new(route: &RouteConfig, upstream: &str, counts: &RouteCounts) -> RouteStatus {
        let [_, informational, successful, redirected, client_errors, server_errors] = counts.statuses();
        RouteStatus {
            name: route.name.clone(),
            matches: route.matches(),
            upstream: upstream.to_owned(),
            informational,
            successful,
            redirected,
            client_errors,
            server_errors,
            limited: counts.limited.load(Ordering::Relaxed),
            shed: counts.shed.load(Ordering::Relaxed),
            estimated: counts.estimated.load(Ordering::Relaxed),
        }
    }
}

impl RouteConfig {
    /// What it matches, as text.
    pub fn matches(&self) -> String {
        let mut text = self.methods.iter().map(http::Method::as_str).collect::<Vec<_>>().join(",");
        if !text.is_empty() {
            text.push(' ');
        }
        let hosts = self.hosts.iter().map(|host| match host {
            HostPattern::Exact(name) => name.clone(),
            HostPattern::Suffix(suffix) => format!("*{suffix}"),
        });
        text.push_str(&hosts.collect::<Vec<_>>().join(","));
        for segment in &self.path.segments {
            text.push('/');
            match segment {
                Segment::Literal(literal) => text.push_str(literal),
                Segment::Parameter(name) => text.push_str(&format!("{{{name}}}")),
            }
        }
        if self.path.has_rest {
            text.push_str("/*");
        } else if self.path.segments.is_empty() {
            text.push('/');
        }
        text
    }
}

impl Upstream {
    /// Whether it has the shedder.
    fn set_shedding(&self, shedder: Shedder, mode: ShedMode) -> bool {
        match (shedder, &self.fairness) {
            (Shedder::Adaptive, _) => self.cap.set_mode(mode),
            (Shedder::Fairness, Some(fairness)) => fairness.set_mode(mode),
            _ => return false,
        }
        true
    }

    /// With the names of the tiers, those first that give way first.
    fn status(&self, tiers: &[String]) -> UpstreamStatus {
        let cap = self.cap.status();
        let milliseconds = |rtt: std::time::Duration| rtt.as_secs_f64() * 1e3;
        UpstreamStatus {
            name: self.config.name.clone(),
            requests: self.counts.requests.load(Ordering::Relaxed),
            retries: self.counts.retries.load(Ordering::Relaxed),
            failures: self.counts.failures.load(Ordering::Relaxed),
            timeouts: self.counts.timeouts.load(Ordering::Relaxed),
            servers: self.servers().iter().map(|server| ServerStatus::new(server)).collect(),
            cap: CapStatusOf {
                mode: self.cap.mode().name(),
                limit: cap.concurrency_limit,
                in_flight: cap.in_flight,
                gradient: cap.gradient,
                burst_queue_size: cap.burst_queue_size,
                min_rtt_ms: cap.min_rtt.map(milliseconds),
                sample_rtt_ms: cap.sample_rtt.map(milliseconds),
                is_probing: cap.min_rtt_calculation_active,
                refused: RefusedByClass::new(&cap.refused),
                reserves: ReserveStatusOf::all(&self.config.adaptive.reserve, &cap.reserves),
            },
            fairness: self.fairness_status(tiers),
        }
    }
}

impl ServerStatus {
    fn new(server: &UpstreamServer) -> ServerStatus {
        ServerStatus {
            address: server.address().to_string(),
            is_healthy: server.is_healthy(),
            is_ejected: server.is_ejected_now(),
            in_flight: server.in_flight(),
            connections: server.open_connections(),
        }
    }
}

impl RefusedByClass {
    fn new(refused: &ByClass<u64>) -> RefusedByClass {
        RefusedByClass {
            test: refused[Class::Test],
            get: refused[Class::Get],
            post: refused[Class::Post],
            critical: refused[Class::Critical],
        }
    }
}
