//! Throttles: exact waits, stable counters, keys of any bytes.

use std::sync::Arc;

use tollgate::{
    Clock, Descriptor, LimitError, Limiter, LoadOptions, ManualClock, MemoryConfig, MemoryStore, Reading, Request,
    Ruleset, Source, Span, Store, Throttle, Throttler, Timestamp, Wait, poll_once,
};
use tollgate_core::{Claim, Settlement};
use tollgate_rules::{RuleFile as File, load_sources};

const START: Timestamp = Timestamp::from_secs(1_767_225_600);

struct World {
    clock: ManualClock,
    limiter: Arc<Limiter<MemoryStore<ManualClock>>>,
    throttler: Throttler<MemoryStore<ManualClock>>,
}

fn rules() -> Ruleset {
    // A domain with the same name as the key space of the tests: they must not interfere.
    let text = "domain: t\nrules:\n  - {name: r, key: [k], limit: 4/m, algorithm: token_bucket}\n";
    let file = File { name: "rules.yaml".to_owned(), text: text.to_owned() };
    Ruleset::compile(load_sources(&[file], &LoadOptions::default()).unwrap().domains, 1).unwrap()
}

fn world() -> World {
    let clock = ManualClock::at(START);
    let limiter = Arc::new(Limiter::new(rules(), MemoryConfig::default().build_with(clock.clone())));
    World { clock, throttler: Throttler::new(limiter.clone(), "t"), limiter }
}

impl World {
    fn take(&mut self, key: &[u8], throttle: &Throttle, units: u64) -> Reading {
        poll_once(self.throttler.take(key, throttle, units)).unwrap().unwrap()
    }

    fn pass(&mut self, span: Span) {
        self.clock.set(self.clock.now().after(span));
    }
}

fn per_minute(count: u64, burst: u64) -> Throttle {
    Throttle { count, period: Span::from_secs(60), burst }
}

#[test]
fn a_burst_then_a_steady_rate() {
    let (mut world, limit) = (world(), per_minute(30, 3));
    for left in [2, 1, 0] {
        let reading = world.take(b"k", &limit, 1);
        assert_eq!((reading.admits, reading.remaining, reading.wait), (true, left, Wait::None));
    }
    let refused = world.take(b"k", &limit, 1);
    assert_eq!((refused.admits, refused.remaining), (false, 0));
    assert_eq!(refused.wait, Wait::For(Span::from_secs(2)), "one comes back every two seconds");
    assert_eq!(refused.reset_after, Span::from_secs(6));
    world.pass(Span::from_micros(1_999_999));
    assert!(!world.take(b"k", &limit, 1).admits, "a microsecond early");
    world.pass(Span::from_micros(1));
    assert!(world.take(b"k", &limit, 1).admits, "at the wait");
}

#[test]
fn a_wait_is_exact_for_every_period_and_quantity() {
    for (count, period, burst, units) in
        [(1, 1, 1, 1), (7, 60, 5, 3), (7, 61, 5, 5), (13, 3_600, 1, 1), (3, 90_000, 4, 2)]
    {
        let mut world = world();
        let limit = Throttle { count, period: Span::from_secs(period), burst };
        while world.take(b"k", &limit, units).admits {}
        let Wait::For(wait) = world.take(b"k", &limit, units).wait else { panic!("it can be had") };
        world.pass(Span::from_micros(wait.as_micros() - 1));
        assert!(!world.take(b"k", &limit, units).admits, "{count} {period} early");
        world.pass(Span::from_micros(1));
        assert!(world.take(b"k", &limit, units).admits, "{count} {period} in time");
    }
}

/// GCRA from its definition: the theoretical arrival time, in microseconds times the count so that it is whole.
#[derive(Default)]
struct Arrival(u128);

impl Arrival {
    /// Whether it passes, what is left, and the wait in microseconds.
    fn take(&mut self, limit: &Throttle, units: u64, now: Timestamp) -> (bool, u64, Wait) {
        let (count, period) = (u128::from(limit.count), u128::from(limit.period.as_micros()));
        let now = u128::from(now.as_micros()) * count;
        let most = u128::from(limit.burst) * period;
        self.0 = self.0.max(now);
        let next = self.0 + u128::from(units) * period - now;
        let wait = match next.checked_sub(most) {
            None | Some(0) => {
                self.0 = next + now;
                Wait::None
            }
            Some(_) if units > limit.burst => Wait::Forever,
            Some(over) => Wait::For(Span::from_micros(over.div_ceil(count) as u64)),
        };
        (wait == Wait::None, ((most - (self.0 - now)) / period) as u64, wait)
    }
}

#[test]
fn it_is_gcra_to_the_microsecond() {
    let mut seed = 1u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..200 {
        let limit = Throttle { count: 1 + draw(100), period: Span::from_secs(1 + draw(60)), burst: 1 + draw(20) };
        let (mut world, mut arrival) = (world(), Arrival::default());
        for step in 0..100 {
            world.pass(Span::from_micros(draw(2 * limit.period.as_micros() / limit.count)));
            let units = draw(limit.burst.min(3) + 2);
            let reading = world.take(b"k", &limit, units);
            let result = (reading.admits, reading.remaining, reading.wait);
            assert_eq!(result, arrival.take(&limit, units, world.clock.now()), "{limit:?}, step {step}, {units}");
        }
    }
}

#[test]
fn a_look_takes_nothing() {
    let (mut world, limit) = (world(), per_minute(30, 3));
    world.take(b"k", &limit, 2);
    for _ in 0..3 {
        let look = world.take(b"k", &limit, 0);
        assert_eq!((look.admits, look.taken, look.remaining), (true, 0, 1));
    }
}

#[test]
fn more_than_the_burst_never_passes() {
    let (mut world, limit) = (world(), per_minute(30, 3));
    for units in [4, 1 << 53, u64::MAX] {
        let reading = world.take(b"k", &limit, units);
        assert_eq!((reading.admits, reading.remaining, reading.wait), (false, 3, Wait::Forever), "{units}");
    }
}

#[test]
fn another_count_keeps_the_counter_and_another_period_begins_one() {
    let mut world = world();
    world.take(b"k", &per_minute(30, 10), 4);
    assert_eq!(world.take(b"k", &per_minute(60, 10), 0).remaining, 6);
    assert_eq!(world.take(b"k", &per_minute(30, 20), 0).remaining, 16);
    let hour = Throttle { count: 30, period: Span::from_secs(3_600), burst: 10 };
    assert_eq!(world.take(b"k", &hour, 0).remaining, 10);
}

#[test]
fn keys_are_any_bytes() {
    let (mut world, limit) = (world(), per_minute(30, 5));
    let keys: [&[u8]; 6] = [b"", b"k", b"k\0", b"\xff", b"\xff\xfe", "\u{fffd}".as_bytes()];
    for (at, key) in keys.into_iter().enumerate() {
        world.take(key, &limit, at as u64);
    }
    for (at, key) in keys.into_iter().enumerate() {
        assert_eq!(world.take(key, &limit, 0).remaining, 5 - at as u64, "{key:?}");
    }
}

#[test]
fn no_rule_and_no_other_space_shares_a_counter() {
    let mut world = world();
    world.take(b"k", &per_minute(4, 4), 4);
    let mut other = Throttler::new(world.limiter.clone(), "u");
    assert_eq!(poll_once(other.take(b"k", &per_minute(4, 4), 0)).unwrap().unwrap().remaining, 4);
    let descriptors = [Descriptor::new(&[("k", "k")])];
    let request = Request { domain: None, descriptors: &descriptors, cost: 1, ..Request::default() };
    let decision = poll_once(world.limiter.check_request(&request)).unwrap().unwrap();
    assert_eq!(decision.tightest().unwrap().reading.remaining, 3);
}

#[test]
fn what_cannot_be_counted_is_an_error() {
    let mut world = world();
    let mut error = |throttle| poll_once(world.throttler.take(b"k", &throttle, 1)).unwrap().unwrap_err();
    assert!(matches!(error(per_minute(1 << 53, 1)), LimitError::TooLarge { .. }));
    assert!(matches!(error(per_minute(1, 1 << 53)), LimitError::TooLarge { .. }));
    assert_eq!(error(Throttle { count: 1, period: Span::ZERO, burst: 1 }), LimitError::TooShort);
    let endless = Throttle { count: 1, period: Span::from_secs(u64::MAX), burst: 1 };
    assert!(poll_once(world.throttler.take(b"k", &endless, 1)).is_some(), "whatever the answer, it is one");
}

#[test]
fn more_limits_than_it_remembers_count_as_before() {
    let mut world = world();
    let most = Throttler::<MemoryStore<ManualClock>>::MAX_CACHED_LIMITS as u64;
    for round in 1..=3 {
        for burst in 10..10 + 2 * most {
            let key = burst.to_be_bytes();
            assert_eq!(world.take(&key, &per_minute(30, burst), 1).remaining, burst - round);
        }
    }
}

#[test]
fn a_failing_store_and_too_much_to_do_let_pass() {
    struct Broken;
    impl Store for Broken {
        async fn settle_into(&self, _claim: &Claim<'_>, _settlement: &mut Settlement) {
            panic!("broken");
        }
    }
    let mut throttler = Throttler::new(Arc::new(Limiter::new(rules(), Broken)), "t");
    let failed = poll_once(throttler.take(b"k", &per_minute(30, 3), 1)).unwrap().unwrap();
    assert_eq!((failed.admits, failed.remaining, failed.source), (true, 3, Source::Assumed));
    let shed = throttler.shed(b"k", &per_minute(30, 3), 1).unwrap();
    assert_eq!((shed.admits, shed.remaining, shed.source), (true, 3, Source::Shed));
    assert!(throttler.shed(b"k", &per_minute(1 << 53, 3), 1).is_err());
}

#[test]
fn concurrent_throttles_are_settled_in_the_order_of_the_polls() {
    let mut world = world();
    let limit = per_minute(30, 2);
    let first = world.throttler.take_detached(b"k", &limit, 1).unwrap();
    let second = world.throttler.take_detached(b"k", &limit, 1).unwrap();
    // Limits that evict this one from the cache do not affect pending futures.
    for count in 1..=2 * Throttler::<MemoryStore>::MAX_CACHED_LIMITS as u64 {
        world.take(b"other", &per_minute(count, 1), 1);
    }
    let third = world.throttler.take_detached(b"k", &limit, 1).unwrap();
    let left = |reading: Reading| (reading.admits, reading.remaining);
    assert_eq!(left(poll_once(third).unwrap()), (true, 1));
    assert_eq!(left(poll_once(first).unwrap()), (true, 0));
    assert_eq!(left(poll_once(second).unwrap()), (false, 0));
    assert!(world.throttler.take_detached(b"k", &per_minute(u64::MAX, 1), 1).is_err());
}
