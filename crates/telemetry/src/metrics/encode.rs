//! Encoding of metrics with the names and help texts of the [`table`](super::table).

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::table;

/// Begins a family of the table.
pub fn family<'e>(encoder: &'e mut DescriptorEncoder, name: &'e str) -> Result<MetricEncoder<'e>, Error> {
    let kind = table::find(name).map_or(MetricType::Unknown, |metric| metric.kind.metric_type());
    encoder.encode_descriptor(name, &format!("{}.", table::help(name)), None, kind)
}

pub fn gauge(encoder: &mut DescriptorEncoder, name: &str, value: &impl EncodeGaugeValue) -> Result<(), Error> {
    family(encoder, name)?.encode_gauge(value)
}

pub fn counter(encoder: &mut DescriptorEncoder, name: &str, value: u64) -> Result<(), Error> {
    family(encoder, name)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
}

/// One counter of a family.
pub fn count(family: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> Result<(), Error> {
    family.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
}
