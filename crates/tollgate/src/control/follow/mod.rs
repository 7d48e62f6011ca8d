//! Follows a server of Tollgate, so that what operators decide there is in force in a service that decides by itself.
//!
//! ```text
//! GET /v1/control/snapshot ─ a thread reads it ─▶ Controls ─▶ tenants and rules, swapped in
//! GET /v1/control/watch    ─ line by line ──────▶ Controls ─▶ tenants at once; rules are compiled on a thread
//! ```
//!
//! No request waits for any of this. While the server is away, what it said last holds.

mod decider;
mod directory;
mod http;
mod kept;
mod snapshot;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::sync::watch;
use tollgate_core::Timestamp;
use tollgate_rules::{LoadOptions, RuleFiles};
use tollgate_store::Store;

use self::decider::Decider;
use self::http::{Endpoint, Gone};
use self::kept::Kept;
use self::snapshot::Snapshot;
use super::lines::{ControlLine, SnapshotHead};
use crate::Limiter;

pub use self::http::BadUrl;

/// Keeps a limiter up to date with what operators decide. [`run`](Follower::run) does the work.
#[derive(Debug)]
pub struct Follower<S> {
    decider: Decider<S>,
    from: From,
    kept: Option<Kept>,
    /// Up to where it is known; `None`: everything is to be taken anew.
    at: Option<SnapshotHead>,
    status: watch::Sender<Status>,
}

/// What is followed.
#[derive(Debug)]
enum From {
    Server(Box<Endpoint>),
    Directory(PathBuf),
}

/// How a follower stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The generation that is in force; `None` before the first snapshot.
    pub generation: Option<u64>,
    /// Since when changes are heard of as they happen; `None` while they are not.
    pub connected_since: Option<Timestamp>,
    /// What went wrong last; `None` once the server is followed again and the rules are as they should be.
    pub last_error: Option<String>,
}

/// A server that says nothing for so long is gone: it would have said that it is alive.
const SILENCE: Duration = Duration::from_secs(30);
/// The pause before the first new try; it doubles up to the longest. Of each, up to a half is left to chance, so that a server that
/// comes back is not asked by all at once.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Why a watch ended.
enum Ended {
    /// It can go on from where it was.
    Cut(String),
    /// Everything is to be taken anew, at once.
    TooOld,
    /// The same, after a while.
    Doubt(String),
}

impl<S: Store + Send + Sync + 'static> Follower<S> {
    /// Follows the server at this URL, that of its admin listener: `http://tollgate:8070`. The token has the scope `read`; none is
    /// needed where the server asks for none.
    ///
    /// # Errors
    /// If it is no such URL.
    pub fn new(limiter: Arc<Limiter<S>>, url: &str, token: Option<&str>) -> Result<Follower<S>, BadUrl> {
        Ok(Follower::of(limiter, From::Server(Box::new(Endpoint::new(url, token)?))))
    }

    /// Follows a directory to which servers write snapshots (`--control-snapshots`), looked at every second.
    pub fn of_directory(limiter: Arc<Limiter<S>>, directory: impl Into<PathBuf>) -> Follower<S> {
        Follower::of(limiter, From::Directory(directory.into()))
    }

    fn of(limiter: Arc<Limiter<S>>, from: From) -> Follower<S> {
        let status = watch::Sender::new(Status::default());
        Follower { decider: Decider::new(limiter), from, kept: None, at: None, status }
    }

    /// With rule files of the service's own under what operators decide, in the place of the server's.
    #[must_use]
    pub fn with_files(mut self, files: RuleFiles, options: LoadOptions) -> Follower<S> {
        self.decider.own_files(files.sources, options);
        self
    }

    /// Keeps what was heard last in this directory, which is made if it is not there, for a start without the server.
    #[must_use]
    pub fn keeping(mut self, directory: impl Into<PathBuf>) -> Follower<S> {
        self.kept = Some(Kept::new(directory.into()));
        self
    }

    /// For a limiter that counts in this process alone: where a quota is written with `reset`, its caller's counters start afresh
    /// here too. Those that are shared are reset by the server that wrote it.
    #[must_use]
    pub fn with_own_counters(mut self) -> Follower<S> {
        self.decider.own_counters();
        self
    }

    /// Speaks TLS as this says, with servers whose URL begins with `https`.
    #[must_use]
    pub fn with_tls(mut self, tls: Arc<ClientConfig>) -> Follower<S> {
        if let From::Server(endpoint) = &mut self.from {
            endpoint.secure(tls);
        }
        self
    }

    /// How it stands, now and from now on.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Follows until it is dropped. Spawn it; within a Tokio runtime with time and I/O.
    pub async fn run(mut self) {
        if let Some(found) = self.kept.as_ref().map(Kept::path) {
            // One that was never written, or is damaged, is replaced by the first snapshot.
            if let Ok(found) = snapshot::of_file(found).await {
                self.put_in_force(found).await;
            }
            // What is behind it in the file is not known to be whole.
            self.at = None;
        }
        match &self.from {
            From::Directory(directory) => {
                let path = directory.join(super::lines::SNAPSHOT_FILE);
                self.follow_directory(&path).await;
            }
            From::Server(_) => self.follow_server().await,
        }
    }

    async fn follow_server(&mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let ended = self.follow_once(&mut pause).await;
            self.status.send_modify(|status| status.connected_since = None);
            let why = match ended {
                Ended::TooOld => {
                    self.at = None;
                    "what was known is too old".to_owned()
                }
                Ended::Doubt(why) => {
                    self.at = None;
                    why
                }
                Ended::Cut(why) => why,
            };
            self.went_wrong(why);
            let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
            let pausing = tokio::time::sleep(Duration::from_micros(fastrand::u64(micros / 2..=micros)));
            self.decider.during(pausing).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Takes a snapshot if need be, and then what changes, until that ends.
    async fn follow_once(&mut self, pause: &mut Duration) -> Ended {
        let From::Server(endpoint) = &self.from else { return Ended::Cut("there is no server".to_owned()) };
        let endpoint = endpoint.clone();
        if self.at.is_none() {
            let taken = match self.decider.during(endpoint.snapshot(self.kept.as_mut())).await {
                Ok(taken) => taken,
                Err(why) => return Ended::Doubt(why),
            };
            self.put_in_force(taken).await;
        }
        let Some(at) = self.at.clone() else { return Ended::TooOld };
        let with_files = !self.decider.has_own_files();
        let mut lines = match self.decider.during(endpoint.watch(&at, with_files)).await {
            Ok(lines) => lines,
            Err(Gone::TooOld) => return Ended::TooOld,
            Err(Gone::Away(why)) => return Ended::Cut(why),
        };
        let now = self.decider.now();
        let trouble = self.decider.trouble().cloned();
        self.status.send_modify(|status| {
            (status.connected_since, status.last_error) = (Some(now), trouble);
        });
        loop {
            let line = match self.decider.during(tokio::time::timeout(SILENCE, lines.next())).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) => return Ended::Cut("the server ended the watch".to_owned()),
                Ok(Err(why)) => return Ended::Cut(why),
                Err(_) => return Ended::Cut(format!("the server was silent for {} s", SILENCE.as_secs())),
            };
            match super::lines::parse(&line) {
                Ok(ControlLine::Record(record)) => {
                    self.keep(&line);
                    if let Err(why) = self.decider.apply(&record).await {
                        self.went_wrong(why);
                    }
                }
                Ok(ControlLine::Files(files)) => {
                    self.keep(&line);
                    self.decider.files(&files);
                }
                Ok(ControlLine::Heartbeat(heartbeat)) => {
                    *pause = FIRST_PAUSE;
                    self.keep(&line);
                    if let Err(ended) = self.is_whole(heartbeat.generation).await {
                        return ended;
                    }
                }
                Ok(_) => return Ended::Doubt("the server says what it should not in a watch".to_owned()),
                Err(why) => return Ended::Doubt(why),
            }
        }
    }

    /// All up to a generation has been heard.
    async fn is_whole(&mut self, generation: u64) -> Result<(), Ended> {
        self.compile().await;
        let Some(at) = &mut self.at else { return Err(Ended::TooOld) };
        at.as_of = generation;
        self.status.send_if_modified(|status| {
            let changed = status.generation != Some(generation);
            status.generation = Some(generation);
            changed
        });
        let Some(kept) = &mut self.kept else { return Ok(()) };
        match kept.write().await {
            Ok(true) => Ok(()),
            // So many lines were added that a new snapshot is shorter.
            Ok(false) => Err(Ended::TooOld),
            Err(why) => {
                self.went_wrong(why);
                Ok(())
            }
        }
    }

    /// Puts all of a snapshot in force.
    async fn put_in_force(&mut self, taken: Snapshot) {
        let generation = taken.head.as_of;
        self.at = Some(taken.head);
        self.decider.replace(taken.controls, taken.files);
        self.decider.compile().await;
        let last_error = self.decider.trouble().cloned().or(taken.unreadable);
        self.status.send_modify(|status| {
            (status.generation, status.last_error) = (Some(generation), last_error);
        });
    }

    async fn compile(&mut self) {
        if self.decider.compile().await {
            let trouble = self.decider.trouble().cloned();
            self.status.send_modify(|status| status.last_error = trouble);
        }
    }

    fn keep(&mut self, line: &[u8]) {
        if let Some(kept) = &mut self.kept {
            kept.add(line);
        }
    }

    fn went_wrong(&self, why: String) {
        self.status.send_modify(|status| status.last_error = Some(why));
    }
}
