//! What a request really cost, from its response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderValue, header};

use crate::costs::include_usage::{UsageFilter, with_usage};
use crate::costs::{Meter, MeteredCost};
use crate::model::{RouteConfig, SettleSource};

/// How the response of a request will be metered.
pub(crate) struct Metering<'r> {
    source: Option<&'r SettleSource>,
    /// Whether usage was requested for the client, which does not expect it.
    is_added: bool,
}

/// Meters a response while it passes.
pub(crate) struct ResponseMeter {
    meter: Meter,
    filter: Option<UsageFilter>,
    /// Counts costs that are estimated.
    estimated: Arc<AtomicU64>,
}

impl<'r> Metering<'r> {
    /// Prepares a request whose cost is settled: some upstreams report usage on request only. Returns the body to send in
    /// the place of `body`, if that is another one.
    pub(crate) fn prepare(
        route: &'r RouteConfig,
        parts: &mut http::request::Parts,
        body: Option<&[u8]>,
    ) -> (Metering<'r>, Option<Vec<u8>>) {
        let source = route.costs.iter().find_map(|cost| cost.settle.as_ref());
        let changed = match source {
            Some(SettleSource::Llm { include_usage: true }) => body.and_then(|body| with_usage(parts, body)),
            _ => None,
        };
        if let Some(changed) = &changed {
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(changed.len()));
        }
        (Metering { source, is_added: changed.is_some() }, changed)
    }

    /// Begins with the head of the response. If its cost has to be estimated, that is counted.
    pub(crate) fn begin(
        self,
        head: &mut http::response::Parts,
        estimated: &Arc<AtomicU64>,
    ) -> Option<Box<ResponseMeter>> {
        let source = self.source?;
        let meter = Meter::new(source, head);
        if let SettleSource::Header(name) = source {
            head.headers.remove(name);
        }
        let filter = if self.is_added { UsageFilter::new(head) } else { None };
        if filter.is_some() {
            head.headers.remove(header::CONTENT_LENGTH);
        }
        Some(Box::new(ResponseMeter { meter, filter, estimated: estimated.clone() }))
    }
}

impl ResponseMeter {
    /// A part of the body. Returns what the client gets of it.
    pub(crate) fn frame(&mut self, data: Bytes) -> Bytes {
        self.meter.frame(&data);
        match &mut self.filter {
            Some(filter) => filter.frame(&data),
            None => data,
        }
    }

    /// Whether the client gets another body than the upstream's.
    pub(crate) fn changes_body(&self) -> bool {
        self.filter.is_some()
    }

    /// What the client gets at the end.
    pub(crate) fn last(&mut self) -> Option<Bytes> {
        let last = self.filter.as_mut()?.finish();
        Some(last).filter(|last| !last.is_empty())
    }

    /// What the request cost, at its end.
    pub(crate) fn cost(self) -> Option<u64> {
        let MeteredCost { units, is_estimated } = self.meter.finish()?;
        if is_estimated {
            self.estimated.fetch_add(1, Ordering::Relaxed);
        }
        Some(units)
    }
}
