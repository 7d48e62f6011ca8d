//! What a limit means in several regions, as the limiters of each apply it.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::tenants::{Override, OverrideCap, Quota, QuotaStage, Selector, TimeRange};
use tollgate::{
    Adjustment, AdjustmentReport, Decision, Descriptor, GuardConfig, Guarded, KnownRegions, Layer, Limiter,
    LoadOptions, ManualClock, MemoryConfig, ReceiptKeys, ReceiptWish, RegionNames, Request, RequestOutcome, RuleFiles,
    Ruleset, SettleError, Span, Store, poll_once,
};
use tollgate_core::Period;
use tollgate_rules::{LayerShares, MovingShare, MovingShares, RuleFile};
use tollgate_store::sharded::{MemoryShards, ShardFault};
use tollgate_store::{Clock as _, OtherRegion, Regions};

use crate::support::{ManualLimiter, START, manual_limiter};

const REGIONS: [&str; 3] = ["eu-west", "us-east", "us-west"];

/// The names of the regions, seen from one of them.
fn names(here: &str) -> RegionNames {
    RegionNames::new(here, REGIONS.into_iter().filter(|name| *name != here)).unwrap()
}

/// The rules of a region.
#[track_caller]
fn rules(here: &str, text: &str) -> Ruleset {
    rules_under(&Layer::default(), here, text)
}

/// The rules of a region under a layer.
#[track_caller]
fn rules_under(layer: &Layer, here: &str, rules: &str) -> Ruleset {
    let options = LoadOptions { regions: KnownRegions::All(names(here)), ..LoadOptions::default() };
    let text = format!("domain: d\nentity: user\nrules:\n{rules}\n");
    let files = RuleFiles::from_files(vec![RuleFile { name: "rules".to_owned(), text }]);
    Ruleset::load_with_layer(files, &options, layer, 1).unwrap().0
}

/// The limiter of a region whose counters are its own.
#[track_caller]
fn limiter(here: &str, text: &str) -> ManualLimiter {
    let clock = ManualClock::at(START);
    Limiter::new(rules(here, text), MemoryConfig::default().build_with(clock.clone())).with_clock(clock)
}

type Shards = MemoryShards<ManualClock>;
type Server = Limiter<Guarded<Regions<Shards>, ManualClock>>;

/// A server in each of three regions, whose stores they share.
struct World {
    shards: [Shards; 3],
    servers: [Server; 3],
    clock: ManualClock,
}

impl World {
    #[track_caller]
    fn new(text: &str) -> World {
        let clock = ManualClock::at(START);
        let shards = [1, 2, 1].map(|count| Shards::new(count, 1_024, clock.clone()));
        let store = |name: &str| shards[REGIONS.iter().position(|region| *region == name).unwrap()].clone();
        let server = |here: &str| {
            let other = |name: &str| OtherRegion {
                name: name.to_owned(),
                store: store(name),
                deadline: Duration::from_millis(50),
            };
            let names = names(here);
            let regions = Regions::new(store(here), names.others().map(|(_, name)| other(name)));
            let guard = Guarded::with_clock(regions, GuardConfig::default(), clock.clone());
            Limiter::new(rules(here, text), guard).with_clock(clock.clone())
        };
        let servers = REGIONS.map(server);
        World { servers, shards, clock }
    }

    /// Runs the servers until nothing waits for any store.
    fn deliver(&self) {
        let [one, two, three] = self.servers.each_ref().map(Limiter::store);
        let delivered = async {
            while [one, two, three].iter().any(|guard| guard.status().waiting > 0) {
                self.clock.set(self.clock.now().after(Span::from_micros(50_000)));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            tokio::select! {
                () = delivered => {}
                _ = async { tokio::join!(one.run(), two.run(), three.run()) } => {}
                () = tokio::time::sleep(Duration::from_secs(30)) => panic!("{:?}", one.status()),
            }
        });
    }

    /// Sets the fault of a region's store.
    fn fail(&self, region: usize, fault: ShardFault) {
        self.shards[region].nodes().iter().for_each(|node| node.set_fault(fault));
    }

    /// The number of claims that each region's store settled.
    fn calls(&self) -> [u64; 3] {
        self.shards.each_ref().map(|shards| shards.nodes().iter().map(|node| node.calls()).sum())
    }

    /// What a caller is admitted in all regions together, in turns.
    fn admitted(&self, caller: &str) -> usize {
        (0..60).filter(|turn| check_as(&self.servers[turn % 3], caller, 1).allowed()).count()
    }
}

fn check_as<S: Store>(limiter: &Limiter<S>, caller: &str, cost: u64) -> Decision {
    let entries = [("user", caller)];
    let descriptors = [Descriptor::new(&entries)];
    let receipt = ReceiptWish::IfNeeded;
    let request = Request { descriptors: &descriptors, cost, receipt, ..Request::default() };
    poll_once(limiter.check_request(&request)).unwrap().unwrap()
}

/// The region that owns the first counter of a caller, as a server explains it.
fn owner(server: &Server, caller: &str) -> Option<String> {
    let entries = [("user", caller)];
    let descriptors = [Descriptor::new(&entries)];
    let explained =
        poll_once(server.explain(&Request { descriptors: &descriptors, ..Request::default() })).unwrap().unwrap();
    explained.rules[0].counters[0].region.clone()
}

/// Sets the home of a caller on all servers.
fn set_home(world: &World, caller: &str, home: Option<&str>) {
    let stage =
        QuotaStage { during: TimeRange::ALWAYS, tier: None, home: home.map(str::to_owned), overrides: Vec::new() };
    for server in &world.servers {
        server.tenants().set_quota("d", caller, Some(&Quota { stages: vec![stage.clone()] }));
    }
}

fn check(limiter: &ManualLimiter, cost: u64) -> Decision {
    check_as(limiter, "ada", cost)
}

/// What every region admits at once.
fn admitted(rules: &str) -> Vec<u64> {
    let admitted = |here: &&str| {
        let limiter = limiter(here, rules);
        (0..).take_while(|_| check(&limiter, 1).allowed()).count() as u64
    };
    REGIONS.iter().map(admitted).collect()
}

#[test]
fn each_region_has_its_share() {
    let shares = "{eu-west: 20%, us-east: 50%, us-west: 30%}";
    let rows = [
        ("limit: 100/hour, algorithm: fixed_window, region: split", [33, 33, 33]),
        (&*format!("limit: 100/hour, algorithm: fixed_window, region: {{split: {shares}}}"), [20, 50, 30]),
        (&format!("limit: 100/hour, algorithm: token_bucket, burst: 10, region: {{split: {shares}}}"), [2, 5, 3]),
        ("limit: 100/hour, region: {split: {eu-west: 0%, us-east: 90%, us-west: 10%}}", [0, 90, 10]),
    ];
    for (rule, expected) in rows {
        assert_eq!(admitted(&format!("  - {{name: r, key: [user], {rule}}}")), expected, "{rule}");
    }
}

#[test]
fn a_share_is_counted_and_the_whole_is_shown() {
    let limiter = limiter("us-east", "  - {name: r, key: [user], limit: 100/hour, region: split}");
    let decision = check(&limiter, 3);
    let one = decision.tightest().unwrap();
    assert_eq!((one.limit.amount(), one.whole_limit.amount(), one.reading.remaining), (33, 100, 30));
}

#[test]
fn an_override_is_split_too() {
    let limiter = limiter("us-east", "  - {name: r, key: [user], limit: 100/hour, region: split}");
    let set = |cap| under_override(&limiter, cap);
    assert_eq!(set(OverrideCap::Amount(1_000)), (333, 1_000));
    assert_eq!(set(OverrideCap::Scaled(5_000)), (16, 50));
    // Less than a unit for each: nobody gets more than the override.
    assert_eq!(set(OverrideCap::Amount(2)), (0, 2));
}

/// The share of an override that is counted, and the whole.
fn under_override(limiter: &ManualLimiter, cap: OverrideCap) -> (u64, u64) {
    let limit = Override { selector: Selector::rule("r"), cap, during: TimeRange::ALWAYS };
    let stage = QuotaStage { during: TimeRange::ALWAYS, tier: None, home: None, overrides: vec![limit] };
    limiter.tenants().set_quota("d", "ada", Some(&Quota { stages: vec![stage] }));
    let decision = check(limiter, 0);
    let one = decision.tightest().unwrap();
    (one.limit.amount(), one.whole_limit.amount())
}

/// Shares move at the pace of the rule's limits, which is too fast for a counter that counts for longer.
#[test]
fn an_override_of_a_longer_time_than_the_rules_has_equal_shares() {
    let of = [("us-east".to_owned(), MovingShare { share: 6_000, held: 6_000 })].into();
    let shares = MovingShares { of, given_at: None };
    let shares = LayerShares { domain: "d".to_owned(), rule: "r".to_owned(), generation: 7, shares };
    let layer = Layer { shares: vec![shares], ..Layer::default() };
    let text = "  - {name: r, key: [user], limit: 100/minute, algorithm: token_bucket, region: {split: moving}}";
    let clock = ManualClock::at(START);
    let store = MemoryConfig::default().build_with(clock.clone());
    let limiter = Limiter::new(rules_under(&layer, "us-east", text), store).with_clock(clock);
    let rate = |amount, seconds, burst| {
        let period = Period::fixed(Span::from_secs(seconds)).unwrap();
        under_override(&limiter, OverrideCap::Rate { amount, period, burst })
    };
    assert_eq!(under_override(&limiter, OverrideCap::Amount(1_000)), (600, 1_000));
    assert_eq!((rate(1_000, 60, None), rate(1_000, 10, None)), ((600, 1_000), (600, 1_000)));
    assert_eq!((rate(1_000, 3_600, None), rate(1_000, 60, Some(2_000))), ((333, 1_000), (333, 1_000)));
}

#[test]
fn a_home_owns_the_counter_for_all_regions() {
    let world = World::new("  - {name: r, key: [user], limit: 20/hour, algorithm: fixed_window, region: home}");
    let mut owners = Vec::new();
    for caller in 0..30 {
        let caller = format!("caller {caller}");
        let named: Vec<_> = world.servers.iter().map(|server| owner(server, &caller)).collect();
        assert!(named[0].is_some() && named.iter().all(|name| *name == named[0]), "{named:?}");
        assert_eq!(world.admitted(&caller), 20, "{caller}");
        owners.extend(named[0].clone());
    }
    for region in REGIONS {
        assert!(owners.iter().filter(|owner| *owner == region).count() >= 4, "{region} of {owners:?}");
    }
}

#[test]
fn a_fixed_home_owns_all_counters() {
    let rule = "limit: 20/hour, algorithm: fixed_window, policy: security, region: {home: us-west}";
    let world = World::new(&format!("  - {{name: r, key: [user], {rule}}}"));
    assert_eq!(world.admitted("ada"), 20);
    assert_eq!(world.calls(), [0, 0, 60]);
    assert_eq!(owner(&world.servers[0], "bob").as_deref(), Some("us-west"));
}

#[test]
fn the_recorded_home_of_a_caller_goes_first_and_another_one_begins_anew() {
    let world = World::new("  - {name: r, key: [user], limit: 20/hour, algorithm: fixed_window, region: home}");
    set_home(&world, "ada", Some("us-west"));
    assert_eq!((world.admitted("ada"), world.calls()), (20, [0, 0, 60]));
    set_home(&world, "ada", Some("eu-west"));
    assert_eq!((world.admitted("ada"), world.calls()), (20, [60, 0, 60]));
    // As if there were none.
    let usual = {
        set_home(&world, "ada", None);
        owner(&world.servers[0], "ada")
    };
    set_home(&world, "ada", Some("atlantis"));
    assert_eq!(owner(&world.servers[1], "ada"), usual);
    set_home(&world, "a*", Some("us-east"));
    assert_eq!(owner(&world.servers[0], "abe").as_deref(), Some("us-east"));
}

#[test]
fn a_counter_without_the_caller_has_one_home_for_all_callers() {
    let text = "  - {name: r, key: [ip], limit: 20/hour, algorithm: fixed_window, region: home}";
    let world = World::new(text);
    set_home(&world, "ada", Some("us-west"));
    set_home(&world, "bob", Some("eu-west"));
    let mut admitted = 0;
    for turn in 0..60 {
        let entries = [("user", ["ada", "bob", "eve"][turn / 3 % 3]), ("ip", "192.0.2.7")];
        let descriptors = [Descriptor::new(&entries)];
        let request = Request { descriptors: &descriptors, ..Request::default() };
        admitted += usize::from(poll_once(world.servers[turn % 3].check_request(&request)).unwrap().unwrap().allowed());
    }
    assert_eq!(admitted, 20);
}

#[test]
fn a_claim_here_and_elsewhere_is_all_or_nothing() {
    let world = World::new(
        "  - {name: far, key: [user], limit: 20/hour, algorithm: fixed_window, region: {home: us-west}}\n  \
           - {name: near, key: [user], limit: 5/hour, algorithm: fixed_window}",
    );
    let admitted = |server: usize| (0..20).filter(|_| check_as(&world.servers[server], "ada", 1).allowed()).count();
    assert_eq!([admitted(0), admitted(1), admitted(2)], [5, 5, 5], "`near` is each region's own");
    let far = check_as(&world.servers[0], "ada", 0);
    assert_eq!(far.outcomes().next().unwrap().reading.remaining, 5, "what was refused is given back");
}

#[test]
fn adjustments_and_looks_reach_the_region_of_the_counter_and_name_it() {
    let world = World::new("  - {name: r, key: [user], limit: 20/hour, algorithm: fixed_window, region: home}");
    set_home(&world, "ada", Some("us-west"));
    assert_eq!(world.admitted("ada"), 20);
    let east = &world.servers[1];
    let peeked = poll_once(east.peek(None, None, "ada", &[])).unwrap().unwrap().unwrap();
    let (_, counter) = &peeked.counters[0];
    assert_eq!((counter.region.as_deref(), counter.reading.remaining), (Some("us-west"), 0));
    let adjust = |adjustment| {
        let report = poll_once(east.adjust(None, None, "ada", &[], None, adjustment)).unwrap().unwrap().unwrap();
        assert!(report.is_stored());
        (report.counters[0].region.clone().unwrap(), report.counters[0].units)
    };
    assert_eq!(adjust(Adjustment::Credit(5)), ("us-west".to_owned(), 5));
    assert_eq!(check_as(&world.servers[0], "ada", 0).tightest().unwrap().reading.remaining, 5);
    assert_eq!(adjust(Adjustment::Reset), ("us-west".to_owned(), 15));
    assert_eq!(world.admitted("ada"), 20);
}

/// What is left of each rule, as a server of this region sees it.
fn left(world: &World, server: usize) -> Vec<u64> {
    check_as(&world.servers[server], "ada", 0).outcomes().map(|one| one.reading.remaining).collect()
}

/// What became of an adjustment of the counters of `ada`.
fn adjust(server: &Server, adjustment: Adjustment) -> AdjustmentReport {
    poll_once(server.adjust(None, None, "ada", &[], None, adjustment)).unwrap().unwrap().unwrap()
}

/// The regions of a counter with what was changed there; `None` where there was no answer.
fn changed(report: &AdjustmentReport, counter: usize) -> Vec<(&str, Option<u64>)> {
    let regions = report.counters[counter].regions.iter();
    regions.map(|one| (&*one.region, one.is_stored().then_some(one.units))).collect()
}

#[test]
fn counters_of_all_regions_are_read_reset_and_credited_in_all() {
    let world = World::new(
        "  - {name: all, key: [user], limit: 20/hour, algorithm: fixed_window, region: global}\n  \
           - {name: own, key: [user], limit: 20/hour, algorithm: fixed_window}",
    );
    let take = || (0..3).for_each(|server| drop(check_as(&world.servers[server], "ada", 4 + server as u64)));
    take();
    let (west, east) = (&world.servers[0], &world.servers[1]);
    let peeked = poll_once(east.peek_in_all_regions(None, None, "ada", &[])).unwrap().unwrap().unwrap();
    let regions = peeked.counters[0].1.regions.iter();
    let found: Vec<_> = regions.map(|one| (&*one.region, one.reading.remaining, one.is_stored())).collect();
    assert_eq!(found, [("us-east", 15, true), ("eu-west", 16, true), ("us-west", 14, true)]);
    assert!(peeked.counters[1].1.regions.is_empty(), "each region counts by itself");
    let peeked = poll_once(east.peek(None, None, "ada", &[])).unwrap().unwrap().unwrap();
    assert!(peeked.counters[0].1.regions.is_empty(), "a client's question is not sent to other regions");

    let credited = adjust(east, Adjustment::Credit(5));
    assert_eq!(changed(&credited, 0), [("us-east", Some(5)), ("eu-west", Some(4)), ("us-west", Some(5))]);
    assert_eq!([0, 1, 2].map(|server| left(&world, server)), [[20, 16], [20, 20], [19, 14]]);
    take();
    let reset = adjust(west, Adjustment::Reset);
    assert_eq!(changed(&reset, 0), [("eu-west", Some(4)), ("us-east", Some(5)), ("us-west", Some(7))]);
    assert!(changed(&reset, 1).is_empty() && reset.is_stored() && reset.missed_regions().is_empty());
    assert_eq!([0, 1, 2].map(|server| left(&world, server)), [[20, 20], [20, 15], [20, 8]]);
    let debited = adjust(east, Adjustment::Debit(3));
    assert_eq!((changed(&debited, 0), debited.counters[0].units), (Vec::new(), 3));
    assert_eq!([0, 1, 2].map(|server| left(&world, server)[0]), [20, 17, 20], "debits are sent as those of requests");
}

#[test]
fn a_reset_names_the_regions_that_did_not_answer() {
    let world = World::new("  - {name: all, key: [user], limit: 20/hour, algorithm: fixed_window, region: global}");
    (0..3).for_each(|server| drop(check_as(&world.servers[server], "ada", 20)));
    world.fail(2, ShardFault::Unreachable);
    let reset = adjust(&world.servers[0], Adjustment::Reset);
    assert_eq!(changed(&reset, 0), [("eu-west", Some(20)), ("us-east", Some(20)), ("us-west", None)]);
    assert!(reset.is_stored() && reset.counters[0].units == 20, "{reset:?}");
    assert_eq!(reset.missed_regions(), ["us-west"]);
    world.fail(2, ShardFault::None);
    assert_eq!([0, 1, 2].map(|server| left(&world, server)[0]), [20, 20, 0]);
    // Without this region's store the adjustment failed.
    world.fail(0, ShardFault::Unreachable);
    let reset = adjust(&world.servers[0], Adjustment::Reset);
    assert!(!reset.is_stored() && reset.missed_regions().is_empty(), "{reset:?}");
}

#[test]
fn a_receipt_of_one_region_settles_once_in_any_other() {
    let world = World::new(
        "  - {name: far, key: [user], limit: 100/hour, settle: true, region: {home: us-west}}\n  \
           - {name: near, key: [user], limit: 100/hour, settle: true}",
    );
    let keys = ReceiptKeys::new(["a secret of all regions"]).unwrap();
    let receipt = check_as(&world.servers[1], "ada", 40).take_receipt().unwrap();
    assert_eq!(receipt.region(), Some("us-east"));
    let signed = keys.sign(&receipt, START);
    assert_eq!([0, 1, 2].map(|server| left(&world, server)), [[60, 100], [60, 60], [60, 100]]);
    let settle = |server: usize, cost| {
        let opened = keys.open(&signed, START).unwrap();
        let settled = world.servers[server].settle_receipt(&opened, RequestOutcome::Ok, Some(cost), None);
        poll_once(settled).unwrap().map(|settled| settled.is_replay())
    };
    // In a third region, again there, where it was taken, and at the counter's home.
    for (server, is_replay) in [(0, false), (0, true), (1, true), (2, true)] {
        assert_eq!(settle(server, 10).unwrap(), is_replay, "{server}");
        assert_eq!([0, 1, 2].map(|server| left(&world, server)), [[90, 100], [90, 90], [90, 100]]);
    }
    assert_eq!(settle(2, 11).unwrap_err(), SettleError::AlreadySettled);
}

#[test]
fn a_receipt_that_is_settled_twice_while_the_home_is_away_settles_once() {
    let text = "  - {name: far, key: [user], limit: 100/hour, settle: true, region: {home: us-west}}\n  \
                - {name: near, key: [user], limit: 100/hour, settle: true}";
    for fault in [ShardFault::Unreachable, ShardFault::Error] {
        let world = World::new(text);
        let keys = ReceiptKeys::new(["a secret of all regions"]).unwrap();
        let signed = keys.sign(&check_as(&world.servers[1], "ada", 40).take_receipt().unwrap(), START);
        let settle = |server: usize| {
            let opened = keys.open(&signed, START).unwrap();
            let settled = world.servers[server].settle_receipt(&opened, RequestOutcome::Ok, Some(10), None);
            poll_once(settled).unwrap().unwrap()
        };
        world.fail(2, fault);
        let first = settle(0);
        assert!(!first.is_stored() && !first.is_replay(), "{fault:?}: {first:?}");
        // Again there, and in another region.
        settle(0);
        settle(1);
        world.fail(2, ShardFault::None);
        world.deliver();
        assert_eq!([0, 1, 2].map(|server| left(&world, server)), [[90, 100], [90, 90], [90, 100]], "{fault:?}");
        settle(2);
        assert_eq!([0, 1, 2].map(|server| left(&world, server)), [[90, 100], [90, 90], [90, 100]], "{fault:?}");
    }
}

#[test]
fn a_receipt_of_an_unknown_region_is_refused() {
    let world = World::new("  - {name: r, key: [user], limit: 100/hour, settle: true}");
    let receipt = check_as(&world.servers[1], "ada", 40).take_receipt().unwrap();
    let elsewhere =
        manual_limiter("domain: d\nentity: user\nrules:\n- {name: r, key: [user], limit: 100/hour, settle: true}").0;
    let settled = poll_once(elsewhere.settle_receipt(&receipt, RequestOutcome::Ok, Some(1), None)).unwrap();
    assert_eq!(settled.unwrap_err(), SettleError::UnknownRegion);
    // One without regions is of the region in which it is settled.
    let receipt = check_as(&elsewhere, "ada", 40).take_receipt().unwrap();
    let settled = poll_once(world.servers[0].settle_receipt(&receipt, RequestOutcome::Ok, Some(1), None)).unwrap();
    assert!(settled.unwrap().is_stored());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_shares_are_no_more_than_the_limit(amount in 10_u64..400, burst in 10_u64..60, first in 10_u32..45, second in 10_u32..45) {
        let shares = format!("{{eu-west: {first}%, us-east: {second}%, us-west: {}%}}", 100 - first - second);
        for split in ["split".to_owned(), format!("{{split: {shares}}}")] {
            let window = format!("  - {{name: r, key: [user], limit: {amount}/hour, algorithm: fixed_window, region: {split}}}");
            let sum: u64 = admitted(&window).into_iter().sum();
            prop_assert!(sum <= amount && sum + 3 > amount, "{sum} of {amount}");
            let bucket =
                format!("  - {{name: r, key: [user], limit: {amount}/hour, algorithm: token_bucket, burst: {burst}, region: {split}}}");
            let sum: u64 = admitted(&bucket).into_iter().sum();
            prop_assert!(sum <= burst && sum + 3 > burst, "{sum} of {burst}");
        }
    }
}
