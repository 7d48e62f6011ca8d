//! The server: from settings to parts, and from parts to something that runs. The only file that sees everything.

mod banner;
mod control;
mod decisions;
mod parts;
mod receipts;
mod store;
mod who;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tollgate::{Clock as _, SystemClock};

use crate::config::{Problem, Settings};
use crate::net::closing::Closer;
use crate::net::workers::Workers;
use crate::observe::log;
use crate::observe::metrics::Metrics;
use parts::Parts;

/// The process could not do its work.
const FAILURE: u8 = 1;

/// Runs the server until it is told to stop.
pub(crate) fn run(settings: Settings, warnings: Vec<Problem>) -> ExitCode {
    let metrics = Metrics::new();
    match log::init(&parts::log_settings(&settings), metrics.log_lines_lost()) {
        // Dropped last, so that what is said on the way out is written.
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
            crate::cli::complain(reason);
            ExitCode::from(FAILURE)
        }
    }
}

fn start(settings: &Settings, warnings: &[Problem], metrics: Arc<Metrics>) -> Result<(), Vec<String>> {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| vec![format!("no runtime: {error}")])?;
    let _inside = runtime.enter();
    let mut parts = Parts::build(settings, metrics, &runtime)?;
    let (kept, _traces, _tending) = (parts.kept.clone(), parts.traces.take(), parts.tending.take());
    let served = runtime.block_on(serve(settings, parts));
    // Connections that did not end in time end here, before the counters are written for the last time.
    drop(runtime);
    kept.save();
    tracing::info!("stopped");
    served.map_err(|reason| vec![reason])
}

/// How long the admin listener's last answers may take.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// How long the last decisions may take to be logged.
const LAST_DECISIONS: Duration = Duration::from_secs(2);

/// From the first connection to the last.
async fn serve(settings: &Settings, parts: Parts) -> Result<(), String> {
    let unable = |error: io::Error| format!("the server can't run: {error}");
    let mut signals = Signals::new().map_err(unable)?;
    let workers = Arc::new(Workers::start(parts::workers(settings)).map_err(unable)?);
    let (closer, closing) = Closer::new();
    let (alive, mut all_ended) = mpsc::channel(1);
    let (admin_closer, admin_closing) = Closer::new();
    let (admin_alive, mut admin_ended) = mpsc::channel(1);

    banner::show(settings, &parts);
    first_words(&parts).await;
    for door in parts.doors {
        tokio::spawn(door.open(Some(workers.clone()), closing.clone(), alive.clone()));
    }
    if let Some(door) = parts.admin {
        // Here, and until the end: operators see a server that is busy, and one that stops.
        tokio::spawn(door.open(None, admin_closing, admin_alive.clone()));
    }
    drop((alive, admin_alive));
    for task in parts.background {
        tokio::spawn(task(closing.clone()));
    }
    let (waker, rules) = parts.rules.watch().map_err(unable)?;
    parts.health.started();
    banner::ready();

    signals.until_told_to_stop(|| waker.ask()).await;
    tracing::info!("stopping: what is in flight is answered, for at most {:?}", settings.shutdown_timeout);
    parts.health.stopping();
    closer.close();
    waker.stop();
    let drained = tokio::time::timeout(settings.shutdown_timeout, all_ended.recv());
    tokio::select! {
        drained = drained => if drained.is_err() {
            tracing::warn!("some connections did not end in time and are closed");
        },
        () = signals.until_told_to_stop(|| {}) => tracing::warn!("told to stop twice: what is in flight is dropped"),
    }
    admin_closer.close();
    // What operators wrote is answered, and what they follow has an end.
    let _ = tokio::join!(tokio::time::timeout(LAST_ANSWERS, admin_ended.recv()), parts.farewell);
    if let Ok(workers) = Arc::try_unwrap(workers) {
        workers.stop();
    }
    // Nobody decides any more.
    match tokio::time::timeout(LAST_DECISIONS, parts.decisions.write(SystemClock::default().now())).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => tracing::warn!("the last decisions could not be logged: {why}"),
        Err(_) => tracing::warn!("the last decisions could not be logged in time"),
    }
    // One that panicked has said so.
    let _ = rules.join();
    Ok(())
}

/// What is heard of a shared store before anybody is answered; not much time is spent on one that is away.
async fn first_words(parts: &Parts) {
    let answer = async {
        if let Some(redis) = &parts.redis {
            redis.first_answer().await;
        }
    };
    let agreement = async {
        if let Some(agreement) = &parts.agreement {
            agreement.begin().await;
        }
    };
    tokio::join!(answer, agreement);
}

/// What the system tells us to do.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Ends when the server is told to stop; until then it is told to read its rules again.
    async fn until_told_to_stop(&mut self, reload: impl Fn()) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => reload(),
            }
        }
    }
}
