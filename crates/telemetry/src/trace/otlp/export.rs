//! The export of spans: a bounded queue, and a thread that sends them to the collector.

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

use crate::LogThrottle;
use crate::metrics::TraceMetrics;

/// Queues finished spans and never blocks: beyond [`MAX_WAITING`] spans are dropped and counted.
#[derive(Debug)]
pub(super) struct SpanQueue {
    spans: queue::Sender<SpanData>,
    dropped: Counter,
}

/// Spans are exported as long as this guard lives. Dropping it waits for the queued spans, for at most two seconds.
#[derive(Debug)]
pub struct TraceGuard {
    stop: Option<oneshot::Sender<()>>,
    stopped: mpsc::Receiver<()>,
}

/// The thread that exports.
struct ExportLoop {
    spans: queue::Receiver<SpanData>,
    exporter: SpanExporter,
    endpoint: String,
    metrics: TraceMetrics,
}

/// Spans that may wait, about 4 MiB.
const MAX_WAITING: usize = 4096;
/// Spans of one export, well below a collector's limit for a message (4 MiB).
const MAX_BATCH: usize = 512;
/// The time between exports. The thread polls, so that finishing a span does not wake it.
const EXPORT_INTERVAL: Duration = Duration::from_millis(250);
/// The longest export.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// The wait for the last spans at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts to export spans to a collector.
pub(super) fn start(
    endpoint: &str,
    resource: &Resource,
    metrics: &TraceMetrics,
) -> Result<(SpanQueue, TraceGuard), String> {
    if !endpoint.starts_with("http://") {
        return Err(format!(
            "{endpoint:?} is not the address of a collector: write http://HOST:PORT (gRPC without TLS)"
        ));
    }
    let no_thread = |error: io::Error| format!("the trace thread can't be started: {error}");
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
    let exporter = {
        // The connection belongs to the runtime.
        let _inside = runtime.enter();
        let builder = SpanExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(EXPORT_TIMEOUT);
        let mut exporter = builder.build().map_err(|error| format!("traces can't be sent to {endpoint:?}: {error}"))?;
        exporter.set_resource(resource);
        exporter
    };
    let (sender, spans) = queue::channel(MAX_WAITING);
    let (stop, stopping) = oneshot::channel();
    let (done, stopped) = mpsc::channel();
    let export = ExportLoop { spans, exporter, endpoint: endpoint.to_owned(), metrics: metrics.clone() };
    let run = move || {
        runtime.block_on(export.run(stopping));
        // It fails if nobody waits any more.
        let _ = done.send(());
    };
    thread::Builder::new().name("traces".to_owned()).spawn(run).map_err(no_thread)?;
    Ok((SpanQueue { spans: sender, dropped: metrics.dropped.clone() }, TraceGuard { stop: Some(stop), stopped }))
}

impl ExportLoop {
    async fn run(mut self, mut stopping: oneshot::Receiver<()>) {
        let mut every = interval(EXPORT_INTERVAL);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = false;
        while !last {
            last = tokio::select! {
                _ = every.tick() => false,
                _ = &mut stopping => true,
            };
            // At most one queue, so that shutdown is noticed under any load.
            for _ in 0..MAX_WAITING / MAX_BATCH {
                let batch: Vec<_> = std::iter::from_fn(|| self.spans.try_recv().ok()).take(MAX_BATCH).collect();
                if batch.is_empty() {
                    break;
                }
                self.send(batch).await;
            }
        }
    }

    async fn send(&self, batch: Vec<SpanData>) {
        static FAILED: LogThrottle = LogThrottle::new();
        let spans = batch.len() as u64;
        let error = match timeout(EXPORT_TIMEOUT, self.exporter.export(batch)).await {
            Ok(Ok(())) => {
                self.metrics.exported.inc_by(spans);
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {EXPORT_TIMEOUT:?}"),
        };
        self.metrics.failed.inc_by(spans);
        FAILED.log(|suppressed| warn!(endpoint = self.endpoint, spans, suppressed, error, "exporting spans failed"));
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.dropped.inc();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// The guard stops the export.
    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Drop for TraceGuard {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take()
            && stop.send(()).is_ok()
        {
            // A collector that is slower than this loses the last spans.
            let _ = self.stopped.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}
