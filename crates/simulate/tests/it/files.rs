//! Scenario files.

use tollgate_core::{Algorithm, Apart, GlobalTerms, Span};
use tollgate_simulate::{Fault, Lost, PlannedMode, Routing, Scenario};

const FULL: &str = "
name: everything
seed: 7
servers: 12
shards: 3
duration: 2m
warm_up: 10s
clock_drift: 500
leases: on
limits:
  - limit: 10000/minute
    algorithm: sliding_window
    sub_windows: 6
  - limit: 500/s
    burst: 2x
    global: true
    lease: off
traffic:
  rate: 1_500.5
  keys: 1000
  zipf: 1.1
  routing: sticky 3
  bursts: {on: 10s, off: 500ms}
  moves: 30s
  units: 1-5
network:
  round_trip: {min: 500us, max: 3ms}
  drops: 0.5%
  deadline: 10ms
faults:
  - {at: 1s, crash: 2, restart_after: 3s}
  - {at: 2s, pause: 3, for: 1s}
  - {at: 3s, partition: 4, for: 2s, lost: answers}
  - {at: 4s, stall: 200ms}
  - {at: 5s, data_loss: on}
  - {at: 6s, failover: 100ms}
  - {at: 7s, clock_step: -2s}
";

#[test]
fn every_setting_is_read() {
    let scenario = Scenario::read("file", FULL).unwrap();
    assert_eq!((scenario.name.as_str(), scenario.seed), ("everything", 7));
    assert_eq!((scenario.servers, scenario.shards, scenario.clock_drift), (12, 3, 500));
    assert_eq!((scenario.duration, scenario.warm_up), (Span::from_secs(120), Span::from_secs(10)));
    let [first, second] = scenario.limits.as_slice() else { panic!("{:?}", scenario.limits) };
    assert_eq!(first.limit.algorithm(), Algorithm::SlidingWindow { sub_windows: 6 });
    assert_eq!(second.limit.algorithm(), Algorithm::Bucket { burst: 1_000, paced: false });
    assert!(second.is_global && !second.is_leased && first.is_leased && !first.is_global);
    assert_eq!((scenario.traffic.rate, scenario.traffic.keys, scenario.traffic.units), (1_500.5, 1_000, (1, 5)));
    assert_eq!(scenario.traffic.routing, Routing::Sticky(3));
    assert_eq!(scenario.network.round_trip, (Span::from_micros(500), Span::from_micros(3_000)));
    assert_eq!(scenario.network.drops, 0.005);
    let faults: Vec<Fault> = scenario.faults.iter().map(|planned| planned.fault).collect();
    assert_eq!(faults.len(), 7);
    assert!(matches!(faults[2], Fault::Partition { servers: 4, lost: Lost::Answers, .. }));
    assert_eq!(faults[6], Fault::ClockStep { by: -2_000_000 });
}

#[test]
fn regions_are_read() {
    let scenario = Scenario::read(
        "file",
        "
regions:
  - {name: us, servers: 3, share: 2}
  - {name: eu, servers: 2}
region_delay: 30ms
region_ways: [{from: us eu, delay: 80ms}]
region_beat: 200ms
limits:
  - {limit: 10/s, region: global, apart: share, debit_threshold: 1%}
  - {limit: 10/s, region: split}
traffic: {rate: 10}
faults: [{at: 1s, separate: eu us, for: 3s, lost: answers}]
",
    )
    .unwrap();
    let regions = scenario.regions.as_ref().unwrap();
    assert_eq!((scenario.servers, scenario.region_count(), regions.regions[0].share), (5, 2, 2.0));
    let millis = |millis: u64| Span::from_micros(1_000 * millis);
    assert_eq!((regions.delay(0, 1), regions.delay(1, 0), regions.beat), (millis(80), millis(30), millis(200)));
    let terms = GlobalTerms { apart: Apart::Share, debit_threshold: 100 };
    let modes: Vec<PlannedMode> = scenario.limits.iter().map(|planned| planned.mode).collect();
    assert_eq!(modes, [PlannedMode::Global(terms), PlannedMode::Split]);
    assert!(matches!(scenario.faults[0].fault, Fault::Separate { from: 1, to: 0, lost: Lost::Answers, .. }));
}

/// All errors of a file, `line: message; remedy` each.
fn problems(text: &str) -> Vec<String> {
    let problems = Scenario::read("file", text).unwrap_err();
    problems.iter().map(|problem| format!("{}: {}; {}", problem.line, problem.message, problem.remedy)).collect()
}

#[test]
fn all_errors_are_reported_at_once_with_line_and_remedy() {
    let found = problems(
        "servers: 0
shards: -1
duration: 10
limits:
  - limit: 100
  - limit: 10/minute
    algoritm: fixed_window
traffic:
  rate: -5
  keys: 1.5
  routing: sticky 9
faults:
  - {at: 1s, crash: 5}
  - {at: 1s}
",
    );
    let expected = [
        ("1: ", "not a number of servers; write 1 to"),
        ("2: ", "not a number of shards"),
        ("3: ", "has no unit; write 10s"),
        ("5: ", "has no period; write 100/minute"),
        ("7: ", "did you mean `algorithm`?"),
        ("9: ", "not a rate of requests a second"),
        ("10: ", "not a number of keys"),
        ("11: ", "is no routing"),
        ("13: ", "not a number of servers"),
        ("14: ", "this is not one fault; write one of crash"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, (line, part)) in found.iter().zip(expected) {
        assert!(found.starts_with(line) && found.contains(part), "{found} should be {line}…{part}");
    }
}

#[test]
fn what_makes_no_sense_together_is_an_error() {
    for (text, part) in [
        ("", "the file is empty"),
        ("[1, 2]", "a list stands where a scenario belongs"),
        ("limits: [{limit: 10/s}]", "`traffic` is missing"),
        ("traffic: {rate: 1}", "`limits` is missing"),
        ("limits: []\ntraffic: {rate: 1}", "there is no limit"),
        ("limits: [{limit: 10/s}]\ntraffic: {keys: 1}", "`rate` is missing"),
        ("limits: [{limit: 0/s}]\ntraffic: {rate: 1}", "admits nothing"),
        ("limits: [{limit: 10/s}]\ntraffic: {rate: 1}\nwarm_up: 60s", "lasts as long as the run"),
        ("limits: [{limit: 10/s}]\ntraffic: {rate: 1, keys: 100000000}", "cold_keys_without_counters: on"),
        ("limits: [{limit: 10/s}]\ntraffic: {rate: 1}\nfaults: [{at: 2m, data_loss: on}]", "after the end of the run"),
        ("limits: [{limit: 10/s, algorithm: sliding_log}]\ntraffic: {rate: 1}", "there is no algorithm"),
        ("limits: [{limit: 10/s, algorithm: sliding_window, sub_windows: 7}]\ntraffic: {rate: 1}", "can't be parted"),
        ("limits: [{limit: 10/s}]\ntraffic: {rate: nan}", "not a rate"),
        ("limits: [{limit: 10/s, region: split}]\ntraffic: {rate: 1}", "there are no regions"),
        ("limits: [{limit: 10/s}]\ntraffic: {rate: 1}\nregions: [{name: a}]", "one region is as none"),
        ("limits: [{limit: 10/s}]\ntraffic: {rate: 1}\nregion_delay: 10ms", "`regions` is missing"),
        (
            "limits: [{limit: 10/s, region: home, home: c}]\ntraffic: {rate: 1}\nregions: [{name: a}, {name: b}]",
            "there is no region `c`",
        ),
        (
            "limits: [{limit: 10/s, region: home}, {limit: 1/s}]\ntraffic: {rate: 1}\nregions: [{name: a}, {name: b}]",
            "limits of several regions",
        ),
        (
            "limits: [{limit: 10/s}]\ntraffic: {rate: 1}\nregions: [{name: a}, {name: b}]\nfaults: [{at: 1s, separate: a a, for: 1s}]",
            "are not two regions",
        ),
        ("limits: [{limit: 10/s}]\ntraffic: {rate: 1, bursts: {on: 0s, off: 1s}}", "this time is 0"),
        (
            "limits: [{limit: 10/s}]\ntraffic: {rate: 1}\nnetwork: {round_trip: {min: 5ms, max: 1ms}}",
            "longer than the longest",
        ),
    ] {
        let found = problems(text);
        assert!(found.iter().any(|problem| problem.contains(part)), "{text}: {found:?} lacks {part}");
    }
}
