//! What this server sees of its decisions, and who it is: what is shown on pages, in metrics and in logs.

use std::sync::Arc;

use tollgate::Span;
use tollgate::Timestamp;
use tollgate_observe::{LogConfig, Observer, ObserverConfig, Share};

use crate::config::{DecisionLogPlace, ObserveSettings};
use crate::decisions::{Decisions, DecisionsConfig, Sink};

/// What a server sees, and as whom.
#[derive(Debug)]
#[allow(dead_code, reason = "pages that show it follow")]
pub(crate) struct Sight {
    /// Sees every decision.
    pub(crate) observer: Arc<Observer>,
    /// Logs some of them.
    pub(crate) decisions: Arc<Decisions>,
    /// What the server is called among others.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) region: Option<String>,
    pub(crate) started_at: Timestamp,
    /// Callers' keys may be labels of metrics.
    pub(crate) keys_in_metrics: bool,
}

/// Where the kernel tells the machine's name.
const NAME: &str = "/proc/sys/kernel/hostname";

/// Where the store answers at once, one in so many checks is timed.
const TIME_ONE_IN: u32 = 8;

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
            name,
            region: settings.region.clone(),
            started_at,
            keys_in_metrics: settings.metrics_show_keys,
        }
    }
}

#[cfg(test)]
impl Sight {
    /// Of a server without settings.
    pub(crate) fn alone() -> Arc<Sight> {
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
            name: "here".to_owned(),
            region: None,
            started_at: Timestamp::from_secs(1_700_000_000),
            keys_in_metrics: false,
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
