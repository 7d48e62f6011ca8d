//! What this server sees of its decisions, and who it is: what is shown on pages, in metrics and in logs.

use std::sync::Arc;

use tollgate::Timestamp;
use tollgate_observe::{Observer, ObserverConfig};

use super::pulse::Pulse;
use crate::config::ObserveSettings;

/// What a server sees, and as whom.
#[derive(Debug)]
#[allow(dead_code, reason = "pages that show it follow")]
pub(crate) struct Sight {
    /// Sees every decision.
    pub(crate) observer: Arc<Observer>,
    /// What they came to lately.
    pub(crate) pulse: Pulse,
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
    /// Of a server that refuses nothing if `shadow`, and whose store makes wait if `waits`.
    pub(crate) fn new(settings: &ObserveSettings, shadow: bool, waits: bool, started_at: Timestamp) -> Sight {
        let config =
            ObserverConfig { shadow, time_one_in: if waits { 1 } else { TIME_ONE_IN }, ..ObserverConfig::default() };
        Sight {
            observer: Arc::new(Observer::new(config)),
            pulse: Pulse::new(started_at),
            name: settings.server_name.clone().unwrap_or_else(machine),
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
        Sight::since(Timestamp::from_secs(1_700_000_000))
    }

    /// The same, of one that began at this moment.
    pub(crate) fn since(started_at: Timestamp) -> Arc<Sight> {
        Arc::new(Sight {
            observer: Arc::new(Observer::new(ObserverConfig::default())),
            pulse: Pulse::new(started_at),
            name: "here".to_owned(),
            region: None,
            started_at,
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
