//! Figures of small fleets, which take no longer than a test may.

use tollgate_core::{Algorithm, Limit, Period, Span};
use tollgate_simulate::presets::{PRESETS, Preset, minute};
use tollgate_simulate::report::{self, Run};
use tollgate_simulate::{Scenario, simulate, svg};

fn fleet(algorithm: Algorithm, servers: u32, load: f64) -> Scenario {
    let mut scenario = Scenario::new("fleet", minute(10_000, algorithm).unwrap());
    scenario.servers = servers;
    scenario.duration = Span::from_secs(120);
    scenario.traffic.rate = load * 10_000.0 / 60.0;
    scenario
}

/// A tenth of the calls, and hardly any request less.
#[test]
fn leases_save_calls_and_admit_what_they_should() {
    for (algorithm, load, least) in [
        (Algorithm::FixedWindow, 0.9, 20.0),
        (Algorithm::FixedWindow, 2.0, 40.0),
        (Algorithm::SlidingWindow { sub_windows: 1 }, 0.9, 10.0),
        (Algorithm::Bucket { burst: 10_000, paced: false }, 0.9, 8.0),
    ] {
        let outcome = simulate(&fleet(algorithm, 8, load), &mut |_| {});
        assert_eq!((outcome.violated, outcome.excess), (0, 0), "{algorithm:?} {load}");
        assert!(outcome.against_exact() > 0.985, "{algorithm:?} {load}: {}", outcome.against_exact());
        assert!(outcome.ratio() > least, "{algorithm:?} {load}: {}", outcome.ratio());
    }
}

/// A server that finds the window used up leaves the store alone, but not in the next window.
#[test]
fn pauses_end_with_the_window() {
    let limit = Limit::new(20_000, Period::fixed(Span::from_secs(10)).unwrap(), Algorithm::FixedWindow).unwrap();
    let mut scenario = Scenario::new("few servers", limit);
    (scenario.servers, scenario.duration, scenario.traffic.rate) = (4, Span::from_secs(60), 2_000.0);
    let outcome = simulate(&scenario, &mut |_| {});
    assert_eq!(outcome.excess, 0);
    assert!(outcome.least_window().unwrap() > 0.995, "{:?}", outcome.windows);
    // Units are not taken again and again in the last moments of a window.
    assert!(outcome.units.expired < outcome.units.taken / 50, "{:?}", outcome.units);
}

#[test]
fn reports_have_all_figures() {
    let scenario = fleet(Algorithm::FixedWindow, 8, 1.2);
    let outcome = simulate(&scenario, &mut |_| {});
    let run = Run { label: "fleet".to_owned(), outcome, goals: Vec::new(), command: "repeat".to_owned() };
    let details = report::details(&run);
    for figure in ["requests for a call", "p99.9", "Jain's index", "admitted over time", "█"] {
        assert!(details.contains(figure), "{figure} is missing in\n{details}");
    }
    let table = report::table(std::slice::from_ref(&run));
    assert_eq!(table.lines().count(), 2, "{table}");
    assert_eq!(report::findings(std::slice::from_ref(&run)), "");
    let json = report::json(std::slice::from_ref(&run));
    assert_eq!(json["runs"][0]["requests"], run.outcome.requests);
    assert_eq!(json["runs"][0]["excess"], 0);
    let picture = svg(&run.outcome);
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    assert_eq!(picture.matches("<polyline").count(), 4);
}

#[test]
fn a_run_that_is_wrong_says_how_to_repeat_it() {
    let mut scenario = fleet(Algorithm::FixedWindow, 2, 3.0);
    scenario.duration = Span::from_secs(50);
    let mut outcome = simulate(&scenario, &mut |_| {});
    outcome.violated = 1;
    outcome.violations = vec![tollgate_simulate::Violation { at: 1.5, what: "a limit is exceeded".to_owned() }];
    let run = Run { label: "fleet".to_owned(), outcome, goals: Vec::new(), command: "tollgate simulate x".to_owned() };
    assert!(!run.is_correct());
    let findings = report::findings(&[run]);
    assert!(findings.contains("repeat with: tollgate simulate x") && findings.contains("at 1.500000 s"), "{findings}");
}

#[test]
fn presets_are_found_by_name() {
    assert!(PRESETS.iter().all(|preset| Preset::find(preset.name).is_some() && !preset.about.is_empty()));
    assert!(Preset::find("none").is_none());
}
