//! The server: builds the components ([`parts`]) from the settings, runs them and shuts them down.

mod access;
mod banner;
mod component;
mod control;
mod data_plane;
mod endpoints;
mod events;
mod gateway;
mod key_privacy;
mod observability;
mod parts;
mod receipts;
#[cfg(feature = "redis")]
mod redis;
mod rules;
mod store;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tollgate::{Clock as _, SystemClock};

use crate::config::{self, ConfigProblem, ServerSettings};
use parts::Components;
use tollgate_net::closing::Closer;
use tollgate_net::workers::Workers;
use tollgate_telemetry::log::{self, LogFormat, LogSettings};
use tollgate_telemetry::metrics::Metrics;

/// The exit code of a server that failed.
const FAILURE: u8 = 1;

/// Runs the server until it is stopped.
pub fn run(settings: ServerSettings, warnings: Vec<ConfigProblem>) -> ExitCode {
    let metrics = Metrics::new();
    match log::init(&log_settings(&settings), metrics.log_lines_lost()) {
        // Dropped last, so that the last lines are written.
        Ok(_guard) => match start(&settings, &warnings, metrics) {
            Ok(()) => ExitCode::SUCCESS,
            Err(reasons) => {
                for reason in reasons {
                    tracing::error!("{reason}");
                }
                ExitCode::from(FAILURE)
            }
        },
        Err(reason) => {
            tollgate_cli::print_error(reason);
            ExitCode::from(FAILURE)
        }
    }
}

fn start(settings: &ServerSettings, warnings: &[ConfigProblem], metrics: Arc<Metrics>) -> Result<(), Vec<String>> {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| vec![format!("no runtime: {error}")])?;
    let _inside = runtime.enter();
    let mut components = Components::build(settings, metrics, &runtime)?;
    let (saved, _traces) = (components.saved.clone(), components.traces.take());
    let served = runtime.block_on(serve(settings, components));
    // The remaining connections end here, before the counters are written for the last time.
    drop(runtime);
    saved.save();
    tracing::info!("stopped");
    served.map_err(|reason| vec![reason])
}

/// The wait for the last responses of the admin listener at shutdown.
const LAST_RESPONSES: Duration = Duration::from_secs(1);

/// The wait for the last entries of the decision log at shutdown.
const LAST_DECISIONS: Duration = Duration::from_secs(2);

/// Serves from the first connection to the last.
async fn serve(settings: &ServerSettings, components: Components) -> Result<(), String> {
    let unable = |error: io::Error| format!("the server can't run: {error}");
    let mut signals = ServerSignals::new().map_err(unable)?;
    let workers = Arc::new(Workers::start(worker_count(settings), &components.busy).map_err(unable)?);
    let (closer, closing) = Closer::new();
    let (alive, mut all_ended) = mpsc::channel(1);
    let (admin_closer, admin_closing) = Closer::new();
    let (admin_alive, mut admin_ended) = mpsc::channel(1);

    banner::show(settings, &components);
    connect_store(&components).await;
    for endpoint in components.endpoints {
        tokio::spawn(endpoint.run(Some(workers.clone()), closing.clone(), alive.clone()));
    }
    if let Some(endpoint) = components.admin {
        // On this thread and until the end, so that operators can observe a server that is busy or stopping.
        tokio::spawn(endpoint.run(None, admin_closing, admin_alive.clone()));
    }
    drop((alive, admin_alive));
    components.tasks.spawn(&closing);
    let (waker, rules) = components.rules.start().map_err(unable)?;
    components.health.started();
    banner::ready();

    signals.wait_for_stop(|| waker.force()).await;
    components.health.stopping();
    if !settings.shutdown_delay.is_zero() {
        tracing::info!("stopping: not ready any more, and still serving for {:?}", settings.shutdown_delay);
        // A second signal ends the delay, and a third one the wait for requests in flight.
        let _ = tokio::time::timeout(settings.shutdown_delay, signals.wait_for_stop(|| waker.force())).await;
    }
    tracing::info!("stopping: waiting up to {:?} for requests in flight", settings.shutdown_timeout);
    closer.close();
    waker.stop();
    let drained = tokio::time::timeout(settings.shutdown_timeout, all_ended.recv());
    tokio::select! {
        drained = drained => if drained.is_err() {
            tracing::warn!("closing the connections that did not end in time");
        },
        () = signals.wait_for_stop(|| {}) => tracing::warn!("second stop signal: dropping requests in flight"),
    }
    admin_closer.close();
    // Writes of operators get their responses, and live streams end.
    let _ = tokio::join!(tokio::time::timeout(LAST_RESPONSES, admin_ended.recv()), components.deregistration);
    if let Ok(workers) = Arc::try_unwrap(workers) {
        workers.stop();
    }
    // No more decisions are made.
    match tokio::time::timeout(LAST_DECISIONS, components.decisions.write_last(SystemClock::default().now())).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => tracing::warn!("writing the last decisions to the log failed: {why}"),
        Err(_) => tracing::warn!("writing the last decisions to the log timed out"),
    }
    // A panic has been reported already.
    let _ = rules.join();
    Ok(())
}

/// The wait for a shared store at the start.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// Connects to a shared store before the listeners accept; a store that is unavailable delays the start only briefly.
async fn connect_store(components: &Components) {
    let answer = async {
        if let Some(store) = &components.shared {
            store.wait_until_ready(STORE_TIMEOUT).await;
        }
    };
    let agreement = async {
        if let Some(agreement) = &components.agreement {
            agreement.start().await;
        }
    };
    tokio::join!(answer, agreement);
}

/// The settings of the log.
fn log_settings(settings: &ServerSettings) -> LogSettings {
    let format = match settings.observe.log_format {
        config::LogFormat::Text => LogFormat::Text,
        config::LogFormat::Json => LogFormat::Json,
    };
    LogSettings { filter: settings.observe.log_level.parse().unwrap_or_default(), format }
}

/// The number of worker threads.
fn worker_count(settings: &ServerSettings) -> usize {
    match settings.workers {
        config::WorkerSettings::Count(count) => count.get(),
        config::WorkerSettings::Auto => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// The signals that the server handles.
struct ServerSignals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl ServerSignals {
    fn new() -> io::Result<ServerSignals> {
        Ok(ServerSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Completes with a signal to stop; a hang-up calls `reload`.
    async fn wait_for_stop(&mut self, reload: impl Fn()) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => reload(),
            }
        }
    }
}
