//! `region`: the modes, and what does not fit.

use tollgate_core::{Apart, GlobalTerms, OnFailure, RegionId, RegionNames, RegionShare};

use super::{super::*, text_of};
use crate::layer::{Layer, LayerShares};
use crate::model::Domain;
use crate::regions::{HomeOf, MovingOrigin, RegionMode};
use crate::shares::{MovingShare, MovingShares};

fn names() -> RegionNames {
    RegionNames::new("us-east", ["us-west", "eu-west"]).unwrap()
}

fn load_in(regions: KnownRegions, rule: &str) -> Result<Domain, String> {
    let text = format!("domain: d\nentity: user\nrules:\n  - {{name: r, key: [user], {rule}}}\n");
    let options = LoadOptions { regions, ..LoadOptions::default() };
    let file = RuleFile { name: "f".to_owned(), text };
    load_sources(&[file], &options).map(|mut loaded| loaded.domains.remove(0)).map_err(|problems| text_of(&problems))
}

fn mode(rule: &str) -> RegionMode {
    let domain = load_in(KnownRegions::All(names()), rule).unwrap_or_else(|problems| panic!("{problems}\n{rule}"));
    domain.rules[0].terms.region.clone()
}

#[test]
fn every_mode_is_read() {
    assert_eq!(mode("limit: 90/minute"), RegionMode::Each);
    assert_eq!(mode("limit: 90/minute, region: each"), RegionMode::Each);
    for (text, apart, debit_threshold) in [
        ("global", Apart::Alone, 500),
        ("global: {apart: share}", Apart::Share, 500),
        ("global: {debit_threshold: 0%}", Apart::Alone, 0),
        ("global: {apart: share, debit_threshold: 12.5%}", Apart::Share, 1_250),
    ] {
        let region = if text == "global" { text.to_owned() } else { format!("{{{text}}}") };
        let mode = mode(&format!("limit: 90/minute, region: {region}"));
        assert_eq!(mode, RegionMode::Global(GlobalTerms { apart, debit_threshold }));
        assert_eq!(mode.text(), text);
    }
    assert_eq!(mode("limit: 90/minute, region: home"), RegionMode::Home(HomeOf::Caller(Some(names()))));
    let fixed = |name: &str, number| RegionMode::Home(HomeOf::Fixed(name.to_owned(), RegionId::new(number)));
    assert_eq!(mode("limit: 5/day, policy: security, region: {home: us-east}"), fixed("us-east", 0));
    assert_eq!(mode("limit: 5/month in UTC, region: {home: eu-west}"), fixed("eu-west", 1));
    assert_eq!(mode("limit: 20 concurrent, region: {home: us-west}"), fixed("us-west", 2));
    let third = mode("limit: 90/minute, region: split");
    assert_eq!(third.share(), Some(RegionShare { parts: 1, whole: 3 }));
    assert_eq!(mode("limit: 90/minute, region: {split: moving}").text(), "split: moving");
    let half = mode("limit: 90/minute, region: {split: {us-east: 50%, us-west: 30%, eu-west: 20%}}");
    assert_eq!(half.share(), Some(RegionShare::of_bps(5_000)));
    assert_eq!(half.text(), "split: {us-east: 50%, us-west: 30%, eu-west: 20%}");
}

#[test]
fn shares_that_follow_demand_are_those_of_the_layer() {
    let text = "domain: d\nentity: user\nrules:\n  - {name: r, key: [user], limit: 90/minute, region: {split: moving}}\n  \
        - {name: fixed, key: [user], limit: 90/minute, region: {split: {us-east: 40%}}}\n\
        descriptors:\n  - {key: ip, rate_limit: {name: t, unit: minute, requests_per_unit: 90}, region: {split: moving}}\n";
    let options = LoadOptions { regions: KnownRegions::All(names()), ..LoadOptions::default() };
    let load = |layer: &Layer| {
        let files = RuleFiles::from_files(vec![RuleFile { name: "f".to_owned(), text: text.to_owned() }]);
        let domain = files.load_with_layer(&options, layer).unwrap_or_else(|problems| panic!("{}", text_of(&problems)));
        let domain = domain.domains.into_iter().next().unwrap();
        let tree = domain.tree[0].limit.as_ref().unwrap().terms.region.clone();
        let regions = domain.rules.iter().map(|rule| rule.terms.region.clone()).chain([tree]);
        regions.map(|mode| (mode.moving(), mode.share().unwrap().parts)).collect::<Vec<_>>()
    };
    let shares = |rule: &str, here: u16| LayerShares {
        domain: "d".to_owned(),
        rule: rule.to_owned(),
        generation: 7,
        shares: MovingShares {
            of: [("us-east".to_owned(), MovingShare { share: here, held: here })].into(),
            given_at: None,
        },
    };
    let (equal, written) = (Some(MovingOrigin::Equal), Some(MovingOrigin::Written(7)));
    assert_eq!(load(&Layer::default()), [(equal, 3_333), (None, 4_000), (equal, 3_333)]);
    let layer = Layer { shares: vec![shares("r", 5_000), shares("fixed", 1_000)], ..Layer::default() };
    assert_eq!(load(&layer), [(written, 5_000), (None, 4_000), (equal, 3_333)]);
    let layer = Layer { shares: vec![shares("t", 100)], are_shares_unknown: true, ..Layer::default() };
    let unknown = Some(MovingOrigin::Unknown);
    assert_eq!(load(&layer), [(unknown, 500), (None, 4_000), (unknown, 100)]);
    // A region of which the shares do not know yet.
    let none = LayerShares { shares: MovingShares::default(), ..shares("r", 0) };
    assert_eq!(load(&Layer { shares: vec![none], ..Layer::default() })[0], (written, 0));
}

#[test]
fn a_home_fails_closed_unless_said_otherwise() {
    let failure = |rule: &str| load_in(KnownRegions::All(names()), rule).unwrap().rules[0].terms.on_failure[0];
    assert_eq!(failure("limit: 9/minute"), OnFailure::Local);
    assert_eq!(failure("limit: 9/minute, region: home"), OnFailure::Deny);
    assert_eq!(failure("limit: 9/minute, region: home, on_failure: local"), OnFailure::Local);
    assert_eq!(failure("limit: 9/minute, region: home, on_failure: allow"), OnFailure::Allow);
    assert_eq!(failure("limit: 9/minute, region: home, shed: true"), OnFailure::Local);
}

#[test]
fn what_does_not_fit_is_refused_with_a_remedy() {
    let all = || KnownRegions::All(names());
    let here = || KnownRegions::Here("us-east".to_owned());
    let global = "write `region: home`, which holds everywhere";
    let set = "set `region` and `regions`, or write `region: each`";
    let set_others = "set `regions` to the stores of the other regions, or write `region: each`";
    let nowhere = "this rule depends on regions, and no `region` is set here";
    let alone = "this rule depends on other regions, and `regions` is not set";
    let ahead = "`ahead` shares a part of the limit among the servers of one region, and those of all regions admit units of \
                 a counter that one region owns; remove it; leases save most calls for busy keys; or write another `region`";
    let a_quarter = "meanwhile the regions together admit up to a quarter more";
    let too_long = "shares can't move for periods, or times of a bucket to refill, of more than an hour: they move by a \
                    quarter in each";
    let fixed = "write `region: split` or fixed shares, which admit no more than the limit, or `region: home`";
    let rows = [
        (
            all(),
            "limit: 5/minute, policy: security, region: global",
            format!("a limit of policy security can't be `global`: who attacks from several regions at once would get the limit in each of them; {global}"),
        ),
        (
            all(),
            "limit: 5/minute, policy: cost, region: global",
            format!("a limit of policy cost can't be `global`: each region could give out the whole limit, at your cost, before it hears of the others; {global}"),
        ),
        (
            all(),
            "limit: 5/month in UTC, region: global",
            format!("a limit of policy quota can't be `global`: what regions give out too much of a budget is not taken back; {global}"),
        ),
        (
            all(),
            "limit: 5/month in UTC, policy: comfort, region: global",
            format!("a limit on a calendar period can't be `global`: its errors would not heal within seconds; {global}, or `region: split`"),
        ),
        (
            all(),
            "limit: 5 concurrent, region: global",
            format!("a limit on concurrent requests can't be `global`: its errors would not heal within seconds; {global}, or `region: split`"),
        ),
        (
            all(),
            "match: {user: [a]}, limit: 5 concurrent, count: summed, region: home",
            "`count: summed` sums what the servers of one region count, so no other region can own its counter; write \
             `region: each` or `region: split`, or `count: exact`"
                .to_owned(),
        ),
        (all(), "limit: 5000/minute, ahead: 5%, region: home", ahead.to_owned()),
        (all(), "limit: 5000/minute, ahead: 5%, region: {home: us-west}", ahead.to_owned()),
        (
            all(),
            "limit: 50/minute, region: {split: {us-east: 60%, us-west: 60%}}",
            "the shares are 120.00% together; write shares of at most 100% together: no region may give out another's"
                .to_owned(),
        ),
        (
            all(),
            "limit: 2/minute, region: split",
            "a region's share of 2 is less than a unit; write `region: home`, or a larger limit: shares are rounded down"
                .to_owned(),
        ),
        (
            all(),
            "limit: 90/minute, algorithm: token_bucket, burst: 2, region: split",
            "a region's share of 2 is less than a unit; write `region: home`, or a larger limit: shares are rounded down"
                .to_owned(),
        ),
        (
            all(),
            "limit: 50/minute, region: {split: {us-west: 60%}}",
            "`split` has no share for `us-east`, the region of this server; add `us-east: 0%` to admit nothing there, or another share".to_owned(),
        ),
        (
            all(),
            "limit: 50/minute, region: {split: {us-east: 60%, us-wets: 10%}}",
            "`region`: there is no region `us-wets`; did you mean `us-west`?".to_owned(),
        ),
        (
            all(),
            "limit: 50/minute, region: {home: eu}",
            "`region`: there is no region `eu`; write one of us-east, eu-west, us-west".to_owned(),
        ),
        (
            all(),
            "limit: 19/minute, region: {split: moving}",
            "a region's share of 19 is less than a unit; write `region: home`, or a larger limit: shares are rounded down".to_owned(),
        ),
        (
            all(),
            "limit: 50/minute, policy: security, region: {split: moving}",
            format!("shares of a limit of policy security can't move: {a_quarter}; {fixed}"),
        ),
        (
            all(),
            "limit: 50/minute, policy: cost, region: {split: moving}",
            format!("shares of a limit of policy cost can't move: {a_quarter}; {fixed}"),
        ),
        (
            all(),
            "limit: 500/day, policy: quota, region: {split: moving}",
            format!("shares of a limit of policy quota can't move: {a_quarter}; {fixed}"),
        ),
        (all(), "limit: 500/day, policy: comfort, region: {split: moving}", format!("{too_long}; {fixed}")),
        (
            all(),
            "limit: 50/hour, algorithm: token_bucket, burst: 51, region: {split: moving}",
            format!("{too_long}; {fixed}"),
        ),
        (all(), "limit: 50/minute, region: hom", "`region` can't be `hom`; did you mean `home`?".to_owned()),
        (
            all(),
            "limit: 50/minute, region: {global: {apart: together}}",
            "`apart` can't be `together`; write one of alone, share".to_owned(),
        ),
        (all(), "limit: 50/minute, region: {each: 5}", "`region`: `each` can't have a value; write `region: each`".to_owned()),
        (
            all(),
            "limit: 50/minute, region: [home]",
            "`region` must be a word or a map, not a list; write `region: each`, `split`, `home` or `global`, or for instance `region: {home: us-east}`".to_owned(),
        ),
        (KnownRegions::None, "limit: 50/minute, region: home", format!("{nowhere}; {set}")),
        (KnownRegions::None, "limit: 50/minute, region: split", format!("{nowhere}; {set}")),
        (here(), "limit: 50/minute, region: home", format!("{alone}; {set_others}")),
        (here(), "limit: 50/minute, region: split", format!("{alone}; {set_others}")),
        (here(), "limit: 50/minute, region: global", format!("{alone}; {set_others}")),
        (
            here(),
            "limit: 50/minute, region: {home: us-west}",
            "`region`: `us-west` is not the region of this server, and `regions` is not set; set `regions` to the stores of the other regions".to_owned(),
        ),
    ];
    for (regions, rule, expected) in rows {
        let problems = load_in(regions, rule).expect_err(rule);
        assert_eq!(problems, format!("f:4: error: {expected}"), "{rule}");
    }
}

#[test]
fn what_needs_no_other_region_needs_no_setting() {
    let here = || KnownRegions::Here("us-east".to_owned());
    let share = |rule| load_in(here(), rule).map(|domain| domain.rules[0].terms.region.share());
    let half = "limit: 50/minute, region: {split: {us-east: 50%, us-west: 30%}}";
    assert_eq!(share(half), Ok(Some(RegionShare::of_bps(5_000))));
    assert!(load_in(here(), "limit: 50/minute, region: {home: us-east}").is_ok());
    assert!(load_in(KnownRegions::None, "limit: 50/minute, region: each").is_ok());
    for rule in
        [half, "limit: 5/minute, region: split", "limit: 5/day, region: home", "limit: 5/day, region: {home: x}"]
    {
        assert!(load_in(KnownRegions::Unchecked, rule).is_ok(), "{rule}");
    }
}

#[test]
fn a_node_of_a_tree_has_a_mode_too() {
    let text = "domain: d\ndescriptors:\n- key: user\n  region: {home: eu-west}\n  rate_limit: {unit: minute, requests_per_unit: 9}\n";
    let file = RuleFile { name: "f".to_owned(), text: text.to_owned() };
    let options = LoadOptions { regions: KnownRegions::All(names()), ..LoadOptions::default() };
    let loaded = load_sources(&[file], &options).unwrap();
    let limit = loaded.domains[0].tree[0].limit.as_ref().unwrap();
    assert_eq!(limit.terms.region, RegionMode::Home(HomeOf::Fixed("eu-west".to_owned(), RegionId::new(1))));
    assert_eq!(limit.terms.on_failure[0], OnFailure::Deny);
}
