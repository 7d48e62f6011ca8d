//! Names with digests of private values: everybody who counts in one Redis uses the same ones.

use std::sync::Arc;

use tollgate_core::KeySecret;
use tollgate_store::{KeyPrivacy, NameForm, PrivacySetting};
use tollgate_testing::Redis;
use tollgate_testing::cluster::Cluster;

use crate::{Rule, RunningStore, TIMEOUT, config, until};

const KEY: &str = "sk_live_51H8mZqT9f3a";
const AGREED: &str = "tg:{agreed}:key-privacy";

fn private_rule(amount: u64) -> Rule {
    let Rule { scope, limit } = Rule::new(amount);
    Rule { scope: scope.with_private([true].into_iter().collect()), limit }
}

fn running(url: &str, privacy: &Arc<KeyPrivacy>) -> RunningStore {
    let mut config = config(url);
    config.key_privacy = privacy.clone();
    RunningStore::new(config)
}

fn setting(setting: PrivacySetting) -> Arc<KeyPrivacy> {
    Arc::new(KeyPrivacy::new(setting))
}

/// All names of counters.
fn names(redis: &Redis) -> Vec<String> {
    let keys = redis.inline("KEYS tg:{shop*");
    keys.lines().filter(|line| line.starts_with("tg:")).map(|line| line.trim().to_owned()).collect()
}

async fn until_form(privacy: &KeyPrivacy, is_hashed: bool) {
    until(|| async { matches!(privacy.name_form(), Some(NameForm::Hashed(_))) == is_hashed }).await;
}

#[tokio::test]
async fn one_counter_for_all_whatever_redis_forgets() {
    let mut redis = Redis::start();
    let (first, second) = (Arc::<KeyPrivacy>::default(), Arc::<KeyPrivacy>::default());
    let rule = private_rule(10);
    let (one, two) = (running(&redis.url(), &first), running(&redis.url(), &second));
    assert_eq!(one.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, 9);
    assert_eq!(two.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, 8);
    let Some(NameForm::Hashed(secret)) = first.name_form() else { panic!("{first:?}") };
    let digest = format!("{:032x}", secret.digest(tollgate_core::Value::Text(KEY)));
    assert_eq!(names(&redis), [format!("tg:{{shop/~{digest}}}")]);
    let agreed = redis.command(&["GET", AGREED]).text();
    assert_eq!(agreed, format!("hashed shared:{:032x}", secret.bits()));
    assert_eq!(redis.command(&["PTTL", AGREED]).text(), "-1");

    // A flushed Redis gets it again from those who know it.
    redis.inline("FLUSHALL");
    until(|| async { redis.command(&["GET", AGREED]).text() == agreed }).await;
    assert_eq!(one.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, 9);
    assert_eq!(two.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, 8);
    assert_eq!(names(&redis), [format!("tg:{{shop/~{digest}}}")]);

    // A process that starts without Redis, with and without what an earlier one saved.
    redis.kill();
    let (saved, fresh) = (Arc::<KeyPrivacy>::default(), Arc::<KeyPrivacy>::default());
    assert!(saved.restore(&first.save()));
    let (three, four) = (running(&redis.url(), &saved), running(&redis.url(), &fresh));
    assert_eq!(saved.log_secret(), Some(secret));
    assert_eq!(fresh.name_form(), None);
    assert_ne!(fresh.log_secret(), Some(secret));
    redis.restart();
    // Redis is empty: whoever is first proposes. All come to one.
    until(|| async {
        let forms = [&first, &second, &saved, &fresh].map(|privacy| privacy.name_form());
        let stored = redis.command(&["GET", AGREED]).text();
        forms.iter().all(|form| {
            matches!(form, Some(NameForm::Hashed(secret)) if stored == format!("hashed shared:{:032x}", secret.bits()))
        })
    })
    .await;
    for (left, store) in [(9, &one), (8, &two), (7, &three), (6, &four)] {
        assert_eq!(store.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, left);
    }
    assert_eq!(names(&redis).len(), 1);
    assert!(fresh.logged_as(KEY).len() > 1);
}

#[tokio::test]
async fn a_configured_secret_is_not_in_redis() {
    let redis = Redis::start();
    let given = |text: &str| Arc::new(KeyPrivacy::with_secrets(PrivacySetting::Auto, [text]).unwrap());
    let (first, second) = (given("a secret of the fleet"), given("a secret of the fleet"));
    let rule = private_rule(10);
    let (one, two) = (running(&redis.url(), &first), running(&redis.url(), &second));
    assert_eq!(one.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, 9);
    assert_eq!(two.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, 8);
    let secret = KeySecret::derive(b"a secret of the fleet").unwrap();
    let agreed = redis.command(&["GET", AGREED]).text();
    assert_eq!(agreed, format!("hashed given:{:016x}", secret.fingerprint()));
    // A process without it counts apart, and knows it.
    let without = Arc::<KeyPrivacy>::default();
    let three = running(&redis.url(), &without);
    assert_eq!(three.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, 9);
    let warning = without.warning().unwrap();
    assert!(warning.contains("the same key_secret_file"), "{warning}");
    assert_eq!(first.warning(), None);
}

#[tokio::test]
async fn names_stay_in_clear_next_to_servers_of_an_earlier_version() {
    let redis = Redis::start();
    let now = redis.inline("TIME").lines().nth(2).unwrap().trim().to_owned();
    // Their heartbeat, and a counter of theirs.
    redis.inline(&format!("ZADD tg:{{replicas}} {now}000 older"));
    let rule = private_rule(10);
    let clear = format!("tg:{{shop/{KEY}}}");
    let auto = Arc::<KeyPrivacy>::default();
    let one = running(&redis.url(), &auto);
    assert_eq!(one.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, 9);
    assert_eq!(names(&redis), [clear.as_str()]);
    assert!(redis.command(&["GET", AGREED]).text().starts_with("legacy-clear shared:"));
    // An operator wants hashed names: not while the earlier version runs.
    let explicit = setting(PrivacySetting::Hashed);
    let two = running(&redis.url(), &explicit);
    assert_eq!(two.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, 8);
    assert_eq!(names(&redis), [clear.as_str()]);
    redis.inline("ZREM tg:{replicas} older");
    until_form(&explicit, true).await;
    until_form(&auto, true).await;
    assert_eq!(two.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, 9);
    assert_eq!(one.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, 8);
    // And back, for everybody.
    let back = setting(PrivacySetting::Clear);
    let three = running(&redis.url(), &back);
    assert_eq!(three.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, 7);
    until_form(&auto, false).await;
    assert_eq!(one.take(&rule, KEY, 1, TIMEOUT).await.unwrap().remaining, 6);
    assert!(redis.command(&["GET", AGREED]).text().starts_with("clear "));
}

#[tokio::test]
async fn traces_of_an_earlier_version_keep_names_in_clear() {
    let redis = Redis::start();
    redis.inline("SET tg:{agreed}:receipt-key 0123456789abcdef");
    let one = RunningStore::at(&redis.url());
    one.take(&private_rule(10), KEY, 1, TIMEOUT).await.unwrap();
    assert_eq!(names(&redis), [format!("tg:{{shop/{KEY}}}")]);
}

#[tokio::test]
async fn an_agreement_that_cannot_be_read_is_left_alone() {
    let redis = Redis::start();
    redis.inline("SET tg:{agreed}:key-privacy better:1234");
    let one = RunningStore::at(&redis.url());
    // What has no private values does not need it.
    assert_eq!(one.take(&Rule::new(10), KEY, 1, TIMEOUT).await.unwrap().remaining, 9);
    let failed = one.take(&private_rule(10), KEY, 1, std::time::Duration::from_millis(50)).await;
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!(redis.command(&["GET", AGREED]).text(), "better:1234");
    redis.inline("DEL tg:{agreed}:key-privacy");
    assert_eq!(one.take(&private_rule(10), KEY, 1, TIMEOUT).await.unwrap().remaining, 9);
}

#[tokio::test]
async fn slow_a_cluster_has_all_of_a_caller_in_one_slot() {
    let mut cluster = Cluster::start();
    let rule = private_rule(10);
    let privacy = Arc::<KeyPrivacy>::default();
    let one = running(&cluster.url(), &privacy);
    assert!(one.store.wait_until_ready(TIMEOUT).await);
    let Some(NameForm::Hashed(secret)) = privacy.name_form() else { panic!("{privacy:?}") };
    for number in 0..20 {
        let caller = format!("{KEY}{number}");
        assert_eq!(one.take(&rule, &caller, 1, TIMEOUT).await.unwrap().remaining, 9);
        let digest = secret.digest(tollgate_core::Value::Text(&caller));
        let name = format!("tg:{{shop/~{digest:032x}}}");
        let slot = cluster.slot_of(&name);
        let primary = cluster.primary_of(slot).unwrap();
        assert_eq!(cluster.node(primary).redis.command(&["EXISTS", &name]).text(), "1");
    }
    let moved =
        one.store.stats().resent.into_iter().filter(|(name, _)| *name == "moved").map(|(_, count)| count).sum::<u64>();
    assert_eq!(moved, 0);
}
