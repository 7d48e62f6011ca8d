//! Reads regions, and what limits mean in them.

use tollgate_core::{Apart, GlobalTerms, Span};
use tollgate_rules::limit_text;
use tollgate_rules::problem::{TextFault, choose};
use tollgate_rules::quoted;
use tollgate_rules::yaml::fields::{Fields, text};

use super::{count, decimal, span, span_or_zero};
use crate::scenario::{PlannedMode, PlannedRegion, PlannedRegions, Scenario};

/// The regions of a scenario, if it has some.
pub(super) fn regions(map: &Fields<'_>) -> Option<PlannedRegions> {
    let most = u64::from(Scenario::MAX_SERVERS);
    let regions = map.list("regions", Scenario::MAX_REGIONS, |map| {
        let name = map.read("name", |value| text(value).map(str::to_owned));
        if name.is_none() {
            map.require("name", "write for instance `name: us-east`");
        }
        let servers = map.read("servers", |value| count(value, "servers", most)).unwrap_or(1) as u32;
        let share = map.read("share", |value| decimal(value, "a share of the requests", 1e-6, 1e6)).unwrap_or(1.0);
        map.finish();
        Some(PlannedRegion { name: name?, servers, share })
    });
    let delay = map.read("region_delay", span_or_zero);
    let beat = map.read("region_beat", span);
    let names: Vec<String> = regions.iter().map(|region| region.name.clone()).collect();
    let ways = map.list("region_ways", Scenario::MAX_REGIONS * Scenario::MAX_REGIONS, |map| {
        let between = map.read("from", |value| way(text(value)?, &names));
        let delay = map.read("delay", span_or_zero);
        if between.is_none() || delay.is_none() {
            map.require(
                if between.is_none() { "from" } else { "delay" },
                "write for instance `{from: us-east eu-west, delay: 80ms}`",
            );
        }
        map.finish();
        let (from, to) = between?;
        Some((from, to, delay?))
    });
    if regions.is_empty() {
        if delay.is_some() || beat.is_some() || !ways.is_empty() {
            map.require("regions", "write for instance `regions: [{name: us-east}, {name: eu-west}]`");
        }
        return None;
    }
    if regions.len() < 2 {
        map.fault_at("regions", "one region is as none", "write at least two, or remove it");
    }
    let all = regions.iter().map(|region| u64::from(region.servers)).sum::<u64>();
    if all > most {
        map.fault_at("regions", "the regions have too many servers", &format!("write at most {most} in all"));
    }
    let default = PlannedRegions::alike(0, 1, Span::from_micros(40_000));
    let (delay, beat) = (delay.unwrap_or(default.delay), beat.unwrap_or(default.beat));
    Some(PlannedRegions { regions, delay, ways, beat })
}

/// `us-east eu-west`: from the servers of one region to the store of another.
pub(super) fn way(given: &str, regions: &[String]) -> Result<(usize, usize), TextFault> {
    let mut places = given.split_whitespace().map(|name| regions.iter().position(|region| region == name));
    match (places.next(), places.next(), places.next()) {
        (Some(Some(from)), Some(Some(to)), None) if from != to => Ok((from, to)),
        _ => Err(TextFault::new(
            format!("{} are not two regions", quoted(given)),
            format!("write two of {}, for instance `us-east eu-west`", regions.join(", ")),
        )),
    }
}

/// What a limit means in these regions.
pub(super) fn mode(map: &Fields<'_>, regions: &[String]) -> PlannedMode {
    const NAMES: [&str; 4] = ["each", "split", "home", "global"];
    let name = map.read("region", |value| {
        let name = text(value)?;
        let known = NAMES.into_iter().find(|known| *known == name);
        known.ok_or_else(|| TextFault::new(format!("a limit can't be {}", quoted(name)), choose(name, NAMES)))
    });
    let home = map.read("home", |value| {
        let name = text(value)?;
        let place = regions.iter().position(|region| region == name);
        let names = regions.iter().map(String::as_str);
        place.ok_or_else(|| TextFault::new(format!("there is no region {}", quoted(name)), choose(name, names)))
    });
    let threshold = map.read("debit_threshold", |value| text(value).and_then(limit_text::percent));
    let apart = map.read("apart", |value| match text(value)? {
        "alone" => Ok(Apart::Alone),
        "share" => Ok(Apart::Share),
        other => Err(TextFault::new(format!("regions can't count {}", quoted(other)), "write alone or share")),
    });
    if name.is_some() && regions.is_empty() {
        map.fault("there are no regions", "write `regions`, or remove `region`");
    }
    match name.unwrap_or("each") {
        "split" => PlannedMode::Split,
        "home" => PlannedMode::Home(home),
        "global" => {
            let GlobalTerms { apart: usual, debit_threshold } = GlobalTerms::default();
            let debit_threshold = threshold.unwrap_or(debit_threshold);
            PlannedMode::Global(GlobalTerms { apart: apart.unwrap_or(usual), debit_threshold })
        }
        _ => PlannedMode::Each,
    }
}
