//! What faults may change.

use tollgate_core::{Algorithm, Span};
use tollgate_simulate::presets::minute;
use tollgate_simulate::{Fault, Lost, Outcome, PlannedFault, Scenario, simulate};

/// 20 servers share 6,000 a minute, and are sent a little more.
fn scenario(faults: &[(u64, Fault)]) -> Scenario {
    let mut scenario = Scenario::new("faults", minute(6_000, Algorithm::FixedWindow).unwrap());
    scenario.servers = 20;
    scenario.duration = Span::from_secs(180);
    scenario.traffic.rate = 120.0;
    scenario.faults =
        faults.iter().map(|(at, fault)| PlannedFault { at: Span::from_secs(*at), fault: *fault }).collect();
    scenario
}

fn run(faults: &[(u64, Fault)]) -> Outcome {
    let outcome = simulate(&scenario(faults), &mut |_| {});
    assert_eq!(outcome.violated, 0, "{:?}", outcome.violations);
    outcome
}

#[test]
fn killed_servers_cost_what_they_held() {
    let outcome = run(&[(70, Fault::Crash { servers: 2, restart_after: Some(Span::from_secs(5)) })]);
    assert!(outcome.crashed > 0 && outcome.unserved > 0);
    assert_eq!(outcome.excess, 0);
    assert!(outcome.least_window().unwrap() > 0.97, "{:?}", outcome.windows);
}

/// Units that a server holds when it stops must not be spent in the next window.
#[test]
fn paused_servers_spend_nothing_that_is_over() {
    for seconds in [58, 59] {
        let outcome = run(&[(seconds, Fault::Pause { servers: 20, lasts: Span::from_secs(3) })]);
        assert_eq!(outcome.excess, 0);
        assert!(outcome.windows.iter().all(|window| window.admitted <= 6_000));
    }
}

#[test]
fn a_store_that_stalls_or_is_cut_off_lets_nothing_through() {
    let lasts = Span::from_secs(2);
    for fault in [
        Fault::Stall { lasts },
        Fault::Partition { servers: 10, lasts, lost: Lost::Both },
        Fault::Partition { servers: 10, lasts, lost: Lost::Requests },
        Fault::Partition { servers: 10, lasts, lost: Lost::Answers },
    ] {
        let outcome = run(&[(20, fault)]);
        assert!(outcome.unanswered > 0, "{fault:?}");
        assert_eq!(outcome.excess, 0, "{fault:?}");
        assert!(outcome.waits.quantile(1.0) <= 8_500.0, "{fault:?}: {}", outcome.waits.quantile(1.0));
    }
}

/// What the store forgets may be admitted again, and no more than that.
#[test]
fn a_store_that_forgets_admits_again_what_it_forgot() {
    let outcome = run(&[(100, Fault::DataLoss)]);
    assert!(outcome.excess > 0, "a window of twice the limit is noticed");
    assert!(outcome.windows.iter().all(|window| window.admitted <= 12_000), "{:?}", outcome.windows);
    let outcome = run(&[(100, Fault::Failover { loses: Span::from_micros(500_000) })]);
    // Half a second of a hundred a second, and what was leased then.
    assert!(outcome.windows.iter().all(|window| window.admitted <= 6_600), "{:?}", outcome.windows);
}

#[test]
fn a_clock_that_is_set_ahead_opens_one_more_window() {
    let outcome = run(&[(90, Fault::ClockStep { by: 40_000_000 })]);
    assert!(outcome.windows.iter().all(|window| window.admitted <= 12_600), "{:?}", outcome.windows);
}
