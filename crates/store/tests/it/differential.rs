//! The in-memory store compared with the reference: the same claims, the same answers. The tests of the Redis store
//! compare it with the in-memory store.

use proptest::prelude::*;
use tollgate_core::Span;
use tollgate_store::conformance::steps::requests::{Play, compare, events};
use tollgate_store::conformance::steps::{START, names, rules, settle, steps};
use tollgate_store::conformance::{Subject, reference::Reference};
use tollgate_store::{ManualClock, MemoryConfig};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn memory_answers_like_the_reference(amount in 0u64..8, history in prop::collection::vec(steps(), 1..60)) {
        let rules = rules(amount);
        let names = names(&rules);
        let clock = ManualClock::default();
        let memory = MemoryConfig { max_keys: 5_000, grace: Span::ZERO, ..MemoryConfig::default() }.build_with(clock.clone());
        let reference = Reference::default();
        let mut moments = vec![START];
        for (number, step) in history.iter().enumerate() {
            let now = moments[moments.len() - 1].after(Span::from_micros(step.moves));
            moments.push(now);
            clock.set(now);
            reference.set_now(now);
            let expected = settle(&reference, &rules, &names, step, &moments);
            let actual = settle(&memory, &rules, &names, step, &moments);
            prop_assert_eq!(actual, expected, "step {} at {:?}: {:?}", number, now, step);
        }
    }

    #[test]
    fn requests_end_in_memory_as_in_the_reference(amount in 1u64..12, history in prop::collection::vec(events(), 1..60)) {
        let clock = ManualClock::default();
        let memory = MemoryConfig { max_keys: 5_000, grace: Span::ZERO, ..MemoryConfig::default() }.build_with(clock.clone());
        let reference = Reference::default();
        let set_now = |now| {
            clock.set(now);
            reference.set_now(now);
        };
        compare(&mut Play::new(0, amount), &history, (&reference, &memory), set_now)?;
    }
}
