//! Sizes of fleets.

use super::*;

fn value(traffic: &FleetTraffic, id: &str) -> f64 {
    traffic.size().into_iter().find(|line| line.id == id).unwrap().value
}

fn shown(traffic: &FleetTraffic, id: &str) -> String {
    traffic.size().into_iter().find(|line| line.id == id).unwrap().shown()
}

/// A million requests a second of five million keys, with one limit each.
#[test]
fn a_million_requests_a_second_need_11_instances_and_600_megabytes() {
    let traffic = FleetTraffic {
        requests: 1e6,
        keys: 5_000_000,
        servers: 500,
        servers_of_a_key: 500,
        leases: false,
        replicas: 0,
        ..FleetTraffic::default()
    };
    assert_eq!(shown(&traffic, "claims_without_leases"), "1,000,000");
    assert_eq!(shown(&traffic, "redis_shards"), "11");
    assert_eq!(shown(&traffic, "redis_memory"), "600.0 MB");
    assert_eq!(shown(&traffic, "redis_connections_of_an_instance"), "1,000");
    assert_eq!(shown(&traffic, "server_cores"), "20.0");
    assert!(traffic.size().iter().all(|line| line.id != "claims_with_leases"));
}

/// One claim for four limits, not four operations.
#[test]
fn four_limits_of_a_caller_are_one_claim() {
    let traffic =
        FleetTraffic { requests: 1.67e6, keys: 100_000_000, limits: 4, leases: false, ..FleetTraffic::default() };
    assert_eq!(shown(&traffic, "claims_without_leases"), "1,670,000");
    assert_eq!(shown(&traffic, "redis_shards"), "30");
}

#[test]
fn leases_save_what_their_keys_allow() {
    let hot = FleetTraffic {
        requests: 1e5,
        keys: 10,
        exponent: 0.0,
        servers: 10,
        servers_of_a_key: 10,
        ..FleetTraffic::default()
    };
    assert!(value(&hot, "requests_for_a_claim") > 50.0);
    assert_eq!(value(&hot, "leased_keys"), 10.0);
    let cold = FleetTraffic { keys: 100_000_000, exponent: 0.0, ..hot.clone() };
    assert!((value(&cold, "claims_with_leases") / 1e5 - 1.0).abs() < 0.02);
    assert_eq!(value(&cold, "leased_keys"), 0.0);
    // A balancer that sends a key to one server makes it busy there.
    let spread = FleetTraffic { requests: 1e4, keys: 1_000, servers: 100, servers_of_a_key: 100, ..hot.clone() };
    let sticky = FleetTraffic { servers_of_a_key: 1, ..spread.clone() };
    assert!(value(&sticky, "claims_with_leases") < 0.2 * value(&spread, "claims_with_leases"));
    // Two limits call more often than one, and less than twice as often.
    let two = FleetTraffic { limits: 2, ..hot.clone() };
    let ratio = value(&two, "claims_with_leases") / value(&hot, "claims_with_leases");
    assert!((1.5..=2.0).contains(&ratio), "{ratio}");
    // What has an idempotency key is not decided from leases.
    let repeatable = FleetTraffic { idempotency_keys: 5e4, ..hot.clone() };
    assert!(value(&repeatable, "claims_with_leases") > 5e4);
    let stored = 200.0 * 5e4 * 86_400.0 * 2.0;
    assert!(value(&repeatable, "redis_memory") > stored && value(&repeatable, "redis_memory") < stored * 1.001);
}

#[test]
fn figures_are_shown_with_units() {
    for (value, unit, expected) in [
        (0.0, SizeUnit::Count, "0"),
        (999.4, SizeUnit::Count, "999"),
        (1e6, SizeUnit::Count, "1,000,000"),
        (12.34, SizeUnit::Decimal, "12.3"),
        (120.0, SizeUnit::Bytes, "120 B"),
        (2.5e9, SizeUnit::Bytes, "2.5 GB"),
    ] {
        let line = SizeLine { id: "", name: "", value, unit, formula: "", constants: String::new() };
        assert_eq!(line.shown(), expected);
    }
}
