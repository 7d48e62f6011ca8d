//! Throttles: exact waits, stable counters, keys of any bytes.

use std::sync::Arc;

use tollgate::{
    Clock, Descriptor, LimitError, Limiter, ManualClock, MemoryStore, Reading, Request, Source, Span, Store, Throttle,
    Throttler, Timestamp, Wait, poll_once,
};
use tollgate_core::{Claim, Settlement};

use crate::support::{ManualLimiter, manual_limiter, rules};

/// A domain with the same name as the key space of the tests: they must not interfere.
const RULES: &str = "domain: t\nrules:\n  - {name: r, key: [k], limit: 4/m, algorithm: token_bucket}\n";

struct Fixture {
    clock: ManualClock,
    limiter: Arc<ManualLimiter>,
    throttler: Throttler<MemoryStore<ManualClock>>,
}

fn fixture() -> Fixture {
    let (limiter, clock) = manual_limiter(RULES);
    let limiter = Arc::new(limiter);
    Fixture { clock, throttler: Throttler::new(limiter.clone(), "t"), limiter }
}

impl Fixture {
    fn take(&mut self, key: &[u8], throttle: &Throttle, units: u64) -> Reading {
        poll_once(self.throttler.take(key, throttle, units)).unwrap().unwrap()
    }

    fn advance(&mut self, span: Span) {
        self.clock.set(self.clock.now().after(span));
    }
}

fn per_minute(count: u64, burst: u64) -> Throttle {
    Throttle { count, period: Span::from_secs(60), burst }
}

#[test]
fn a_burst_is_followed_by_a_steady_rate() {
    let (mut fixture, limit) = (fixture(), per_minute(30, 3));
    for left in [2, 1, 0] {
        let reading = fixture.take(b"k", &limit, 1);
        assert_eq!((reading.admits, reading.remaining, reading.wait), (true, left, Wait::None));
    }
    let refused = fixture.take(b"k", &limit, 1);
    assert_eq!((refused.admits, refused.remaining), (false, 0));
    assert_eq!(refused.wait, Wait::For(Span::from_secs(2)), "one unit is replenished every two seconds");
    assert_eq!(refused.reset_after, Span::from_secs(6));
    fixture.advance(Span::from_micros(1_999_999));
    assert!(!fixture.take(b"k", &limit, 1).admits, "a microsecond early");
    fixture.advance(Span::from_micros(1));
    assert!(fixture.take(b"k", &limit, 1).admits, "at the wait");
}

#[test]
fn a_wait_is_exact_for_every_period_and_quantity() {
    for (count, period, burst, units) in
        [(1, 1, 1, 1), (7, 60, 5, 3), (7, 61, 5, 5), (13, 3_600, 1, 1), (3, 90_000, 4, 2)]
    {
        let mut fixture = fixture();
        let limit = Throttle { count, period: Span::from_secs(period), burst };
        while fixture.take(b"k", &limit, units).admits {}
        let Wait::For(wait) = fixture.take(b"k", &limit, units).wait else { panic!("there is no exact wait") };
        fixture.advance(Span::from_micros(wait.as_micros() - 1));
        assert!(!fixture.take(b"k", &limit, units).admits, "{count} {period} early");
        fixture.advance(Span::from_micros(1));
        assert!(fixture.take(b"k", &limit, units).admits, "{count} {period} in time");
    }
}

/// GCRA from its definition: the theoretical arrival time, in microseconds times the count so that it is whole.
#[derive(Default)]
struct ReferenceGcra(u128);

impl ReferenceGcra {
    /// Whether the request passes, the remaining units, and the wait.
    fn take(&mut self, limit: &Throttle, units: u64, now: Timestamp) -> (bool, u64, Wait) {
        let (count, period) = (u128::from(limit.count), u128::from(limit.period.as_micros()));
        let now = u128::from(now.as_micros()) * count;
        let max = u128::from(limit.burst) * period;
        self.0 = self.0.max(now);
        let next = self.0 + u128::from(units) * period - now;
        let wait = match next.checked_sub(max) {
            None | Some(0) => {
                self.0 = next + now;
                Wait::None
            }
            Some(_) if units > limit.burst => Wait::Forever,
            Some(over) => Wait::For(Span::from_micros(over.div_ceil(count) as u64)),
        };
        (wait == Wait::None, ((max - (self.0 - now)) / period) as u64, wait)
    }
}

#[test]
fn a_throttle_is_gcra_to_the_microsecond() {
    let mut seed = 1u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..200 {
        let limit = Throttle { count: 1 + draw(100), period: Span::from_secs(1 + draw(60)), burst: 1 + draw(20) };
        let (mut fixture, mut reference) = (fixture(), ReferenceGcra::default());
        for step in 0..100 {
            fixture.advance(Span::from_micros(draw(2 * limit.period.as_micros() / limit.count)));
            let units = draw(limit.burst.min(3) + 2);
            let reading = fixture.take(b"k", &limit, units);
            let result = (reading.admits, reading.remaining, reading.wait);
            assert_eq!(result, reference.take(&limit, units, fixture.clock.now()), "{limit:?}, step {step}, {units}");
        }
    }
}

#[test]
fn a_peek_takes_nothing() {
    let (mut fixture, limit) = (fixture(), per_minute(30, 3));
    fixture.take(b"k", &limit, 2);
    for _ in 0..3 {
        let peek = fixture.take(b"k", &limit, 0);
        assert_eq!((peek.admits, peek.taken, peek.remaining), (true, 0, 1));
    }
}

#[test]
fn more_than_the_burst_never_passes() {
    let (mut fixture, limit) = (fixture(), per_minute(30, 3));
    for units in [4, 1 << 53, u64::MAX] {
        let reading = fixture.take(b"k", &limit, units);
        assert_eq!((reading.admits, reading.remaining, reading.wait), (false, 3, Wait::Forever), "{units}");
    }
}

#[test]
fn another_count_keeps_the_counter_and_another_period_starts_a_new_one() {
    let mut fixture = fixture();
    fixture.take(b"k", &per_minute(30, 10), 4);
    assert_eq!(fixture.take(b"k", &per_minute(60, 10), 0).remaining, 6);
    assert_eq!(fixture.take(b"k", &per_minute(30, 20), 0).remaining, 16);
    let hour = Throttle { count: 30, period: Span::from_secs(3_600), burst: 10 };
    assert_eq!(fixture.take(b"k", &hour, 0).remaining, 10);
}

#[test]
fn keys_are_any_bytes() {
    let (mut fixture, limit) = (fixture(), per_minute(30, 5));
    let keys: [&[u8]; 6] = [b"", b"k", b"k\0", b"\xff", b"\xff\xfe", "\u{fffd}".as_bytes()];
    for (at, key) in keys.into_iter().enumerate() {
        fixture.take(key, &limit, at as u64);
    }
    for (at, key) in keys.into_iter().enumerate() {
        assert_eq!(fixture.take(key, &limit, 0).remaining, 5 - at as u64, "{key:?}");
    }
}

#[test]
fn rules_and_other_key_spaces_share_no_counter() {
    let mut fixture = fixture();
    fixture.take(b"k", &per_minute(4, 4), 4);
    let mut other = Throttler::new(fixture.limiter.clone(), "u");
    assert_eq!(poll_once(other.take(b"k", &per_minute(4, 4), 0)).unwrap().unwrap().remaining, 4);
    let descriptors = [Descriptor::new(&[("k", "k")])];
    let request = Request { domain: None, descriptors: &descriptors, cost: 1, ..Request::default() };
    let decision = poll_once(fixture.limiter.check_request(&request)).unwrap().unwrap();
    assert_eq!(decision.tightest().unwrap().reading.remaining, 3);
}

#[test]
fn limits_that_cannot_be_counted_exactly_are_errors() {
    let mut fixture = fixture();
    let mut error = |throttle| poll_once(fixture.throttler.take(b"k", &throttle, 1)).unwrap().unwrap_err();
    assert!(matches!(error(per_minute(1 << 53, 1)), LimitError::TooLarge { .. }));
    assert!(matches!(error(per_minute(1, 1 << 53)), LimitError::TooLarge { .. }));
    assert_eq!(error(Throttle { count: 1, period: Span::ZERO, burst: 1 }), LimitError::TooShort);
    let endless = Throttle { count: 1, period: Span::from_secs(u64::MAX), burst: 1 };
    assert!(poll_once(fixture.throttler.take(b"k", &endless, 1)).is_some(), "it returns at once");
}

#[test]
fn more_limits_than_the_cache_holds_are_counted_correctly() {
    let mut fixture = fixture();
    let max = Throttler::<MemoryStore<ManualClock>>::MAX_CACHED_LIMITS as u64;
    for round in 1..=3 {
        for burst in 10..10 + 2 * max {
            let key = burst.to_be_bytes();
            assert_eq!(fixture.take(&key, &per_minute(30, burst), 1).remaining, burst - round);
        }
    }
}

#[test]
fn a_failing_store_and_overload_let_requests_pass() {
    struct PanickingStore;
    impl Store for PanickingStore {
        async fn settle_into(&self, _claim: &Claim<'_>, _settlement: &mut Settlement) {
            panic!("broken");
        }
    }
    let mut throttler = Throttler::new(Arc::new(Limiter::new(rules(RULES, 1), PanickingStore)), "t");
    let failed = poll_once(throttler.take(b"k", &per_minute(30, 3), 1)).unwrap().unwrap();
    assert_eq!((failed.admits, failed.remaining, failed.source), (true, 3, Source::Assumed));
    let shed = throttler.shed(b"k", &per_minute(30, 3), 1).unwrap();
    assert_eq!((shed.admits, shed.remaining, shed.source), (true, 3, Source::Shed));
    assert!(throttler.shed(b"k", &per_minute(1 << 53, 3), 1).is_err());
}

#[test]
fn concurrent_throttles_are_settled_in_the_order_of_the_polls() {
    let mut fixture = fixture();
    let limit = per_minute(30, 2);
    let first = fixture.throttler.take_detached(b"k", &limit, 1).unwrap();
    let second = fixture.throttler.take_detached(b"k", &limit, 1).unwrap();
    // Limits that evict this one from the cache do not affect pending futures.
    for count in 1..=2 * Throttler::<MemoryStore>::MAX_CACHED_LIMITS as u64 {
        fixture.take(b"other", &per_minute(count, 1), 1);
    }
    let third = fixture.throttler.take_detached(b"k", &limit, 1).unwrap();
    let left = |reading: Reading| (reading.admits, reading.remaining);
    assert_eq!(left(poll_once(third).unwrap()), (true, 1));
    assert_eq!(left(poll_once(first).unwrap()), (true, 0));
    assert_eq!(left(poll_once(second).unwrap()), (false, 0));
    assert!(fixture.throttler.take_detached(b"k", &per_minute(u64::MAX, 1), 1).is_err());
}
