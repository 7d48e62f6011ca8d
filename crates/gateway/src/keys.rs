//! Loads the keys with which tokens are verified, and loads them again when they change.

use std::sync::Arc;
use std::time::Duration;

use tollgate_store::Steady;

use crate::clock;
use crate::jwt::{KeySet, Verifier};
use crate::model::{
    AdaptiveConfig, ConnectionConfig, KeySource, ServerAddress, ServerSource, Timeouts, UpstreamConfig,
    UpstreamProtocol, UpstreamTls,
};
use crate::plan::GatewayPlan;
use crate::upstream::{Upstream, fetch};

/// How often files are read, and is looked for verifiers without keys.
const INTERVAL: Duration = Duration::from_secs(2);
/// The largest document with keys.
const MAX_BYTES: usize = 256 * 1024;

/// The keys of one issuer.
struct Loaded {
    verifier: Arc<Verifier>,
    /// The document that is in use.
    document: Vec<u8>,
    /// When it is fetched next.
    due: Steady,
    has_failed: bool,
}

/// Loads the keys of all issuers, for as long as the gateway runs.
pub(crate) async fn run(plan: impl Fn() -> Arc<GatewayPlan>) {
    let mut loaded: Vec<Loaded> = Vec::new();
    loop {
        let plan = plan();
        let verifiers = plan.identity.verifiers();
        loaded.retain(|one| verifiers.iter().any(|verifier| Arc::ptr_eq(verifier, &one.verifier)));
        for verifier in verifiers {
            if !loaded.iter().any(|one| Arc::ptr_eq(&one.verifier, verifier)) {
                let (verifier, document, due) = (verifier.clone(), Vec::new(), clock::now());
                loaded.push(Loaded { verifier, document, due, has_failed: false });
            }
        }
        for one in &mut loaded {
            one.refresh().await;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

impl Loaded {
    async fn refresh(&mut self) {
        if clock::now() < self.due {
            return;
        }
        let config = self.verifier.config().clone();
        let (document, pause) = match &config.keys {
            KeySource::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || {
                    std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
                });
                (read.await.unwrap_or_else(|error| Err(error.to_string())), INTERVAL)
            }
            KeySource::Url { url, every } => (fetch(url).await, *every),
        };
        let used = document.and_then(|document| self.use_keys(document));
        match used {
            Ok(()) => self.has_failed = false,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!(error, "keys of tokens could not be loaded: the last ones stay in use");
                }
            }
        }
        // Soon again while there are no keys.
        let pause = if self.verifier.has_keys() { pause } else { INTERVAL };
        self.due = clock::after(pause);
    }

    fn use_keys(&mut self, document: Vec<u8>) -> Result<(), String> {
        if document == self.document {
            return Ok(());
        }
        let (keys, skipped) = KeySet::parse(&document)?;
        for key in &skipped {
            tracing::warn!(key = key.id.as_deref(), number = key.index, reason = key.reason, "a key is not used");
        }
        if keys.is_empty() {
            return Err("there is no key that can be used".to_owned());
        }
        tracing::info!(keys = keys.len(), "keys of tokens loaded");
        self.verifier.set_keys(keys);
        self.document = document;
        Ok(())
    }
}

async fn fetch(url: &str) -> Result<Vec<u8>, String> {
    let uri: http::Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
    let is_tls = uri.scheme_str() == Some("https");
    let host = uri.host().ok_or_else(|| format!("{url}: there is no host"))?.to_owned();
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let address = ServerAddress::Name { host, port };
    let upstream = Upstream::new(UpstreamConfig {
        name: "keys".to_owned(),
        servers: ServerSource::Static(vec![address.clone()]),
        protocol: UpstreamProtocol::Http1,
        tls: is_tls.then_some(UpstreamTls { server_name: None, ca: None, certificate: None }),
        health: None,
        ejection: None,
        connections: ConnectionConfig::default(),
        adaptive: AdaptiveConfig::default(),
        fairness: None,
    })?;
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let fetched = fetch::get(&upstream, &address, path, &Timeouts::default(), MAX_BYTES).await;
    let fetched = fetched.map_err(|error| format!("{url}: {error}"))?;
    if !fetched.status.is_success() {
        return Err(format!("{url}: status {}", fetched.status));
    }
    Ok(fetched.body.to_vec())
}
