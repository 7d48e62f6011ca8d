//! Several regions: what this server sees of the others, and what callers have used while limits are lowered.

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate::{RegionId, RegionLink, RegionNames, Span};
use tollgate_core::RegionShare;
use tollgate_store::conformance::gated::GatedStore;
use tollgate_store::guarded::{Circuit, GuardStatus, ShardStatus};
use tollgate_store::{Counters, DebitStatus, Durations, SharedStatus, UnitCounts};

use super::{Bench, SHOP};
use crate::scopes::AccessScope;

const REGIONS: &str = "/admin/v1/regions";

/// One rule for each mode.
const RULES: &str = "
domain: shop
entity: api_key
rules:
- {name: each, key: [api_key], limit: 900/year, algorithm: fixed_window}
- {name: search, key: [api_key], limit: 900/year, algorithm: fixed_window, region: global}
- {name: browse, key: [api_key], limit: 90/year, algorithm: fixed_window, region: {global: {apart: share}}}
- {name: orders, key: [api_key], limit: 900/year, algorithm: fixed_window, region: {home: us-east}}
- {name: render, key: [api_key], limit: 900/year, algorithm: fixed_window, region: split}
";

async fn bench() -> (Bench, Arc<GatedStore>) {
    let store = GatedStore::new();
    store.open();
    let regions = RegionNames::new("us-east", ["us-west", "eu-west"]).unwrap();
    (Bench::in_regions(RULES, Counters::Shared(store.clone()), regions).await, store)
}

fn shard(name: &str, region: u8, circuit: Circuit) -> ShardStatus {
    let last_error = (circuit == Circuit::Open).then(|| "no answer".to_owned());
    let (region, name) = (RegionId::new(region), name.to_owned());
    ShardStatus { name, region, circuit, errors: Vec::new(), last_error, warning: None }
}

/// So many durations up to 50 ms and up to 250 ms, and longer ones.
fn durations(counts: [u64; 3]) -> Durations {
    let bounds = [0.05, 0.25, f64::INFINITY];
    Durations { buckets: bounds.into_iter().zip(counts).collect(), sum: 1.0 }
}

fn status(lag: [u64; 3]) -> SharedStatus {
    let shards = vec![
        shard("a:1", 0, Circuit::Closed),
        shard("eu-west/b:1", 1, Circuit::Open),
        shard("us-west/c:1", 2, Circuit::Closed),
    ];
    let calls_elsewhere = vec![durations([0, 0, 0]), durations([9, 1, 0])];
    let eu = DebitStatus {
        region: "eu-west".to_owned(),
        link: RegionLink::Apart,
        step: 7,
        oldest: Span::from_micros(2_500_000),
        waiting: 12,
        units: UnitCounts { sent: 9, unsure: 2, back_unsure: 1, dropped: 3, back_dropped: 4, ..UnitCounts::default() },
        lag: durations(lag),
    };
    let us = DebitStatus { region: "us-west".to_owned(), ..DebitStatus::default() };
    let guard = GuardStatus { shards, calls_elsewhere, ..GuardStatus::default() };
    SharedStatus { guard, debits: vec![eu, us], ..SharedStatus::default() }
}

#[tokio::test]
async fn other_regions_are_shown_with_what_waits_for_them() {
    let (bench, store) = bench().await;
    store.set_status(status([1_000, 0, 0]));
    bench.look();
    store.set_status(status([1_000, 60, 40]));
    bench.look();
    let reply = bench.get(REGIONS).await.ok();
    assert_eq!((&reply["available"], &reply["server"]), (&json!(true), &json!("here")));
    let regions = reply["regions"].as_array().unwrap();
    assert_eq!(
        regions[0],
        json!({
            "name": "eu-west", "this": false, "servers": 0, "decisions_per_second": 0.0,
            "link": "apart", "step": 7, "oldest_seconds": 2.5, "waiting": 12,
            "units": {"sent": 9, "unsure": 3, "aged": 0, "dropped": 7, "evicted": 0, "returned": 0, "back": 0},
            // Only of the time between the looks, and no longer than the last bound.
            "lag": {"count": 100, "p50": 0.25, "p99": 0.25},
            "calls": {"count": 0, "p50": null, "p99": null},
            "nodes": [{"shard": "eu-west/b:1", "state": "open", "error": "no answer"}],
        })
    );
    assert_eq!((&regions[1]["link"], &regions[1]["step"]), (&json!("together"), &json!(0)));
    assert_eq!(regions[1]["nodes"], json!([{"shard": "us-west/c:1", "state": "closed", "error": null}]));
}

#[tokio::test]
async fn rules_say_what_they_mean_in_several_regions() {
    let (bench, _) = bench().await;
    let reply = bench.get(REGIONS).await.ok();
    let rules = reply["rules"].as_array().unwrap().iter();
    let shown: Vec<_> = rules.map(|rule| [&rule["rule"], &rule["region"], &rule["terms"], &rule["apart"]]).collect();
    assert_eq!(
        json!(shown),
        json!([
            ["search", "global", "global", "alone"],
            ["browse", "global", "global: {apart: share}", "share"],
            ["orders", "home", "home: us-east", null],
            ["render", "split", "split", null],
        ])
    );
    assert_eq!((&reply["omitted"], &reply["rules"][0]["mode"]), (&json!(0), &json!("enforce")));
}

#[tokio::test]
async fn a_server_without_other_regions_says_so() {
    let bench = Bench::new(SHOP).await;
    let reply = bench.get(REGIONS).await.ok();
    assert_eq!(
        some(&reply, ["available", "region", "regions", "rules"]),
        [json!(false), Value::Null, json!([]), json!([])]
    );
    assert_eq!(bench.ask_as(&[AccessScope::Check], ("GET", REGIONS), &[], "").await.status, 403);
}

fn some<const N: usize>(of: &Value, members: [&str; N]) -> [Value; N] {
    members.map(|member| of[member].clone())
}

#[tokio::test]
async fn what_is_used_is_known_while_limits_are_lowered() {
    let (bench, store) = bench().await;
    let third = RegionShare { parts: 1, whole: 3 };
    for (link, remaining) in
        [(RegionLink::Together, [890, 80]), (RegionLink::Lagging, [290, 20]), (RegionLink::Apart, [890, 20])]
    {
        store.set_link(link, third);
        let caller = link.name();
        let decision = bench.decide(&[("api_key", caller)], 10).await;
        let used: Vec<_> = decision.outcomes().map(|one| one.used()).collect();
        assert_eq!(used, [10; 5], "{caller}");

        let usage = bench.get(&format!("/admin/v1/usage/{caller}")).await.ok();
        let counters = bench.get(&format!("/admin/v1/counters/{caller}")).await.ok();
        for (at, (rule, expected)) in ["search", "browse"].into_iter().zip(remaining).enumerate() {
            let shown = [&usage["usage"][rule], &counters["counters"][at + 1]];
            for shown in shown {
                assert_eq!(some(shown, ["used", "remaining"]), [json!(10), json!(expected)], "{caller} {shown}");
            }
        }
        assert_eq!(some(&usage["usage"]["orders"], ["region", "used"]), [json!("us-east"), json!(10)]);

        // One more than the share of all: refused when lowered. What is logged has all limits.
        assert!(!bench.decide(&[("api_key", caller)], 90).await.allowed());
        let log = bench.get(&format!("/admin/v1/decisions?caller={caller}")).await.ok();
        let refused = &log["decisions"][0];
        let limits = refused["limits"].as_array().unwrap().iter();
        assert!(limits.clone().all(|limit| limit["used"] == 10), "{refused}");
        let homes: Vec<_> = limits.map(|limit| limit["region"].as_str()).collect();
        assert_eq!(homes.iter().flatten().collect::<Vec<_>>(), [&"us-east"], "{refused}");
        let regions = (link != RegionLink::Together).then(|| link.name());
        assert_eq!(refused["regions"].as_str(), regions, "{refused}");
    }
}
