//! What the shedders of upstreams do to tiers and callers. Upstreams without reserves or a fairness shedder have no series.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use tollgate_gateway::{ReserveStatusOf, UpstreamStatus};
use tollgate_shed::ShedMode;
use tollgate_telemetry::metrics::encode::{count, family};

/// A number of a reserve.
type Gauge = fn(&ReserveStatusOf) -> u32;

/// Callers without a reserve.
const OTHERS: &str = "others";

pub(super) fn encode(encoder: &mut DescriptorEncoder, upstreams: &[&UpstreamStatus]) -> Result<(), Error> {
    reserves(encoder, upstreams)?;
    fairness(encoder, upstreams)
}

fn reserves(encoder: &mut DescriptorEncoder, upstreams: &[&UpstreamStatus]) -> Result<(), Error> {
    let all =
        || upstreams.iter().flat_map(|upstream| upstream.cap.reserves.iter().map(|reserve| (&*upstream.name, reserve)));
    let gauges: [(&str, Gauge); 2] = [
        ("gateway_reserve_requests", |reserve| reserve.reserved),
        ("gateway_reserve_in_flight", |reserve| reserve.in_flight),
    ];
    for (name, value) in gauges {
        let mut series = family(encoder, name)?;
        for (upstream, reserve) in all() {
            let Some(tier) = &reserve.tier else { continue };
            series.encode_family(&[("upstream", upstream), ("tier", &**tier)])?.encode_gauge(&value(reserve))?;
        }
    }
    let mut series = family(encoder, "gateway_reserve_refused")?;
    for (upstream, reserve) in all() {
        let tier = reserve.tier.as_deref().unwrap_or(OTHERS);
        count(&mut series, &[("upstream", upstream), ("tier", tier)], reserve.refused)?;
    }
    Ok(())
}

fn fairness(encoder: &mut DescriptorEncoder, upstreams: &[&UpstreamStatus]) -> Result<(), Error> {
    let all = || upstreams.iter().filter_map(|upstream| Some((&*upstream.name, upstream.fairness.as_ref()?)));
    let mut series = family(encoder, "gateway_fairness_mode")?;
    for (upstream, fairness) in all() {
        for mode in ShedMode::ALL {
            let labels = [("upstream", upstream), ("mode", mode.name())];
            series.encode_family(&labels)?.encode_gauge(&u32::from(mode.name() == fairness.mode))?;
        }
    }
    let mut series = family(encoder, "gateway_fairness_pressure")?;
    for (upstream, fairness) in all() {
        series.encode_family(&[("upstream", upstream)])?.encode_gauge(&fairness.pressure)?;
    }
    let mut series = family(encoder, "gateway_fairness_lowered")?;
    for (upstream, fairness) in all() {
        for tier in &fairness.tiers {
            series.encode_family(&[("upstream", upstream), ("tier", &*tier.tier)])?.encode_gauge(&tier.lowered)?;
        }
    }
    let mut series = family(encoder, "gateway_fairness_fair_rate")?;
    for (upstream, rate) in all().filter_map(|(upstream, fairness)| Some((upstream, fairness.fair_rate?))) {
        series.encode_family(&[("upstream", upstream)])?.encode_gauge(&rate)?;
    }
    let mut series = family(encoder, "gateway_fairness_refused")?;
    for (upstream, fairness) in all() {
        for tier in &fairness.tiers {
            count(&mut series, &[("upstream", upstream), ("tier", &*tier.tier)], tier.refused)?;
        }
    }
    Ok(())
}
