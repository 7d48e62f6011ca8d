//! Reads scenario files. All errors are reported at once, each with its line and a remedy.

mod regions;

use tollgate_core::{Algorithm, Limit, Span};
use tollgate_rules::limit_text::{self, LimitText};
use tollgate_rules::problem::{TextFault, choose};
use tollgate_rules::quoted;
use tollgate_rules::yaml::fields::{Faults, Fields, switch, text};
use tollgate_rules::yaml::{self, Yaml, YamlKind};

use super::{Bursts, Fault, Lost, Network, PlannedFault, PlannedLimit, PlannedMode, Routing, Scenario, Traffic};

use regions::regions;

/// An error in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioProblem {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

/// The longest period of a limit and the longest run, in microseconds.
const MAX_TIME: u64 = 7 * 24 * 3_600_000_000;
/// The most servers that start again in a scenario.
const MAX_RESTARTS: u64 = 5_000;
/// The most requests of a run.
const MAX_REQUESTS: f64 = 1e11;

impl Scenario {
    /// Reads a scenario.
    pub fn read(name: &str, text: &str) -> Result<Scenario, Vec<ScenarioProblem>> {
        let (documents, unreadable) = yaml::read_either(text);
        let faults = Faults::default();
        for (line, fault) in unreadable {
            faults.push(line, fault);
        }
        let scenario = match documents.as_slice() {
            [] => {
                faults.push(1, TextFault::new("the file is empty", "write at least `limits` and `traffic`"));
                None
            }
            [document] => Fields::of(document, "a scenario", &faults).map(|map| scenario(name, &map)),
            [_, second, ..] => {
                let fault = TextFault::new("a second document begins here", "write one scenario to a file");
                faults.push(second.line, fault);
                None
            }
        };
        let faults = faults.into_sorted().into_iter();
        let problems: Vec<_> =
            faults.map(|(line, TextFault { message, remedy })| ScenarioProblem { line, message, remedy }).collect();
        match scenario {
            Some(scenario) if problems.is_empty() => Ok(scenario),
            _ => Err(problems),
        }
    }
}

fn scenario(name: &str, map: &Fields<'_>) -> Scenario {
    let rate = |value: &Yaml| decimal(value, "a rate of requests a second", 1e-6, Scenario::MAX_RATE);
    let regions = regions(map);
    let names: Vec<String> =
        regions.iter().flat_map(|planned| &planned.regions).map(|region| region.name.clone()).collect();
    let limits = map.list("limits", Scenario::MAX_LIMITS, |map| limit(map, &names));
    let duration = map.read("duration", span).unwrap_or(Span::from_secs(60));
    let servers =
        map.read("servers", |value| count(value, "servers", Scenario::MAX_SERVERS.into())).unwrap_or(1) as u32;
    let servers = match &regions {
        Some(planned) => {
            if map.has("servers") {
                map.fault_at("servers", "the servers are those of all regions", "remove it");
            }
            planned.regions.iter().map(|region| region.servers).sum()
        }
        None => servers,
    };
    let mut scenario = Scenario::without_limits(name);
    (scenario.servers, scenario.regions) = (servers, regions);
    scenario.duration = duration;
    if let Some(name) = map.read("name", |value| text(value).map(str::to_owned)) {
        scenario.name = name;
    }
    if let Some(seed) = map.read("seed", |value| text(value).and_then(limit_text::number)) {
        scenario.seed = seed;
    }
    if let Some(shards) = map.read("shards", |value| count(value, "shards", Scenario::MAX_SHARDS.into())) {
        scenario.shards = shards as u32;
    }
    if let Some(warm_up) = map.read("warm_up", span_or_zero) {
        scenario.warm_up = warm_up;
    }
    if let Some(drift) = map.read("clock_drift", |value| most(value, 100_000)) {
        scenario.clock_drift = drift as u32;
    }
    if let Some(leases) = map.read("leases", switch) {
        scenario.leases = leases;
    }
    if let Some(counts) = map.read("cold_keys_without_counters", switch) {
        scenario.counts_cold_keys = counts;
    }
    if let Some(traffic) = map.map("traffic") {
        let Traffic { rate: all, keys, exponent, routing: routes, bursts, moves, units } = &mut scenario.traffic;
        match traffic.read("rate", rate) {
            Some(rate) => *all = rate,
            None => traffic.require("rate", "write how many requests a second come, for instance `rate: 1000`"),
        }
        set(keys, traffic.read("keys", |value| count(value, "keys", Scenario::MAX_KEYS)));
        set(exponent, traffic.read("zipf", |value| decimal(value, "an exponent", 0.0, 10.0)));
        set(routes, traffic.read("routing", |value| routing(value, servers)));
        *bursts = traffic.map("bursts").and_then(|map| {
            let (on, off) = (map.read("on", span), map.read("off", span));
            if on.is_none() || off.is_none() {
                map.require(
                    if on.is_none() { "on" } else { "off" },
                    "write for instance `bursts: {on: 10s, off: 20s}`",
                );
            }
            map.finish();
            Some(Bursts { on: on?, off: off? })
        });
        *moves = traffic.read("moves", span);
        set(units, traffic.read("units", range));
        traffic.finish();
    } else {
        map.require("traffic", "write for instance `traffic: {rate: 1000, keys: 1}`");
    }
    if let Some(network) = map.map("network") {
        let Network { round_trip, drops, deadline } = &mut scenario.network;
        set(
            drops,
            network
                .read("drops", |value| text(value).and_then(limit_text::percent).map(|share| f64::from(share) / 1e4)),
        );
        set(deadline, network.read("deadline", span));
        if let Some(map) = network.map("round_trip") {
            set(&mut round_trip.0, map.read("min", span_or_zero));
            set(&mut round_trip.1, map.read("max", span_or_zero));
            if round_trip.0 > round_trip.1 {
                map.fault("the shortest round trip is longer than the longest", "write the smaller one as `min`");
            }
            map.finish();
        }
        network.finish();
    }
    scenario.faults = map.list("faults", Scenario::MAX_FAULTS, |map| fault(map, servers, &names));
    scenario.limits = limits;
    match map.entry("limits") {
        None => map.require("limits", "write for instance `limits: [{limit: 1000/minute}]`"),
        Some(entry) if matches!(&entry.value.kind, YamlKind::List(items) if items.is_empty()) => {
            map.fault_at("limits", "there is no limit", "write for instance `- limit: 1000/minute`");
        }
        Some(_) => {}
    }
    check(map, &scenario);
    map.finish();
    scenario
}

/// What can only be checked when everything is read.
fn check(map: &Fields<'_>, scenario: &Scenario) {
    let Scenario { traffic, duration, warm_up, .. } = scenario;
    if warm_up >= duration {
        map.fault_at("warm_up", "the warm-up lasts as long as the run", "write a shorter one, or a longer `duration`");
    }
    if !scenario.counts_cold_keys && traffic.keys > Scenario::MAX_COUNTERS {
        map.fault_at(
            "traffic",
            &format!("{} keys with a counter each are too many", traffic.keys),
            &format!("write `cold_keys_without_counters: on`, or at most {} keys", Scenario::MAX_COUNTERS),
        );
    }
    if scenario.counts_cold_keys && scenario.limits.iter().any(|planned| planned.is_global) {
        map.fault_at(
            "cold_keys_without_counters",
            "a global limit counts the requests of all keys",
            "write `cold_keys_without_counters: off`, or leave out `global`",
        );
    }
    if traffic.rate * duration.as_micros() as f64 / 1e6 > MAX_REQUESTS {
        map.fault_at(
            "duration",
            "the run has too many requests to count them",
            "write a lower `rate` or a shorter `duration`",
        );
    }
    let restarts = scenario.faults.iter().map(|planned| match planned.fault {
        Fault::Crash { servers, restart_after: Some(_) } => u64::from(servers),
        _ => 0,
    });
    if restarts.sum::<u64>() > MAX_RESTARTS {
        map.fault_at("faults", "too many servers start again", &format!("let at most {MAX_RESTARTS} start again"));
    }
    let has_home = |planned: &PlannedLimit| matches!(planned.mode, PlannedMode::Home(_));
    if scenario.limits.iter().any(has_home) && !scenario.limits.iter().all(has_home) {
        map.fault_at(
            "limits",
            "a request with limits of several regions is not simulated",
            "write `region: home` for all limits, or for none",
        );
    }
    if scenario.limits.iter().any(|planned| has_home(planned) && planned.ahead.is_some()) {
        map.fault_at("limits", "`ahead` is not for limits that one region owns", "remove `ahead`");
    }
    if scenario.faults.iter().any(|planned| planned.at >= *duration) {
        map.fault_at(
            "faults",
            "a fault comes after the end of the run",
            "write an earlier `at`, or a longer `duration`",
        );
    }
}

fn limit(map: &Fields<'_>, regions: &[String]) -> Option<PlannedLimit> {
    let rate = map.read("limit", |value| match limit_text::limit(text(value)?)? {
        LimitText::Rate { amount, period }
            if period.as_calendar().is_none() && period.span().as_micros() <= MAX_TIME =>
        {
            Ok((amount, period))
        }
        LimitText::Rate { .. } => Err(TextFault::new(
            "the period follows a calendar or is too long",
            "write at most 7 days, for instance 100/minute",
        )),
        _ => Err(TextFault::new("this is not a rate", "write for instance 100/minute")),
    });
    if rate.is_none() {
        map.require("limit", "write for instance `limit: 100/minute`");
    }
    let burst = map.read("burst", |value| limit_text::burst(text(value)?));
    let sub_windows = map.read("sub_windows", |value| count(value, "sub_windows", Limit::MAX_SUB_WINDOWS.into()));
    const NAMES: [&str; 4] = ["fixed_window", "sliding_window", "token_bucket", "gcra"];
    let name = map.read("algorithm", |value| {
        let name = text(value)?;
        let known = NAMES.into_iter().find(|known| *known == name);
        known.ok_or_else(|| TextFault::new(format!("there is no algorithm {} here", quoted(name)), choose(name, NAMES)))
    });
    let is_global = map.read("global", switch).unwrap_or(false);
    let is_leased = map.read("lease", switch).unwrap_or(true);
    let ahead = map.read("ahead", |value| text(value).and_then(limit_text::percent));
    let mode = regions::mode(map, regions);
    let line = map.line;
    map.finish();
    let (amount, period) = rate?;
    if amount == 0 {
        map.fault("a limit of 0 admits nothing", "write a larger amount");
    }
    let algorithm = match name.unwrap_or("token_bucket") {
        "fixed_window" => Algorithm::FixedWindow,
        "sliding_window" => Algorithm::SlidingWindow { sub_windows: sub_windows.unwrap_or(1) as u16 },
        _ => Algorithm::Bucket { burst: burst.map_or(amount, |burst| burst.for_amount(amount)), paced: false },
    };
    match Limit::new(amount, period, algorithm) {
        Ok(limit) => Some(PlannedLimit { limit, is_global, is_leased, ahead, mode }),
        Err(error) => {
            map.faults().push(line, limit_text::limit_fault(&error));
            None
        }
    }
}

fn fault(map: &Fields<'_>, servers: u32, regions: &[String]) -> Option<PlannedFault> {
    const KINDS: [&str; 8] =
        ["crash", "pause", "partition", "separate", "stall", "data_loss", "failover", "clock_step"];
    let some_servers = |value: &Yaml| count(value, "servers", servers.into()).map(|count| count as u32);
    let at = map.read("at", span_or_zero);
    if at.is_none() {
        map.require("at", "write when it happens, for instance `at: 10s`");
    }
    let lasts = || {
        let lasts = map.read("for", span);
        if lasts.is_none() {
            map.require("for", "write how long it lasts, for instance `for: 2s`");
        }
        lasts
    };
    let lost = || {
        let lost = map.read("lost", |value| match text(value)? {
            "both" => Ok(Lost::Both),
            "requests" => Ok(Lost::Requests),
            "answers" => Ok(Lost::Answers),
            other => {
                Err(TextFault::new(format!("{} are no messages", quoted(other)), "write both, requests or answers"))
            }
        });
        lost.unwrap_or(Lost::Both)
    };
    let found: Vec<_> = KINDS.into_iter().filter(|kind| map.has(kind)).collect();
    let fault = match found.as_slice() {
        ["crash"] => {
            let restart_after = map.read("restart_after", span);
            map.read("crash", some_servers).map(|servers| Fault::Crash { servers, restart_after })
        }
        ["pause"] => {
            map.read("pause", some_servers).zip(lasts()).map(|(servers, lasts)| Fault::Pause { servers, lasts })
        }
        ["partition"] => {
            let lost = lost();
            map.read("partition", some_servers).zip(lasts()).map(|(servers, lasts)| Fault::Partition {
                servers,
                lasts,
                lost,
            })
        }
        ["separate"] => {
            let lost = lost();
            let way = map.read("separate", |value| regions::way(text(value)?, regions));
            way.zip(lasts()).map(|((from, to), lasts)| Fault::Separate { from, to, lasts, lost })
        }
        ["stall"] => map.read("stall", span).map(|lasts| Fault::Stall { lasts }),
        ["data_loss"] => map.read("data_loss", switch).map(|_| Fault::DataLoss),
        ["failover"] => map.read("failover", span).map(|loses| Fault::Failover { loses }),
        ["clock_step"] => map
            .read("clock_step", |value| {
                let step = text(value)?;
                let (step, sign) = step.strip_prefix('-').map_or((step, 1), |step| (step, -1));
                Ok(sign * duration(step)?.as_micros() as i64)
            })
            .map(|by| Fault::ClockStep { by }),
        _ => {
            map.fault("this is not one fault", &format!("write one of {}", KINDS.join(", ")));
            None
        }
    };
    map.finish();
    Some(PlannedFault { at: at?, fault: fault? })
}

// === values ===

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn count(value: &Yaml, what: &str, most: u64) -> Result<u64, TextFault> {
    let given = text(value)?;
    match limit_text::number(given) {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        _ => Err(TextFault::new(format!("{} is not a number of {what}", quoted(given)), format!("write 1 to {most}"))),
    }
}

fn most(value: &Yaml, most: u64) -> Result<u64, TextFault> {
    let given = text(value)?;
    match limit_text::number(given) {
        Ok(count) if count <= most => Ok(count),
        _ => Err(TextFault::new(format!("{} is out of range", quoted(given)), format!("write 0 to {most}"))),
    }
}

fn decimal(value: &Yaml, what: &str, least: f64, most: f64) -> Result<f64, TextFault> {
    let given = text(value)?;
    match given.replace('_', "").parse::<f64>() {
        Ok(number) if number >= least && number <= most => Ok(number),
        _ => Err(TextFault::new(format!("{} is not {what}", quoted(given)), format!("write {least} to {most}"))),
    }
}

/// As in rule files, and microseconds, as in `500us`.
fn duration(text: &str) -> Result<Span, TextFault> {
    let span = match text.strip_suffix("us").map(|count| limit_text::number(count.trim())) {
        Some(Ok(count)) => Span::from_micros(count),
        _ => limit_text::duration(text)?,
    };
    match span.as_micros() <= MAX_TIME {
        true => Ok(span),
        false => Err(TextFault::new(format!("{} is too long", quoted(text)), "write at most 7d")),
    }
}

fn span_or_zero(value: &Yaml) -> Result<Span, TextFault> {
    match text(value)? {
        "0" => Ok(Span::ZERO),
        text => duration(text),
    }
}

fn span(value: &Yaml) -> Result<Span, TextFault> {
    let span = span_or_zero(value)?;
    match span == Span::ZERO {
        true => Err(TextFault::new("this time is 0", "write a longer one, for instance 10s")),
        false => Ok(span),
    }
}

fn routing(value: &Yaml, servers: u32) -> Result<Routing, TextFault> {
    let given = text(value)?;
    let sticky = given.strip_prefix("sticky ").map(|count| limit_text::number(count.trim()));
    match (given, sticky) {
        ("random", _) => Ok(Routing::Random),
        ("by_key", _) => Ok(Routing::Sticky(1)),
        (_, Some(Ok(count))) if (1..=u64::from(servers)).contains(&count) => Ok(Routing::Sticky(count as u32)),
        _ => Err(TextFault::new(
            format!("{} is no routing", quoted(given)),
            format!("write random, by_key, or `sticky 3` for three servers of each key (at most {servers})"),
        )),
    }
}

/// `1` or `1-5`.
fn range(value: &Yaml) -> Result<(u64, u64), TextFault> {
    let given = text(value)?;
    let (least, most) = given.split_once('-').unwrap_or((given, given));
    match (limit_text::number(least.trim()), limit_text::number(most.trim())) {
        (Ok(least), Ok(most)) if least >= 1 && least <= most && most <= 1_000_000 => Ok((least, most)),
        _ => Err(TextFault::new(
            format!("{} is no number of units", quoted(given)),
            "write for instance 1, or 1-5 for one to five units",
        )),
    }
}
