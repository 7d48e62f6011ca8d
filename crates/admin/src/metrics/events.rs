//! Events and the sinks that they are sent to.

use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;
use tollgate_events::{EventStream, SinkStatus};
use tollgate_telemetry::metrics::MetricSource;
use tollgate_telemetry::metrics::encode::{count, counter, family};

/// Reads the stream and the sinks on scrape.
pub(super) struct EventMetrics {
    pub(super) stream: Arc<EventStream>,
    pub(super) status: Box<dyn Fn() -> Vec<SinkStatus> + Send + Sync>,
}

impl MetricSource for EventMetrics {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (counts, sinks) = (self.stream.counts(), (self.status)());
        let mut series = family(encoder, "events")?;
        for (kind, events) in counts.by_type {
            count(&mut series, &[("type", kind.name())], events)?;
        }
        counter(encoder, "events_dropped", counts.dropped)?;
        let mut series = family(encoder, "event_deliveries")?;
        for SinkStatus { name, counts, .. } in &sinks {
            let results =
                [("ok", counts.ok), ("retry", counts.retry), ("dropped", counts.dropped), ("gone", counts.gone)];
            for (result, events) in results {
                count(&mut series, &[("sink", name), ("result", result)], events)?;
            }
        }
        let mut series = family(encoder, "events_waiting")?;
        for sink in &sinks {
            series.encode_family(&[("sink", &*sink.name)])?.encode_gauge(&sink.waiting)?;
        }
        let mut series = family(encoder, "event_oldest_seconds")?;
        sinks.iter().try_for_each(|sink| {
            let seconds = sink.oldest.map_or(0.0, |oldest| oldest.as_micros() as f64 / 1e6);
            series.encode_family(&[("sink", &*sink.name)])?.encode_gauge(&seconds)
        })
    }
}
