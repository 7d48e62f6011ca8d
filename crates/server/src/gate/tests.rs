//! What waits for a store, and what does not.

use tokio::task::JoinSet;
use tollgate::{Descriptor, LoadOptions, Ruleset, Source};
use tollgate_rules::{Source as File, load_sources};

use super::*;
use crate::counters::held::Held;
use crate::observe::metrics::Metrics;

const RULES: &str = "
domain: d
rules:
  - {name: comfort, key: [user], limit: 100/day}
  - {name: login, key: [address], limit: 100/day, policy: security}
  - {name: slots, key: [slots], limit: 9 concurrent}
";

fn rules() -> Ruleset {
    let file = File { name: "rules.yaml".to_owned(), text: RULES.to_owned() };
    Ruleset::compile(load_sources(&[file], &LoadOptions::default()).unwrap().domains, 1).unwrap()
}

fn gate(held: &Arc<Held>, most: usize) -> Arc<Gate> {
    Arc::new(Gate::new(held.limiter(rules()), false, most, Metrics::new().wire("grpc")))
}

/// Whether it may pass, and who says so.
async fn check(gate: Arc<Gate>, attribute: &'static str) -> (bool, Source) {
    let entries = [(attribute, "x")];
    let descriptors = [Descriptor::new(&entries)];
    let request = Request { domain: None, descriptors: &descriptors, cost: 1, ..Request::default() };
    let decision = gate.check(&request, &HeaderMap::new(), None).await.unwrap();
    (decision.allowed(), decision.source())
}

#[tokio::test]
async fn no_more_than_the_bound_wait_for_the_store_and_the_others_follow_their_policies() {
    const MOST: usize = 3;
    let held = Held::new();
    let gate = gate(&held, MOST);
    assert!(gate.waits());
    let mut checks: JoinSet<_> = (0..MOST).map(|_| check(gate.clone(), "user")).collect();
    held.asked(MOST).await;
    for _ in 0..10 {
        assert_eq!(check(gate.clone(), "user").await, (true, Source::Shed));
        assert_eq!(check(gate.clone(), "address").await, (false, Source::Shed));
    }
    assert_eq!(held.asked(0).await.len(), MOST, "the store hears of no other");
    assert_eq!(gate.metrics().in_flight().get(), MOST as i64);
    assert!(checks.try_join_next().is_none(), "the store has not answered");
    held.open();
    while let Some(decided) = checks.join_next().await {
        assert_eq!(decided.unwrap(), (true, Source::Store));
    }
    assert_eq!(check(gate.clone(), "address").await, (true, Source::Store));
    assert_eq!(gate.metrics().in_flight().get(), 0);
}

#[tokio::test]
async fn who_goes_away_makes_room() {
    let held = Held::new();
    let gate = gate(&held, 1);
    let gone = tokio::spawn(check(gate.clone(), "user"));
    held.asked(1).await;
    assert_eq!(check(gate.clone(), "user").await, (true, Source::Shed));
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    let next = tokio::spawn(check(gate.clone(), "user"));
    held.asked(2).await;
    held.open();
    assert_eq!(next.await.unwrap(), (true, Source::Store));
}

#[tokio::test]
async fn settlements_are_in_flight_as_checks_are_and_are_never_dropped_in_silence() {
    let held = Held::new();
    let gate = gate(&held, 1);
    let descriptors = [Descriptor::new(&[("slots", "x")])];
    let request = Request { descriptors: &descriptors, ..Request::default() };
    held.open();
    let decision = gate.check(&request, &HeaderMap::new(), None).await.unwrap();
    let receipt = decision.receipt().unwrap().clone();
    held.shut();
    let waiting = tokio::spawn(check(gate.clone(), "user"));
    held.asked(2).await;
    let settle = async |ending| gate.settle(&receipt, ending, None, &HeaderMap::new(), None).await;
    assert_eq!(settle(Ending::Ok).await.unwrap_err(), NotSettled::TooBusy);
    held.open();
    assert_eq!(waiting.await.unwrap(), (true, Source::Store));
    assert!(settle(Ending::Ok).await.unwrap().is_stored());
    assert_eq!(settle(Ending::Failed).await.unwrap_err(), NotSettled::Refused(SettleError::AlreadySettled));
    assert_eq!(gate.metrics().in_flight().get(), 0);
}

#[tokio::test]
async fn who_could_not_release_a_slot_is_counted() {
    let held = Held::new();
    held.open();
    let gate = gate(&held, 9);
    let descriptors = [Descriptor::new(&[("slots", "x")])];
    let request = Request { descriptors: &descriptors, ..Request::default() };
    for receipt in [tollgate::ReceiptWish::IfNeeded, tollgate::ReceiptWish::Never] {
        gate.check(&Request { receipt, ..request }, &HeaderMap::new(), None).await.unwrap();
    }
    assert_eq!(gate.metrics().not_held.get(), 1);
}

#[tokio::test]
async fn throttles_that_are_asked_for_together_are_each_in_flight() {
    let held = Held::new();
    let gate = gate(&held, 2);
    let throttle = tollgate::Throttle { count: 60, period: Span::from_secs(3_600), burst: 2 };
    let mut throttler = gate.throttler("t");
    let mut batch = gate.batch();
    for _ in 0..5 {
        batch.ask(&mut throttler, b"k", &throttle, 1).unwrap();
    }
    assert_eq!(gate.metrics().in_flight().get(), 2);
    held.open();
    let answers: Vec<_> = batch.answers().await.iter().map(|one| (one.passes, one.reading.source)).collect();
    let (asked, shed) = ((true, Source::Store), (true, Source::Shed));
    assert_eq!(answers, [asked, asked, shed, shed, shed]);
    assert_eq!(gate.metrics().in_flight().get(), 0);
    batch.ask(&mut throttler, b"k", &throttle, 1).unwrap();
    assert_eq!(batch.answers().await[0].reading.remaining, 0);
    let uncountable = tollgate::Throttle { count: u64::MAX, ..throttle };
    assert!(batch.ask(&mut throttler, b"k", &uncountable, 1).is_err());
    assert!(batch.answers().await.is_empty());
    assert_eq!(gate.metrics().in_flight().get(), 0);
}

#[tokio::test]
async fn throttles_are_seen_as_decisions_batch_by_batch() {
    for (shadow, totals) in [(false, [2, 3, 0, 0, 0, 0, 0]), (true, [2, 0, 3, 0, 0, 0, 0])] {
        let config = tollgate_observe::ObserverConfig { shadow, ..Default::default() };
        let observer = Arc::new(Observer::new(config));
        let limiter = Limiter::new(rules(), tollgate::MemoryConfig::default().build().into());
        let gate = Gate::new(Arc::new(limiter), shadow, 9, Metrics::new().wire("resp")).seen_by(observer.clone());
        let throttle = tollgate::Throttle { count: 60, period: Span::from_secs(3_600), burst: 2 };
        let (mut throttler, mut batch) = (gate.throttler("t"), gate.batch());
        for _ in 0..5 {
            batch.throttle(&mut throttler, b"k", &throttle, 1).await.unwrap();
        }
        assert_eq!(observer.tally().totals(), [0; 7], "a batch is counted when it ends");
        drop(batch);
        assert_eq!(observer.tally().totals(), totals);
    }
}
