//! Follows a Tollgate server, so that its control plane is in force in a service that decides in process.
//!
//! ```text
//! GET /v1/control/snapshot ─ a thread reads it ─▶ Controls ─▶ tenants and rules, swapped in
//! GET /v1/control/watch    ─ line by line ──────▶ Controls ─▶ tenants at once; rules are compiled on a thread
//! ```
//!
//! No request waits for any of this. While the server is unavailable, the last known state stays in force.

mod directory;
mod http;
mod local_copy;
mod snapshot;
mod updater;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::sync::watch;
use tollgate_core::Timestamp;
use tollgate_rules::{KnownRegions, LoadOptions, RuleFiles};
use tollgate_store::Store;

use self::http::{Endpoint, WatchError};
use self::local_copy::LocalCopy;
use self::snapshot::Snapshot;
use self::updater::LimiterUpdater;
use super::lines::{ControlLine, SnapshotHead};
use crate::Limiter;

pub use self::http::EndpointError;

/// Applies the control plane of a server to a limiter. [`run`](Follower::run) does the work.
#[derive(Debug)]
pub struct Follower<S> {
    updater: LimiterUpdater<S>,
    source: FollowSource,
    copy: Option<LocalCopy>,
    /// The generation that is completely known; `None` if a snapshot is needed.
    position: Option<SnapshotHead>,
    status: watch::Sender<FollowerStatus>,
}

/// Where records come from.
#[derive(Debug)]
enum FollowSource {
    Server(Box<Endpoint>),
    Directory(PathBuf),
}

/// The status of a follower.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowerStatus {
    /// The generation that is in force; `None` before the first snapshot.
    pub generation: Option<u64>,
    /// Since when changes arrive as they happen; `None` while disconnected.
    pub connected_since: Option<Timestamp>,
    /// The last error; `None` once the follower is connected again and the rules have no errors.
    pub last_error: Option<String>,
}

/// A server that sends nothing for this long is unavailable: it sends heartbeats.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The delay before the first retry; it doubles with each retry. Up to half of each delay is random, so that followers do not
/// reconnect to a restarted server all at once.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Why a watch ended.
enum WatchEnd {
    /// The connection was lost. The next watch resumes at the same position.
    Disconnected(String),
    /// The position is too old for a watch, or a new snapshot is shorter: a snapshot is needed.
    TooOld,
    /// The stream was invalid, so changes may be missing: a snapshot is needed.
    Invalid(String),
}

impl<S: Store + Send + Sync + 'static> Follower<S> {
    /// Follows the server at this URL, that of its admin listener: `http://tollgate:8070`. The token needs the scope `read`;
    /// a server without access control needs none.
    ///
    /// # Errors
    /// If the URL is invalid, or the token has invalid characters.
    pub fn new(limiter: Arc<Limiter<S>>, url: &str, token: Option<&str>) -> Result<Follower<S>, EndpointError> {
        Ok(Follower::with_source(limiter, FollowSource::Server(Box::new(Endpoint::new(url, token)?))))
    }

    /// Follows a directory to which servers write snapshots (`--control-snapshots`), checked every second.
    pub fn from_directory(limiter: Arc<Limiter<S>>, directory: impl Into<PathBuf>) -> Follower<S> {
        Follower::with_source(limiter, FollowSource::Directory(directory.into()))
    }

    fn with_source(limiter: Arc<Limiter<S>>, source: FollowSource) -> Follower<S> {
        let status = watch::Sender::new(FollowerStatus::default());
        Follower { updater: LimiterUpdater::new(limiter), source, copy: None, position: None, status }
    }

    /// Uses the service's own rule files under the control plane, instead of the server's.
    #[must_use]
    pub fn with_files(mut self, files: RuleFiles, options: LoadOptions) -> Follower<S> {
        self.updater.set_own_files(files.sources, options);
        self
    }

    /// The regions that rules of the server's files may name, if the limiter's store is one of several.
    #[must_use]
    pub fn with_regions(mut self, regions: KnownRegions) -> Follower<S> {
        self.updater.set_regions(regions);
        self
    }

    /// Stores the last known state in this directory, for a start without the server. The directory is created if necessary.
    #[must_use]
    pub fn with_local_copy(mut self, directory: impl Into<PathBuf>) -> Follower<S> {
        self.copy = Some(LocalCopy::new(directory.into()));
        self
    }

    /// For a limiter whose counters are in this process: a quota that is written with `reset` resets its caller's counters in this
    /// process too. Shared counters are reset by the server that wrote the quota.
    #[must_use]
    pub fn with_own_counters(mut self) -> Follower<S> {
        self.updater.set_own_counters();
        self
    }

    /// Uses this TLS configuration, if the URL begins with `https`.
    #[must_use]
    pub fn with_tls(mut self, tls: Arc<ClientConfig>) -> Follower<S> {
        if let FollowSource::Server(endpoint) = &mut self.source {
            endpoint.set_tls(tls);
        }
        self
    }

    /// The status, with changes.
    pub fn status(&self) -> watch::Receiver<FollowerStatus> {
        self.status.subscribe()
    }

    /// Follows until the future is dropped. It needs a Tokio runtime with time and I/O, and is usually spawned.
    pub async fn run(mut self) {
        if let Some(path) = self.copy.as_ref().map(LocalCopy::path) {
            // A missing or damaged copy is replaced by the first snapshot.
            if let Ok(mut snapshot) = snapshot::read_file(path).await {
                // They may have changed since.
                snapshot.controls.set_shares_unknown(true);
                self.install(snapshot).await;
            }
            // The lines after the snapshot may be incomplete.
            self.position = None;
        }
        match &self.source {
            FollowSource::Directory(directory) => {
                let path = directory.join(super::lines::SNAPSHOT_FILE);
                self.follow_directory(&path).await;
            }
            FollowSource::Server(_) => self.follow_server().await,
        }
    }

    async fn follow_server(&mut self) {
        let mut backoff = MIN_BACKOFF;
        loop {
            let end = self.follow_once(&mut backoff).await;
            self.status.send_modify(|status| status.connected_since = None);
            let error = match end {
                WatchEnd::TooOld => {
                    self.position = None;
                    "the last known generation is too old for a watch".to_owned()
                }
                WatchEnd::Invalid(error) => {
                    self.position = None;
                    error
                }
                WatchEnd::Disconnected(error) => error,
            };
            self.report_error(error);
            let micros = u64::try_from(backoff.as_micros()).unwrap_or(u64::MAX);
            let sleep = tokio::time::sleep(Duration::from_micros(fastrand::u64(micros / 2..=micros)));
            self.updater.update_during(sleep).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Takes a snapshot if necessary, and then applies changes until the watch ends.
    async fn follow_once(&mut self, backoff: &mut Duration) -> WatchEnd {
        let FollowSource::Server(endpoint) = &self.source else {
            return WatchEnd::Disconnected("there is no server".to_owned());
        };
        let endpoint = endpoint.clone();
        if self.position.is_none() {
            let snapshot = match self.updater.update_during(endpoint.snapshot(self.copy.as_mut())).await {
                Ok(snapshot) => snapshot,
                Err(error) => return WatchEnd::Invalid(error),
            };
            self.install(snapshot).await;
        }
        let Some(position) = self.position.clone() else { return WatchEnd::TooOld };
        let with_files = !self.updater.has_own_files();
        let mut lines = match self.updater.update_during(endpoint.watch(&position, with_files)).await {
            Ok(lines) => lines,
            Err(WatchError::TooOld) => return WatchEnd::TooOld,
            Err(WatchError::Unavailable(error)) => return WatchEnd::Disconnected(error),
        };
        let now = self.updater.now();
        let rules_error = self.updater.rules_error().cloned();
        self.status.send_modify(|status| {
            (status.connected_since, status.last_error) = (Some(now), rules_error);
        });
        loop {
            let line = match self.updater.update_during(tokio::time::timeout(IDLE_TIMEOUT, lines.next())).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) => return WatchEnd::Disconnected("the server ended the watch".to_owned()),
                Ok(Err(error)) => return WatchEnd::Disconnected(error),
                Err(_) => {
                    return WatchEnd::Disconnected(format!("the server sent nothing for {} s", IDLE_TIMEOUT.as_secs()));
                }
            };
            match super::lines::parse(&line) {
                Ok(ControlLine::Record(record)) => {
                    self.add_to_copy(&line);
                    if let Err(error) = self.updater.apply(&record).await {
                        self.report_error(error);
                    }
                }
                Ok(ControlLine::Files(files)) => {
                    self.add_to_copy(&line);
                    self.updater.set_server_files(&files);
                }
                Ok(ControlLine::Heartbeat(heartbeat)) => {
                    *backoff = MIN_BACKOFF;
                    self.add_to_copy(&line);
                    if let Err(end) = self.complete(heartbeat.generation).await {
                        return end;
                    }
                }
                Ok(_) => return WatchEnd::Invalid("the server sent a line that does not belong in a watch".to_owned()),
                Err(error) => return WatchEnd::Invalid(error),
            }
        }
    }

    /// Handles a heartbeat: everything up to this generation has arrived.
    async fn complete(&mut self, generation: u64) -> Result<(), WatchEnd> {
        self.compile().await;
        let Some(position) = &mut self.position else { return Err(WatchEnd::TooOld) };
        position.as_of = generation;
        self.status.send_if_modified(|status| {
            let changed = status.generation != Some(generation);
            status.generation = Some(generation);
            changed
        });
        let Some(copy) = &mut self.copy else { return Ok(()) };
        match copy.flush().await {
            Ok(true) => Ok(()),
            // The copy has so many lines that a new snapshot is shorter.
            Ok(false) => Err(WatchEnd::TooOld),
            Err(error) => {
                self.report_error(error);
                Ok(())
            }
        }
    }

    /// Installs a snapshot.
    async fn install(&mut self, snapshot: Snapshot) {
        let generation = snapshot.head.as_of;
        self.position = Some(snapshot.head);
        self.updater.replace(snapshot.controls, snapshot.files);
        self.updater.compile().await;
        let last_error = self.updater.rules_error().cloned().or(snapshot.first_error);
        self.status.send_modify(|status| {
            (status.generation, status.last_error) = (Some(generation), last_error);
        });
    }

    async fn compile(&mut self) {
        if self.updater.compile().await {
            let rules_error = self.updater.rules_error().cloned();
            self.status.send_modify(|status| status.last_error = rules_error);
        }
    }

    fn add_to_copy(&mut self, line: &[u8]) {
        if let Some(copy) = &mut self.copy {
            copy.add(line);
        }
    }

    fn report_error(&self, error: String) {
        self.status.send_modify(|status| status.last_error = Some(error));
    }
}
