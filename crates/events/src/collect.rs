//! Writes events to the journal.

use std::sync::Arc;
use std::time::Duration;

use tollgate_net::Closing;
use tollgate_store::Clock;
use tollgate_telemetry::Health;

use crate::journal::Journal;
use crate::stream::EventStream;

/// The component whose health is degraded while the journal can't be written.
pub const COMPONENT: &str = "events_journal";
/// When the journal can't be written, it is tried again after this time.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Writes what is emitted to the journal until shutdown, and the last events then.
pub async fn collect(
    stream: Arc<EventStream>,
    journal: Arc<Journal>,
    health: Arc<Health>,
    clock: Arc<dyn Clock>,
    mut closing: Closing,
) {
    let mut is_failing = false;
    loop {
        let is_last = tokio::select! {
            () = stream.added(), if !is_failing => false,
            () = tokio::time::sleep(RETRY_DELAY) => false,
            () = closing.begun() => true,
        };
        let waiting = stream.waiting();
        if !waiting.is_empty() {
            let lines: Vec<_> = waiting.iter().map(|event| event.to_line()).collect();
            let (writing, now) = (journal.clone(), clock.now());
            let written = match is_last {
                // The runtime is about to end.
                true => journal.append(&lines, now),
                false => {
                    let written = tokio::task::spawn_blocking(move || writing.append(&lines, now)).await;
                    written.unwrap_or_else(|error| Err(std::io::Error::other(error)))
                }
            };
            match written {
                Ok(()) => {
                    stream.written(&waiting);
                    if is_failing {
                        tracing::info!("events are written again");
                        health.restore(COMPONENT);
                    }
                    is_failing = false;
                }
                Err(error) => {
                    if !is_failing {
                        tracing::warn!(%error, "events can't be written to the data directory; they wait in memory");
                    }
                    is_failing = true;
                    let waiting = waiting.len();
                    health.degrade(COMPONENT, format!("events can't be written: {error}; {waiting} wait in memory"));
                }
            }
        }
        if is_last {
            return;
        }
    }
}
