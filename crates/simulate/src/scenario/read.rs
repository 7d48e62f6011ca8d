//! Reads scenario files. All errors are reported at once, each with its line and a remedy.

use std::cell::RefCell;

use tollgate_core::{Algorithm, Limit, Span};
use tollgate_rules::limit_text::{self, LimitText};
use tollgate_rules::problem::{TextFault, choose};
use tollgate_rules::quoted;
use tollgate_rules::yaml::{self, Yaml, YamlEntry, YamlKind};

use super::{Bursts, Fault, Lost, Network, PlannedFault, PlannedLimit, Routing, Scenario, Traffic};

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

/// The most errors that are reported.
const MAX_REPORTED: usize = 100;
/// The longest period of a limit and the longest run, in microseconds.
const MAX_TIME: u64 = 7 * 24 * 3_600_000_000;
/// The most servers that start again in a scenario.
const MAX_RESTARTS: u64 = 5_000;
/// The most requests of a run.
const MAX_REQUESTS: f64 = 1e11;

impl Scenario {
    /// Reads a scenario.
    pub fn read(name: &str, text: &str) -> Result<Scenario, Vec<ScenarioProblem>> {
        let (documents, faults) = yaml::read_either(text);
        let problems = RefCell::new(Problems::default());
        for (line, fault) in faults {
            problems.borrow_mut().push(line, fault);
        }
        let scenario = match documents.as_slice() {
            [] => {
                problems
                    .borrow_mut()
                    .push(1, TextFault::new("the file is empty", "write at least `limits` and `traffic`"));
                None
            }
            [document] => Map::of(document, "a scenario", &problems).map(|map| scenario(name, &map)),
            [_, second, ..] => {
                problems
                    .borrow_mut()
                    .push(second.line, TextFault::new("a second document begins here", "write one scenario to a file"));
                None
            }
        };
        let mut problems = problems.into_inner().0;
        problems.sort_by_key(|problem| problem.line);
        match scenario {
            Some(scenario) if problems.is_empty() => Ok(scenario),
            _ => Err(problems),
        }
    }
}

fn scenario(name: &str, map: &Map<'_>) -> Scenario {
    let rate = |entry: &YamlEntry| decimal(&entry.value, "a rate of requests a second", 1e-6, Scenario::MAX_RATE);
    let limits = map.list("limits", Scenario::MAX_LIMITS, limit);
    let duration = map.read("duration", |entry| span(&entry.value)).unwrap_or(Span::from_secs(60));
    let servers =
        map.read("servers", |entry| count(&entry.value, "servers", Scenario::MAX_SERVERS.into())).unwrap_or(1) as u32;
    let mut scenario = Scenario::without_limits(name);
    scenario.servers = servers;
    scenario.duration = duration;
    if let Some(name) = map.read("name", |entry| text(&entry.value).map(str::to_owned)) {
        scenario.name = name;
    }
    if let Some(seed) = map.read("seed", |entry| text(&entry.value).and_then(limit_text::number)) {
        scenario.seed = seed;
    }
    if let Some(shards) = map.read("shards", |entry| count(&entry.value, "shards", Scenario::MAX_SHARDS.into())) {
        scenario.shards = shards as u32;
    }
    if let Some(warm_up) = map.read("warm_up", |entry| span_or_zero(&entry.value)) {
        scenario.warm_up = warm_up;
    }
    if let Some(drift) = map.read("clock_drift", |entry| most(&entry.value, 100_000)) {
        scenario.clock_drift = drift as u32;
    }
    if let Some(leases) = map.read("leases", |entry| switch(&entry.value)) {
        scenario.leases = leases;
    }
    if let Some(counts) = map.read("cold_keys_without_counters", |entry| switch(&entry.value)) {
        scenario.counts_cold_keys = counts;
    }
    if let Some(traffic) = map.map("traffic") {
        let Traffic { rate: all, keys, exponent, routing: routes, bursts, moves, units } = &mut scenario.traffic;
        match traffic.read("rate", rate) {
            Some(rate) => *all = rate,
            None => traffic.require("rate", "write how many requests a second come, for instance `rate: 1000`"),
        }
        set(keys, traffic.read("keys", |entry| count(&entry.value, "keys", Scenario::MAX_KEYS)));
        set(exponent, traffic.read("zipf", |entry| decimal(&entry.value, "an exponent", 0.0, 10.0)));
        set(routes, traffic.read("routing", |entry| routing(&entry.value, servers)));
        *bursts = traffic.map("bursts").and_then(|map| {
            let (on, off) = (map.read("on", |entry| span(&entry.value)), map.read("off", |entry| span(&entry.value)));
            if on.is_none() || off.is_none() {
                map.require(
                    if on.is_none() { "on" } else { "off" },
                    "write for instance `bursts: {on: 10s, off: 20s}`",
                );
            }
            map.finish();
            Some(Bursts { on: on?, off: off? })
        });
        *moves = traffic.read("moves", |entry| span(&entry.value));
        set(units, traffic.read("units", |entry| range(&entry.value)));
        traffic.finish();
    } else {
        map.require("traffic", "write for instance `traffic: {rate: 1000, keys: 1}`");
    }
    if let Some(network) = map.map("network") {
        let Network { round_trip, drops, deadline } = &mut scenario.network;
        set(
            drops,
            network.read("drops", |entry| {
                text(&entry.value).and_then(limit_text::percent).map(|share| f64::from(share) / 1e4)
            }),
        );
        set(deadline, network.read("deadline", |entry| span(&entry.value)));
        if let Some(map) = network.map("round_trip") {
            set(&mut round_trip.0, map.read("min", |entry| span_or_zero(&entry.value)));
            set(&mut round_trip.1, map.read("max", |entry| span_or_zero(&entry.value)));
            if round_trip.0 > round_trip.1 {
                map.fault("the shortest round trip is longer than the longest", "write the smaller one as `min`");
            }
            map.finish();
        }
        network.finish();
    }
    scenario.faults = map.list("faults", Scenario::MAX_FAULTS, |map| fault(map, servers));
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
fn check(map: &Map<'_>, scenario: &Scenario) {
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
    if scenario.faults.iter().any(|planned| planned.at >= *duration) {
        map.fault_at(
            "faults",
            "a fault comes after the end of the run",
            "write an earlier `at`, or a longer `duration`",
        );
    }
}

fn limit(map: &Map<'_>) -> Option<PlannedLimit> {
    let rate = map.read("limit", |entry| match limit_text::limit(text(&entry.value)?)? {
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
    let burst = map.read("burst", |entry| limit_text::burst(text(&entry.value)?));
    let sub_windows =
        map.read("sub_windows", |entry| count(&entry.value, "sub_windows", Limit::MAX_SUB_WINDOWS.into()));
    const NAMES: [&str; 4] = ["fixed_window", "sliding_window", "token_bucket", "gcra"];
    let name = map.read("algorithm", |entry| {
        let name = text(&entry.value)?;
        let known = NAMES.into_iter().find(|known| *known == name);
        known.ok_or_else(|| TextFault::new(format!("there is no algorithm {} here", quoted(name)), choose(name, NAMES)))
    });
    let is_global = map.read("global", |entry| switch(&entry.value)).unwrap_or(false);
    let is_leased = map.read("lease", |entry| switch(&entry.value)).unwrap_or(true);
    let ahead = map.read("ahead", |entry| text(&entry.value).and_then(limit_text::percent));
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
        Ok(limit) => Some(PlannedLimit { limit, is_global, is_leased, ahead }),
        Err(error) => {
            map.problems.borrow_mut().push(line, limit_text::limit_fault(&error));
            None
        }
    }
}

fn fault(map: &Map<'_>, servers: u32) -> Option<PlannedFault> {
    const KINDS: [&str; 7] = ["crash", "pause", "partition", "stall", "data_loss", "failover", "clock_step"];
    let some_servers = |entry: &YamlEntry| count(&entry.value, "servers", servers.into()).map(|count| count as u32);
    let at = map.read("at", |entry| span_or_zero(&entry.value));
    if at.is_none() {
        map.require("at", "write when it happens, for instance `at: 10s`");
    }
    let lasts = || {
        let lasts = map.read("for", |entry| span(&entry.value));
        if lasts.is_none() {
            map.require("for", "write how long it lasts, for instance `for: 2s`");
        }
        lasts
    };
    let found: Vec<_> = KINDS.into_iter().filter(|kind| map.has(kind)).collect();
    let fault = match found.as_slice() {
        ["crash"] => {
            let restart_after = map.read("restart_after", |entry| span(&entry.value));
            map.read("crash", some_servers).map(|servers| Fault::Crash { servers, restart_after })
        }
        ["pause"] => {
            map.read("pause", some_servers).zip(lasts()).map(|(servers, lasts)| Fault::Pause { servers, lasts })
        }
        ["partition"] => {
            let lost = map.read("lost", |entry| match text(&entry.value)? {
                "both" => Ok(Lost::Both),
                "requests" => Ok(Lost::Requests),
                "answers" => Ok(Lost::Answers),
                other => {
                    Err(TextFault::new(format!("{} are no messages", quoted(other)), "write both, requests or answers"))
                }
            });
            let lost = lost.unwrap_or(Lost::Both);
            map.read("partition", some_servers).zip(lasts()).map(|(servers, lasts)| Fault::Partition {
                servers,
                lasts,
                lost,
            })
        }
        ["stall"] => map.read("stall", |entry| span(&entry.value)).map(|lasts| Fault::Stall { lasts }),
        ["data_loss"] => map.read("data_loss", |entry| switch(&entry.value)).map(|_| Fault::DataLoss),
        ["failover"] => map.read("failover", |entry| span(&entry.value)).map(|loses| Fault::Failover { loses }),
        ["clock_step"] => map
            .read("clock_step", |entry| {
                let step = text(&entry.value)?;
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

fn text(value: &Yaml) -> Result<&str, TextFault> {
    match &value.kind {
        YamlKind::Scalar(scalar) if !scalar.is_null() => Ok(&scalar.text),
        _ => {
            Err(TextFault::new(format!("{} stands where a single value belongs", value.described()), "write one value"))
        }
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

fn switch(value: &Yaml) -> Result<bool, TextFault> {
    match text(value)?.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" => Ok(true),
        "off" | "false" | "no" => Ok(false),
        other => Err(TextFault::new(format!("{} is neither on nor off", quoted(other)), "write on or off")),
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

// === maps ===

#[derive(Default)]
struct Problems(Vec<ScenarioProblem>);

impl Problems {
    fn push(&mut self, line: usize, fault: TextFault) {
        if self.0.len() < MAX_REPORTED {
            let TextFault { message, remedy } = fault;
            self.0.push(ScenarioProblem { line, message, remedy });
        }
    }
}

/// A map of the file, and which of its keys were read.
struct Map<'y> {
    line: usize,
    entries: &'y [YamlEntry],
    known: RefCell<Vec<&'static str>>,
    problems: &'y RefCell<Problems>,
}

impl<'y> Map<'y> {
    fn of(value: &'y Yaml, what: &str, problems: &'y RefCell<Problems>) -> Option<Map<'y>> {
        match &value.kind {
            YamlKind::Map(entries) => Some(Map { line: value.line, entries, known: RefCell::default(), problems }),
            _ => {
                let message = format!("{} stands where {what} belongs", value.described());
                problems.borrow_mut().push(value.line, TextFault::new(message, "write a map, `key: value`"));
                None
            }
        }
    }

    fn entry(&self, key: &'static str) -> Option<&'y YamlEntry> {
        if !self.known.borrow().contains(&key) {
            self.known.borrow_mut().push(key);
        }
        self.entries.iter().find(|entry| entry.key.text == key)
    }

    fn has(&self, key: &'static str) -> bool {
        self.entry(key).is_some()
    }

    /// A value, if it is there and right.
    fn read<T>(&self, key: &'static str, read: impl FnOnce(&YamlEntry) -> Result<T, TextFault>) -> Option<T> {
        let entry = self.entry(key)?;
        read(entry).map_err(|fault| self.problems.borrow_mut().push(entry.line, fault)).ok()
    }

    fn map(&self, key: &'static str) -> Option<Map<'y>> {
        let entry = self.entry(key)?;
        Map::of(&entry.value, &format!("the map of `{key}`"), self.problems)
    }

    fn list<T>(&self, key: &'static str, most: usize, read: impl Fn(&Map<'_>) -> Option<T>) -> Vec<T> {
        let Some(entry) = self.entry(key) else { return Vec::new() };
        let YamlKind::List(items) = &entry.value.kind else {
            let message = format!("{} stands where a list belongs", entry.value.described());
            self.problems.borrow_mut().push(entry.line, TextFault::new(message, "begin each item with `- `"));
            return Vec::new();
        };
        if items.len() > most {
            self.fault_at(key, "the list is too long", &format!("write at most {most} items"));
        }
        let maps = items.iter().take(most).filter_map(|item| Map::of(item, "a map", self.problems));
        maps.filter_map(|map| read(&map)).collect()
    }

    fn fault(&self, message: &str, remedy: &str) {
        self.problems.borrow_mut().push(self.line, TextFault::new(message, remedy));
    }

    fn fault_at(&self, key: &'static str, message: &str, remedy: &str) {
        let line = self.entry(key).map_or(self.line, |entry| entry.line);
        self.problems.borrow_mut().push(line, TextFault::new(message, remedy));
    }

    /// Reports that a key is missing, unless it is there and wrong.
    fn require(&self, key: &'static str, remedy: &str) {
        if self.entry(key).is_none() {
            self.fault(&format!("`{key}` is missing"), remedy);
        }
    }

    /// Reports keys that have no meaning.
    fn finish(&self) {
        let known = self.known.borrow();
        for entry in self.entries.iter().filter(|entry| !known.contains(&entry.key.text.as_str())) {
            let message = format!("{} has no meaning here", quoted(&entry.key.text));
            let remedy = choose(&entry.key.text, known.iter().copied());
            self.problems.borrow_mut().push(entry.line, TextFault::new(message, remedy));
        }
    }
}
