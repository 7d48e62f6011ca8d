//! The layer on a store that waits: nothing is lost.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use tokio::runtime::Handle;
use tollgate::{Clock, Limiter, ManualClock, MemoryConfig, Source, Span, Store};
use tollgate_core::{Claim, Settlement};
use tollgate_http::tower::TollgateLayer;
use tower::ServiceExt;

use crate::world::{
    Memory, START, ask, bare, behind, controlled_body, layer, left, of, one_body, ruleset, settle_down,
};

const RULES: &str = "
domain: shop
entity: key
rules:
  - {name: in-flight, key: [key], limit: 2 concurrent, hold: 3s}
  - {name: orders, key: [key], limit: 5/day, refund: on_failure}
  - {name: paced, key: [paced], limit: 1/second, burst: 10, algorithm: leaky_bucket}
";

const K: &[(&str, &str)] = &[("key", "k")];

/// A store that settles long before its response arrives, and that may be unavailable.
#[derive(Clone)]
struct Far(Arc<Shared>);

struct Shared {
    store: Memory,
    away: AtomicBool,
}

/// The delay of its responses.
const WAY: Duration = Duration::from_millis(100);

impl Store for Far {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        if self.0.away.load(Ordering::SeqCst) {
            return self.0.store.assume(claim, Source::Assumed, settlement);
        }
        self.0.store.settle_into(claim, settlement).await;
        tokio::time::sleep(WAY).await;
    }
}

/// A limiter with a remote store, and one on the same counters that never waits.
struct World {
    clock: ManualClock,
    far: Far,
    near: Limiter<Arc<Shared>>,
    layer: TollgateLayer<Far>,
}

impl Store for Shared {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        self.store.settle_into(claim, settlement).await;
    }
}

impl World {
    fn new() -> World {
        let clock = ManualClock::at(START);
        let store = MemoryConfig::default().build_with(clock.clone());
        let far = Far(Arc::new(Shared { store, away: AtomicBool::new(false) }));
        let near = Limiter::new(ruleset(RULES), far.0.clone());
        let layer = layer(Arc::new(Limiter::new(ruleset(RULES), far.clone())));
        World { clock, far, near, layer }
    }

    fn left(&self) -> (u64, u64) {
        (left(&self.near, "in-flight", K), left(&self.near, "orders", K))
    }

    async fn pass(&self, time: Duration) {
        const STEP: Duration = Duration::from_millis(25);
        settle_down().await;
        for _ in 0..time.as_millis() / STEP.as_millis() {
            self.clock.set(self.clock.now().after(Span::from_micros(STEP.as_micros() as u64)));
            tokio::time::advance(STEP).await;
            settle_down().await;
        }
    }
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn it_decides_and_settles_alike() {
    let world = World::new();
    let forever = behind(&world.layer, |_| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let inside: Vec<_> = (0..2).map(|_| tokio::spawn(forever.clone().oneshot(bare(of("k"))))).collect();
    world.pass(WAY).await;
    assert_eq!((world.left(), world.layer.stats().inside), ((0, 3), 2));
    let refused = ask(&world.layer, bare(of("k"))).await;
    assert_eq!((refused.status, refused.header("x-ratelimit-denied-by")), (429, Some("in-flight")));
    inside.iter().for_each(tokio::task::JoinHandle::abort);
    world.pass(2 * WAY).await;
    assert_eq!((world.left(), world.layer.stats().inside, tasks()), ((2, 3), 0, 0));
    assert_eq!(ask(&world.layer, bare(of("k"))).await.status, 201);
    world.pass(2 * WAY).await;
    assert_eq!((world.left(), tasks()), ((2, 2), 0));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_during_the_check_leaves_nothing_behind() {
    let world = World::new();
    let forever = behind(&world.layer, |_| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let call = tokio::spawn(forever.oneshot(bare(of("k"))));
    settle_down().await;
    assert_eq!(world.left(), (1, 4), "it has taken already, and nobody knows yet");
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    world.pass(3 * WAY).await;
    assert_eq!((world.left(), world.layer.stats().inside, tasks()), ((2, 5), 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_extended_past_its_hold() {
    let world = World::new();
    let forever = behind(&world.layer, |_| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let call = tokio::spawn(forever.oneshot(bare(of("k"))));
    for second in 0..30 {
        world.pass(Duration::from_secs(1)).await;
        assert_eq!(world.left(), (1, 4), "after {second} s");
    }
    call.abort();
    world.pass(2 * WAY).await;
    assert_eq!((world.left(), tasks()), ((2, 4), 0));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_moment_costs_no_slot() {
    let world = World::new();
    let forever = behind(&world.layer, |_| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let call = tokio::spawn(forever.oneshot(bare(of("k"))));
    settle_down().await;
    // Unavailable from just before the heartbeat to just before the slot would expire.
    world.pass(Duration::from_millis(900)).await;
    world.far.0.away.store(true, Ordering::SeqCst);
    world.pass(Duration::from_millis(1_700)).await;
    world.far.0.away.store(false, Ordering::SeqCst);
    for _ in 0..100 {
        world.pass(Duration::from_millis(50)).await;
        assert_eq!(world.left(), (1, 4));
    }
    assert_eq!(world.layer.stats().lost, 0, "who is away loses nothing");
    world.far.0.away.store(true, Ordering::SeqCst);
    call.abort();
    settle_down().await;
    assert_eq!((world.layer.stats().unsettled, world.layer.stats().inside), (1, 0));
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(world.left(), (2, 4), "the store has not heard of the end, and the slot is free all the same");
}

#[tokio::test(start_paused = true)]
async fn a_body_may_end_on_a_thread_without_a_runtime() {
    let world = World::new();
    let (_stream, body) = controlled_body();
    let service = behind(&world.layer, one_body(body));
    let response = service.oneshot(bare(of("k"))).await.unwrap();
    assert_eq!(world.left(), (1, 4));
    thread::spawn(move || drop(response)).join().unwrap();
    world.pass(2 * WAY).await;
    assert_eq!((world.left(), tasks()), ((2, 4), 0));
}

#[test]
fn without_the_runtime_that_keeps_it_a_slot_frees_itself() {
    let world = World::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (_stream, body) = controlled_body();
    let service = behind(&world.layer, one_body(body));
    let response = runtime.block_on(service.oneshot(bare(of("k")))).unwrap();
    drop(runtime);
    drop(response);
    assert_eq!((world.left(), world.layer.stats().inside, world.layer.stats().unsettled), ((1, 4), 0, 1));
    world.clock.set(world.clock.now().after(Span::from_secs(3)));
    assert_eq!(world.left(), (2, 4));
}

#[tokio::test(start_paused = true)]
async fn who_would_have_to_wait_for_too_long_is_turned_away() {
    let world = World::new();
    let paced = || bare(of("k").header("paced", "p"));
    assert_eq!(ask(&world.layer, paced()).await.status, 201);
    let (first, second) = tokio::join!(ask(&world.layer, paced()), ask(&world.layer, paced()));
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 429], "one waits for a second, the other would for two");
    world.pass(2 * WAY).await;
    assert_eq!((world.left(), left(&world.near, "paced", &[("paced", "p")])), ((2, 3), 8));
}
