//! Tenants: which limit applies, and how it was chosen.

use proptest::prelude::*;
use tollgate_core::{Ask, Claim, ClaimId, Request, Timestamp};
use tollgate_rules::pattern::Pattern;
use tollgate_rules::tenants::{
    Block, BlockAction, BlockSubject, Emergency, Override, OverrideCap, Quota, QuotaStage, Selector, TimeRange,
};
use tollgate_rules::{LimitArena, MatchedRules, Ruleset, TenantContext, Tenants, limit_text};

use super::{TestRequest, describe, rules};

const RULES: &str = "
domain: api
entity: api_key
default_rule: per-key
rules:
  - {name: per-key, key: [api_key], limit: {free: 100/m, pro: 1000/m, enterprise: 5000/m}}
  - {name: orders, key: [api_key], match: {endpoint: POST /orders}, limit: 20/m, algorithm: token_bucket, burst: 2x}
  - {name: monthly, key: [api_key], match: {kind: monthly}, limit: 1000/month in Europe/Berlin}
  - {name: in-flight, key: [api_key], match: {kind: slow}, limit: 5 concurrent}
  - {name: everyone, key: [], match: {kind: all}, limit: 50/s}
";

/// The settings of a caller in the notation of the tests: `tier pro`, `rule NAME LIMIT`, `descriptor A:V LIMIT`,
/// `default LIMIT`, joined by `; `.
fn stage(text: &str) -> QuotaStage {
    let mut stage = QuotaStage { during: TimeRange::ALWAYS, tier: None, home: None, overrides: Vec::new() };
    for part in text.split("; ") {
        match part.split_once(' ').unwrap() {
            ("tier", name) => stage.tier = Some(name.to_owned()),
            ("default", limit) => stage.overrides.push(limited(Selector::default_rule(), limit)),
            (kind, rest) => {
                let (name, limit) = rest.split_once(" = ").unwrap();
                let selector = match kind {
                    "rule" => Selector::rule(name),
                    "descriptor" => Selector::descriptor(name),
                    _ => panic!("{kind}"),
                };
                stage.overrides.push(limited(selector, limit));
            }
        }
    }
    stage
}

fn limited(selector: Selector, limit: &str) -> Override {
    let cap = match limit.strip_suffix('%') {
        Some(share) => OverrideCap::Scaled(share.parse::<u32>().unwrap() * 100),
        None => OverrideCap::from_text(limit_text::limit(limit).unwrap(), None),
    };
    Override { selector, cap, during: TimeRange::ALWAYS }
}

fn quota(text: &str) -> Quota {
    Quota { stages: vec![stage(text)] }
}

fn emergency(callers: &str, selector: Selector, limit: &str) -> Emergency {
    Emergency { callers: Pattern::new(callers), limit: limited(selector, limit) }
}

/// The limits that apply to a request, each with how it was chosen.
fn met_at(rules: &Ruleset, tenants: &Tenants, request: &str, at: u64) -> Vec<String> {
    met_in(None, rules, tenants, request, at)
}

/// The same in a domain.
fn met_in(domain: Option<&str>, rules: &Ruleset, tenants: &Tenants, request: &str, at: u64) -> Vec<String> {
    TestRequest::new(request).with(|request| {
        let arena = LimitArena::default();
        let known = TenantContext { tenants, now: &|| Timestamp::from_secs(at), arena: &arena };
        // Holds apply to callers that can release them.
        let request = Request { domain, claim: Some(ClaimId(7)), ..*request };
        let resolved = rules.resolve_for_tenant(&request, ClaimId(1), &known).unwrap();
        let by = resolved.applied.iter().chain(&resolved.unlimited).map(|applied| applied.by.name());
        let lines = describe(&resolved);
        let mut lines: Vec<String> = lines
            .iter()
            .zip(by)
            .map(|(line, by)| {
                let line = line.split(" @").next().unwrap().trim_end_matches(" overridden");
                format!("{line} by {by}")
            })
            .collect();
        lines.sort();
        lines
    })
}

fn met(rules: &Ruleset, tenants: &Tenants, request: &str) -> Vec<String> {
    met_at(rules, tenants, request, 0)
}

#[test]
fn the_order_is_emergency_then_the_callers_own_then_its_tier_then_the_default() {
    let (rules, tenants) = (rules(RULES), Tenants::default());
    let order = |tenants: &Tenants| met(&rules, tenants, "api_key=acme-1, endpoint=POST /orders");
    assert_eq!(order(&tenants), ["orders(acme-1) 20/60s burst 40 by default", "per-key(acme-1) 100/60s by tier"]);

    tenants.set_quota("api", "*", Some(&quota("tier pro; rule orders = 21/m")));
    assert_eq!(order(&tenants), ["orders(acme-1) 21/60s burst 42 by override_all", "per-key(acme-1) 1000/60s by tier"]);

    tenants.set_quota("api", "acme-*", Some(&quota("descriptor endpoint:POST /orders = 22/m")));
    tenants.set_quota("api", "ac*", Some(&quota("rule orders = 99/m")));
    assert_eq!(order(&tenants)[0], "orders(acme-1) 22/60s burst 44 by override_glob");
    // A glob without a tier leaves the tier to the next one.
    assert_eq!(order(&tenants)[1], "per-key(acme-1) 1000/60s by tier");

    tenants.set_quota("api", "acme-1", Some(&quota("tier enterprise; rule orders = 23/m")));
    assert_eq!(order(&tenants), ["orders(acme-1) 23/60s burst 46 by override", "per-key(acme-1) 5000/60s by tier"]);
    assert_eq!(
        met(&rules, &tenants, "api_key=acme-2, endpoint=POST /orders")[0],
        "orders(acme-2) 22/60s burst 44 by override_glob"
    );
    assert_eq!(
        met(&rules, &tenants, "api_key=other, endpoint=POST /orders")[0],
        "orders(other) 21/60s burst 42 by override_all"
    );

    tenants.set_emergency(None, "flood", Some(&emergency("*", Selector::EVERY, "10%")));
    assert_eq!(order(&tenants), ["orders(acme-1) 2/60s burst 4 by emergency", "per-key(acme-1) 500/60s by emergency"]);
    tenants.set_emergency(None, "but-acme", Some(&emergency("acme-*", Selector::rule("orders"), "7/m")));
    tenants.set_emergency(None, "but-acme-1", Some(&emergency("acme-1", Selector::rule("orders"), "8/m")));
    assert_eq!(order(&tenants)[0], "orders(acme-1) 8/60s burst 16 by emergency");
    assert_eq!(met(&rules, &tenants, "kind=all"), ["everyone() 5/1s by emergency"], "those without a name too");

    for name in ["flood", "but-acme", "but-acme-1"] {
        tenants.set_emergency(None, name, None);
    }
    for caller in ["*", "ac*", "acme-*", "acme-1"] {
        tenants.set_quota("api", caller, None);
    }
    assert_eq!(order(&tenants), ["orders(acme-1) 20/60s burst 40 by default", "per-key(acme-1) 100/60s by tier"]);
    assert!(tenants.is_empty());
}

#[test]
fn emergencies_of_two_domains_whose_names_read_the_same_are_two() {
    let text = RULES.replace("domain: api", "domain: a") + "---" + &RULES.replace("domain: api", "domain: a/b");
    let (rules, tenants) = (rules(&text), Tenants::default());
    let in_force = |domain: &str| met_in(Some(domain), &rules, &tenants, "api_key=k", 0);
    let default = "per-key(k) 100/60s by tier";
    tenants.set_emergency(Some("a"), "b/c", Some(&emergency("*", Selector::EVERY, "10%")));
    tenants.set_emergency(Some("a/b"), "c", Some(&emergency("*", Selector::EVERY, "20%")));
    assert_eq!(in_force("a"), ["per-key(k) 10/60s by emergency"]);
    assert_eq!(in_force("a/b"), ["per-key(k) 20/60s by emergency"]);
    // The emergency of all domains is separate, and comes first.
    tenants.set_emergency(None, "c", Some(&emergency("*", Selector::EVERY, "30%")));
    assert_eq!(in_force("a/b"), ["per-key(k) 30/60s by emergency"]);
    tenants.set_emergency(None, "c", None);
    tenants.set_emergency(Some("a/b"), "c", None);
    assert_eq!(in_force("a/b"), [default]);
    assert_eq!(in_force("a"), ["per-key(k) 10/60s by emergency"]);
    tenants.set_emergency(Some("a"), "b/c", None);
    assert_eq!(in_force("a"), [default]);
    assert!(tenants.is_empty());
}

#[test]
fn periods_algorithms_and_what_is_not_limited() {
    let rules = rules(RULES);
    let row = |caller: &str, text: &str, request: &str| {
        let tenants = Tenants::default();
        tenants.set_quota("api", caller, Some(&quota(text)));
        tenants.prepare(&rules);
        met(&rules, &tenants, request)
    };
    let monthly = "api_key=a, kind=monthly";
    assert_eq!(row("a", "default 500/m", "api_key=a"), ["per-key(a) 500/60s by override"]);
    assert_eq!(row("a", "default 500/h", "api_key=a"), ["per-key(a) 500/3600s by override"]);
    assert_eq!(row("a", "default unlimited", "api_key=a"), ["per-key unlimited by override"]);
    assert_eq!(row("a", "default 0/m", "api_key=a"), ["per-key(a) 0/60s by override"]);
    // A plain month is the rule's month.
    let whole = |seconds: u64| format!("monthly(a) 5000/{seconds}s by override");
    assert_eq!(row("a", "rule monthly = 5000/month", monthly)[0], whole(32 * 86_400));
    assert_eq!(row("a", "rule monthly = 5000/month from day 17", monthly)[0], whole(32 * 86_400));
    assert_eq!(row("a", "rule monthly = 5000/day", monthly)[0], whole(86_400));
    // Holds stay holds, and rates stay rates.
    let slow = "api_key=a, kind=slow";
    assert_eq!(row("a", "rule in-flight = 50 concurrent", slow)[0], "in-flight(a) 50 concurrent by override");
    assert_eq!(row("a", "rule in-flight = 50/m", slow)[0], "in-flight(a) 5 concurrent by default");
    // Of another domain, or another caller.
    assert_eq!(row("b", "default 500/m", "api_key=a"), ["per-key(a) 100/60s by tier"]);
    // An unknown tier.
    assert_eq!(row("a", "tier platinum", "api_key=a"), ["per-key(a) 100/60s by tier"]);
}

#[test]
fn counters_continue_unless_the_period_changes() {
    let (rules, tenants) = (rules(RULES), Tenants::default());
    let scope = |request: &str| {
        TestRequest::new(request).with(|request| {
            let arena = LimitArena::default();
            let known = TenantContext { tenants: &tenants, now: &Timestamp::default, arena: &arena };
            let resolved = rules.resolve_for_tenant(request, ClaimId(1), &known).unwrap();
            let charge = &resolved.claim.charges[0];
            // The counter of a receipt is found again, with the limit of that time.
            let found = rules.counters(charge.key.scope().short(), charge.limit.amount()).unwrap();
            assert_eq!((found.limit.amount(), found.scope), (charge.limit.amount(), charge.key.scope()));
            charge.key.scope().name().to_owned()
        })
    };
    let own = scope("api_key=a");
    tenants.set_quota("api", "a", Some(&quota("default 7/m")));
    assert_eq!(scope("api_key=a"), own);
    tenants.set_quota("api", "a", Some(&quota("default 7/h")));
    assert_eq!(scope("api_key=a"), "api/per-key/sliding1/3600000000us");
    tenants.set_quota("api", "a", Some(&quota("default 7/month from day 3 in Asia/Tokyo")));
    assert_eq!(scope("api_key=a"), "api/per-key/sliding1/month from 3 in Asia/Tokyo");
}

#[test]
fn stages_begin_and_end_by_themselves() {
    let (rules, tenants) = (rules(RULES), Tenants::default());
    let during =
        |from: u64, until: u64| TimeRange { from: Timestamp::from_secs(from), until: Timestamp::from_secs(until) };
    let first = QuotaStage { during: during(0, 100), ..stage("tier pro") };
    let mut second =
        QuotaStage { during: during(100, 200), ..stage("tier enterprise; rule orders = 1/m; rule orders = 2/m") };
    second.overrides[1].during = during(150, 160);
    tenants.set_quota("api", "a", Some(&Quota { stages: vec![first, second] }));
    let at = |second| met_at(&rules, &tenants, "api_key=a, endpoint=POST /orders", second);
    let rows = [
        (99, "orders(a) 20/60s burst 40 by default", "per-key(a) 1000/60s by tier"),
        (100, "orders(a) 1/60s burst 2 by override", "per-key(a) 5000/60s by tier"),
        (150, "orders(a) 2/60s burst 4 by override", "per-key(a) 5000/60s by tier"),
        (160, "orders(a) 1/60s burst 2 by override", "per-key(a) 5000/60s by tier"),
        (199, "orders(a) 1/60s burst 2 by override", "per-key(a) 5000/60s by tier"),
        (200, "orders(a) 20/60s burst 40 by default", "per-key(a) 100/60s by tier"),
    ];
    for (second, orders, per_key) in rows {
        assert_eq!(at(second), [orders, per_key], "at {second}");
    }
}

#[test]
fn who_is_blocked_meets_nothing() {
    let (rules, tenants) = (rules(RULES), Tenants::default());
    let block = |action| {
        Some(Block { during: TimeRange { from: Timestamp::from_secs(10), until: Timestamp::from_secs(20) }, action })
    };
    let caller = |caller: &str| BlockSubject::Caller { domain: "api".to_owned(), caller: caller.to_owned() };
    let range = |text: &str| BlockSubject::Range { domain: None, network: text.parse().unwrap() };
    tenants.set_quota("api", "a", Some(&quota("tier pro")));
    tenants.set_block(&caller("a"), block(BlockAction::Forbidden));
    tenants.set_block(&caller("bad-*"), block(BlockAction::TooMany));
    tenants.set_block(&range("10.1.0.0/16"), block(BlockAction::Forbidden));
    tenants.set_block(&range("10.1.2.0/24"), block(BlockAction::Marked));
    tenants.set_block(&range("2001:db8::/32"), block(BlockAction::TooMany));
    let resolve = |request: &str, at: u64, ask: Ask| {
        TestRequest::new(request).with(|request| {
            let arena = LimitArena::default();
            let known = TenantContext { tenants: &tenants, now: &|| Timestamp::from_secs(at), arena: &arena };
            let mut claim = Claim { id: ClaimId(1), charges: Default::default(), once: None, timeout: None };
            let mut matched = MatchedRules::default();
            rules.resolve_into(&Request { ask, ..*request }, Some(&known), &mut claim, &mut matched).unwrap();
            (matched.block.map(|block| block.action.name()), claim.charges.len())
        })
    };
    let rows = [
        ("api_key=a", Some("forbidden"), 0),
        ("api_key=b", None, 1),
        ("api_key=bad-1", Some("too_many"), 0),
        ("api_key=b, remote_address=10.1.3.4", Some("forbidden"), 0),
        ("api_key=b, ip=::ffff:10.1.3.4", Some("forbidden"), 0),
        ("api_key=b, remote_address=10.1.2.4", Some("marked"), 1),
        ("api_key=b, remote_address=10.2.3.4", None, 1),
        ("api_key=b, remote_address=2001:db8::1", Some("too_many"), 0),
        ("api_key=b, remote_address=nonsense", None, 1),
        ("remote_address=10.1.3.4", Some("forbidden"), 0),
    ];
    for (request, action, charges) in rows {
        assert_eq!(resolve(request, 10, Ask::Exactly), (action, charges), "{request}");
        assert_eq!(resolve(request, 20, Ask::Exactly).0, None, "{request}, afterwards");
    }
    assert_eq!(resolve("api_key=a", 10, Ask::Regardless), (None, 1), "what has happened is recorded");
    tenants.set_block(&caller("a"), None);
    assert_eq!(met_at(&rules, &tenants, "api_key=a", 10), ["per-key(a) 1000/60s by tier"], "its tier is still there");
}

proptest! {
    /// The optimised lookup compared with the naive one: of the last settings of each name, the most specific that
    /// selects the rule.
    #[test]
    fn the_most_specific_one_that_speaks_of_the_rule_counts(
        said in proptest::collection::vec((0_usize..9, 0_usize..4, 1_u64..1000), 0..40),
    ) {
        const NAMES: [&str; 9] = ["*", "a*", "b*", "ab*", "*b", "a", "ab", "abb", "b"];
        const TEXTS: [&str; 4] = ["default", "rule orders =", "descriptor endpoint:POST /orders =", "gone"];
        let (rules, tenants) = (rules(RULES), Tenants::default());
        let mut last: [Option<(usize, u64)>; 9] = [None; 9];
        for (name, text, amount) in said {
            last[name] = (text < 3).then_some((text, amount));
            let quota = last[name].map(|(text, amount)| quota(&format!("{} {amount}/m", TEXTS[text])));
            tenants.set_quota("api", NAMES[name], quota.as_ref());
        }
        for caller in ["a", "ab", "abb", "b", "ba", "c"] {
            for rule in ["per-key", "orders"] {
                let mut names: Vec<usize> = (0..9).filter(|name| Pattern::new(NAMES[*name]).matches(caller)).collect();
                names.sort_by_key(|name| {
                    let text = NAMES[*name];
                    (text.contains('*'), std::cmp::Reverse(text.trim_matches('*').len()), text)
                });
                let speaks = |name: &usize| last[*name].filter(|(text, _)| (rule == "per-key") == (*text == 0));
                let found = names.iter().find_map(speaks).map(|(_, amount)| amount);
                let met = met(&rules, &tenants, &format!("api_key={caller}, endpoint=POST /orders"));
                let line = met.iter().find(|line| line.starts_with(rule)).unwrap();
                let amount: u64 = line.split(' ').nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
                match found {
                    None => prop_assert!(!line.contains("override"), "{line}"),
                    Some(found) => prop_assert_eq!(amount, found, "{}", line),
                }
            }
        }
    }
}
