//! Valid files and the resulting rules.

use std::net::IpAddr;

use tollgate_core::{Algorithm, Limit, OnFailure, Span};

use super::{domain, load};
use crate::model::{Cap, Clause, Cost, Headers, KeyPart, Network, Node, Policy, Rule, RuleMode, Test, Tier};
use crate::pattern::Pattern;

const DESIGN: &str = include_str!("../../../tests/files/design.yaml");
const ENVOY: &str = include_str!("../../../tests/files/envoy.yaml");
const SEED: &str = include_str!("../../../tests/files/seed.yaml");

fn limit(cap: &Option<Cap>) -> &Limit {
    match cap {
        Some(Cap::Limit(limit)) => limit,
        other => panic!("not a limit: {other:?}"),
    }
}

/// Amount and period in seconds of a limit that every tier has.
fn rate(terms: &crate::model::Terms) -> (u64, u64) {
    assert!(terms.caps.iter().all(|cap| *cap == terms.caps[0]));
    let limit = limit(&terms.caps[0]);
    (limit.amount(), limit.period().span().as_secs_ceil())
}

/// The rule of a few keys.
fn rule(keys: &str) -> Rule {
    let text = format!("domain: d\nrules:\n  - {{name: r, {keys}}}\n");
    domain(&text).rules.into_iter().next().unwrap()
}

fn node(keys: &str) -> Node {
    let text = format!("domain: d\ndescriptors:\n  - {{key: k, {keys}}}\n");
    domain(&text).tree.into_iter().next().unwrap()
}

fn any_of(patterns: &[&str]) -> Test {
    Test::AnyOf(patterns.iter().map(|pattern| Pattern::new(pattern)).collect())
}

#[test]
fn the_rules_form_says_all_of_it() {
    let domain = domain(DESIGN);
    assert_eq!(domain.entity.as_deref(), Some("api_key"));
    assert_eq!(domain.default_rule.as_deref(), Some("per-key"));
    let tier = |name: &str, paid, priority| Tier { name: name.to_owned(), paid, priority };
    assert_eq!(domain.tiers, [tier("free", false, 0), tier("pro", true, 0), tier("enterprise", true, 10)]);
    assert_eq!(domain.default_tier, 0);

    let rule = |name: &str| domain.rules.iter().find(|rule| rule.name == name).unwrap();
    let per_key = &rule("per-key").terms.caps;
    let bursts: Vec<_> = per_key.iter().map(|cap| (limit(cap).amount(), limit(cap).quota())).collect();
    assert_eq!(bursts, [(100, 200), (1000, 2000), (5000, 10_000)]);

    let orders = rule("order-writes");
    assert_eq!(limit(&orders.terms.caps[0]).algorithm(), Algorithm::SlidingWindow { sub_windows: 1 });
    let clause = Clause { attribute: "endpoint".to_owned(), test: any_of(&["POST /api/v1/orders*"]) };
    assert_eq!(orders.clauses, [clause]);

    let anonymous = rule("anonymous");
    let part = |attribute: &str, optional| KeyPart { attribute: attribute.to_owned(), optional };
    assert_eq!(anonymous.key, [part("remote_address", false), part("session", true)]);
    assert_eq!(anonymous.clauses[0].test, Test::Absent);

    let login = rule("login");
    assert_eq!(rate(&login.terms), (5, 300));
    assert_eq!(login.terms.policy, Policy::Security);
    assert_eq!(login.terms.on_failure, [OnFailure::Deny; 3]);

    let in_flight = limit(&rule("in-flight").terms.caps[0]).clone();
    assert_eq!((in_flight.algorithm(), in_flight.amount()), (Algorithm::Concurrency, 20));
    assert_eq!(in_flight.period().span(), Span::from_secs(60));

    let cases = vec![(Pattern::new("GET *"), 1), (Pattern::new("POST *"), 5)];
    assert_eq!(rule("points").cost, Cost::Table { attribute: "endpoint".to_owned(), cases, default: Some(1) });

    let tokens = rule("tokens");
    assert_eq!(tokens.cost, Cost::Attribute("tokens".to_owned()));
    assert_eq!(tokens.terms.mode, RuleMode::Share { bps: 1_000 });
    assert_eq!(tokens.terms.policy, Policy::Quota);
    let monthly = limit(&tokens.terms.caps[0]);
    assert_eq!(monthly.algorithm(), Algorithm::FixedWindow);
    assert_eq!(monthly.period().as_calendar().unwrap().zone(), "Europe/Berlin");

    assert_eq!(rule("new-idea").terms.mode, RuleMode::Shadow);
    assert_eq!(rule("everyone").key, []);
    assert_eq!(domain.tree.len(), 1);
}

#[test]
fn the_tree_form_is_what_envoy_users_have() {
    let domain = domain(ENVOY);
    let node = |key: &str, value: Option<&str>| {
        domain.tree.iter().find(|node| node.key == key && node.value_text.as_deref() == value).unwrap()
    };
    let terms = |node: &Node| node.limit.as_ref().unwrap().terms.clone();

    let key1 = node("key1", Some("value1"));
    assert!(key1.limit.is_none());
    let children: Vec<_> = key1.children.iter().map(|child| rate(&terms(child))).collect();
    assert_eq!(children, [(5, 1), (10, 1)]);
    assert_eq!(key1.children[1].limit.as_ref().unwrap().name, "key1=value1/subkey1=subvalue1");
    assert_eq!(rate(&terms(node("key2", None))), (20, 60));
    assert_eq!(rate(&terms(node("key2", Some("value2")))), (30, 60));
    assert!(node("key2", Some("value3")).limit.is_none());

    let daily = node("key4", None).limit.as_ref().unwrap();
    assert_eq!((daily.name.as_str(), daily.named, rate(&daily.terms)), ("daily", true, (1, 86_400)));
    let unlimited = node("key6", None).limit.as_ref().unwrap();
    assert_eq!((unlimited.named, unlimited.replaces.as_slice()), (false, &["daily".to_owned()][..]));
    assert_eq!(unlimited.terms.caps, vec![Some(Cap::Unlimited); 4]);

    let wild = node("wild", Some("foo*"));
    assert!(wild.share_threshold && wild.detailed_metric && !wild.value_to_metric);
    assert_eq!(wild.value, Some(Pattern::Prefix("foo".to_owned())));
    // Without requests_per_unit the limit blocks.
    assert_eq!(rate(&terms(wild)), (0, 7 * 86_400));

    let seven = node("7", Some("5"));
    assert_eq!(terms(seven).mode, RuleMode::Shadow);
    assert!(seven.value_to_metric);
    let metadata: Vec<_> = seven.metadata.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(metadata, [("team", "payments"), ("level", "3"), ("more", r#"{"a":[1,"x",null]}"#)]);

    let quota = terms(node("quota", None));
    assert_eq!((quota.mode, quota.policy), (RuleMode::AnyOf, Policy::Security));
    assert_eq!(limit(&quota.caps[0]).algorithm(), Algorithm::Bucket { burst: 13, paced: false });
}

#[test]
fn the_seed_document_loads_without_a_word() {
    let loaded = load(SEED).unwrap();
    assert_eq!(loaded.warnings, []);
    let domain = &loaded.domains[0];
    assert_eq!(domain.name, "api_platform");
    assert!(!domain.match_parents);
    let orders = &domain.tree[0].children[0];
    assert_eq!(orders.limit.as_ref().unwrap().name, "api_key/endpoint=POST /api/v1/orders");
    let rates: Vec<_> = domain.tree.iter().map(|node| rate(&node.limit.as_ref().unwrap().terms)).collect();
    assert_eq!(rates, [(100, 60), (30, 60), (10_000, 1)]);
    assert_eq!(domain.tree[0].at.line, 5);
}

#[test]
fn algorithms() {
    let bucket = |burst, paced| Algorithm::Bucket { burst, paced };
    let sliding = |sub_windows| Algorithm::SlidingWindow { sub_windows };
    let rows = [
        ("limit: 10/s", sliding(1)),
        ("limit: 10/m, sub_windows: 6", sliding(6)),
        ("limit: 10/s, algorithm: token_bucket", bucket(10, false)),
        ("limit: 10/s, algorithm: gcra, burst: 3", bucket(3, false)),
        ("limit: 11/s, algorithm: leaky_bucket, burst: 1.5x", bucket(16, true)),
        ("limit: 1/s, algorithm: gcra, burst: 0.5x", bucket(1, false)),
        ("limit: 0/s, algorithm: gcra, burst: 9", bucket(0, false)),
        ("limit: 10/s, algorithm: fixed_window", Algorithm::FixedWindow),
        ("limit: 10/s, algorithm: sliding_log", Algorithm::SlidingLog),
        ("limit: 10/day in UTC", Algorithm::FixedWindow),
        ("limit: 10/day in UTC, algorithm: sliding_window", sliding(1)),
        ("limit: 10 concurrent", Algorithm::Concurrency),
    ];
    for (keys, expected) in rows {
        let rule = rule(&format!("key: [a], {keys}"));
        assert_eq!(limit(&rule.terms.caps[0]).algorithm(), expected, "{keys}");
    }
}

#[test]
fn the_default_algorithm_is_for_both_forms_but_not_for_calendars() {
    let text = "domain: d\ndefault_algorithm: token_bucket\nrules:\n  - {name: r, key: [], limit: 5/s, burst: 7}\n  \
                - {name: s, key: [], limit: 5/day in UTC}\n\
                descriptors:\n  - {key: k, rate_limit: {unit: day, requests_per_unit: 5}}\n";
    let domain = domain(text);
    let algorithms = domain.rules.iter().map(|rule| limit(&rule.terms.caps[0]).algorithm()).collect::<Vec<_>>();
    assert_eq!(algorithms, [Algorithm::Bucket { burst: 7, paced: false }, Algorithm::FixedWindow]);
    let tree = limit(&domain.tree[0].limit.as_ref().unwrap().terms.caps[0]).algorithm();
    assert_eq!(tree, Algorithm::Bucket { burst: 5, paced: false });
}

#[test]
fn conditions() {
    let network = |address: &str, prefix| Network { address: address.parse::<IpAddr>().unwrap(), prefix };
    let not = |test| Test::Not(Box::new(test));
    let rows = [
        ("absent", Test::Absent),
        ("present", Test::Present),
        ("\"absent\"", any_of(&["absent"])),
        ("!!str present", any_of(&["present"])),
        ("5", any_of(&["5"])),
        ("1.10", any_of(&["1.10"])),
        ("''", any_of(&[""])),
        ("a*", any_of(&["a*"])),
        ("[a, b*c, 'absent']", any_of(&["a", "b*c", "absent"])),
        ("{not: a}", not(any_of(&["a"]))),
        ("{not: [a, b]}", not(any_of(&["a", "b"]))),
        ("{cidr: 10.0.0.0/8}", Test::Within(vec![network("10.0.0.0", 8)])),
        ("{cidr: [1.2.3.4, '2001:db8::/32']}", Test::Within(vec![network("1.2.3.4", 32), network("2001:db8::", 32)])),
        ("{cidr: '::ffff:10.0.0.0/104'}", Test::Within(vec![network("10.0.0.0", 8)])),
        ("{not: {cidr: 10.0.0.0/8}}", not(Test::Within(vec![network("10.0.0.0", 8)]))),
    ];
    for (text, expected) in rows {
        let rule = rule(&format!("key: [a], limit: 1/s, match: {{b: {text}}}"));
        assert_eq!(rule.clauses[0].test, expected, "{text}");
    }
}

#[test]
fn modes() {
    let rows = [
        ("mode: enforce", RuleMode::Enforce),
        ("mode: shadow", RuleMode::Shadow),
        ("mode: soft", RuleMode::Soft),
        ("mode: off", RuleMode::Off),
        ("enabled: false", RuleMode::Off),
        ("enabled: true", RuleMode::Enforce),
        ("enabled: false, enforce: 5%", RuleMode::Off),
        ("enforce: 0%", RuleMode::Share { bps: 0 }),
        ("enforce: 12.34%", RuleMode::Share { bps: 1_234 }),
        ("enforce: 0.5%", RuleMode::Share { bps: 50 }),
        ("enforce: 100%", RuleMode::Share { bps: 10_000 }),
    ];
    for (keys, expected) in rows {
        assert_eq!(rule(&format!("key: [a], limit: 1/s, {keys}")).terms.mode, expected, "{keys}");
        let node = node(&format!("rate_limit: {{unit: day}}, {keys}"));
        assert_eq!(node.limit.unwrap().terms.mode, expected, "{keys}");
    }
    let theirs = [
        ("shadow_mode: false", RuleMode::Enforce),
        ("shadow_mode: true", RuleMode::Shadow),
        ("quota_mode: true", RuleMode::AnyOf),
        ("quota_mode: true, shadow_mode: true", RuleMode::Shadow),
        ("quota_mode: true, enabled: false", RuleMode::Off),
    ];
    for (keys, expected) in theirs {
        let node = node(&format!("rate_limit: {{unit: day}}, {keys}"));
        assert_eq!(node.limit.unwrap().terms.mode, expected, "{keys}");
    }
}

#[test]
fn policies_become_what_each_tier_does_when_the_store_is_away() {
    use OnFailure::{Allow, Deny, Local};
    let rows = [
        ("limit: 1/s", Policy::Comfort, [Local; 4]),
        ("limit: 1/s, policy: security", Policy::Security, [Deny; 4]),
        ("limit: 1/s, policy: cost", Policy::Cost, [Deny, Local, Local, Local]),
        ("limit: 1/s, policy: quota", Policy::Quota, [Deny; 4]),
        ("limit: 1/month in UTC", Policy::Quota, [Deny; 4]),
        ("limit: 1/month", Policy::Comfort, [Local; 4]),
        ("limit: 1/month in UTC, policy: comfort", Policy::Comfort, [Local; 4]),
        ("limit: 1/s, policy: security, on_failure: allow", Policy::Security, [Allow; 4]),
        ("limit: 1/month in UTC, on_failure: local", Policy::Quota, [Local; 4]),
    ];
    for (keys, policy, on_failure) in rows {
        let terms = rule(&format!("key: [a], {keys}")).terms;
        assert_eq!((terms.policy, terms.on_failure.as_slice()), (policy, &on_failure[..]), "{keys}");
    }
}

#[test]
fn a_tier_that_a_map_leaves_out_has_the_default_tiers_limit_or_none() {
    let amounts = |keys: &str| -> Vec<Option<u64>> {
        let amount =
            |cap: &Option<Cap>| cap.as_ref().map(|cap| if let Cap::Limit(limit) = cap { limit.amount() } else { 0 });
        rule(keys).terms.caps.iter().map(amount).collect()
    };
    assert_eq!(amounts("key: [a], limit: {free: 1/s, pro: 2/m}"), [Some(1), Some(2), Some(1), Some(1)]);
    assert_eq!(amounts("key: [a], limit: {pro: 2/m, custom: unlimited}"), [None, Some(2), None, Some(0)]);
}

#[test]
fn without_a_default_tier_it_is_the_first() {
    let domain = domain("domain: d\ntiers: {gold: , tin: {paid: false}}\n");
    assert_eq!((domain.tiers[domain.default_tier].name.as_str(), domain.tiers[0].paid), ("gold", true));
}

#[test]
fn what_clients_see_and_how_addresses_count() {
    let plain = rule("key: [a], limit: 1/s").terms;
    assert_eq!((plain.headers, plain.denied_by_label, plain.ipv6_prefix), (Headers::Full, None, 56));
    assert!(!plain.ipv6_prefix_given);
    let set = rule("key: [a], limit: 1/s, headers: hidden, denied_by_label: too many, ipv6_prefix: 48").terms;
    assert_eq!((set.headers, set.denied_by_label.as_deref()), (Headers::Hidden, Some("too many")));
    assert_eq!((set.ipv6_prefix, set.ipv6_prefix_given), (48, true));
}

#[test]
fn costs() {
    let rows = [
        ("7", Cost::Fixed(7)),
        ("0", Cost::Fixed(0)),
        ("tokens", Cost::Attribute("tokens".to_owned())),
        (
            "{s: {200: 1, 'default': 2}}",
            Cost::Table {
                attribute: "s".to_owned(),
                cases: vec![(Pattern::new("200"), 1), (Pattern::new("default"), 2)],
                default: None,
            },
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(rule(&format!("key: [a], limit: 1/s, cost: {text}")).cost, expected, "{text}");
    }
    assert_eq!(rule("key: [a], limit: 1/s").cost, Cost::Request);
}

#[test]
fn a_domain_lists_its_private_attributes_or_they_are_found_by_name() {
    let private = |text: &str| {
        let domain = domain(&format!("domain: d\n{text}rules: [{{name: r, key: [api_key], limit: 5/s}}]\n"));
        ["api_key", "user"].map(|name| domain.private.contains(name))
    };
    assert_eq!(private(""), [true, false]);
    assert_eq!(private("private: [user]\n"), [false, true]);
    assert_eq!(private("private: [user, api_key]\n"), [true, true]);
    assert_eq!(private("private: []\n"), [false, false]);
}
