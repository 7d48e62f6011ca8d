//! Receipts by a clock that the test moves, and keys that servers agree on.

use tollgate::{
    Descriptor, Limiter, LoadOptions, ManualClock, MemoryConfig, MemoryStore, Request, Ruleset, SystemClock, now,
};
use tollgate_rules::{Source, load_sources};

use super::keys::{Agreement, drawn, kept, of};
use super::*;
use crate::counters::held::Held;
use crate::data_dir::DataDir;
use crate::net::closing::Closer;

const START: Timestamp = Timestamp::from_secs(1_767_225_600);
const RULES: &str = "
domain: d
entity: key
rules:
  - {name: in-flight, key: [key], limit: 5 concurrent, hold: 30s}
  - {name: orders, key: [key], limit: 5/day, refund: on_failure, hold: 1m}
";

impl Receipts {
    /// With a key of its own, by the machine's clock.
    pub(crate) fn alone() -> Arc<Receipts> {
        let keys = of([drawn().unwrap()]).unwrap();
        Arc::new(Receipts::new(keys, Arc::new(SystemClock::default()), ReceiptMetrics::default()))
    }
}

struct World {
    clock: ManualClock,
    limiter: Limiter<MemoryStore<ManualClock>>,
    receipts: Receipts,
}

impl World {
    fn new() -> World {
        let clock = ManualClock::at(START);
        let file = Source { name: "rules.yaml".to_owned(), text: RULES.to_owned() };
        let rules = Ruleset::compile(load_sources(&[file], &LoadOptions::default()).unwrap().domains, 1).unwrap();
        let limiter = Limiter::new(rules, MemoryConfig::default().build_with(clock.clone()));
        World { limiter, receipts: signing(&clock, "a secret of the fleet"), clock }
    }

    fn check(&self, once: Option<&str>) -> Decision {
        let descriptors = [Descriptor::new(&[("key", "k")])];
        let request = Request { descriptors: &descriptors, once, ..Request::default() };
        now(self.limiter.check(&request)).unwrap().unwrap()
    }

    fn at(&self, seconds: u64) {
        self.clock.set(START.after(Span::from_secs(seconds)));
    }

    /// Settles a receipt here: whether it was before, and the receipt from then on.
    fn settle(&self, text: &str, ending: Ending) -> Result<(bool, Option<Signed>), ReceiptError> {
        let opened = self.receipts.open(text)?;
        let settled = now(self.limiter.settle_receipt(&opened.receipt, ending, None, None)).unwrap().unwrap();
        Ok((settled.is_replay(), self.receipts.settled(&opened, ending, &settled)))
    }

    fn orders_left(&self) -> u64 {
        let descriptors = [Descriptor::new(&[("key", "k")])];
        let look = Request { descriptors: &descriptors, cost: 0, ..Request::default() };
        let looked = now(self.limiter.check(&look)).unwrap().unwrap();
        looked.outcomes().find(|one| one.rule.name() == "orders").unwrap().reading.remaining
    }
}

fn signing(clock: &ManualClock, secret: &str) -> Receipts {
    Receipts::new(of([secret]).unwrap(), Arc::new(clock.clone()), ReceiptMetrics::default())
}

#[test]
fn one_that_goes_on_lasts_from_then_on() {
    let world = World::new();
    let mut signed = world.receipts.sign(&world.check(None)).unwrap();
    assert_eq!(signed.carried().settle_within, Span::from_secs(60), "the longest of its rules");
    for round in 1..=10 {
        world.at(50 * round);
        signed = world.settle(&signed.text, Ending::Running).unwrap().1.unwrap();
        assert_eq!(signed.carried().settle_within, Span::from_secs(60));
    }
    world.at(50 * 10 + 59);
    assert_eq!(world.receipts.open_and_unsettled().1, 0);
    assert!(world.settle(&signed.text, Ending::Ok).unwrap().1.is_none());
    world.at(10_000);
    assert_eq!(world.receipts.open_and_unsettled().1, 0, "it was settled in time");
    assert_eq!(world.settle(&signed.text, Ending::Ok).err(), Some(ReceiptError::Expired));
}

#[test]
fn those_that_are_not_settled_in_time_are_counted() {
    let world = World::new();
    let [first, second, third] = [0; 3].map(|_| world.receipts.sign(&world.check(None)).unwrap());
    world.settle(&first.text, Ending::Ok).unwrap();
    // Twice is once.
    assert!(world.settle(&first.text, Ending::Ok).unwrap().0);
    world.at(30);
    world.settle(&second.text, Ending::Running).unwrap();
    for (seconds, unsettled) in [(59, 0), (60, 1), (89, 1), (90, 2), (5_000, 2)] {
        world.at(seconds);
        assert_eq!(world.receipts.open_and_unsettled().1, unsettled, "{seconds}");
    }
    assert_eq!(world.settle(&third.text, Ending::Ok).err(), Some(ReceiptError::Expired));
    assert_eq!(world.receipts.open_and_unsettled().1, 2, "what comes too late was not settled");
}

#[test]
fn what_one_server_gives_another_settles() {
    let world = World::new();
    let other = signing(&world.clock, "a secret of the fleet");
    let signed = world.receipts.sign(&world.check(None)).unwrap();
    let opened = other.open(&signed.text).unwrap();
    let settled = now(world.limiter.settle_receipt(&opened.receipt, Ending::Ok, None, None)).unwrap().unwrap();
    other.settled(&opened, Ending::Ok, &settled);
    world.at(60);
    assert_eq!((world.receipts.open_and_unsettled().1, other.open_and_unsettled().1), (1, -1));
    let stranger = signing(&world.clock, "another secret, of another fleet");
    assert_eq!(stranger.open(&signed.text).err(), Some(ReceiptError::Foreign));
}

/// A refund is recorded no longer than the receipt lasts. If the same check gave a receipt of the same taking again after that, the
/// same units could be had back again and again.
#[test]
fn a_receipt_that_is_given_again_lasts_no_longer_than_the_first() {
    let world = World::new();
    let first = world.receipts.sign(&world.check(Some("order-1"))).unwrap();
    assert_eq!(world.orders_left(), 4);
    world.at(20);
    let again = world.receipts.sign(&world.check(Some("order-1"))).unwrap();
    assert_eq!(again.carried().settle_within, Span::from_secs(40));
    world.settle(&first.text, Ending::Failed).unwrap();
    assert_eq!(world.orders_left(), 5);
    assert!(world.settle(&again.text, Ending::Failed).unwrap().0, "it is the same receipt");
    let taken = world.check(None);
    assert_eq!((taken.allowed(), world.orders_left()), (true, 4));
    for seconds in [60, 70, 80, 3_600] {
        world.at(seconds);
        let late = world.check(Some("order-1"));
        assert!(matches!(late.replay(), Replay::Again { .. }));
        assert!(world.receipts.sign(&late).is_none(), "{seconds}");
    }
    assert_eq!(world.settle(&again.text, Ending::Failed).err(), Some(ReceiptError::Expired));
    assert_eq!(world.orders_left(), 4);
    assert_eq!(world.receipts.open_and_unsettled().1, 0, "given twice, it counts once");
}

#[test]
fn the_key_of_a_data_directory_is_made_once_and_nobody_elses() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let data = DataDir::open(folder.path()).unwrap();
    let secret = kept(&data).unwrap();
    assert_eq!(secret.len(), 64);
    assert_eq!(kept(&data).unwrap(), secret);
    let path = folder.path().join("receipt.key");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for damaged in ["", "short\n"] {
        std::fs::write(&path, damaged).unwrap();
        let other = kept(&data).unwrap();
        assert!(other.len() == 64 && other != secret);
        assert_eq!(kept(&data).unwrap(), other);
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(kept(&data).unwrap_err().contains("receipt.key can't be read"));
}

/// A server, and how it came to its keys.
fn server(held: &Arc<Held>, clock: &ManualClock, own: &str) -> (Arc<Receipts>, Arc<Agreement>) {
    let receipts = Arc::new(signing(clock, own));
    (receipts.clone(), Arc::new(Agreement::new(held.clone(), receipts, own.to_owned())))
}

#[tokio::test]
async fn servers_agree_on_a_key_and_keep_their_own() {
    let (world, held) = (World::new(), Held::new());
    let (one, first) = server(&held, &world.clock, "the secret of the first server");
    let (other, second) = server(&held, &world.clock, "the secret of the second server");
    // The store is away: each has its own.
    assert!(second.ask().await.unwrap_err().contains("the door is shut"));
    let early = other.sign(&world.check(None)).unwrap();
    assert_eq!(one.open(&early.text).err(), Some(ReceiptError::Foreign));
    held.open();
    first.ask().await.unwrap();
    second.ask().await.unwrap();
    for receipts in [&one, &other] {
        let signed = receipts.sign(&world.check(None)).unwrap();
        assert!(one.open(&signed.text).is_ok() && other.open(&signed.text).is_ok());
    }
    assert!(other.open(&early.text).is_ok(), "what it gave before it takes back");
    // A store that was emptied is told anew, and one that has another key is followed.
    held.agrees_on(None);
    second.ask().await.unwrap();
    let signed = other.sign(&world.check(None)).unwrap();
    assert!(one.open(&signed.text).is_ok());
    held.agrees_on(Some(b"a secret that a third server came with"));
    second.ask().await.unwrap();
    assert!(other.open(&signed.text).is_ok());
    let latest = other.sign(&world.check(None)).unwrap();
    assert_eq!(one.open(&latest.text).err(), Some(ReceiptError::Foreign));
    first.ask().await.unwrap();
    assert!(one.open(&latest.text).is_ok());
    held.agrees_on(Some(b"short"));
    assert!(first.ask().await.unwrap_err().contains("a key has at least 16 bytes"));
    assert!(one.open(&latest.text).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_at_the_start_is_asked_until_it_answers() {
    let (world, held) = (World::new(), Held::new());
    held.agrees_on(Some(b"the secret that a fleet agreed on"));
    let (receipts, agreement) = server(&held, &world.clock, "the secret of this server");
    agreement.begin().await;
    let (closer, closing) = Closer::new();
    let keeping = tokio::spawn(agreement.clone().keep(closing));
    let fleet = signing(&world.clock, "the secret that a fleet agreed on");
    let decision = world.check(None);
    let is_the_fleets = || fleet.open(&receipts.sign(&decision).unwrap().text).is_ok();
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert!(!is_the_fleets());
    held.open();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert!(is_the_fleets());
    // And it is not forgotten while the store is.
    held.shut();
    held.agrees_on(None);
    tokio::time::sleep(std::time::Duration::from_secs(200)).await;
    assert!(is_the_fleets());
    closer.close();
    keeping.await.unwrap();
}
