//! The cap as requests see it: classes, modes, ends of requests, threads.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::reserves::TierReserves;

fn cap(settings: CapSettings) -> AdaptiveCap {
    AdaptiveCap::new(settings, 7).unwrap()
}

fn fixed(limit: u32) -> AdaptiveCap {
    cap(CapSettings { min: limit, initial: limit, max: limit, ..CapSettings::default() })
}

fn at(millis: u64) -> Monotonic {
    Monotonic::from_nanos(millis * 1_000_000)
}

fn begin(cap: &AdaptiveCap, class: Class, now: Monotonic) -> Option<Begun> {
    match cap.try_acquire(class, now) {
        Admission::Admitted(begun) | Admission::WouldRefuse(begun) => Some(begun),
        Admission::Refused => None,
    }
}

/// Requests one after the other from some time on, each of this length, with so many at once. The time after them.
fn serve(cap: &AdaptiveCap, from: u64, rounds: u64, at_once: usize, millis: u64, end: RequestEnd) -> u64 {
    let mut now = from;
    for _ in 0..rounds {
        let begun: Vec<_> = (0..at_once).filter_map(|_| begin(cap, Class::Critical, at(now))).collect();
        now += millis;
        begun.into_iter().for_each(|begun| cap.release(begun, at(now), end));
    }
    now
}

#[test]
fn each_class_is_admitted_up_to_its_share() {
    for (class, most) in [(Class::Test, 7), (Class::Get, 8), (Class::Post, 9), (Class::Critical, 10)] {
        let cap = fixed(10);
        let begun: Vec<_> = (0..20).filter_map(|_| begin(&cap, class, at(0))).collect();
        assert_eq!(begun.len(), most, "{class}");
        assert_eq!(cap.status().refused[class], 20 - most as u64, "{class}");
        assert_eq!(cap.status().rq_blocked, 20 - most as u64, "{class}");
    }
}

#[test]
fn important_classes_use_what_others_leave() {
    let cap = fixed(10);
    let _tests: Vec<_> = (0..20).filter_map(|_| begin(&cap, Class::Test, at(0))).collect();
    let counts = [Class::Get, Class::Post, Class::Critical, Class::Test].map(|class| {
        let begun: Vec<_> = (0..20).filter_map(|_| begin(&cap, class, at(0))).collect();
        begun.len()
    });
    assert_eq!(counts, [1, 1, 1, 0]);
    assert_eq!(cap.status().in_flight, 10);
}

#[test]
fn no_class_starves_on_an_idle_upstream() {
    for class in Class::ALL {
        let cap = fixed(1);
        let first = begin(&cap, class, at(0));
        assert!(first.is_some() && begin(&cap, class, at(0)).is_none(), "{class}");
    }
}

/// A cap of 20 that has refused nothing for a while: its requests met no queue, so that it follows the latency.
fn rested() -> (AdaptiveCap, u64) {
    let cap = fixed(20);
    let now = serve(&cap, 0, 60, 4, 50, RequestEnd::Answered);
    assert_eq!(cap.status().rq_blocked, 0);
    (cap, now)
}

#[test]
fn a_burst_is_admitted_above_the_limit_once() {
    let (cap, now) = rested();
    let begun: Vec<_> = (0..50).filter_map(|_| begin(&cap, Class::Critical, at(now))).collect();
    assert_eq!((begun.len(), cap.status().in_flight), (30, 30));
    assert!(!cap.has_room(Class::Critical, at(now)));
    begun.into_iter().for_each(|begun| cap.release(begun, at(now + 1), RequestEnd::Answered));
    assert_eq!(cap.status().in_flight, 0);
    let begun: Vec<_> = (0..50).filter_map(|_| begin(&cap, Class::Critical, at(now + 1))).collect();
    assert_eq!(begun.len(), 20);
}

#[test]
fn what_a_burst_uses_leaves_the_shares_of_classes_as_they_are() {
    let (cap, now) = rested();
    let gets: Vec<_> = (0..50).filter_map(|_| begin(&cap, Class::Get, at(now))).collect();
    let others: Vec<_> = (0..50).filter_map(|_| begin(&cap, Class::Critical, at(now))).collect();
    assert_eq!((gets.len(), others.len()), (16 + 10, 4));
}

#[test]
fn while_requests_are_refused_no_burst_is_admitted() {
    let (cap, mut now) = rested();
    for _ in 0..40 {
        let begun: Vec<_> = (0..40).filter_map(|_| begin(&cap, Class::Critical, at(now))).collect();
        now += 50;
        begun.into_iter().for_each(|begun| cap.release(begun, at(now), RequestEnd::Answered));
    }
    let refused = cap.status().rq_blocked;
    assert_eq!(refused, 40 * 20 - 10, "the burst is used up once");
}

#[test]
fn shadow_does_not_count_a_burst_as_refused() {
    let (cap, now) = rested();
    cap.set_mode(ShedMode::Shadow);
    let begun: Vec<_> = (0..50).filter_map(|_| begin(&cap, Class::Critical, at(now))).collect();
    assert_eq!((begun.len(), cap.status().in_flight, cap.status().rq_blocked), (50, 50, 20));
    begun.into_iter().for_each(|begun| cap.release(begun, at(now + 1), RequestEnd::Answered));
    assert_eq!(cap.status().in_flight, 0);
}

/// A cap of 100 with reserves of 20 and 30.
fn reserving(rule: ReserveRule) -> AdaptiveCap {
    cap(CapSettings {
        min: 100,
        initial: 100,
        max: 100,
        reserves: TierReserves::new(&[0.2, 0.3]).unwrap(),
        policy: CapPolicy { reserve_rule: rule, ..CapPolicy::default() },
        ..CapSettings::default()
    })
}

/// As many requests of a tier as are admitted.
fn fill(cap: &AdaptiveCap, reserve: Option<usize>, class: Class) -> Vec<Begun> {
    let begin = || match cap.try_acquire_for(reserve, class, at(0)) {
        Admission::Admitted(begun) | Admission::WouldRefuse(begun) => Some(begun),
        Admission::Refused => None,
    };
    std::iter::from_fn(begin).take(1_000).collect()
}

#[test]
fn what_is_reserved_is_held_back_from_others() {
    // Who comes, and how many of them get in, one after the other.
    let rows = [
        (&[(None, Class::Critical, 50), (Some(0), Class::Critical, 20), (Some(1), Class::Critical, 30)][..]),
        // Whoever has a reserve may use what nobody has reserved.
        (&[(Some(1), Class::Critical, 80), (Some(0), Class::Critical, 20), (None, Class::Critical, 0)]),
        // A class has its share of the limit, and of the reserves above it.
        (&[(None, Class::Get, 50), (Some(1), Class::Get, 30), (None, Class::Critical, 0), (Some(0), Class::Get, 16)]),
        (&[(Some(1), Class::Critical, 80), (Some(0), Class::Test, 14), (Some(0), Class::Post, 4)]),
        (&[(Some(0), Class::Test, 70), (Some(1), Class::Test, 21), (Some(1), Class::Critical, 9)]),
        // A number without a reserve is like none.
        (&[(Some(7), Class::Critical, 50), (Some(100), Class::Critical, 0)]),
    ];
    for row in rows {
        let cap = reserving(ReserveRule::HoldBack);
        let mut begun = Vec::new();
        for &(reserve, class, expected) in row {
            let admitted = fill(&cap, reserve, class);
            assert_eq!(admitted.len(), expected, "{reserve:?} {class} of {row:?}");
            assert!(!cap.has_room_for(reserve, class, at(0)), "{reserve:?} {class} of {row:?}");
            begun.extend(admitted);
        }
        assert!(cap.status().in_flight <= 100);
        begun.into_iter().for_each(|begun| cap.release(begun, at(1), RequestEnd::Answered));
        let status = cap.status();
        assert!(status.in_flight == 0 && status.reserves.iter().all(|reserve| reserve.in_flight == 0), "{status:?}");
    }
}

#[test]
fn what_is_reserved_is_admitted_above_the_limit() {
    let cap = reserving(ReserveRule::AboveLimit);
    let counts = [(None, 100), (Some(1), 30), (Some(0), 20), (None, 0)].map(|(reserve, expected)| {
        let begun = fill(&cap, reserve, Class::Critical);
        assert_eq!(begun.len(), expected, "{reserve:?}");
        begun.len()
    });
    assert_eq!(cap.status().in_flight as usize, counts.iter().sum::<usize>());
}

#[test]
fn reserves_are_counted_in_every_mode() {
    let cap = reserving(ReserveRule::AboveLimit);
    let _free = fill(&cap, None, Class::Critical);
    cap.set_mode(ShedMode::Off);
    let off: Vec<_> = (0..40).map(|_| cap.try_acquire_for(Some(0), Class::Critical, at(0))).collect();
    cap.set_mode(ShedMode::Shadow);
    let Admission::WouldRefuse(_begun) = cap.try_acquire_for(Some(0), Class::Critical, at(0)) else { panic!() };
    let Admission::Admitted(_begun) = cap.try_acquire_for(Some(1), Class::Critical, at(0)) else { panic!() };
    let reserves = cap.status().reserves;
    let numbers: Vec<_> = reserves.iter().map(|one| (one.share, one.reserved, one.in_flight, one.refused)).collect();
    assert_eq!(numbers, [(Some(0.2), 20, 41, 1), (Some(0.3), 30, 1, 0), (None, 0, 0, 1)]);
    drop(off);
}

#[test]
fn a_class_has_its_share_of_a_reserve() {
    for (class, most) in [(Class::Test, 21), (Class::Get, 24), (Class::Post, 27), (Class::Critical, 30)] {
        let cap = reserving(ReserveRule::AboveLimit);
        let _free = fill(&cap, None, Class::Critical);
        assert_eq!(fill(&cap, Some(1), class).len(), most, "{class}");
    }
    // Of a small limit at least one.
    let settings = CapSettings {
        min: 2,
        initial: 2,
        max: 2,
        reserves: TierReserves::new(&[0.1]).unwrap(),
        ..CapSettings::default()
    };
    let cap = cap(settings);
    let _free = fill(&cap, None, Class::Critical);
    assert_eq!(fill(&cap, Some(0), Class::Test).len(), 1);
}

#[test]
fn threads_leave_nothing_in_flight_with_reserves() {
    let cap = cap(CapSettings {
        min: 10,
        initial: 10,
        max: 10,
        reserves: TierReserves::new(&[0.3, 0.3]).unwrap(),
        ..CapSettings::default()
    });
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let cap = &cap;
            scope.spawn(move || {
                for turn in 0..20_000u64 {
                    let now = Monotonic::from_nanos(turn * 50_000);
                    let reserve = [None, Some(0), Some(1)][(turn as usize + thread) % 3];
                    let Admission::Admitted(begun) = cap.try_acquire_for(reserve, Class::Critical, now) else {
                        continue;
                    };
                    cap.release(begun, now, RequestEnd::Answered);
                }
            });
        }
    });
    let status = cap.status();
    assert!(status.in_flight == 0 && status.reserves.iter().all(|reserve| reserve.in_flight == 0), "{status:?}");
}

#[test]
fn a_released_place_is_free_again() {
    let cap = fixed(2);
    for _ in 0..100 {
        let (one, two) = (begin(&cap, Class::Critical, at(0)).unwrap(), begin(&cap, Class::Critical, at(0)).unwrap());
        assert!(begin(&cap, Class::Critical, at(0)).is_none());
        cap.release(one, at(1), RequestEnd::Answered);
        cap.release(two, at(1), RequestEnd::Unsampled);
    }
    assert_eq!(cap.status().in_flight, 0);
}

#[test]
fn shadow_admits_and_counts_and_off_only_counts_what_is_in_flight() {
    let cap = fixed(2);
    cap.set_mode(ShedMode::Shadow);
    let mut begun = Vec::new();
    for _ in 0..5 {
        begun.push(begin(&cap, Class::Critical, at(0)).unwrap());
    }
    assert!(matches!(cap.try_acquire(Class::Critical, at(0)), Admission::WouldRefuse(_)));
    assert_eq!((cap.status().in_flight, cap.status().rq_blocked), (6, 4));

    cap.set_mode(ShedMode::Off);
    assert!(matches!(cap.try_acquire(Class::Test, at(0)), Admission::Admitted(_)));
    assert_eq!((cap.status().in_flight, cap.status().rq_blocked), (7, 4));

    // What began in one mode ends in another.
    cap.set_mode(ShedMode::Enforce);
    assert!(matches!(cap.try_acquire(Class::Critical, at(0)), Admission::Refused));
    begun.into_iter().for_each(|begun| cap.release(begun, at(1), RequestEnd::Answered));
    assert_eq!(cap.status().in_flight, 2);
    assert_eq!(cap.status().mode, ShedMode::Enforce);
}

#[test]
fn a_limit_that_is_not_used_does_not_grow() {
    let cap = cap(CapSettings::default());
    serve(&cap, 0, 2_000, 5, 20, RequestEnd::Answered);
    let status = cap.status();
    assert_eq!(status.concurrency_limit, 20, "{status:?}");
    assert_eq!(status.min_rtt.map(|rtt| rtt.as_millis()), Some(20), "{status:?}");
    assert_eq!(status.gradient, 1.0);
}

#[test]
fn a_limit_that_is_used_grows_while_the_latency_does_not() {
    let cap = cap(CapSettings { max: 200, ..CapSettings::default() });
    serve(&cap, 0, 500, 1_000, 20, RequestEnd::Answered);
    assert_eq!(cap.status().concurrency_limit, 200);
}

#[test]
fn fast_errors_do_not_raise_the_limit() {
    let cap = cap(CapSettings::default());
    let now = serve(&cap, 0, 200, 5, 20, RequestEnd::Answered);
    let before = cap.status();
    let now = serve(&cap, now, 10_000, 1_000, 1, RequestEnd::Unsampled);
    let after = cap.status();
    assert_eq!((after.concurrency_limit, after.min_rtt), (before.concurrency_limit, before.min_rtt));
    assert!(after.rq_blocked > 0 && now > 10_000);
}

#[test]
fn timeouts_lower_the_limit() {
    let cap = cap(CapSettings::default());
    let now = serve(&cap, 0, 200, 5, 20, RequestEnd::Answered);
    serve(&cap, now, 60, 1_000, 1_000, RequestEnd::TimedOut);
    assert!(cap.status().concurrency_limit < 15, "{:?}", cap.status());
}

#[test]
fn a_clock_that_steps_back_is_harmless() {
    let cap = cap(CapSettings::default());
    let now = serve(&cap, 1_000_000, 200, 5, 20, RequestEnd::Answered);
    let before = cap.status();
    // The clock is set back by an hour while requests are in flight.
    let begun: Vec<_> = (0..15).filter_map(|_| begin(&cap, Class::Critical, at(now))).collect();
    begun.into_iter().for_each(|begun| cap.release(begun, at(1), RequestEnd::Answered));
    serve(&cap, 1, 100, 10, 20, RequestEnd::Answered);
    let after = cap.status();
    assert_eq!((after.in_flight, after.min_rtt), (0, before.min_rtt));
    assert!(after.concurrency_limit >= before.concurrency_limit);
}

#[test]
fn settings_are_checked() {
    let check = |change: fn(&mut CapSettings)| {
        let mut settings = CapSettings::default();
        change(&mut settings);
        AdaptiveCap::new(settings, 0).err()
    };
    assert_eq!(check(|_| {}), None);
    assert_eq!(check(|settings| settings.min = 0), Some(InvalidSettings::Limits));
    assert_eq!(check(|settings| settings.initial = 2_000), Some(InvalidSettings::Limits));
    assert_eq!(check(|settings| settings.window = Duration::ZERO), Some(InvalidSettings::Window));
    assert_eq!(check(|settings| settings.probe_interval = Duration::ZERO), Some(InvalidSettings::ProbeInterval));
    assert_eq!(check(|settings| settings.probe_jitter = f64::NAN), Some(InvalidSettings::ProbeJitter));
    assert_eq!(InvalidSettings::Limits.to_string(), "write limits with 1 <= min <= initial <= max");
}

#[test]
fn threads_never_exceed_the_limit_and_leave_nothing_in_flight() {
    let cap = fixed(8);
    let most = AtomicU32::new(0);
    let inside = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cap, most, inside) = (&cap, &most, &inside);
            scope.spawn(move || {
                for turn in 0..20_000u64 {
                    let class = Class::ALL[(turn + thread) as usize % Class::ALL.len()];
                    let now = Monotonic::from_nanos(turn * 50_000);
                    let begun: Vec<_> = (0..4).filter_map(|_| begin(cap, class, now)).collect();
                    let count = begun.len() as u32;
                    most.fetch_max(inside.fetch_add(count, Ordering::SeqCst) + count, Ordering::SeqCst);
                    inside.fetch_sub(count, Ordering::SeqCst);
                    begun.into_iter().for_each(|begun| cap.release(begun, now, RequestEnd::Answered));
                }
            });
        }
    });
    assert_eq!(cap.status().in_flight, 0);
    let most = most.into_inner();
    assert!((1..=8).contains(&most), "{most}");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(Class),
    End(usize, RequestEnd),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let class = prop::sample::select(Class::ALL.to_vec());
    let end = prop::sample::select(vec![RequestEnd::Answered, RequestEnd::TimedOut, RequestEnd::Unsampled]);
    prop_oneof![
        6 => class.prop_map(Step::Begin),
        5 => (any::<usize>(), end).prop_map(|(which, end)| Step::End(which, end)),
        2 => (0u64..200).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_class_is_admitted_above_its_part_of_the_limit_but_in_bursts(steps in prop::collection::vec(step(), 1..2_000)) {
        let settings = CapSettings { min: 2, initial: 6, max: 40, ..CapSettings::default() };
        let shares = settings.shares;
        let cap = cap(settings);
        let (mut running, mut now) = (Vec::new(), 0u64);
        for step in steps {
            match step {
                Step::Begin(class) => {
                    let before = running.iter().filter(|begun: &&Begun| !begun.is_burst).count() as u32;
                    if let Some(begun) = begin(&cap, class, at(now)) {
                        // The limit after the request: a window that ends with it ends before it is decided.
                        let limit = cap.control.lock().unwrap().next.unwrap().limit;
                        let is_within = before < shares.ceilings(limit)[class];
                        prop_assert!(begun.is_burst != is_within, "{class} at {before} of {limit}");
                        running.push(begun);
                    }
                }
                Step::End(which, end) if !running.is_empty() => {
                    let begun = running.swap_remove(which % running.len());
                    cap.release(begun, at(now), end);
                }
                Step::End(..) => {}
                Step::Wait(millis) => now += millis,
            }
            let status = cap.status();
            prop_assert_eq!(status.in_flight as usize, running.len());
            prop_assert!((1..=40).contains(&status.concurrency_limit), "{:?}", status);
            prop_assert!(cap.burst.0.in_flight() <= 20, "at most half of the greatest limit");
        }
    }
}

#[test]
fn a_request_that_waits_for_its_client_is_not_in_flight() {
    let cap = fixed(2);
    let mut first = begin(&cap, Class::Critical, at(0)).unwrap();
    let second = begin(&cap, Class::Critical, at(0)).unwrap();
    assert!(begin(&cap, Class::Critical, at(0)).is_none());
    cap.pause(&mut first);
    cap.pause(&mut first);
    assert_eq!(cap.status().in_flight, 1);
    let third = begin(&cap, Class::Critical, at(1)).unwrap();
    // It has been admitted, so it goes on above the limit.
    cap.resume(&mut first, at(5));
    cap.resume(&mut first, at(6));
    assert_eq!(cap.status().in_flight, 3);
    assert!(begin(&cap, Class::Critical, at(6)).is_none());
    for begun in [first, second, third] {
        cap.release(begun, at(7), RequestEnd::Unsampled);
    }
    let mut paused = begin(&cap, Class::Critical, at(8)).unwrap();
    cap.pause(&mut paused);
    cap.release(paused, at(9), RequestEnd::Unsampled);
    assert_eq!(cap.status().in_flight, 0);
}

#[test]
fn the_latency_begins_when_the_upstream_has_the_request() {
    let latency = |uploads: bool| {
        let cap = cap(CapSettings::default());
        let mut now = 0;
        for _ in 0..200 {
            let mut begun = begin(&cap, Class::Critical, at(now)).unwrap();
            if uploads {
                cap.resume(&mut begun, at(now + 40));
            }
            now += 50;
            cap.release(begun, at(now), RequestEnd::Answered);
        }
        cap.status().sample_rtt.unwrap().as_millis()
    };
    assert!((48..=52).contains(&latency(false)));
    assert!((9..=11).contains(&latency(true)), "the time of an upload is the client's");
}
