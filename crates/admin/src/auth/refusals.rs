//! Refused access: a warning in the log, and a summary in the audit log.
//!
//! Both are bounded, whatever clients send. The audit log is permanent, so it gets one entry per source and interval, with the number
//! of refusals, for a few sources; the rest is summed up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode, Uri};
use serde_json::json;
use tokio::sync::Notify;
use tollgate::Timestamp;
use tollgate_control::{Change, Precondition, RecordName};
use tollgate_records::{RecordKind, Rfc3339};

use crate::store_of_record::{Author, ControlPlane};
use tollgate_net::Closing;
use tollgate_telemetry::LogThrottle;

/// Refusals that are not in the audit log yet.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    pending: Mutex<BTreeMap<Source, RefusalSummary>>,
    wake: Notify,
}

/// Who was refused, and why. Its order is that of the entries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source {
    /// The name of an authenticated client; `None` for all others.
    pub(super) name: Option<String>,
    /// Its address.
    pub(super) from: String,
    /// The reason, as one word.
    pub(super) reason: &'static str,
}

/// The refusals of one source.
#[derive(Debug, PartialEq, Eq)]
struct RefusalSummary {
    status: StatusCode,
    count: u64,
    since: Timestamp,
    /// The first request.
    request: String,
}

/// Sources that have entries of their own: so many authenticated ones, and as many others, so that nobody without credentials
/// displaces those who have some.
const MAX_SOURCES: usize = 8;
/// The name of clients without credentials, and the reason of sources beyond [`MAX_SOURCES`].
const UNAUTHENTICATED: &str = "unauthenticated";
const OTHERS: &str = "others";
/// Characters of a request in the audit log.
const MAX_REQUEST_CHARS: usize = 200;
/// The first entry waits this long for more of its kind.
const COLLECT_DELAY: Duration = Duration::from_secs(1);
/// The time between two summaries in the audit log.
const AUDIT_INTERVAL: Duration = Duration::from_secs(600);
/// How long the last summary may delay the end of the server.
const LAST_TIMEOUT: Duration = Duration::from_secs(1);

impl Refusals {
    /// Logs a refusal, and adds it to the next summary.
    pub(super) fn record(&self, source: Source, status: StatusCode, request: (&Method, &Uri), now: Timestamp) {
        static UNKNOWN_CLIENTS: LogThrottle = LogThrottle::new();
        static KNOWN_CLIENTS: LogThrottle = LogThrottle::new();
        let Source { name, from, reason } = &source;
        match name {
            Some(name) => KNOWN_CLIENTS.log(
                |suppressed| tracing::warn!(by = %name, %from, reason, suppressed, "a request to the admin API was refused"),
            ),
            None => UNKNOWN_CLIENTS
                .log(|suppressed| tracing::warn!(%from, reason, suppressed, "access to the admin API was refused")),
        }
        let (method, path) = (request.0, request.1.path());
        let request = format!("{method} {path}").chars().take(MAX_REQUEST_CHARS).collect();
        self.add(source, RefusalSummary { status, count: 1, since: now, request });
    }

    /// Adds refusals to those of the same source, or to those of all others if there are too many sources.
    fn add(&self, source: Source, summary: RefusalSummary) {
        let mut pending = self.pending();
        let of_its_kind = pending.keys().filter(|known| known.name.is_some() == source.name.is_some()).count();
        let source = match pending.contains_key(&source) || of_its_kind < MAX_SOURCES {
            true => source,
            false => Source { name: source.name.map(|_| OTHERS.to_owned()), from: String::new(), reason: OTHERS },
        };
        match pending.get_mut(&source) {
            Some(known) => {
                known.count += summary.count;
                known.since = known.since.min(summary.since);
            }
            None => drop(pending.insert(source, summary)),
        }
        drop(pending);
        self.wake.notify_one();
    }

    /// Writes summaries to the audit log until the server is about to stop.
    pub(super) async fn follow(&self, control: &Arc<ControlPlane>, mut closing: Closing) {
        loop {
            tokio::select! {
                () = self.wake.notified() => {}
                () = closing.begun() => break,
            }
            tokio::select! {
                () = tokio::time::sleep(COLLECT_DELAY) => self.write(control).await,
                () = closing.begun() => break,
            }
            tokio::select! {
                () = tokio::time::sleep(AUDIT_INTERVAL) => {}
                () = closing.begun() => break,
            }
        }
        let _ = tokio::time::timeout(LAST_TIMEOUT, self.write(control)).await;
    }

    /// Writes a summary. What can't be written waits for the next one.
    pub(super) async fn write(&self, control: &Arc<ControlPlane>) {
        if control.db().is_none() {
            self.pending().clear();
            return;
        }
        let due = std::mem::take(&mut *self.pending());
        for (source, summary) in due {
            let (author, change) = entry(&source, &summary);
            if let Err(why) = control.write(&author, vec![change], None).await {
                tracing::debug!(?why, "refused access is not in the audit log yet");
                self.add(source, summary);
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<Source, RefusalSummary>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of a summary.
fn entry(source: &Source, summary: &RefusalSummary) -> (Author, Change) {
    let Source { name, from, reason } = source;
    let name = name.clone().unwrap_or_else(|| UNAUTHENTICATED.to_owned());
    let RefusalSummary { status, count, since, request } = summary;
    let document = json!({"status": status.as_u16(), "count": count, "since": Rfc3339(*since), "request": request});
    let change = Change {
        name: RecordName::new(RecordKind::Access, "", *reason),
        expect: Precondition::Any,
        document: Some(document.to_string()),
        action: "access.refused".to_owned(),
        reason: String::new(),
    };
    (Author { name, from: from.clone() }, change)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: Option<&str>, from: &str) -> Source {
        Source { name: name.map(str::to_owned), from: from.to_owned(), reason: "unknown_token" }
    }

    #[test]
    fn many_sources_are_summed_up_and_displace_no_authenticated_one() {
        let refusals = Refusals::default();
        let uri: Uri = format!("/admin/v1/{}", "x".repeat(1_000)).parse().unwrap();
        let record = |source| {
            refusals.record(source, StatusCode::UNAUTHORIZED, (&Method::GET, &uri), Timestamp::from_secs(7));
        };
        (0..100).for_each(|n| record(source(None, &format!("192.0.2.{n}"))));
        (0..3).for_each(|_| record(source(None, "192.0.2.1")));
        record(source(Some("token a"), "192.0.2.1"));
        let pending = refusals.pending();
        assert_eq!(pending.len(), MAX_SOURCES + 2);
        let count = |source: &Source| pending[source].count;
        assert_eq!(count(&source(None, "192.0.2.1")), 4);
        assert_eq!(count(&source(Some("token a"), "192.0.2.1")), 1);
        let others = Source { name: None, from: String::new(), reason: OTHERS };
        assert_eq!(count(&others), 100 - MAX_SOURCES as u64);
        assert!(pending.values().all(|summary| summary.request.chars().count() == MAX_REQUEST_CHARS));
        drop(pending);
        // What could not be written is added to what came meanwhile.
        let due = std::mem::take(&mut *refusals.pending());
        record(source(None, "192.0.2.1"));
        due.into_iter().for_each(|(source, summary)| refusals.add(source, summary));
        assert_eq!(refusals.pending()[&source(None, "192.0.2.1")].count, 5);
        assert!(refusals.pending().len() <= 2 * (MAX_SOURCES + 1));
    }
}
