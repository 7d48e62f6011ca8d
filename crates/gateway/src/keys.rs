//! Loads the keys with which tokens are verified, and loads them again when they change.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tollgate_store::Steady;

use crate::clock;
use crate::jwt::{KeySet, SharedKeys, Verifier};
use crate::model::{
    AdaptiveConfig, ConnectionConfig, KeySource, ServerAddress, ServerSource, Timeouts, UpstreamConfig,
    UpstreamProtocol, UpstreamTls,
};
use crate::upstream::{Upstream, fetch};

/// A document with the keys of one source.
#[derive(Debug)]
pub(crate) struct KeyDocument {
    pub(crate) source: KeySource,
    pub(crate) keys: Arc<SharedKeys>,
    loading: Mutex<Loading>,
    failures: AtomicU64,
    /// Why it could not be loaded, if the last attempt failed.
    fault: std::sync::Mutex<Option<String>>,
}

/// When a document is loaded again.
#[derive(Debug)]
struct Loading {
    /// The document that is in use.
    document: Vec<u8>,
    due: Steady,
    /// When a token with an unknown key may have it loaded earlier.
    early: Steady,
}

/// How often is looked for what to load.
const INTERVAL: Duration = Duration::from_millis(500);
/// How often files are read, and sources without keys tried again.
const FILE_INTERVAL: Duration = Duration::from_secs(2);
/// How soon a URL is fetched again after a failure, while there are keys.
const RETRY: Duration = Duration::from_secs(30);
/// How often tokens with unknown keys may have a document loaded: anybody can send such tokens.
const EARLY_INTERVAL: Duration = Duration::from_secs(30);
/// How long a configuration waits for keys before it takes effect.
const FIRST_LOAD: Duration = Duration::from_secs(3);
/// The largest document with keys.
const MAX_BYTES: usize = 256 * 1024;

/// Loads the documents of the configuration in force, for as long as the gateway runs.
pub(crate) async fn run(documents: impl Fn() -> Vec<Arc<KeyDocument>>) {
    loop {
        for document in documents().into_iter().filter(|document| document.is_due()) {
            // A source that is slow must not delay the others.
            tokio::spawn(document.refresh());
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Loads the documents that were not loaded yet. Those that take too long are loaded in the background.
pub(crate) async fn load_first(documents: &[Arc<KeyDocument>]) {
    let mut loads = JoinSet::new();
    for document in documents.iter().filter(|document| document.keys.is_empty()) {
        loads.spawn(document.clone().refresh());
    }
    let _ = tokio::time::timeout(FIRST_LOAD, async { while loads.join_next().await.is_some() {} }).await;
    loads.detach_all();
}

impl KeyDocument {
    /// The documents of these verifiers, each once. Those of an earlier configuration are used again.
    pub(crate) fn all(verifiers: &[Arc<Verifier>], earlier: &[Arc<KeyDocument>]) -> Vec<Arc<KeyDocument>> {
        let mut documents: Vec<Arc<KeyDocument>> = Vec::new();
        for verifier in verifiers {
            let (source, keys) = (&verifier.config().keys, verifier.keys());
            if documents.iter().any(|document| Arc::ptr_eq(&document.keys, keys)) {
                continue;
            }
            let same = earlier.iter().find(|document| Arc::ptr_eq(&document.keys, keys) && document.source == *source);
            documents.push(same.cloned().unwrap_or_else(|| Arc::new(KeyDocument::new(source.clone(), keys.clone()))));
        }
        documents
    }

    fn new(source: KeySource, keys: Arc<SharedKeys>) -> KeyDocument {
        let now = clock::now();
        let loading = Mutex::new(Loading { document: Vec::new(), due: now, early: now });
        KeyDocument { source, keys, loading, failures: AtomicU64::new(0), fault: std::sync::Mutex::default() }
    }

    /// Attempts to load it that failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Why the last attempt failed, if it did.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is time to load it. If it is being loaded, it is not.
    fn is_due(&self) -> bool {
        self.loading.try_lock().is_ok_and(|loading| loading.is_due(self.keys.is_one_missing()))
    }

    async fn refresh(self: Arc<Self>) {
        let mut loading = self.loading.lock().await;
        if !loading.is_due(self.keys.is_one_missing()) {
            return;
        }
        if self.keys.take_missing() {
            loading.early = clock::after(EARLY_INTERVAL);
        }
        let loaded = self.source.load().await;
        let used = loaded.and_then(|document| self.use_document(document, &mut loading));
        let has_failed = used.is_err();
        self.report(used.err());
        loading.due = clock::after(match &self.source {
            // Soon again while there are no keys.
            KeySource::Url { every, .. } if self.keys.is_empty() => FILE_INTERVAL.min(*every),
            KeySource::Url { every, .. } if has_failed => RETRY.min(*every),
            KeySource::Url { every, .. } => *every,
            KeySource::File(_) => FILE_INTERVAL,
        });
    }

    /// Logs a failure once, and counts it.
    fn report(&self, fault: Option<String>) {
        let mut last = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &fault {
            self.failures.fetch_add(1, Ordering::Relaxed);
            if last.is_none() {
                tracing::warn!(source = %self.source, error, "keys of tokens could not be loaded: the last ones stay in use");
            }
        }
        *last = fault;
    }

    fn use_document(&self, document: Vec<u8>, loading: &mut Loading) -> Result<(), String> {
        if document == loading.document && !self.keys.is_empty() {
            return Ok(());
        }
        let (keys, skipped) = KeySet::parse(&document)?;
        for key in &skipped {
            tracing::warn!(key = key.id.as_deref(), number = key.index, reason = key.reason, "a key is not used");
        }
        tracing::info!(source = %self.source, keys = keys.len(), "keys of tokens loaded");
        self.keys.set(keys);
        loading.document = document;
        Ok(())
    }
}

impl Loading {
    fn is_due(&self, is_one_missing: bool) -> bool {
        let now = clock::now();
        now >= self.due || (is_one_missing && now >= self.early)
    }
}

impl KeySource {
    /// The document. Errors are for logs and health.
    async fn load(&self) -> Result<Vec<u8>, String> {
        match self {
            KeySource::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || std::fs::read(&path).map_err(|error| error.to_string()));
                read.await.unwrap_or_else(|error| Err(error.to_string()))
            }
            KeySource::Url { url, ca, .. } => fetch(url, ca.clone()).await,
        }
    }
}

async fn fetch(url: &str, ca: Option<std::path::PathBuf>) -> Result<Vec<u8>, String> {
    let uri: http::Uri = url.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let is_tls = uri.scheme_str() == Some("https");
    let host = uri.host().ok_or("there is no host")?.to_owned();
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let address = ServerAddress::Name { host, port };
    let upstream = Upstream::new(UpstreamConfig {
        name: "keys".to_owned(),
        servers: ServerSource::Static(vec![address.clone()]),
        protocol: UpstreamProtocol::Http1,
        tls: is_tls.then_some(UpstreamTls { server_name: None, ca, certificate: None }),
        health: None,
        ejection: None,
        connections: ConnectionConfig::default(),
        adaptive: AdaptiveConfig::default(),
        fairness: None,
    })?;
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let fetched = fetch::get(&upstream, &address, path, &Timeouts::default(), MAX_BYTES).await?;
    if !fetched.status.is_success() {
        return Err(format!("status {}", fetched.status));
    }
    Ok(fetched.body.to_vec())
}
