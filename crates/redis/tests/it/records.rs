//! The memory and lifetime of records in Redis, as stated in docs/redis.md.

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Replay, Scope, Settlement,
    Shortcuts, Span, Timestamp, Value,
};
use tollgate_store::sharded::{OnceRecord, Sharded};
use tollgate_testing::Redis;
use tollgate_testing::resp::Reply;

use crate::{Rule, RunningStore, TIMEOUT, until};

const CALLER: &str = "api-key-01234567";
const UUID: &str = "0b0e7a52-6a0c-4c0e-9a3c-0d2f6f1c9b1e";

/// A claim on this number of limits of one caller, recorded under a key of this kind.
async fn settle(running: &RunningStore, limits: usize, ask: Ask, kind: &str, name: &[Value<'_>]) {
    let limit =
        Limit::new(1_000, Period::fixed(Span::from_secs(60)).unwrap(), Algorithm::SlidingWindow { sub_windows: 1 })
            .unwrap();
    let scopes: Vec<Scope> = (0..limits)
        .map(|rule| Scope::new("shop", &rule.to_string(), limit.algorithm(), limit.period(), Home::Caller(0)))
        .collect();
    let charge = |scope| Charge {
        key: Key::new(scope, smallvec![Value::Text(CALLER)]),
        limit: &limit,
        ask,
        units: 1,
        mode: Mode::Enforce,
        on_failure: OnFailure::Deny,
        shortcuts: Shortcuts::None,
    };
    let records = Scope::for_records("shop", kind, Home::Caller(0));
    let key = Key::new(&records, [Value::Text(CALLER)].into_iter().chain(name.iter().copied()).collect());
    let once = Once { key, body: u64::MAX, terms: u64::MAX, keep: Span::from_secs(3_600) };
    let claim = Claim { id: ClaimId(1), charges: scopes.iter().map(charge).collect(), once: Some(once), timeout: None };
    let location = running.store.locate(&claim.charges[0].key);
    let mut settlement = Settlement::default();
    running.store.settle_at(location, &claim, OnceRecord::Whole, TIMEOUT, &mut settlement).await.unwrap();
    assert!(settlement.readings.iter().all(|reading| reading.admits));
}

#[tokio::test]
async fn records_are_as_small_as_the_page_says() {
    let page = include_str!("../../../../docs/redis.md");
    let id = [0xff; 16];
    let (check, receipt) = ([Value::Text(UUID), Value::Text("")], [Value::bytes(&id)]);
    let back = Ask::Return { taken_at: Timestamp::from_secs(1) };
    let rows = [
        ("a check of one limit", 1, Ask::Exactly, "⇒once", &check[..]),
        ("a check of four limits", 4, Ask::Exactly, "⇒once", &check),
        ("a receipt that settles one limit", 1, back, "⇒receipt", &receipt),
        ("a receipt that settles four limits", 4, back, "⇒receipt", &receipt),
    ];
    for (what, limits, ask, kind, name) in rows {
        let redis = Redis::start();
        settle(&RunningStore::at(&redis.url()), limits, ask, kind, name).await;
        let keys = redis.command(&["KEYS", "*:once:*"]).text();
        let value: usize = redis.command(&["STRLEN", &keys]).text().parse().unwrap();
        let bytes: usize = redis.command(&["MEMORY", "USAGE", &keys]).text().parse().unwrap();
        let left: u64 = redis.command(&["TTL", &keys]).text().parse().unwrap();
        assert!((3_590..=3_602).contains(&left), "{what}: {left}");
        println!("{what}: {keys} ({} bytes), {value}, {bytes}", keys.len());
        let row = page.lines().find(|line| line.starts_with(&format!("| {what} |")));
        let row = row.unwrap_or_else(|| panic!("docs/redis.md has no row for {what}"));
        let documented: Vec<usize> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        assert_eq!(documented[0], value, "{what}");
        // The overhead depends on Redis's version and its allocator.
        assert!(bytes <= documented[1] + 32, "{what}: {bytes} bytes, and the page says {}", documented[1]);
    }
}

/// A caller that is over its limit, or only looks, cannot fill Redis.
#[tokio::test]
async fn a_check_that_takes_nothing_leaves_no_record() {
    let redis = Redis::start();
    let (running, rule) = (RunningStore::at(&redis.url()), Rule::new(1));
    let records = Scope::for_records("shop", "records", Home::Caller(0));
    let settle = async |name: &str, units: u64, record: OnceRecord<'_>| {
        let mut claim = rule.claim("me", units);
        let key = Key::new(&records, smallvec![Value::Text("me"), Value::Text(name)]);
        claim.once = Some(Once { key, body: 1, terms: 1, keep: Span::from_secs(3_600) });
        if matches!(record, OnceRecord::Verdict { .. }) {
            claim.charges.clear();
        }
        let location = running.store.locate(&rule.claim("me", 0).charges[0].key);
        let mut settlement = Settlement::default();
        running.store.settle_at(location, &claim, record, TIMEOUT, &mut settlement).await.unwrap();
        settlement
    };
    let records = || redis.command(&["KEYS", "*:once:*"]);
    let has_records = || !matches!(records(), Reply::List(keys) if keys.is_empty());
    // A part of a claim that passes is pending until there is a verdict. A refusal elsewhere removes it.
    let part = settle("parts", 1, OnceRecord::Pending).await;
    assert!(part.readings[0].taken == 1 && has_records());
    let verdict = OnceRecord::Verdict { settlement: &part, passed: false, keep: Span::ZERO };
    settle("parts", 0, verdict).await;
    until(|| async { !has_records() }).await;
    for number in 0..20 {
        let name = format!("n{number}");
        assert!(settle(&name, 0, OnceRecord::Whole).await.readings[0].admits);
        for record in [OnceRecord::Whole, OnceRecord::Pending] {
            let refused = settle(&name, 1, record).await;
            assert!(!refused.readings[0].admits && refused.replay == Replay::First);
        }
    }
    assert!(!has_records(), "{:?}", records());
}
