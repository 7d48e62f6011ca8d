//! Metrics of the gateway: its routes, its upstreams and their shedders.

mod tiers;

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use tollgate_gateway::{GatewayStatus, KeysStatus};
use tollgate_shed::ShedMode;
use tollgate_telemetry::metrics::MetricSource;
use tollgate_telemetry::metrics::encode::{count, family};

/// Reads the status of the gateway on scrape; an empty one, if there is no gateway.
pub(super) struct GatewayMetrics(pub(super) Box<dyn Fn() -> GatewayStatus + Send + Sync>);

/// Routes, and upstreams, with series of their own.
const MAX_SERIES: usize = 200;
/// The name of all others together.
const OTHER: &str = "other";
/// The states of a server.
const STATES: [&str; 3] = ["healthy", "unhealthy", "ejected"];

/// The gauges of a cap, as Envoy names them.
const CAP_GAUGES: [&str; 7] = [
    "concurrency_limit",
    "in_flight",
    "gradient",
    "burst_queue_size",
    "min_rtt_seconds",
    "sample_rtt_seconds",
    "min_rtt_calculation_active",
];

/// The responses of a route, or of all that have no series of their own.
#[derive(Default)]
struct RouteSeries<'s> {
    name: &'s str,
    /// By class of the status.
    statuses: [u64; 5],
    limited: u64,
    shed: u64,
    estimated: u64,
}

/// The requests of an upstream, or of all that have no series of their own.
#[derive(Default)]
struct UpstreamSeries<'s> {
    name: &'s str,
    /// Requests, retries, failures and timeouts.
    totals: [u64; 4],
    /// In the order of [`STATES`].
    servers: [u64; STATES.len()],
    connections: u64,
    in_flight: u64,
}

impl MetricSource for GatewayMetrics {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let status = (self.0)();
        routes(encoder, &RouteSeries::all(&status))?;
        upstreams(encoder, &UpstreamSeries::all(&status))?;
        caps(encoder, &status)?;
        shedders(encoder, &status)?;
        keys(encoder, &status)?;
        tiers::encode(encoder, &split(&status.upstreams, |upstream| &upstream.name).0)
    }
}

/// Those with series of their own, and all others. A route may have the name `other`.
fn split<T>(items: &[T], name: impl Fn(&T) -> &str) -> (Vec<&T>, Vec<&T>) {
    let (own, others) = items.split_at(items.len().min(MAX_SERIES));
    let (same, own): (Vec<_>, Vec<_>) = own.iter().partition(|item| name(item) == OTHER);
    (own, same.into_iter().chain(others).collect())
}

impl<'s> RouteSeries<'s> {
    fn all(status: &'s GatewayStatus) -> Vec<RouteSeries<'s>> {
        let (own, others) = split(&status.routes, |route| &route.name);
        let series = own.into_iter().map(|route| (&*route.name, vec![route]));
        let other = (!others.is_empty()).then_some((OTHER, others));
        let sums = series.chain(other).map(|(name, routes)| {
            let mut sum = RouteSeries { name, ..RouteSeries::default() };
            for route in routes {
                let statuses =
                    [route.informational, route.successful, route.redirected, route.client_errors, route.server_errors];
                sum.statuses.iter_mut().zip(statuses).for_each(|(sum, count)| *sum += count);
                sum.limited += route.limited;
                sum.shed += route.shed;
                sum.estimated += route.estimated;
            }
            sum
        });
        sums.collect()
    }
}

impl<'s> UpstreamSeries<'s> {
    fn all(status: &'s GatewayStatus) -> Vec<UpstreamSeries<'s>> {
        let (own, others) = split(&status.upstreams, |upstream| &upstream.name);
        let series = own.into_iter().map(|upstream| (&*upstream.name, vec![upstream]));
        let other = (!others.is_empty()).then_some((OTHER, others));
        let sums = series.chain(other).map(|(name, upstreams)| {
            let mut sum = UpstreamSeries { name, ..UpstreamSeries::default() };
            for upstream in upstreams {
                let totals = [upstream.requests, upstream.retries, upstream.failures, upstream.timeouts];
                sum.totals.iter_mut().zip(totals).for_each(|(sum, count)| *sum += count);
                for server in &upstream.servers {
                    let state = STATES.iter().position(|state| *state == server.state());
                    sum.servers[state.unwrap_or_default()] += 1;
                    sum.connections += server.connections as u64;
                    sum.in_flight += server.in_flight as u64;
                }
            }
            sum
        });
        sums.collect()
    }
}

fn routes(encoder: &mut DescriptorEncoder, routes: &[RouteSeries<'_>]) -> Result<(), Error> {
    let mut series = family(encoder, "gateway_requests")?;
    for route in routes {
        for (status, responses) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(route.statuses) {
            count(&mut series, &[("route", route.name), ("status", status)], responses)?;
        }
    }
    let mut series = family(encoder, "gateway_limited")?;
    routes.iter().try_for_each(|route| count(&mut series, &[("route", route.name)], route.limited))?;
    let mut series = family(encoder, "gateway_shed")?;
    routes.iter().try_for_each(|route| count(&mut series, &[("route", route.name)], route.shed))?;
    let mut series = family(encoder, "gateway_estimated_costs")?;
    routes.iter().try_for_each(|route| count(&mut series, &[("route", route.name)], route.estimated))
}

fn upstreams(encoder: &mut DescriptorEncoder, upstreams: &[UpstreamSeries<'_>]) -> Result<(), Error> {
    for (at, what) in ["requests", "retries", "failures", "timeouts"].into_iter().enumerate() {
        let name = format!("gateway_upstream_{what}");
        let mut series = family(encoder, &name)?;
        for upstream in upstreams {
            count(&mut series, &[("upstream", upstream.name)], upstream.totals[at])?;
        }
    }
    let mut series = family(encoder, "gateway_upstream_servers")?;
    for upstream in upstreams {
        for (state, servers) in STATES.into_iter().zip(upstream.servers) {
            series.encode_family(&[("upstream", upstream.name), ("state", state)])?.encode_gauge(&servers)?;
        }
    }
    let mut series = family(encoder, "gateway_upstream_connections")?;
    for upstream in upstreams {
        series.encode_family(&[("upstream", upstream.name)])?.encode_gauge(&upstream.connections)?;
    }
    let mut series = family(encoder, "gateway_upstream_in_flight")?;
    upstreams.iter().try_for_each(|upstream| {
        series.encode_family(&[("upstream", upstream.name)])?.encode_gauge(&upstream.in_flight)
    })
}

/// The caps of the upstreams with series of their own: limits of several upstreams have no sum.
fn caps(encoder: &mut DescriptorEncoder, status: &GatewayStatus) -> Result<(), Error> {
    let (upstreams, _) = split(&status.upstreams, |upstream| &upstream.name);
    let mut series = family(encoder, "gateway_adaptive_mode")?;
    for upstream in &upstreams {
        for mode in ShedMode::ALL {
            let labels = [("upstream", &*upstream.name), ("mode", mode.name())];
            series.encode_family(&labels)?.encode_gauge(&u32::from(mode.name() == upstream.cap.mode))?;
        }
    }
    let seconds = |milliseconds: f64| milliseconds / 1e3;
    let gauges = upstreams.iter().map(|upstream| {
        let cap = &upstream.cap;
        let values: [Option<f64>; CAP_GAUGES.len()] = [
            Some(cap.limit.into()),
            Some(cap.in_flight.into()),
            Some(cap.gradient),
            Some(cap.burst_queue_size),
            cap.min_rtt_ms.map(seconds),
            cap.sample_rtt_ms.map(seconds),
            Some(u32::from(cap.is_probing).into()),
        ];
        (&*upstream.name, values)
    });
    let gauges: Vec<_> = gauges.collect();
    for (at, what) in CAP_GAUGES.into_iter().enumerate() {
        let name = format!("gateway_adaptive_{what}");
        let mut series = family(encoder, &name)?;
        for (upstream, value) in gauges.iter().filter_map(|(upstream, values)| Some((*upstream, values[at]?))) {
            series.encode_family(&[("upstream", upstream)])?.encode_gauge(&value)?;
        }
    }
    let mut series = family(encoder, "gateway_adaptive_rq_blocked")?;
    for upstream in upstreams {
        for (class, refused) in upstream.cap.refused.by_class() {
            count(&mut series, &[("upstream", &*upstream.name), ("class", class)], refused)?;
        }
    }
    Ok(())
}

/// The shedder of this process, and what all shedders refused.
fn shedders(encoder: &mut DescriptorEncoder, status: &GatewayStatus) -> Result<(), Error> {
    let mut series = family(encoder, "gateway_worker_mode")?;
    if let Some(worker) = &status.worker {
        for mode in ShedMode::ALL {
            let is_in_force = u32::from(mode.name() == worker.mode);
            series.encode_family(&[("mode", mode.name())])?.encode_gauge(&is_in_force)?;
        }
    }
    let mut series = family(encoder, "gateway_worker_utilisation")?;
    status.worker.iter().try_for_each(|worker| series.encode_gauge(&worker.utilisation))?;
    let mut series = family(encoder, "gateway_worker_shed_amount")?;
    status.worker.iter().try_for_each(|worker| series.encode_gauge(&worker.amount))?;
    let mut series = family(encoder, "gateway_worker_rq_blocked")?;
    for (class, refused) in status.worker.iter().flat_map(|worker| worker.refused.by_class()) {
        count(&mut series, &[("class", class)], refused)?;
    }
    let mut series = family(encoder, "gateway_shed_by_class")?;
    for shed in &status.shed {
        for (class, refused) in shed.refused.by_class() {
            count(&mut series, &[("shedder", shed.by), ("class", class)], refused)?;
        }
    }
    Ok(())
}

/// The keys of tokens, and tokens that were not accepted.
fn keys(encoder: &mut DescriptorEncoder, status: &GatewayStatus) -> Result<(), Error> {
    let (mut own, others) = split(&status.keys, |keys| &keys.source);
    let other = KeysStatus::sum(OTHER, &others);
    own.extend((!others.is_empty()).then_some(&other));
    let mut series = family(encoder, "gateway_token_keys")?;
    for keys in &own {
        series.encode_family(&[("source", &*keys.source)])?.encode_gauge(&(keys.keys as u64))?;
    }
    let mut series = family(encoder, "gateway_token_key_failures")?;
    own.iter().try_for_each(|keys| count(&mut series, &[("source", &*keys.source)], keys.failures))?;
    let mut series = family(encoder, "gateway_refused_tokens")?;
    for keys in own {
        for (reason, refused) in &keys.refused {
            count(&mut series, &[("source", &*keys.source), ("reason", reason)], *refused)?;
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests;
