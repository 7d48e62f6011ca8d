//! Upstreams: their servers, which of them gets a request, and the connections to them.

mod body;
mod budget;
mod cap_slot;
mod connect;
mod discovery;
pub(crate) mod fetch;
mod health;
mod http1;
mod http2;
mod pool;
mod sender;
mod server;
mod stream;
mod tls;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use http::Response;
use tollgate_http::response::SHED;
use tollgate_shed::{
    AdaptiveCap, ByClass, CapSettings, ClassShares, FairnessSettings, FairnessShedder, Monotonic, Pressure,
    TierReserves, guarded,
};

use crate::model::{AdaptiveConfig, FairnessConfig, ServerSource, UpstreamConfig};
pub(crate) use body::UpstreamBody;
pub(crate) use budget::RetryBudget;
pub(crate) use cap_slot::{CapFull, CapSlot};
pub(crate) use connect::ConnectError;
pub(crate) use discovery::run;
pub(crate) use pool::{AcquireError, Reuse};
pub(crate) use sender::{RequestHead, UpstreamError};
pub(crate) use server::{RequestInFlight, UpstreamServer};
use tls::ClientTls;

/// Servers that do the same work.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) config: UpstreamConfig,
    servers: ArcSwap<Vec<Arc<UpstreamServer>>>,
    tls: Option<Arc<ClientTls>>,
    pub(crate) budget: RetryBudget,
    pub(crate) counts: UpstreamCounts,
    /// Limits the requests in flight.
    pub(crate) cap: AdaptiveCap,
    /// Lowers the rates of the busiest callers, if it is configured.
    pub(crate) fairness: Option<FairnessShedder>,
}

/// A moment, for the cap.
pub(crate) fn monotonic() -> Monotonic {
    Monotonic::from_nanos(server::now_nanos())
}

/// What happened to the requests of an upstream.
#[derive(Debug, Default)]
pub(crate) struct UpstreamCounts {
    pub(crate) requests: AtomicU64,
    pub(crate) retries: AtomicU64,
    /// No connection could be made, or it failed.
    pub(crate) failures: AtomicU64,
    pub(crate) timeouts: AtomicU64,
}

impl Upstream {
    /// # Errors
    /// If its certificates can't be used.
    pub(crate) fn new(config: UpstreamConfig) -> Result<Upstream, String> {
        let tls = config.tls.as_ref().map(|tls| ClientTls::load(tls, config.protocol).map(Arc::new)).transpose();
        let tls = tls.map_err(|error| format!("upstream `{}`: {error}", config.name))?;
        let cap = cap(&config.adaptive).map_err(|error| format!("upstream `{}`: {error}", config.name))?;
        let fairness = config.fairness.as_ref().map(fairness).transpose();
        let fairness = fairness.map_err(|error| format!("upstream `{}`: {error}", config.name))?;
        let upstream = Upstream {
            cap,
            fairness,
            servers: ArcSwap::default(),
            tls,
            budget: RetryBudget::default(),
            counts: UpstreamCounts::default(),
            config,
        };
        if let ServerSource::Static(addresses) = &upstream.config.servers {
            upstream.set_servers(addresses.clone());
        }
        Ok(upstream)
    }

    /// The servers now.
    pub(crate) fn servers(&self) -> Arc<Vec<Arc<UpstreamServer>>> {
        self.servers.load_full()
    }

    /// Uses other servers. Those that stay keep their connections and their state.
    pub(crate) fn set_servers(&self, addresses: Vec<crate::model::ServerAddress>) {
        let before = self.servers.load();
        let server = |address: crate::model::ServerAddress| {
            let same = before.iter().find(|server| *server.address() == address).cloned();
            same.unwrap_or_else(|| Arc::new(UpstreamServer::new(address, &self.config.connections)))
        };
        self.servers.store(Arc::new(addresses.into_iter().map(server).collect()));
    }

    /// Uses the servers that were found for the one before it in the configuration, until they are looked for again.
    pub(crate) fn keep_servers(&self, before: &Upstream) {
        if self.servers().is_empty() && self.config.servers == before.config.servers {
            self.set_servers(before.servers().iter().map(|server| server.address().clone()).collect());
        }
    }

    /// The server for a request: of two at random that may be used, the one with fewer requests in flight. Not one of
    /// `tried`, unless there is no other: rather one that is not used for a while, if its health checks pass.
    pub(crate) fn pick(&self, tried: &[Arc<UpstreamServer>]) -> Option<Arc<UpstreamServer>> {
        let servers = self.servers.load();
        let now = server::now();
        if let [only] = &servers[..] {
            return only.is_usable(now).then(|| only.clone());
        }
        let is_new = |server: &Arc<UpstreamServer>| !tried.iter().any(|one| Arc::ptr_eq(one, server));
        self.pick_among(&servers, |server| server.is_usable(now) && is_new(server))
            .or_else(|| self.pick_among(&servers, |server| server.is_healthy() && is_new(server)))
            .or_else(|| self.pick_among(&servers, |server| server.is_usable(now)))
    }

    fn pick_among(
        &self,
        servers: &[Arc<UpstreamServer>],
        is_allowed: impl Fn(&Arc<UpstreamServer>) -> bool,
    ) -> Option<Arc<UpstreamServer>> {
        let count = servers.iter().filter(|server| is_allowed(server)).count();
        if count == 0 {
            return None;
        }
        let one = fastrand::usize(..count);
        let other = if count > 1 { (one + fastrand::usize(1..count)) % count } else { one };
        let nth = |number| servers.iter().filter(|server| is_allowed(server)).nth(number);
        let (one, other) = (nth(one)?, nth(other)?);
        Some(if other.in_flight() < one.in_flight() { other } else { one }.clone())
    }

    /// The fairness shedder, if it counts callers at the moment.
    pub(crate) fn watching_fairness(&self) -> Option<&FairnessShedder> {
        let fairness = self.fairness.as_ref()?;
        guarded(|| fairness.watches(monotonic(), || self.pressure()), false).then_some(fairness)
    }

    /// How loaded it is.
    fn pressure(&self) -> Pressure {
        let cap = self.cap.status();
        let latency = cap.sample_rtt.zip(cap.min_rtt).map(|(now, idle)| now.as_secs_f64() / idle.as_secs_f64());
        Pressure { refused: cap.rq_blocked, latency: latency.filter(|latency| latency.is_finite()) }
    }

    /// A request to a server failed.
    pub(crate) fn failed(&self, server: &UpstreamServer) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        self.count_failure(server);
    }

    /// A server has answered. Errors are often fast, so that a server with the fewest requests in flight may be one that fails:
    /// some statuses count as failures. One that protects itself has not failed.
    pub(crate) fn answered<B>(&self, server: &UpstreamServer, response: &Response<B>) {
        let status = response.status();
        if !status.is_server_error() {
            return server.succeeded();
        }
        let fails = self.config.ejection.as_ref().is_some_and(|ejection| ejection.statuses.contains(&status.as_u16()));
        if fails && !response.headers().contains_key(&SHED) {
            self.count_failure(server);
        }
    }

    /// The server is not used for a while if it fails too often in a row. If as many as may be are ejected already, the one that
    /// was ejected first takes its place: it may be well again, and this one is not.
    fn count_failure(&self, server: &UpstreamServer) {
        let Some(ejection) = &self.config.ejection else { return };
        if server.count_failure() < ejection.failures {
            return;
        }
        let (servers, now) = (self.servers.load(), server::now());
        let ejected = || servers.iter().filter(|server| server.is_ejected(now));
        let most = ejection.most * servers.len() as f64;
        if (ejected().count() + 1) as f64 > most {
            let first = ejected().filter(|one| one.is_healthy()).min_by_key(|one| one.ejected_until());
            match first.filter(|first| most >= 1.0 && !std::ptr::eq(&***first, server)) {
                Some(first) => first.use_again(),
                None => return,
            }
        }
        server.eject(now, ejection.time);
        tracing::warn!(upstream = self.config.name, server = %server.address(), "not used for {:?}: too many failures", ejection.time);
    }

    /// A connection to a server: an unused one, or a new one.
    pub(crate) async fn connect(
        &self,
        server: &Arc<UpstreamServer>,
        timeouts: &crate::model::Timeouts,
        reuse: Reuse,
    ) -> Result<sender::Lease, AcquireError> {
        pool::acquire(self, server, timeouts, reuse).await
    }

    fn client_tls(&self) -> Option<&Arc<ClientTls>> {
        self.tls.as_ref()
    }
}

fn cap(config: &AdaptiveConfig) -> Result<AdaptiveCap, String> {
    let shares = ClassShares::new(ByClass::new(config.shares)).map_err(|error| error.to_string())?;
    let parts: Vec<f64> = config.reserve.iter().map(|(_, part)| *part).collect();
    let reserves = TierReserves::new(&parts).map_err(|error| error.to_string())?;
    let usual = CapSettings::default();
    let settings = CapSettings {
        initial: usual.initial.clamp(config.min, config.max.max(config.min)),
        mode: config.mode,
        min: config.min,
        max: config.max,
        probe_interval: config.probe,
        shares,
        reserves,
        ..usual
    };
    AdaptiveCap::new(settings, fastrand::u64(..)).map_err(|error| error.to_string())
}

fn fairness(config: &FairnessConfig) -> Result<FairnessShedder, String> {
    let FairnessConfig { mode, latency, refused, grace, ramp } = *config;
    FairnessShedder::new(FairnessSettings { mode, latency, refused, grace, ramp }).map_err(|error| error.to_string())
}

/// An error as `io::Error`, for logs.
fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::GatewayConfig;

    fn upstream(servers: usize) -> Upstream {
        let servers: Vec<String> = (1..=servers).map(|port| format!("127.0.0.1:{port}")).collect();
        let text = format!(
            "listen: 127.0.0.1:0\nupstreams: {{app: {{servers: [{}], eject: {{failures: 2, for: 1h, most: 50%}}}}}}\n\
             routes:\n  - {{name: all, match: \"/*\", upstream: app}}\n",
            servers.join(", ")
        );
        Upstream::new(GatewayConfig::read("gateway.yaml", &text, Path::new("")).unwrap().config.upstreams.remove(0))
            .unwrap()
    }

    fn ejected(upstream: &Upstream) -> Vec<usize> {
        upstream.servers().iter().enumerate().filter(|(_, one)| one.is_ejected_now()).map(|(at, _)| at).collect()
    }

    fn fail(upstream: &Upstream, server: usize) {
        // Ejections have an order.
        let before = server::now();
        while server::now() == before {}
        for _ in 0..2 {
            upstream.failed(&upstream.servers()[server]);
        }
    }

    #[test]
    fn the_server_that_fails_now_is_ejected_rather_than_one_that_failed_before() {
        let two = upstream(2);
        fail(&two, 0);
        assert_eq!(ejected(&two), [0]);
        fail(&two, 1);
        assert_eq!(ejected(&two), [1], "one of two");
        assert_eq!(two.pick(&[]).unwrap().address().to_string(), "127.0.0.1:1");
        // One whose checks fail would not be used anyway.
        two.servers()[1].set_healthy(false);
        fail(&two, 0);
        assert_eq!(ejected(&two), [1]);

        let four = upstream(4);
        for server in [2, 0, 3] {
            fail(&four, server);
        }
        assert_eq!(ejected(&four), [0, 3], "two of four");
        let one = upstream(1);
        fail(&one, 0);
        assert!(ejected(&one).is_empty());
    }

    #[test]
    fn a_retry_goes_to_a_server_that_is_ejected_rather_than_to_the_one_that_failed() {
        let two = upstream(2);
        fail(&two, 0);
        let usable = two.pick(&[]).unwrap();
        assert_eq!(usable.address().to_string(), "127.0.0.1:2");
        assert_eq!(two.pick(std::slice::from_ref(&usable)).unwrap().address().to_string(), "127.0.0.1:1");
        two.servers()[0].set_healthy(false);
        assert_eq!(two.pick(&[usable]).unwrap().address().to_string(), "127.0.0.1:2");
    }
}
