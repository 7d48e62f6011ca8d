//! Terms of bans, and whom they are of.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails may panic")]

use tollgate_core::{Algorithm, Descriptor, Request, Span};

use super::Ban;
use crate::model::BanAction;
use crate::{Domain, Ruleset};

const RULES: &str = r#"
domain: d
entity: user
never_ban: [10.0.0.0/8, "2001:db8:0:aa::7", "internal-*"]
rules:
  - {name: address, key: [remote_address], limit: 5/m, ban: {after: 20 refusals, within: 1m, for: 10m, escalate: 2x, most: 1h}}
  - {name: caller, key: [remote_address, user], limit: 5/m, ban: {after: 3, within: 7s, for: 2d, mode: shadow}}
  - {name: other, key: [account], limit: 5/m, ipv6_prefix: 64, ban: {after: 3, within: 7s, for: 1m, who: ip}}
  - {name: none, key: [account], limit: 5/m}
"#;

fn rules() -> Ruleset {
    Ruleset::from_text(RULES, 1).unwrap_or_else(|error| panic!("{error:?}")).0
}

fn ban<'d>(domain: &'d Domain, rule: &str) -> &'d Ban {
    domain.rules().iter().find(|one| one.name() == rule).and_then(|rule| rule.ban()).unwrap()
}

/// Whom a rule bans for a request, and whether it must not.
fn subject(rule: &str, attributes: &[(&str, &str)]) -> Option<(String, bool)> {
    let rules = rules();
    let domain = &rules.domains()[0];
    let descriptors = [Descriptor::new(attributes)];
    let request = Request { domain: Some("d"), descriptors: &descriptors, ..Request::default() };
    let banned = ban(domain, rule).subject(&request)?;
    Some((banned.name().into_owned(), domain.never_bans(&request, &banned)))
}

#[test]
fn the_terms_are_those_of_the_file() {
    let rules = rules();
    let domain = &rules.domains()[0];
    assert!(domain.bans());
    let address = ban(domain, "address");
    assert_eq!((address.limit().amount(), address.limit().period().span()), (20, Span::from_secs(60)));
    assert_eq!(address.limit().algorithm(), Algorithm::SlidingWindow { sub_windows: 6 });
    assert_eq!(
        (address.action(), address.attribute(), address.is_private()),
        (BanAction::Block, "remote_address", false)
    );
    let caller = ban(domain, "caller");
    assert_eq!((caller.action(), caller.attribute()), (BanAction::Shadow, "user"));
    assert_eq!((caller.lasts(), caller.most()), (Span::from_secs(2 * 86_400), Span::from_secs(2 * 86_400)));
    assert!(domain.rules()[3].ban().is_none());
    // Gateways send the attributes that rules read.
    assert!(domain.reads("ip"));
}

#[test]
fn each_further_ban_is_longer_up_to_a_bound() {
    let rules = rules();
    let ban = ban(&rules.domains()[0], "address");
    let minutes = |minutes: u64| Span::from_secs(60 * minutes);
    let mut before = None;
    for expected in [10, 20, 40, 60, 60] {
        let length = ban.next_length(before);
        assert_eq!(length, minutes(expected));
        before = Some(length);
    }
    // One of other terms.
    assert_eq!(ban.next_length(Some(minutes(1))), minutes(10));
    assert_eq!(ban.next_length(Some(Span::from_micros(u64::MAX))), minutes(60));
}

/// A rule, the attributes of a request, and whom the ban would be of, with whether it must not be.
type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<(&'a str, bool)>);

#[test]
fn bans_are_of_callers_or_of_the_networks_that_count_as_one_address() {
    let rows: [Row<'_>; 15] = [
        ("address", &[("remote_address", "203.0.113.7")], Some(("203.0.113.7", false))),
        ("address", &[("remote_address", "203.0.113.7:443")], Some(("203.0.113.7", false))),
        ("address", &[("remote_address", "::ffff:203.0.113.7")], Some(("203.0.113.7", false))),
        ("address", &[("remote_address", "2001:db8:1:2ff::1")], Some(("2001:db8:1:200::/56", false))),
        ("other", &[("ip", "2001:db8:1:2ff::1")], Some(("2001:db8:1:2ff::/64", false))),
        ("address", &[("remote_address", "unix")], None),
        ("address", &[("user", "ann")], None),
        ("address", &[("remote_address", "10.1.2.3")], Some(("10.1.2.3", true))),
        ("address", &[("remote_address", "11.1.2.3"), ("user", "internal-7")], Some(("11.1.2.3", true))),
        // A network that is never banned is within the one that would be.
        ("address", &[("remote_address", "2001:db8:0:11::1")], Some(("2001:db8::/56", true))),
        ("caller", &[("user", "ann"), ("remote_address", "11.1.2.3")], Some(("ann", false))),
        ("caller", &[("user", "ann"), ("remote_address", "10.1.2.3")], Some(("ann", true))),
        ("caller", &[("user", "internal-ann")], Some(("internal-ann", true))),
        ("caller", &[("user", "")], None),
        ("caller", &[("remote_address", "11.1.2.3")], None),
    ];
    for (rule, attributes, expected) in rows {
        let found = subject(rule, attributes);
        assert_eq!(found.as_ref().map(|(name, never)| (name.as_str(), *never)), expected, "{rule} {attributes:?}");
    }
}

#[test]
fn refusals_count_apart_by_rule_and_by_who_is_refused() {
    let rules = rules();
    let domain = &rules.domains()[0];
    let secret = tollgate_core::key::HashSecret(1, 2);
    let hash = |rule: &str, name: &str| {
        let ban = ban(domain, rule);
        let key = ban.counter(name);
        key.hash(secret, key.partition(secret))
    };
    assert_eq!(hash("address", "203.0.113.7"), hash("address", "203.0.113.7"));
    assert_ne!(hash("address", "203.0.113.7"), hash("address", "203.0.113.8"));
    assert_ne!(hash("address", "203.0.113.7"), hash("caller", "203.0.113.7"));
}
