//! Checks that wait for a store, and checks that do not.

use tokio::task::JoinSet;
use tollgate::{Descriptor, LoadOptions, Ruleset, Source};
use tollgate_rules::{RuleFile as File, load_sources};

use super::*;
use tollgate_store::conformance::gated::GatedStore;
use tollgate_telemetry::metrics::Metrics;

const RULES: &str = "
domain: d
rules:
  - {name: comfort, key: [user], limit: 100/day}
  - {name: login, key: [address], limit: 100/day, policy: security}
  - {name: slots, key: [slots], limit: 9 concurrent}
  - {name: paid, key: [paid], limit: 100/day, policy: cost, on_failure: allow}
  - {name: budget, key: [budget], limit: 100/day, policy: quota}
";

fn rules() -> Ruleset {
    let file = File { name: "rules.yaml".to_owned(), text: RULES.to_owned() };
    Ruleset::compile(load_sources(&[file], &LoadOptions::default()).unwrap().domains, 1).unwrap()
}

fn gate(store: &Arc<GatedStore>, most: usize) -> Arc<Gate> {
    Arc::new(Gate::new(crate::test_support::limiter_on(store, rules()), false, most, Metrics::new().wire("grpc")))
}

/// Whether a check passes, and its source.
async fn check(gate: Arc<Gate>, attribute: &'static str) -> (bool, Source) {
    let entries = [(attribute, "x")];
    let descriptors = [Descriptor::new(&entries)];
    let request = Request { domain: None, descriptors: &descriptors, cost: 1, ..Request::default() };
    let mut decision = gate.limiter().decision();
    gate.check(&request, &HeaderMap::new(), None, &mut decision).await.unwrap();
    (decision.allowed(), decision.source())
}

#[tokio::test]
async fn no_more_than_the_bound_wait_for_the_store_and_the_others_follow_their_policies() {
    const MAX: usize = 3;
    let store = GatedStore::new();
    let gate = gate(&store, MAX);
    assert!(gate.waits());
    let mut checks: JoinSet<_> = (0..MAX).map(|_| check(gate.clone(), "user")).collect();
    store.timeouts(MAX).await;
    for _ in 0..10 {
        assert_eq!(check(gate.clone(), "user").await, (true, Source::Shed));
        assert_eq!(check(gate.clone(), "address").await, (false, Source::Shed));
    }
    assert_eq!(store.timeouts(0).await.len(), MAX, "no other reaches the store");
    assert_eq!(gate.metrics().in_flight().get(), MAX as i64);
    assert!(checks.try_join_next().is_none(), "the store has not answered");
    store.open();
    while let Some(decided) = checks.join_next().await {
        assert_eq!(decided.unwrap(), (true, Source::Store));
    }
    assert_eq!(check(gate.clone(), "address").await, (true, Source::Store));
    assert_eq!(gate.metrics().in_flight().get(), 0);
}

#[tokio::test]
async fn under_pressure_comfort_is_shed_before_cost_and_security_keeps_the_store() {
    const MAX: usize = 10;
    let store = GatedStore::new();
    let gate = gate(&store, MAX);
    let mut waiting = JoinSet::new();
    // Each row: the policy of the next check, and whether the store decides it.
    let rows = [("user", true, 7), ("user", false, 3), ("paid", true, 1), ("paid", false, 2), ("user", false, 1)];
    let rows = rows.into_iter().chain([("budget", true, 1), ("budget", false, 2), ("address", true, 1)]);
    let mut in_store = 0;
    for (attribute, is_stored, times) in rows {
        for _ in 0..times {
            if is_stored {
                waiting.spawn(check(gate.clone(), attribute));
                in_store += 1;
                store.timeouts(in_store).await;
            } else {
                let allowed = attribute != "budget";
                assert_eq!(check(gate.clone(), attribute).await, (allowed, Source::Shed), "{attribute}");
            }
        }
    }
    assert_eq!(in_store, MAX);
    assert_eq!(check(gate.clone(), "address").await, (false, Source::Shed), "the bound holds for security too");
    let shed = |policy| gate.metrics().shed_by(policy);
    assert_eq!(["comfort", "cost", "quota", "security"].map(shed), [4, 2, 2, 1]);
    // A request that meets both is as important as its most important rule.
    waiting.abort_all();
    while waiting.join_next().await.is_some() {}
    assert_eq!(gate.metrics().in_flight().get(), 0);
    for _ in 0..8 {
        waiting.spawn(check(gate.clone(), "address"));
    }
    store.timeouts(MAX + 8).await;
    let entries = [("user", "x"), ("address", "x")];
    let both = tokio::spawn({
        let gate = gate.clone();
        async move {
            let descriptors = [Descriptor::new(&entries)];
            let request = Request { domain: None, descriptors: &descriptors, ..Request::default() };
            let mut decision = gate.limiter().decision();
            gate.check(&request, &HeaderMap::new(), None, &mut decision).await.unwrap();
            (decision.allowed(), decision.source())
        }
    });
    store.timeouts(MAX + 9).await;
    store.open();
    assert_eq!(both.await.unwrap(), (true, Source::Store));
}

#[tokio::test]
async fn who_goes_away_makes_room() {
    let store = GatedStore::new();
    let gate = gate(&store, 1);
    let gone = tokio::spawn(check(gate.clone(), "user"));
    store.timeouts(1).await;
    assert_eq!(check(gate.clone(), "user").await, (true, Source::Shed));
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    let next = tokio::spawn(check(gate.clone(), "user"));
    store.timeouts(2).await;
    store.open();
    assert_eq!(next.await.unwrap(), (true, Source::Store));
}

#[tokio::test]
async fn settlements_are_in_flight_as_checks_are_and_are_never_dropped_in_silence() {
    let store = GatedStore::new();
    let gate = gate(&store, 1);
    let descriptors = [Descriptor::new(&[("slots", "x")])];
    let request = Request { descriptors: &descriptors, ..Request::default() };
    store.open();
    let mut decision = gate.limiter().decision();
    gate.check(&request, &HeaderMap::new(), None, &mut decision).await.unwrap();
    let receipt = decision.receipt().unwrap().clone();
    store.close();
    let waiting = tokio::spawn(check(gate.clone(), "user"));
    store.timeouts(2).await;
    let settle = async |ending| gate.settle(&receipt, ending, None, &HeaderMap::new(), None).await;
    assert_eq!(settle(RequestOutcome::Ok).await.unwrap_err(), SettleFailure::TooBusy);
    store.open();
    assert_eq!(waiting.await.unwrap(), (true, Source::Store));
    assert!(settle(RequestOutcome::Ok).await.unwrap().is_stored());
    assert_eq!(settle(RequestOutcome::Failed).await.unwrap_err(), SettleFailure::Refused(SettleError::AlreadySettled));
    assert_eq!(gate.metrics().in_flight().get(), 0);
}

#[tokio::test]
async fn who_could_not_release_a_slot_is_counted() {
    let store = GatedStore::new();
    store.open();
    let gate = gate(&store, 9);
    let descriptors = [Descriptor::new(&[("slots", "x")])];
    let request = Request { descriptors: &descriptors, ..Request::default() };
    for receipt in [tollgate::ReceiptWish::IfNeeded, tollgate::ReceiptWish::Never] {
        let (request, mut decision) = (Request { receipt, ..request }, gate.limiter().decision());
        gate.check(&request, &HeaderMap::new(), None, &mut decision).await.unwrap();
    }
    assert_eq!(gate.metrics().not_held.get(), 1);
}

#[tokio::test]
async fn each_throttle_of_a_batch_is_in_flight() {
    let store = GatedStore::new();
    let gate = gate(&store, 2);
    let throttle = tollgate::Throttle { count: 60, period: Span::from_secs(3_600), burst: 2 };
    let mut throttler = gate.throttler("t");
    let mut batch = gate.batch();
    for _ in 0..5 {
        batch.submit(&mut throttler, b"k", &throttle, 1).unwrap();
    }
    assert_eq!(gate.metrics().in_flight().get(), 2);
    store.open();
    let answers: Vec<_> = batch.results().await.iter().map(|one| (one.passes, one.reading.source)).collect();
    let (stored, shed) = ((true, Source::Store), (true, Source::Shed));
    assert_eq!(answers, [stored, stored, shed, shed, shed]);
    assert_eq!(gate.metrics().in_flight().get(), 0);
    batch.submit(&mut throttler, b"k", &throttle, 1).unwrap();
    assert_eq!(batch.results().await[0].reading.remaining, 0);
    let uncountable = tollgate::Throttle { count: u64::MAX, ..throttle };
    assert!(batch.submit(&mut throttler, b"k", &uncountable, 1).is_err());
    assert!(batch.results().await.is_empty());
    assert_eq!(gate.metrics().in_flight().get(), 0);
}

#[tokio::test]
async fn throttles_are_seen_as_decisions_batch_by_batch() {
    for (shadow, totals) in [(false, [2, 3, 0, 0, 0, 0, 0]), (true, [2, 0, 3, 0, 0, 0, 0])] {
        let config = tollgate_observe::ObserverConfig { shadow, ..Default::default() };
        let observer = Arc::new(Observer::new(config, Arc::default()));
        let limiter = Limiter::new(rules(), tollgate::MemoryConfig::default().build().into());
        let gate = Gate::new(Arc::new(limiter), shadow, 9, Metrics::new().wire("resp")).with_observer(observer.clone());
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
