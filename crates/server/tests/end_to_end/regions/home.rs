//! One region owns a counter, and the others call it.

use tollgate_core::Source;
use tollgate_testing::until;

use super::World;
use crate::fleet::load::{Check, CheckResult, check_concurrently};
use crate::http::get;

const LIMIT: usize = 300;

/// A busy machine is not a fault.
const PATIENT: [&str; 4] = ["--store-deadline", "1s", "--region-deadline", "1s"];

fn rules() -> String {
    let of_home = "algorithm: fixed_window, region: {home: us-east}";
    format!(
        "domain: fleet
entity: user
rules:
  - {{name: calls, key: [user], match: {{kind: calls}}, limit: {LIMIT}/year, {of_home}, lease: off}}
  - {{name: leased, key: [user], match: {{kind: leased}}, limit: {LIMIT}/year, {of_home}, lease: on}}
  - {{name: secure, key: [user], match: {{kind: secure}}, limit: 5/year, policy: security, {of_home}}}
  - {{name: loose, key: [user], match: {{kind: both}}, limit: 1000/year, on_failure: allow, {of_home}}}
  - {{name: near, key: [user], match: {{kind: both}}, limit: 6/year, algorithm: fixed_window}}
  - {{name: plain, key: [user], match: {{kind: plain}}, limit: 1000/year, algorithm: fixed_window, lease: off}}
"
    )
}

fn allowed(results: &[CheckResult]) -> usize {
    results.iter().filter(|result| matches!(result, CheckResult::Decided { allowed: true, .. })).count()
}

fn is_by_store(result: &CheckResult) -> bool {
    matches!(result, CheckResult::Decided { source: Source::Store, .. })
}

/// Whether a rule refuses because its home is away.
fn is_unavailable(result: &CheckResult) -> bool {
    matches!(result, CheckResult::Error(text) if text.starts_with("503") && text.contains("REDUCED_CAPACITY"))
}

/// Waits until every server reaches the home.
fn wait_until_connected(world: &World, user: &str) {
    for server in 0..world.servers.len() {
        until("the home is reached", || is_by_store(&world.check(server, user, "calls")));
    }
}

#[test]
fn three_regions_admit_exactly_the_limit() {
    let world = World::start(&rules(), 2, &PATIENT);
    wait_until_connected(&world, "warm-up");
    // Sixteen connections to each server.
    let addresses = [world.addresses(), world.addresses()].concat();
    let check = |kind| Check { user: "ada".to_owned(), kind };
    let results = check_concurrently(&addresses, &check("calls"), 4 * LIMIT);
    assert!(results.iter().all(|result| !matches!(result, CheckResult::Error(_))), "{results:?}");
    assert_eq!(allowed(&results), LIMIT);
    // Units that a server holds are spent or given back; meanwhile others may be refused.
    let mut admitted = 0;
    until("all units are spent", || {
        admitted += allowed(&check_concurrently(&addresses, &check("leased"), 2 * LIMIT));
        assert!(admitted <= LIMIT, "{admitted} of {LIMIT}");
        admitted == LIMIT
    });
    admitted += allowed(&check_concurrently(&addresses, &check("leased"), LIMIT));
    assert_eq!(admitted, LIMIT);
}

#[test]
fn a_home_that_is_cut_off_fails_closed_and_costs_others_nothing() {
    let mut world =
        World::start(&rules(), 1, &["--store-deadline", "1s", "--store-cool-down", "1s", "--region-deadline", "500ms"]);
    wait_until_connected(&world, "warm-up");
    let (west, east, far) = (0, 1, 2);
    let decided = |allowed, source| CheckResult::Decided { allowed, source };
    until("the home decides", || world.check(far, "eve", "secure") == decided(true, Source::Store));

    world.relays[east].stall();
    for server in [west, far] {
        for _ in 0..10 {
            let result = world.check(server, "ada", "secure");
            assert!(is_unavailable(&result), "a rule of that home refuses: {result:?}");
            let result = world.check(server, "ada", "plain");
            assert_eq!(result, decided(true, Source::Store), "other rules have no errors");
        }
        // The other limit of a claim is counted exactly.
        let both: Vec<_> = (0..10).map(|_| world.check(server, "ada", "both")).collect();
        assert_eq!(both[..6], vec![decided(true, Source::Assumed); 6]);
        assert!(both[6..].iter().all(|result| matches!(result, CheckResult::Decided { allowed: false, .. })));
    }
    // Calls that fail because this machine is busy open the circuit later: as long as there are calls.
    until("the region is reported", || {
        world.check(far, "ada", "secure");
        let health = get(&world.servers[far].url("admin", "/readyz")).body;
        // Shown if it fails.
        println!("{health}");
        health.contains(r#""regions""#) && !health.contains(r#""part":"store""#)
    });
    assert_eq!(world.check(east, "eve", "secure"), decided(true, Source::Store), "at home nothing has changed");

    world.relays[east].pass();
    until("the home decides again", || world.check(far, "eve", "secure") == decided(true, Source::Store));
    until("nothing is reported", || !get(&world.servers[far].url("admin", "/readyz")).body.contains("regions"));
}

#[test]
fn a_home_that_comes_back_empty_counts_anew_and_costs_others_nothing() {
    const SECURE: usize = 5;
    let mut world =
        World::start(&rules(), 1, &["--store-deadline", "1s", "--store-cool-down", "1s", "--region-deadline", "500ms"]);
    wait_until_connected(&world, "warm-up");
    let (west, east, far) = (0, 1, 2);
    let is_allowed =
        |result: &CheckResult| matches!(result, CheckResult::Decided { allowed: true, source: Source::Store });
    let is_refused = |result: &CheckResult| matches!(result, CheckResult::Decided { allowed: false, .. });
    until("the limit is used up", || is_refused(&world.check(far, "eve", "secure")));

    world.redis[east].kill();
    let plain = |world: &World| {
        for server in [west, far] {
            let result = world.check(server, "ada", "plain");
            assert!(is_allowed(&result), "keys of other regions have no errors: {result:?}");
        }
    };
    for server in [west, far] {
        for _ in 0..10 {
            let result = world.check(server, "ada", "secure");
            assert!(is_unavailable(&result), "a rule of that home refuses: {result:?}");
            plain(&world);
        }
    }

    world.redis[east].restart();
    let mut admitted = 0;
    until("the home decides again", || {
        plain(&world);
        let result = world.check(far, "eve", "secure");
        assert!(is_allowed(&result) || is_refused(&result) || is_unavailable(&result), "{result:?}");
        admitted += usize::from(is_allowed(&result));
        admitted > 0
    });
    until("the limit is used up again", || {
        plain(&world);
        let results = [west, far].map(|server| world.check(server, "eve", "secure"));
        admitted += allowed(&results);
        results.iter().all(is_refused)
    });
    assert!(admitted <= SECURE, "{admitted} of {SECURE}");
}
