//! The way of spans to the collector: a queue with a bound, and a thread that empties it.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter as _, SpanProcessor};
use prometheus_client::metrics::counter::Counter;
use tokio::runtime;
use tokio::sync::{mpsc as queue, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::warn;

use crate::observe::Seldom;
use crate::observe::metrics::TraceMetrics;

/// Takes spans that ended. Who ends one never waits: past [`MOST_WAITING`] it is dropped and counted.
#[derive(Debug)]
pub(super) struct Queue {
    spans: queue::Sender<SpanData>,
    dropped: Counter,
}

/// Spans are sent while this lives. Dropped, it waits until those that wait are sent, but no longer than two seconds.
#[derive(Debug)]
pub(crate) struct TraceGuard {
    stop: Option<oneshot::Sender<()>>,
    stopped: mpsc::Receiver<()>,
}

/// The other end.
struct Export {
    spans: queue::Receiver<SpanData>,
    exporter: SpanExporter,
    endpoint: String,
    metrics: TraceMetrics,
}

/// The most spans that wait: some 4 MiB.
const MOST_WAITING: usize = 4096;
/// The most that are sent at once: well below what a collector takes in one message (4 MiB).
const MOST_AT_ONCE: usize = 512;
/// How often the queue is emptied. The thread looks by itself, so that ending a span wakes nobody.
const EVERY: Duration = Duration::from_millis(250);
/// How long the collector may take for what is sent at once.
const SENT_WITHIN: Duration = Duration::from_secs(5);
/// How long the end of the process waits for the last spans.
const FLUSHED_WITHIN: Duration = Duration::from_secs(2);

/// Sends spans to this collector from now on.
pub(super) fn start(
    endpoint: &str,
    resource: &Resource,
    metrics: &TraceMetrics,
) -> Result<(Queue, TraceGuard), String> {
    if !endpoint.starts_with("http://") {
        return Err(format!("{endpoint:?} is not a collector's address: write http://HOST:PORT (gRPC without TLS)"));
    }
    let no_thread = |error: io::Error| format!("traces have no thread: {error}");
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
    let exporter = {
        // The connection lives in the runtime.
        let _inside = runtime.enter();
        let builder = SpanExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(SENT_WITHIN);
        let mut exporter = builder.build().map_err(|error| format!("traces can't be sent to {endpoint:?}: {error}"))?;
        exporter.set_resource(resource);
        exporter
    };
    let (sender, spans) = queue::channel(MOST_WAITING);
    let (stop, stopping) = oneshot::channel();
    let (done, stopped) = mpsc::channel();
    let export = Export { spans, exporter, endpoint: endpoint.to_owned(), metrics: metrics.clone() };
    let run = move || {
        runtime.block_on(export.run(stopping));
        // Nobody waits any more if this fails.
        let _ = done.send(());
    };
    thread::Builder::new().name("traces".to_owned()).spawn(run).map_err(no_thread)?;
    Ok((Queue { spans: sender, dropped: metrics.dropped.clone() }, TraceGuard { stop: Some(stop), stopped }))
}

impl Export {
    async fn run(mut self, mut stopping: oneshot::Receiver<()>) {
        let mut every = interval(EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = false;
        while !last {
            last = tokio::select! {
                _ = every.tick() => false,
                _ = &mut stopping => true,
            };
            // No more than the queue holds, so that the end is noticed under any load.
            for _ in 0..MOST_WAITING / MOST_AT_ONCE {
                let batch: Vec<_> = std::iter::from_fn(|| self.spans.try_recv().ok()).take(MOST_AT_ONCE).collect();
                if batch.is_empty() {
                    break;
                }
                self.send(batch).await;
            }
        }
    }

    async fn send(&self, batch: Vec<SpanData>) {
        static FAILED: Seldom = Seldom::new();
        let spans = batch.len() as u64;
        let problem = match timeout(SENT_WITHIN, self.exporter.export(batch)).await {
            Ok(Ok(())) => {
                self.metrics.exported.inc_by(spans);
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {SENT_WITHIN:?}"),
        };
        self.metrics.failed.inc_by(spans);
        FAILED.say(|more| warn!(endpoint = self.endpoint, spans, more, problem, "spans could not be sent"));
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.dropped.inc();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// The guard ends it.
    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Drop for TraceGuard {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take()
            && stop.send(()).is_ok()
        {
            // The collector has had the time.
            let _ = self.stopped.recv_timeout(FLUSHED_WITHIN);
        }
    }
}
