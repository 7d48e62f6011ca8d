//! The shedders: the adaptive cap of an upstream, its fairness shedder, and the worker's.

use std::time::Duration;

use tollgate_rules::problem::{TextFault, quoted};
use tollgate_rules::yaml::fields::{Fields, text};
use tollgate_rules::yaml::{Yaml, YamlKind};
use tollgate_shed::{InvalidReserves, MAX_RESERVES, TierReserves};

use super::priorities::CLASSES;
use super::values::{self, count, set, share, time};
use crate::model::{AdaptiveConfig, FairnessConfig, SheddingMode, WorkerSheddingConfig};

/// The times in which rates of callers are lowered.
const MIN_RAMP: Duration = Duration::from_secs(1);
const MAX_RAMP: Duration = Duration::from_secs(3_600);

const MODES: [(&str, SheddingMode); 3] =
    [("off", SheddingMode::Off), ("shadow", SheddingMode::Shadow), ("enforce", SheddingMode::Enforce)];

/// `adaptive: off`, `adaptive: {max: 1000}`. Without a mode it sheds nothing, and counts what it would shed.
pub(super) fn adaptive(map: &Fields<'_>) -> AdaptiveConfig {
    let mut adaptive = AdaptiveConfig::default();
    if let Some(mode) = mode_alone(map, "adaptive") {
        adaptive.mode = mode;
        return adaptive;
    }
    let Some(map) = map.map("adaptive") else { return adaptive };
    set(&mut adaptive.mode, map.read("mode", |value| values::word("a mode", value, &MODES)));
    set(&mut adaptive.min, map.read("min", |value| count(value, 1..=100_000)));
    set(&mut adaptive.max, map.read("max", |value| count(value, 1..=100_000)));
    set(&mut adaptive.probe, map.read("probe", time));
    if adaptive.min > adaptive.max {
        map.fault("`min` is larger than `max`", "write the smaller one as `min`");
    }
    if let Some(map) = map.map("shares") {
        for (place, (class, _)) in adaptive.shares.iter_mut().zip(CLASSES) {
            set(place, map.read(class, |value| share(value, 1..=100)));
        }
        if !adaptive.shares.is_sorted() {
            let message = "a less important class has a larger share than a more important one";
            map.fault(message, "write shares that grow from test to get, post and critical");
        }
        map.finish();
    }
    if let Some(map) = map.map("reserve") {
        adaptive.reserve = reserve(&map);
    }
    map.finish();
    adaptive
}

/// `reserve: {enterprise: 30%, pro: 20%}`. The names are those of tiers in the rules, which may change later.
fn reserve(map: &Fields<'_>) -> Vec<(String, f64)> {
    let entries = map.entries().iter().take(MAX_RESERVES + 1);
    let read = entries.filter_map(|entry| {
        let faults = map.faults();
        let name = faults.sound(entry.line, values::name("a tier", &entry.key.text));
        let part = faults.sound(entry.line, share(&entry.value, 1..=100));
        name.zip(part)
    });
    let reserve: Vec<_> = read.collect();
    let parts: Vec<_> = reserve.iter().map(|(_, part)| *part).collect();
    match TierReserves::new(&parts) {
        Ok(_) | Err(InvalidReserves::OutOfRange(_)) => {}
        Err(InvalidReserves::TooMany) => {
            map.fault("there are too many reserves", &format!("write at most {MAX_RESERVES}"));
        }
        Err(InvalidReserves::Sum) => map.fault(
            "the reserves leave too little for all other callers",
            &format!("write reserves that add up to at most {}%", TierReserves::MAX_SUM * 100.0),
        ),
    }
    reserve
}

/// `fairness: enforce`, `fairness: {latency: 2x}`. None unless it is there; without a mode it sheds nothing, and counts what
/// it would shed.
pub(super) fn fairness(map: &Fields<'_>) -> Option<FairnessConfig> {
    map.entry("fairness")?;
    let mut fairness = FairnessConfig::default();
    if let Some(mode) = mode_alone(map, "fairness") {
        fairness.mode = mode;
        return Some(fairness);
    }
    let map = map.map("fairness")?;
    set(&mut fairness.mode, map.read("mode", |value| values::word("a mode", value, &MODES)));
    set(&mut fairness.latency, map.read("latency", factor));
    set(&mut fairness.refused, map.read("refused", |value| share(value, 1..=100)));
    set(&mut fairness.grace, map.read("grace", |value| at_most_an_hour(values::time_or_zero(value)?)));
    set(&mut fairness.ramp, map.read("ramp", |value| at_most_an_hour(time(value)?)));
    if fairness.ramp < MIN_RAMP {
        map.fault_at("ramp", "this ramp is too short", "write at least 1s");
    }
    map.finish();
    Some(fairness)
}

/// A latency in relation to another: `2x`, `1.5x`.
fn factor(value: &Yaml) -> Result<f64, TextFault> {
    let given = text(value)?;
    let number =
        given.strip_suffix('x').filter(|number| number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
    number.and_then(|number| number.parse().ok()).filter(|factor| (1.1..=100.0).contains(factor)).ok_or_else(|| {
        let message = format!("{} is not a multiple of the latency without load", quoted(given));
        TextFault::new(message, "write 1.1x to 100x, for instance 2x")
    })
}

fn at_most_an_hour(time: Duration) -> Result<Duration, TextFault> {
    match time <= MAX_RAMP {
        true => Ok(time),
        false => Err(TextFault::new("this time is too long", "write at most 1h")),
    }
}

/// `shedding: {worker: …}`. Off unless it is there; without a mode it sheds nothing, and counts what it would shed.
pub(super) fn worker(map: &Fields<'_>) -> WorkerSheddingConfig {
    let mut worker = WorkerSheddingConfig::default();
    let Some(map) = map.map("shedding") else { return worker };
    if map.has("fleet") {
        map.fault_at(
            "fleet",
            "the fleet's shedder is a rule, not a setting of the gateway",
            "write a rule to a rule file: `{name: fleet, key: [], limit_by: priority, limit: {critical: 2000 concurrent, default: 1600 concurrent}, shed: true}`",
        );
    }
    if let Some(mode) = mode_alone(&map, "worker") {
        worker.mode = mode;
    } else if let Some(map) = map.map("worker") {
        worker.mode = map.read("mode", |value| values::word("a mode", value, &MODES)).unwrap_or(SheddingMode::Shadow);
        set(&mut worker.from, map.read("from", |value| share(value, 1..=100)));
        set(&mut worker.until, map.read("until", |value| share(value, 1..=100)));
        set(&mut worker.ramp, map.read("ramp", time));
        set(&mut worker.grace, map.read("grace", values::time_or_zero));
        if worker.until > worker.from {
            map.fault("`until` is above `from`", "write the higher utilisation as `from`");
        }
        map.finish();
    }
    map.finish();
    worker
}

/// The mode, if it stands in place of a map.
fn mode_alone(map: &Fields<'_>, key: &'static str) -> Option<SheddingMode> {
    let is_word = matches!(map.entry(key)?.value.kind, YamlKind::Scalar(_));
    is_word.then(|| map.read(key, |value| values::word("a mode", value, &MODES)).unwrap_or(SheddingMode::Off))
}
