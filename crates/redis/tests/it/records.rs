//! The memory and lifetime of records in Redis, as stated in docs/redis.md.

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Scope, Settlement, Span,
    Timestamp, Value,
};
use tollgate_store::sharded::{OnceRecord, Sharded};
use tollgate_testing::Redis;

use crate::{RunningStore, TIMEOUT};

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
        strict: true,
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
