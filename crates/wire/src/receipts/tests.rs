//! Receipts with a manual clock, and keys that servers agree on.

use tollgate::{Descriptor, Limiter, LoadOptions, ManualClock, MemoryConfig, MemoryStore, Request, Ruleset, poll_once};
use tollgate_rules::{RuleFile, load_sources};

use super::keys::{KeyAgreement, from_secrets};
use super::*;
use tollgate_net::closing::Closer;
use tollgate_store::conformance::gated::GatedStore;

const START: Timestamp = Timestamp::from_secs(1_767_225_600);
const RULES: &str = "
domain: d
entity: key
rules:
  - {name: in-flight, key: [key], limit: 5 concurrent, hold: 30s}
  - {name: orders, key: [key], limit: 5/day, refund: on_failure, hold: 1m}
";

struct World {
    clock: ManualClock,
    limiter: Limiter<MemoryStore<ManualClock>>,
    receipts: Receipts,
}

impl World {
    fn new() -> World {
        let clock = ManualClock::at(START);
        let file = RuleFile { name: "rules.yaml".to_owned(), text: RULES.to_owned() };
        let rules = Ruleset::compile(load_sources(&[file], &LoadOptions::default()).unwrap().domains, 1).unwrap();
        let limiter = Limiter::new(rules, MemoryConfig::default().build_with(clock.clone()));
        World { limiter, receipts: signing(&clock, "a secret of the fleet"), clock }
    }

    fn check(&self, once: Option<&str>) -> Decision {
        let descriptors = [Descriptor::new(&[("key", "k")])];
        let request = Request { descriptors: &descriptors, once, ..Request::default() };
        poll_once(self.limiter.check_request(&request)).unwrap().unwrap()
    }

    fn at(&self, seconds: u64) {
        self.clock.set(START.after(Span::from_secs(seconds)));
    }

    /// Settles a receipt here: whether it is a replay, and the renewed receipt.
    fn settle(&self, text: &str, outcome: RequestOutcome) -> Result<(bool, Option<IssuedReceipt>), ReceiptError> {
        let opened = self.receipts.open(text)?;
        let settled = poll_once(self.limiter.settle_receipt(&opened.receipt, outcome, None, None)).unwrap().unwrap();
        Ok((settled.is_replay(), self.receipts.settled(&opened, outcome, &settled)))
    }

    fn orders_left(&self) -> u64 {
        let descriptors = [Descriptor::new(&[("key", "k")])];
        let look = Request { descriptors: &descriptors, cost: 0, ..Request::default() };
        let looked = poll_once(self.limiter.check_request(&look)).unwrap().unwrap();
        looked.outcomes().find(|one| one.rule.name() == "orders").unwrap().reading.remaining
    }
}

fn signing(clock: &ManualClock, secret: &str) -> Receipts {
    Receipts::new(from_secrets([secret]).unwrap(), Arc::new(clock.clone()), ReceiptMetrics::default())
}

#[test]
fn one_that_goes_on_lasts_from_then_on() {
    let world = World::new();
    let mut signed = world.receipts.sign(&world.check(None)).unwrap();
    assert_eq!(signed.signed().settle_within, Span::from_secs(60), "the longest of its rules");
    for round in 1..=10 {
        world.at(50 * round);
        signed = world.settle(&signed.text, RequestOutcome::Running).unwrap().1.unwrap();
        assert_eq!(signed.signed().settle_within, Span::from_secs(60));
    }
    world.at(50 * 10 + 59);
    assert_eq!(world.receipts.open_and_unsettled().1, 0);
    assert!(world.settle(&signed.text, RequestOutcome::Ok).unwrap().1.is_none());
    world.at(10_000);
    assert_eq!(world.receipts.open_and_unsettled().1, 0, "it was settled in time");
    assert_eq!(world.settle(&signed.text, RequestOutcome::Ok).err(), Some(ReceiptError::Expired));
}

#[test]
fn those_that_are_not_settled_in_time_are_counted() {
    let world = World::new();
    let [first, second, third] = [0; 3].map(|_| world.receipts.sign(&world.check(None)).unwrap());
    world.settle(&first.text, RequestOutcome::Ok).unwrap();
    // A repetition has no effect.
    assert!(world.settle(&first.text, RequestOutcome::Ok).unwrap().0);
    world.at(30);
    world.settle(&second.text, RequestOutcome::Running).unwrap();
    for (seconds, unsettled) in [(59, 0), (60, 1), (89, 1), (90, 2), (5_000, 2)] {
        world.at(seconds);
        assert_eq!(world.receipts.open_and_unsettled().1, unsettled, "{seconds}");
    }
    assert_eq!(world.settle(&third.text, RequestOutcome::Ok).err(), Some(ReceiptError::Expired));
    assert_eq!(world.receipts.open_and_unsettled().1, 2, "what comes too late was not settled");
}

#[test]
fn what_one_server_gives_another_settles() {
    let world = World::new();
    let other = signing(&world.clock, "a secret of the fleet");
    let signed = world.receipts.sign(&world.check(None)).unwrap();
    let opened = other.open(&signed.text).unwrap();
    let settled =
        poll_once(world.limiter.settle_receipt(&opened.receipt, RequestOutcome::Ok, None, None)).unwrap().unwrap();
    other.settled(&opened, RequestOutcome::Ok, &settled);
    world.at(60);
    assert_eq!((world.receipts.open_and_unsettled().1, other.open_and_unsettled().1), (1, -1));
    let stranger = signing(&world.clock, "another secret, of another fleet");
    assert_eq!(stranger.open(&signed.text).err(), Some(ReceiptError::Foreign));
}

/// A refund is recorded no longer than the receipt is valid. If the same check could issue a receipt again after that,
/// the same units could be refunded again and again.
#[test]
fn a_receipt_that_is_given_again_lasts_no_longer_than_the_first() {
    let world = World::new();
    let first = world.receipts.sign(&world.check(Some("order-1"))).unwrap();
    assert_eq!(world.orders_left(), 4);
    world.at(20);
    let again = world.receipts.sign(&world.check(Some("order-1"))).unwrap();
    assert_eq!(again.signed().settle_within, Span::from_secs(40));
    world.settle(&first.text, RequestOutcome::Failed).unwrap();
    assert_eq!(world.orders_left(), 5);
    assert!(world.settle(&again.text, RequestOutcome::Failed).unwrap().0, "it is the same receipt");
    let taken = world.check(None);
    assert_eq!((taken.allowed(), world.orders_left()), (true, 4));
    for seconds in [60, 70, 80, 3_600] {
        world.at(seconds);
        let late = world.check(Some("order-1"));
        assert!(matches!(late.replay(), Replay::Again { .. }));
        assert!(world.receipts.sign(&late).is_none(), "{seconds}");
    }
    assert_eq!(world.settle(&again.text, RequestOutcome::Failed).err(), Some(ReceiptError::Expired));
    assert_eq!(world.orders_left(), 4);
    assert_eq!(world.receipts.open_and_unsettled().1, 0, "given twice, it counts once");
}

/// A server, with its key agreement.
fn server(store: &Arc<GatedStore>, clock: &ManualClock, own: &str) -> (Arc<Receipts>, Arc<KeyAgreement>) {
    let receipts = Arc::new(signing(clock, own));
    (receipts.clone(), Arc::new(KeyAgreement::new(store.clone(), receipts, own.to_owned())))
}

#[tokio::test]
async fn servers_agree_on_a_key_and_keep_their_own() {
    let (world, store) = (World::new(), GatedStore::new());
    let (one, first) = server(&store, &world.clock, "the secret of the first server");
    let (other, second) = server(&store, &world.clock, "the secret of the second server");
    // The store is unavailable: each server has its own key.
    assert!(second.agree().await.unwrap_err().contains("the gate is closed"));
    let early = other.sign(&world.check(None)).unwrap();
    assert_eq!(one.open(&early.text).err(), Some(ReceiptError::Foreign));
    store.open();
    first.agree().await.unwrap();
    second.agree().await.unwrap();
    for receipts in [&one, &other] {
        let signed = receipts.sign(&world.check(None)).unwrap();
        assert!(one.open(&signed.text).is_ok() && other.open(&signed.text).is_ok());
    }
    assert!(other.open(&early.text).is_ok(), "what it gave before it takes back");
    // A flushed store gets the key again, and another key in the store is adopted.
    store.set_agreed(None);
    second.agree().await.unwrap();
    let signed = other.sign(&world.check(None)).unwrap();
    assert!(one.open(&signed.text).is_ok());
    store.set_agreed(Some(b"a secret that a third server came with"));
    second.agree().await.unwrap();
    assert!(other.open(&signed.text).is_ok());
    let latest = other.sign(&world.check(None)).unwrap();
    assert_eq!(one.open(&latest.text).err(), Some(ReceiptError::Foreign));
    first.agree().await.unwrap();
    assert!(one.open(&latest.text).is_ok());
    store.set_agreed(Some(b"short"));
    assert!(first.agree().await.unwrap_err().contains("a key needs at least 16 bytes"));
    assert!(one.open(&latest.text).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_unavailable_at_the_start_is_tried_until_it_answers() {
    let (world, store) = (World::new(), GatedStore::new());
    store.set_agreed(Some(b"the secret that a fleet agreed on"));
    let (receipts, agreement) = server(&store, &world.clock, "the secret of this server");
    agreement.start().await;
    let (closer, closing) = Closer::new();
    let keeping = tokio::spawn(agreement.clone().run(closing));
    let fleet = signing(&world.clock, "the secret that a fleet agreed on");
    let decision = world.check(None);
    let is_the_fleets = || fleet.open(&receipts.sign(&decision).unwrap().text).is_ok();
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert!(!is_the_fleets());
    store.open();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert!(is_the_fleets());
    // The key stays while the store is unavailable.
    store.close();
    store.set_agreed(None);
    tokio::time::sleep(std::time::Duration::from_secs(200)).await;
    assert!(is_the_fleets());
    closer.close();
    keeping.await.unwrap();
}
