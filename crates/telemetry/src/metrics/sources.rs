//! Metrics that are collected from components at each scrape.

use std::fmt::{self, Error};
use std::sync::{Arc, PoisonError, RwLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

/// A component whose metrics are collected at each scrape.
pub trait MetricSource: Send + Sync + 'static {
    /// Encodes all of its families.
    ///
    /// # Errors
    /// If the encoder fails.
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error>;
}

/// The sources under one prefix, in the order of their registration.
#[derive(Clone, Default)]
pub(super) struct MetricSources(Arc<RwLock<Vec<Box<dyn MetricSource>>>>);

impl MetricSources {
    pub(super) fn add(&self, source: impl MetricSource) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(source));
    }
}

impl Collector for MetricSources {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let sources = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sources.iter().try_for_each(|source| source.encode(&mut encoder))
    }
}

impl fmt::Debug for MetricSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricSources").finish_non_exhaustive()
    }
}
