//! What `examples/compare_fairness` prints, held with some room for another seed's luck.

use crate::cells::JUDGING_SEEDS;
use crate::tenants::Outcomes;
use crate::tenants::scenes::{Kind, alone, flood, noisy, play, play_one_class};
use crate::upstream::Mix;

/// The last stage of a flood of free callers, in which the others use half of their reserves.
fn flooded(kind: Kind) -> Outcomes {
    play(kind, &flood("", 3.0, 0.5), Mix::Exponential, 16, JUDGING_SEEDS[0]).pop().unwrap()
}

#[test]
fn tiers_with_a_reserve_get_through_a_flood() {
    let [without, with] = [Kind::Cap, Kind::AboveLimit].map(flooded);
    assert!(without.flows[1].passed() < 0.5 && without.flows[2].passed() < 0.5);
    assert!(with.flows[1].passed() > 0.85, "pro: {}", with.flows[1].passed());
    assert!(with.flows[2].passed() > 0.93, "enterprise: {}", with.flows[2].passed());
    assert!(with.goodput > without.goodput - 0.02, "{} instead of {}", with.goodput, without.goodput);
    let tail = |outcomes: &Outcomes| outcomes.p99(|_| true) / Mix::Exponential.idle_p99();
    assert!(tail(&with) < tail(&without) * 1.15, "{} instead of {}", tail(&with), tail(&without));
}

#[test]
fn what_is_reserved_for_idle_tiers_is_not_wasted() {
    let run = |kind| play(kind, &alone("", 1.5), Mix::Exponential, 16, JUDGING_SEEDS[1]).pop().unwrap();
    let [without, with] = [Kind::Cap, Kind::AboveLimit].map(run);
    assert!((with.goodput - without.goodput).abs() < 0.01, "{} instead of {}", with.goodput, without.goodput);
}

#[test]
fn a_noisy_caller_gives_way_and_is_restored() {
    let scene = noisy("", 50.0, 1.5);
    let run = |kind| play_one_class(kind, &scene, Mix::Exponential, 16, JUDGING_SEEDS[2]);
    let (without, with) = (run(Kind::Cap), run(Kind::Fairness));
    assert!(without[1].flows[0].passed() < 0.7, "{}", without[1].flows[0].passed());
    assert!(with[1].flows[0].passed() > 0.85, "{}", with[1].flows[0].passed());
    // The noisy caller has what the others leave, more or less.
    assert!((0.2..0.5).contains(&with[1].flows[1].passed()), "{}", with[1].flows[1].passed());
    // It does not swing: after the first half nobody is restored.
    let late = &with[1].lowered[600..];
    assert!(late.iter().all(|lowered| (0.2..=1.0).contains(lowered)), "{late:?}");
    assert!(with[0].lowered.iter().all(|lowered| *lowered == 0.0), "nobody is lowered before");
    assert!(with[2].lowered[150..].iter().all(|lowered| *lowered == 0.0), "nor 15 s after");
}

#[test]
fn nobody_is_lowered_while_the_upstream_is_healthy() {
    for mix in [Mix::Exponential, Mix::Bimodal] {
        let scene = noisy("", 50.0, 0.7);
        for stage in play_one_class(Kind::Fairness, &scene, mix, 16, JUDGING_SEEDS[3]) {
            assert!(stage.lowered.iter().all(|lowered| *lowered == 0.0), "{mix:?}");
        }
    }
}
