//! What this server sees of its decisions, and who it is: what is shown on pages, in metrics and in logs.

use std::sync::Arc;

use tollgate::{Span, Timestamp};
use tollgate_observe::{By, Filter, LogConfig, Observer, ObserverConfig, Share, Summary, Top, Window};

use super::fleet::Fleet;
use super::pulse::Pulse;
use crate::config::{DecisionLogPlace, ObserveSettings};
use crate::decisions::{Decisions, DecisionsConfig, Sink};

/// What a server sees, and as whom.
#[derive(Debug)]
pub(crate) struct Sight {
    /// Sees every decision.
    pub(crate) observer: Arc<Observer>,
    /// What they came to lately.
    pub(crate) pulse: Pulse,
    /// Logs some of them.
    pub(crate) decisions: Arc<Decisions>,
    /// What the server is called among others.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) region: Option<String>,
    pub(crate) started_at: Timestamp,
    /// Callers' keys may be labels of metrics.
    pub(crate) keys_in_metrics: bool,
    /// What other servers see.
    pub(super) fleet: Fleet,
}

/// Whether callers' keys are shown as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// As they are.
    Shown,
    /// As hashes that are the same on all servers of a fleet.
    Hidden,
}

/// Where the kernel tells the machine's name.
const NAME: &str = "/proc/sys/kernel/hostname";

/// Where the store answers at once, one in so many checks is timed.
const TIME_ONE_IN: u32 = 16;

/// Ranks of those that are refused most often, as metrics have them.
const MOST_RANKS: usize = 10;

impl Sight {
    /// Of a server that refuses nothing if `shadow`, and whose store makes wait if `waits`. Decisions are logged to `sink`.
    pub(crate) fn new(
        settings: &ObserveSettings,
        (shadow, waits): (bool, bool),
        sink: Sink,
        started_at: Timestamp,
    ) -> Sight {
        let log = LogConfig {
            on: settings.decisions.place != DecisionLogPlace::Off,
            sample: Share::of_10_000(settings.decisions.sample.parts),
            callers: Share::of_10_000(settings.decisions.callers.parts),
            ..LogConfig::default()
        };
        let time_one_in = if waits { 1 } else { TIME_ONE_IN };
        let config = ObserverConfig { shadow, time_one_in, log, ..ObserverConfig::default() };
        let observer = Arc::new(Observer::new(config));
        let name = settings.server_name.clone().unwrap_or_else(machine);
        let decisions = DecisionsConfig {
            server: name.clone(),
            region: settings.region.clone(),
            keep: Span::from_micros(u64::try_from(settings.decisions.keep.as_micros()).unwrap_or(u64::MAX)),
            most_rows: settings.decisions.max,
        };
        Sight {
            decisions: Decisions::new(observer.clone(), sink, decisions),
            observer,
            pulse: Pulse::new(started_at),
            name,
            region: settings.region.clone(),
            started_at,
            keys_in_metrics: settings.metrics_show_keys,
            fleet: Fleet::default(),
        }
    }
}

impl Sight {
    /// A caller's text, as it may be shown.
    pub(crate) fn shown(&self, text: &str, keys: Keys) -> String {
        match keys {
            Keys::Shown => text.to_owned(),
            Keys::Hidden => self.fleet.hidden(text),
        }
    }

    /// The heaviest keys of all servers, and how many servers that are. It takes a while.
    pub(crate) fn top(&self, by: By, window: Window, filter: Filter<'_>, limit: usize, now: Timestamp) -> (Top, usize) {
        let own = self.observer.hitters().summary(window, now).by_name();
        let others = self.fleet.told(window, now);
        let all = Summary::together(others.iter().map(|other| &**other).chain([&own]));
        (all.top(by, filter, limit), others.len() + 1)
    }

    /// Whom this server refused most often in the last five minutes, and how often; keys are hashes unless metrics may have them.
    pub(crate) fn top_denied(&self, now: Timestamp) -> Vec<(String, u64)> {
        let keys = if self.keys_in_metrics { Keys::Shown } else { Keys::Hidden };
        let hitters = self.observer.hitters();
        let top = hitters.top(By::Refusals, Window::FiveMinutes, Filter::default(), MOST_RANKS, now);
        top.keys.iter().map(|key| (self.shown(key.name.key(), keys), key.refusals)).collect()
    }
}

#[cfg(test)]
impl Sight {
    /// Of a server without settings.
    pub(crate) fn alone() -> Arc<Sight> {
        Sight::since(Timestamp::from_secs(1_700_000_000))
    }

    /// The same, of one that began at this moment.
    pub(crate) fn since(started_at: Timestamp) -> Arc<Sight> {
        let log = LogConfig { on: true, sample: Share::NONE, callers: Share::NONE, ..LogConfig::default() };
        let observer = Arc::new(Observer::new(ObserverConfig { log, ..ObserverConfig::default() }));
        let config = DecisionsConfig {
            server: "here".to_owned(),
            region: None,
            keep: Span::from_secs(86_400),
            most_rows: 1_000,
        };
        Arc::new(Sight {
            decisions: Decisions::new(observer.clone(), Sink::Memory, config),
            observer,
            pulse: Pulse::new(started_at),
            name: "here".to_owned(),
            region: None,
            started_at,
            keys_in_metrics: false,
            fleet: Fleet::default(),
        })
    }
}

fn machine() -> String {
    let name = std::fs::read_to_string(NAME).unwrap_or_default();
    match name.trim() {
        "" => "tollgate".to_owned(),
        name => name.to_owned(),
    }
}
