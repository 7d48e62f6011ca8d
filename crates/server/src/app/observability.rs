//! Builds observability from the settings: tallies, the decision log, and the exchange with other servers of the fleet.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tollgate::{Clock as _, KeyPrivacy, Span, SystemClock};
use tollgate_control::Db;
use tollgate_events::FilesConfig;

use super::component::{Foundation, Tasks};
use crate::config::{DecisionLogPlace, ServerSettings};
use tollgate_admin::data_dir::DataDir;
use tollgate_admin::decisions::DecisionSink;
use tollgate_admin::observe::history_file::HistoryFile;
use tollgate_admin::observe::{Observability, ObservabilityConfig, fleet, sampler};
use tollgate_admin::store_of_record::ControlPlane;
use tollgate_observe::{LogConfig, SampleRate, TrafficConfig};

/// The directory of the log's files within the data directory.
const DIRECTORY: &str = "decisions";

/// Builds the observability of the server. `waits`: the store may wait for a network.
///
/// # Errors
/// If the sink of the decision log can't be opened.
pub(super) fn build(
    foundation: &Foundation<'_>,
    db: Option<&Db>,
    privacy: Arc<KeyPrivacy>,
    waits: bool,
) -> Result<Arc<Observability>, String> {
    let sink = sink(foundation.settings, db, foundation.data.as_deref())?;
    let config = config(foundation.settings, privacy, waits);
    let observability = Arc::new(Observability::new(config, sink, SystemClock::default().now()));
    if let Some(file) = history_file(foundation) {
        file.restore(&observability);
    }
    Ok(observability)
}

/// The file of the history, if there is a data directory.
pub(super) fn history_file(foundation: &Foundation<'_>) -> Option<HistoryFile> {
    foundation.data.as_deref().map(|data| HistoryFile::in_directory(data.path()))
}

/// Adds the tasks that sample, log and exchange with other servers. The returned future removes this server from their list.
pub(super) fn run(
    foundation: &Foundation<'_>,
    observability: &Arc<Observability>,
    control: &Arc<ControlPlane>,
    tasks: &mut Tasks,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let (sampled, sampling) = (observability.clone(), control.clone());
    tasks.add(move |closing| sampler::run(sampled, sampling, closing));
    if let Some(file) = history_file(foundation) {
        let (saved, health) = (observability.clone(), foundation.health.clone());
        tasks.add(move |closing| file.save_periodically(saved, health, closing));
    }
    let (shared, sharer) = (observability.clone(), control.clone());
    // Without regions there are no such shares.
    let share_interval = foundation.settings.regions.as_ref().map(|regions| regions.share_interval);
    let share_interval = share_interval.unwrap_or(fleet::REPORT_INTERVAL);
    tasks.add(move |closing| fleet::run(shared, sharer, share_interval, closing));
    let (decisions, health) = (observability.decisions.clone(), foundation.health.clone());
    tasks.add(move |closing| async move { decisions.run(health, SystemClock::default(), closing).await });
    Box::pin(fleet::leave(observability.clone(), control.clone()))
}

/// The configuration. `waits`: the store may wait for a network.
fn config(settings: &ServerSettings, key_privacy: Arc<KeyPrivacy>, waits: bool) -> ObservabilityConfig {
    let observe = &settings.observe;
    let log = LogConfig {
        on: observe.decisions.place != DecisionLogPlace::Off,
        sample: SampleRate::from_bps(observe.decisions.sample.bps),
        callers: SampleRate::from_bps(observe.decisions.callers.bps),
        max_single: observe.decisions.repeats,
        ..LogConfig::default()
    };
    let traffic = TrafficConfig {
        on: observe.traffic.on,
        max_bytes: usize::try_from(observe.traffic.size).unwrap_or(usize::MAX),
        max_callers_bps: observe.traffic.callers.bps,
    };
    ObservabilityConfig {
        server_name: observe.server_name.clone(),
        region: observe.region.clone(),
        log,
        traffic,
        keep: Span::from_micros(u64::try_from(observe.decisions.keep.as_micros()).unwrap_or(u64::MAX)),
        max_rows: observe.decisions.max,
        max_bytes: observe.decisions.max_size,
        keys_in_metrics: observe.metrics_show_keys,
        shadow: settings.shadow_mode,
        waits,
        key_privacy,
    }
}

/// The sink of the decision log.
///
/// # Errors
/// If the sink can't be opened.
fn sink(settings: &ServerSettings, db: Option<&Db>, data: Option<&DataDir>) -> Result<DecisionSink, String> {
    let log = &settings.observe.decisions;
    let directory = log.directory.clone().or_else(|| data.map(|data| data.file(DIRECTORY)));
    let keep = Span::from_micros(u64::try_from(log.keep.as_micros()).unwrap_or(u64::MAX));
    let config = directory.map(|directory| FilesConfig {
        directory,
        name: "decisions",
        max_bytes: log.file_size,
        max_files: log.files,
        keep,
    });
    match (log.place, db, config) {
        (DecisionLogPlace::Auto | DecisionLogPlace::Control, Some(db), _) => Ok(DecisionSink::control(db)),
        (DecisionLogPlace::Auto | DecisionLogPlace::Files, _, Some(config)) => DecisionSink::files(config),
        (DecisionLogPlace::Auto | DecisionLogPlace::Off, _, _) => Ok(DecisionSink::Memory),
        (DecisionLogPlace::Stdout, _, _) => DecisionSink::output(io::stdout()),
        (DecisionLogPlace::Control, None, _) => {
            Err("decision_log is control, but there is no control store; start with --data or --control".to_owned())
        }
        (DecisionLogPlace::Files, _, None) => {
            Err("decision_log is files, but there is no directory for them; set --decision-log-dir or --data"
                .to_owned())
        }
    }
}
