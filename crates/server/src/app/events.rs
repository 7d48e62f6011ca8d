//! Builds the journal of events and the sinks that read it.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tollgate::{Clock, Span, SystemClock};
use tollgate_admin::data_dir::write_problem;
use tollgate_admin::events::{AuditFollower, EventsFile};
use tollgate_admin::metrics;
use tollgate_admin::observe::Observability;
use tollgate_admin::store_of_record::ControlPlane;
use tollgate_events::{COMPONENT, Journal, JournalConfig, Subscriptions, collect};

use super::component::{Foundation, Tasks};

/// The directory of the journal within the data directory.
const DIRECTORY: &str = "events";

/// Builds the sinks, and adds the tasks that write the journal and watch the file of the sinks.
///
/// # Errors
/// All problems of the file, with line and remedy.
pub(super) fn build(
    foundation: &Foundation<'_>,
    observability: &Arc<Observability>,
    control: &Arc<ControlPlane>,
    runtime: &Runtime,
    tasks: &mut Tasks,
) -> Result<Arc<Subscriptions>, Vec<String>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let file = foundation.settings.events.file.as_deref();
    let file = file.map(|file| EventsFile::load(file, clock.clone())).transpose()?;
    let journal = Arc::new(journal(foundation));
    if journal.is_in_memory() && file.is_some() {
        tracing::warn!("without a data directory, events that wait to be sent do not survive a restart");
    }
    let sinks = Arc::new(Subscriptions::new(journal.clone(), clock.clone()));
    let stream = observability.sampler.events.stream().clone();
    metrics::register_events(&foundation.metrics, stream.clone(), sinks.clone());
    if let Some((file, definitions)) = file {
        // Before the first event is in the journal, so that a new sink gets it.
        let _runtime = runtime.enter();
        if let Err(error) = sinks.replace(definitions) {
            tracing::warn!(error, "positions of sinks can't be saved: a restart may send events again");
        }
        let (followed, health) = (sinks.clone(), foundation.health.clone());
        tasks.add(move |closing| file.follow(followed, health, closing));
    }
    let follower = AuditFollower::new(observability.clone(), control.clone(), journal.clone());
    let follower = runtime.block_on(follower);
    tasks.add(move |closing| follower.follow(closing));
    let health = foundation.health.clone();
    tasks.add(move |closing| collect(stream, journal, health, clock, closing));
    Ok(sinks)
}

/// The journal in the data directory; in memory if there is none, or if it can't be used.
fn journal(foundation: &Foundation<'_>) -> Journal {
    let Some(data) = foundation.data.as_deref() else { return Journal::in_memory() };
    let settings = &foundation.settings.events;
    let directory = data.file(DIRECTORY);
    let keep = Span::from_micros(u64::try_from(settings.keep.as_micros()).unwrap_or(u64::MAX));
    let config = JournalConfig { directory: directory.clone(), max_bytes: settings.size, keep };
    Journal::open(config).unwrap_or_else(|error| {
        let reason = format!("events are in memory only: {}", write_problem(&directory, &error));
        tracing::warn!("{reason}");
        foundation.health.degrade(COMPONENT, reason);
        Journal::in_memory()
    })
}
