//! What became of decisions that are logged.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::NoLabelSet;
use prometheus_client::metrics::MetricType;

use crate::decisions::LogCounts;

pub(super) fn encode(encoder: &mut DescriptorEncoder, counts: LogCounts) -> Result<(), Error> {
    let help = "Entries of the decision log: written where they are kept, dropped since there were too many, or failed for good.";
    let mut encoder = encoder.encode_descriptor("decision_log_entries", help, None, MetricType::Counter)?;
    for (result, count) in [("written", counts.written), ("dropped", counts.dropped), ("failed", counts.failed)] {
        encoder.encode_family(&[("result", result)])?.encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
    }
    Ok(())
}
