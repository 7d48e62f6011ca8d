//! Bans of one server, with a real store of record.

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate::tenants::BlockAction;
use tollgate::{Clock as _, SystemClock};

use super::Bans;
use crate::api::tests::Bench;

const RULES: &str = r#"
domain: shop
entity: user
never_ban: [10.0.0.0/8, "internal-*"]
rules:
- {name: login, key: [remote_address], match: {endpoint: POST /login}, limit: 2/year, algorithm: fixed_window,
   ban: {after: 3 refusals, within: 24h, for: 10m, escalate: 2x, most: 30m}}
- {name: orders, key: [user], match: {endpoint: POST /orders}, limit: 0/year, ban: {after: 2, within: 24h, for: 1h, mode: shadow}}
"#;

struct Banning {
    bench: Bench,
    bans: Arc<Bans>,
}

impl Banning {
    async fn new(rules: &str) -> Banning {
        let bench = Bench::new(rules).await;
        bench.control.catch_up(None).await.unwrap();
        let bans = Bans::new(bench.control.clone(), bench.observability.clone(), bench.health.clone());
        Banning { bench, bans }
    }

    /// Sends requests, each of which must have this outcome, and counts.
    async fn send(&self, times: usize, attributes: &[(&str, &str)], outcome: (bool, Option<BlockAction>)) {
        for time in 0..times {
            let decision = self.bench.decide(attributes, 1).await;
            let found = (decision.allowed(), decision.block().map(|block| block.action));
            assert_eq!(found, outcome, "{attributes:?}, request {time}");
        }
        self.bans.tick().await;
    }

    async fn logins(&self, address: &str, times: usize, outcome: (bool, Option<BlockAction>)) {
        self.send(times, &[("remote_address", address), ("endpoint", "POST /login")], outcome).await;
    }

    async fn list(&self, query: &str) -> Vec<Value> {
        self.bench.get(&format!("/admin/v1/blocks{query}")).await.ok()["items"].as_array().unwrap().clone()
    }

    /// The results of a rule in the metrics: begun, exempt, dropped.
    fn counts(&self, rule: &str) -> [u64; 3] {
        let counts = self.bench.observability.observer.refusals().counts();
        let found = counts.into_iter().find(|((_, of), _)| **of == *rule).map(|(_, counts)| counts);
        let counts = found.unwrap_or_default();
        [counts.begun, counts.exempt, counts.dropped]
    }
}

const REFUSED: (bool, Option<BlockAction>) = (false, None);
const ADMITTED: (bool, Option<BlockAction>) = (true, None);
const BANNED: (bool, Option<BlockAction>) = (false, Some(BlockAction::Banned));

#[tokio::test]
async fn an_address_is_banned_after_so_many_refusals_until_the_ban_ends_or_is_lifted() {
    let test = Banning::new(RULES).await;
    test.logins("203.0.113.7", 2, ADMITTED).await;
    test.logins("203.0.113.7", 1, REFUSED).await;
    test.logins("203.0.113.7", 1, REFUSED).await;
    test.logins("203.0.113.8", 2, ADMITTED).await;
    assert!(test.list("").await.is_empty());
    test.logins("203.0.113.7", 1, REFUSED).await;
    test.logins("203.0.113.7", 3, BANNED).await;
    test.logins("203.0.113.8", 1, REFUSED).await;

    let listed = test.list("?bans").await;
    let [ban] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((&ban["name"], &ban["domain"], &ban["range"]), (&json!("203.0.113.7"), &json!("shop"), &json!(true)));
    assert_eq!((&ban["status"], &ban["updated_by"]), (&json!(403), &json!("tollgate")));
    assert_eq!(ban["reason"], "banned by the rule login: 3 refusals in 86400 s");
    assert_eq!(ban["ban"]["rule"], "login");
    assert_eq!((&ban["ban"]["number"], &ban["expires_at"]), (&json!(1), &json!("2025-06-15T15:16:40Z")));
    let audit = test.bench.get("/admin/v1/audit?by=tollgate").await.ok();
    assert_eq!(audit["items"].as_array().unwrap().iter().map(|row| &row["action"]).collect::<Vec<_>>(), ["block.ban"]);

    // Lifted: its limit still refuses it, and refusals count anew.
    test.bench.delete("/admin/v1/blocks/203.0.113.7?domain=shop").await.ok();
    test.logins("203.0.113.7", 2, REFUSED).await;
    assert!(test.list("").await.is_empty());
    test.logins("203.0.113.7", 1, REFUSED).await;
    test.logins("203.0.113.7", 1, BANNED).await;
    assert_eq!(test.counts("login"), [2, 0, 0]);
}

#[tokio::test]
async fn each_further_ban_is_longer_and_a_lifted_one_does_not_count() {
    let test = Banning::new(RULES).await;
    test.logins("203.0.113.7", 2, ADMITTED).await;
    for (number, minutes) in [(1, 10), (2, 20), (3, 30), (4, 30)] {
        test.logins("203.0.113.7", 3, REFUSED).await;
        let ban = test.list("").await.pop().unwrap();
        assert_eq!(ban["ban"]["number"], number);
        test.bench.pass(minutes * 60 - 1);
        test.logins("203.0.113.7", 1, BANNED).await;
        test.bench.pass(1);
    }
    // An operator ends it: the next one is the first again.
    test.logins("203.0.113.7", 3, REFUSED).await;
    test.bench.delete("/admin/v1/blocks/203.0.113.7?domain=shop").await.ok();
    test.logins("203.0.113.7", 3, REFUSED).await;
    assert_eq!(test.list("").await[0]["ban"]["number"], 1);
}

#[tokio::test]
async fn a_shadow_ban_admits_everything_and_marks_it() {
    let test = Banning::new(RULES).await;
    let order = [("user", "eve"), ("endpoint", "POST /orders")];
    test.send(2, &order, REFUSED).await;
    test.send(5, &order, (true, Some(BlockAction::Admitted))).await;
    let ban = test.list("?bans").await.pop().unwrap();
    assert_eq!((&ban["name"], &ban["shadow"], &ban["status"]), (&json!("eve"), &json!(true), &Value::Null));
    test.bench.pass(3_600);
    test.send(1, &order, REFUSED).await;
}

#[tokio::test]
async fn nobody_is_banned_who_must_not_be() {
    let test = Banning::new(RULES).await;
    test.logins("10.1.2.3", 2, ADMITTED).await;
    test.logins("10.1.2.3", 20, REFUSED).await;
    let order = |user, address| [("user", user), ("endpoint", "POST /orders"), ("remote_address", address)];
    test.send(5, &order("internal-7", "203.0.113.7"), REFUSED).await;
    test.send(5, &order("ann", "10.1.2.3"), REFUSED).await;
    assert!(test.list("").await.is_empty());
    assert_eq!((test.counts("login"), test.counts("orders")), ([0, 20, 0], [0, 10, 0]));
}

#[tokio::test]
async fn a_block_of_an_operator_is_left_alone() {
    let test = Banning::new(RULES).await;
    test.logins("203.0.113.7", 2, ADMITTED).await;
    let path = "/admin/v1/blocks/203.0.113.7?domain=shop";
    test.bench.put(path, &json!({"reason": "watched", "shadow": true})).await.ok();
    test.logins("203.0.113.7", 3, (false, Some(BlockAction::Marked))).await;
    assert_eq!(test.list("").await[0]["reason"], "watched");
    assert!(test.list("?bans").await.is_empty());
    assert_eq!(test.counts("login"), [0, 0, 0]);
}

#[tokio::test]
async fn ipv6_addresses_are_counted_and_banned_by_their_network() {
    let test = Banning::new(RULES).await;
    for end in ["1", "2"] {
        test.logins(&format!("2001:db8:1::{end}"), 1, ADMITTED).await;
    }
    for end in ["3", "4", "5"] {
        test.logins(&format!("2001:db8:1:{end}::1"), 1, REFUSED).await;
    }
    test.logins("2001:db8:1:ff::1", 1, BANNED).await;
    test.logins("2001:db8:1:100::1", 1, ADMITTED).await;
    assert_eq!(test.list("").await[0]["name"], "2001:db8:1::/56");
}

#[tokio::test]
async fn names_that_must_not_be_written_are_masked() {
    let rules = "\
domain: shop
entity: api_key
rules:
- {name: orders, key: [api_key], limit: 0/year, ban: {after: 2, within: 24h, for: 1h}}
";
    let test = Banning::new(rules).await;
    test.send(2, &[("api_key", "sk_live_7")], REFUSED).await;
    test.send(1, &[("api_key", "sk_live_7")], BANNED).await;
    test.send(1, &[("api_key", "sk_live_8")], REFUSED).await;
    let name = test.list("?bans").await[0]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with('#') && name.len() == 33, "{name}");
    let path = format!("/admin/v1/blocks/{}?domain=shop", name.replace('#', "%23"));
    test.bench.delete(&path).await.ok();
    test.send(1, &[("api_key", "sk_live_7")], REFUSED).await;

    // A block of this name would be one of all callers.
    let test = Banning::new(RULES).await;
    test.send(2, &[("user", "*"), ("endpoint", "POST /orders")], REFUSED).await;
    test.send(1, &[("user", "*"), ("endpoint", "POST /orders")], (true, Some(BlockAction::Admitted))).await;
    test.send(1, &[("user", "ann"), ("endpoint", "POST /orders")], REFUSED).await;
}

#[tokio::test]
async fn refusals_of_a_rule_that_no_longer_bans_are_forgotten() {
    let test = Banning::new(RULES).await;
    for _ in 0..5 {
        test.bench.decide(&[("remote_address", "203.0.113.7"), ("endpoint", "POST /login")], 1).await;
    }
    test.bench.rewrite(&RULES.replace("ban: {after: 3", "ban: {after: 30"));
    test.bans.tick().await;
    assert!(test.list("").await.is_empty());
    test.logins("203.0.113.7", 27, REFUSED).await;
    assert_eq!(test.list("").await.len(), 1);
}

#[tokio::test]
async fn a_signal_bans_those_for_whom_it_is_raised() {
    let rules = r#"
domain: shop
entity: user
never_ban: [10.0.0.0/8]
rules:
- {name: all, key: [remote_address], limit: 1000/year}
signals:
- {name: accounts, distinct: account, per: [remote_address], threshold: 3, window: 24h, then: {ban: {for: 1h}}}
"#;
    let test = Banning::new(rules).await;
    let logins = async |address: &str, accounts: &[&str], outcome| {
        for account in accounts {
            test.send(1, &[("remote_address", address), ("account", account)], outcome).await;
        }
        let (limiter, clock) = (test.bench.control.limiter(), SystemClock::default());
        // As the server does each second. Values are counted by the clock of the store.
        test.bench.observability.observer.signals().evaluate(&limiter.rules(), &[], clock.now());
        test.bans.tick().await;
    };
    logins("203.0.113.7", &["a", "b"], ADMITTED).await;
    logins("10.1.2.3", &["a", "b", "c"], ADMITTED).await;
    assert!(test.list("").await.is_empty());
    logins("203.0.113.7", &["c"], ADMITTED).await;
    logins("203.0.113.7", &["a"], BANNED).await;
    logins("10.1.2.3", &["d"], ADMITTED).await;
    let ban = test.list("?bans").await.pop().unwrap();
    assert_eq!(ban["reason"], "banned by the signal accounts: 3 values of account in 86400 s");
    assert_eq!((&ban["ban"]["signal"], &ban["ban"]["rule"]), (&json!("accounts"), &Value::Null));
    assert_eq!(test.counts("accounts")[..2], [1, 1]);
    // Lifted, although the signal is still raised.
    test.bench.delete("/admin/v1/blocks/203.0.113.7?domain=shop").await.ok();
    logins("203.0.113.7", &["a", "b"], ADMITTED).await;
    assert!(test.list("").await.is_empty());
}
