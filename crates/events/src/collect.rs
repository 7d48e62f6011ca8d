//! Writes events to the journal.

use std::io;
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
/// Events of one write.
const MAX_BATCH: usize = 16;

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
        let written = loop {
            match write(&stream, &journal, &*clock, is_last).await {
                Ok(MAX_BATCH) => {}
                written => break written,
            }
        };
        match written {
            Ok(_) if is_failing => {
                tracing::info!("events are written again");
                health.restore(COMPONENT);
                is_failing = false;
            }
            Ok(_) => {}
            Err(error) => {
                let error = problem(&error);
                if !is_failing {
                    tracing::warn!(error, "events can't be written to the data directory; they wait in memory");
                }
                is_failing = true;
                let waiting = stream.waiting(usize::MAX).len();
                health.degrade(COMPONENT, format!("events can't be written: {error}; {waiting} wait in memory"));
            }
        }
        if is_last {
            return;
        }
    }
}

/// The error for operators. The system's words for a full disk are not everybody's.
fn problem(error: &io::Error) -> String {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    format!("{error}{}", if is_full { ": the disk is full" } else { "" })
}

/// Writes the next events, and returns their number.
async fn write(stream: &EventStream, journal: &Arc<Journal>, clock: &dyn Clock, is_last: bool) -> io::Result<usize> {
    let waiting = stream.waiting(MAX_BATCH);
    if waiting.is_empty() {
        return Ok(0);
    }
    let lines: Vec<_> = waiting.iter().map(|event| event.to_line()).collect();
    let (writing, now) = (journal.clone(), clock.now());
    match is_last {
        // The runtime is about to end.
        true => journal.append(&lines, now)?,
        false => {
            let written = tokio::task::spawn_blocking(move || writing.append(&lines, now)).await;
            written.map_err(io::Error::other).flatten()?;
        }
    }
    stream.written(&waiting);
    Ok(waiting.len())
}

#[cfg(test)]
mod tests {
    use tollgate_net::closing::Closer;
    use tollgate_store::ManualClock;
    use tollgate_testing::TIMEOUT;

    use super::*;
    use crate::event::{EventSeverity, EventType};
    use crate::journal::JournalConfig;

    #[test]
    fn a_full_disk_is_called_so() {
        assert!(problem(&io::ErrorKind::StorageFull.into()).ends_with(": the disk is full"));
        assert_eq!(problem(&io::ErrorKind::PermissionDenied.into()), "permission denied");
    }

    #[tokio::test]
    async fn events_wait_while_the_journal_can_not_be_written_and_the_last_are_written_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        let keep = tollgate_core::Span::from_secs(86_400);
        let config = JournalConfig { directory: path.clone(), max_bytes: 1 << 20, keep };
        let journal = Arc::new(Journal::open(config).unwrap());
        let (stream, health) = (Arc::new(EventStream::new("a")), Arc::<Health>::default());
        let (closer, closing) = Closer::new();
        let emit = |count: usize| {
            (0..count).for_each(|_| {
                stream.emit(stream.event(Default::default(), EventType::Test, EventSeverity::Info, "text"));
            });
        };
        std::fs::remove_dir_all(&path).unwrap();
        emit(MAX_BATCH + 1);
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let collecting = tokio::spawn(collect(stream.clone(), journal.clone(), health.clone(), clock, closing));
        let until = async |is: &dyn Fn() -> bool| {
            let polling = async {
                while !is() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(TIMEOUT, polling).await.unwrap();
        };
        until(&|| {
            health.conditions().iter().any(|(part, why)| *part == COMPONENT && why.contains("17 wait in memory"))
        })
        .await;
        std::fs::create_dir(&path).unwrap();
        until(&|| health.conditions().is_empty() && stream.waiting(1).is_empty()).await;
        assert_eq!(journal.read(0, 99).unwrap().len(), MAX_BATCH + 1);
        emit(2 * MAX_BATCH);
        closer.close();
        collecting.await.unwrap();
        assert_eq!(journal.read(0, 99).unwrap().len(), 3 * MAX_BATCH + 1);
    }
}
