//! The observability state of this server: observer, sampler, decision log, and its identity in the fleet.

use std::sync::Arc;

use tollgate::{KeyPrivacy, Span, Timestamp};
use tollgate_events::{EventSeverity, EventType};
use tollgate_observe::{
    KeyFilter, KeyName, LogConfig, Observer, ObserverConfig, RankBy, Summary, TopKeys, TrafficConfig, Window,
};

use super::events::EventKind;
use super::fleet::Fleet;
use super::hot_keys::HotKeys;
use super::sampler::Sampler;
use crate::decisions::{DecisionSink, Decisions, DecisionsConfig};

/// The observability state of a server.
#[derive(Debug)]
pub struct Observability {
    /// Observes every decision.
    pub observer: Arc<Observer>,
    /// Recent rates and the state of the store.
    pub sampler: Sampler,
    /// The decision log.
    pub decisions: Arc<Decisions>,
    /// The name of the server in the fleet.
    pub name: String,
    /// The region of the server.
    pub region: Option<String>,
    pub started_at: Timestamp,
    /// Whether callers' keys may be metric labels.
    pub keys_in_metrics: bool,
    /// The form of private values in logs and lists.
    pub key_privacy: Arc<KeyPrivacy>,
    /// Whether the counters are shared, and with them the secret of private values.
    pub(super) shares_counters: bool,
    /// Reports of the other servers.
    pub(super) fleet: Fleet,
    pub(super) hot_keys: HotKeys,
}

/// Configuration of [`Observability`].
#[derive(Debug)]
pub struct ObservabilityConfig {
    /// The name of the server in a fleet; `None` is the hostname.
    pub server_name: Option<String>,
    /// The region of the server.
    pub region: Option<String>,
    /// Configuration of the decision log.
    pub log: LogConfig,
    /// Configuration of the sample of recent requests.
    pub traffic: TrafficConfig,
    /// How long entries of the decision log are retained.
    pub keep: Span,
    /// Rows of the decision log in the store of record.
    pub max_rows: u64,
    /// Bytes of the decision log in the store of record.
    pub max_bytes: u64,
    /// Whether callers' keys may be metric labels.
    pub keys_in_metrics: bool,
    /// Whether the server runs in shadow mode.
    pub shadow: bool,
    /// Whether the store is behind a network.
    pub waits: bool,
    /// The form of private values in logs and lists.
    pub key_privacy: Arc<KeyPrivacy>,
}

/// How callers' keys are displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyVisibility {
    /// In plain text.
    Plain,
    /// As hashes, which are the same on all servers of a fleet.
    Hashed,
}

/// The kernel's file with the hostname.
const HOSTNAME_FILE: &str = "/proc/sys/kernel/hostname";

/// With a local store, one in this many checks is timed.
const TIME_ONE_IN: u32 = 16;

/// Ranks of the most refused keys in metrics.
const MAX_RANKS: usize = 10;

impl Observability {
    /// Creates the state of a server that logs its decisions to `sink`.
    pub fn new(config: ObservabilityConfig, sink: DecisionSink, started_at: Timestamp) -> Observability {
        let ObservabilityConfig {
            server_name,
            region,
            log,
            traffic,
            keep,
            max_rows,
            max_bytes,
            keys_in_metrics,
            shadow,
            waits,
            key_privacy,
        } = config;
        let time_one_in = if waits { 1 } else { TIME_ONE_IN };
        let observer = ObserverConfig { shadow, time_one_in, log, traffic, ..ObserverConfig::default() };
        let observer = Arc::new(Observer::new(observer, key_privacy.clone()));
        let name = server_name.unwrap_or_else(hostname);
        let decisions = DecisionsConfig { server: name.clone(), region: region.clone(), keep, max_rows, max_bytes };
        let sampler = Sampler::new(&name, started_at);
        let text = format!("{name} started, version {}", env!("CARGO_PKG_VERSION"));
        let stream = sampler.events.stream();
        let mut event = stream.event(started_at, EventType::ServerStarted, EventSeverity::Info, text);
        event.data.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
        sampler.events.emit(EventKind::Start, event);
        Observability {
            decisions: Decisions::new(observer.clone(), sink, decisions),
            observer,
            sampler,
            name,
            region,
            started_at,
            keys_in_metrics,
            key_privacy,
            shares_counters: waits,
            fleet: Fleet::default(),
            hot_keys: HotKeys::default(),
        }
    }
}

impl Observability {
    /// A key as it may be displayed. Private values that only other servers have seen stay masked.
    pub fn display_key(&self, name: &KeyName, keys: KeyVisibility) -> String {
        match keys {
            KeyVisibility::Plain => name.clear_key().to_owned(),
            KeyVisibility::Hashed => self.fleet.hash_key(name.key()),
        }
    }

    /// A text in the form of a hashed key.
    pub fn hash_key(&self, text: &str) -> String {
        self.fleet.hash_key(text)
    }

    /// The same for the caller of a key.
    pub fn display_caller(&self, name: &KeyName, keys: KeyVisibility) -> Option<String> {
        match keys {
            KeyVisibility::Plain => name.clear_caller().map(str::to_owned),
            KeyVisibility::Hashed => name.caller().map(|caller| self.fleet.hash_key(caller)),
        }
    }

    /// The heaviest keys of all servers, and the number of servers. This merges lists and takes a while.
    pub fn top(
        &self,
        by: RankBy,
        window: Window,
        filter: KeyFilter<'_>,
        limit: usize,
        now: Timestamp,
    ) -> (TopKeys, usize) {
        let own = self.observer.heavy_hitters().summary(window, now).by_name();
        let others = self.fleet.summaries(window, now);
        // The own names come first: they are known in clear.
        let all = Summary::merge([&own].into_iter().chain(others.iter().map(|other| &**other)));
        (all.top(by, filter, limit), others.len() + 1)
    }

    /// The keys that this server refused most often in the last five minutes, with counts; hashed unless metrics may have them.
    pub fn top_denied(&self, now: Timestamp) -> Vec<(String, u64)> {
        let heavy_hitters = self.observer.heavy_hitters();
        let top = heavy_hitters.top(RankBy::Refusals, Window::FiveMinutes, KeyFilter::default(), MAX_RANKS, now);
        let display = |name: &KeyName| match self.keys_in_metrics {
            // Metrics are stored elsewhere, so private values stay masked.
            true => name.key().to_owned(),
            false => self.display_key(name, KeyVisibility::Hashed),
        };
        top.keys.iter().map(|key| (display(&key.name), key.refusals)).collect()
    }
}

#[cfg(test)]
impl Observability {
    /// A server without settings.
    pub fn for_tests() -> Arc<Observability> {
        Observability::for_tests_at(Timestamp::from_secs(1_700_000_000))
    }

    /// The same, started at this time.
    pub fn for_tests_at(started_at: Timestamp) -> Arc<Observability> {
        let log = LogConfig {
            on: true,
            sample: tollgate_observe::SampleRate::NONE,
            callers: tollgate_observe::SampleRate::NONE,
            ..LogConfig::default()
        };
        let key_privacy = Arc::<KeyPrivacy>::default();
        let traffic = TrafficConfig { on: true, max_bytes: 1 << 20, ..TrafficConfig::default() };
        let observer = ObserverConfig { log, traffic, ..ObserverConfig::default() };
        let observer = Observer::new(observer, key_privacy.clone());
        let observer = Arc::new(observer);
        let config = DecisionsConfig {
            server: "here".to_owned(),
            region: None,
            keep: Span::from_secs(86_400),
            max_rows: 1_000,
            max_bytes: 1 << 20,
        };
        Arc::new(Observability {
            decisions: Decisions::new(observer.clone(), DecisionSink::Memory, config),
            observer,
            sampler: Sampler::new("here", started_at),
            name: "here".to_owned(),
            region: None,
            started_at,
            keys_in_metrics: false,
            key_privacy,
            shares_counters: false,
            fleet: Fleet::default(),
            hot_keys: HotKeys::default(),
        })
    }
}

fn hostname() -> String {
    let name = std::fs::read_to_string(HOSTNAME_FILE).unwrap_or_default();
    match name.trim() {
        "" => "tollgate".to_owned(),
        name => name.to_owned(),
    }
}
