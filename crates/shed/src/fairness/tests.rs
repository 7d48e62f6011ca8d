//! The shedder as requests see it.

use std::time::Duration;

use super::*;

/// A shedder, its clock, and an upstream that takes so many requests a second.
struct Bench {
    shedder: FairnessShedder,
    now: u64,
    refused: u64,
    random: u32,
}

/// The caller, its tier, and its requests in a hundredth of a second.
type Flow = (u64, usize, u32);

impl Bench {
    fn new(mode: ShedMode) -> Bench {
        let settings = FairnessSettings { mode, ..FairnessSettings::default() };
        Bench { shedder: FairnessShedder::new(settings).unwrap(), now: 0, refused: 0, random: 1 }
    }

    /// Requests for so many seconds, in front of an upstream that takes `capacity` of them in a hundredth of a second. The
    /// refusals of each flow, by the shedder.
    fn run(&mut self, seconds: u64, capacity: u32, flows: &[Flow]) -> Vec<u64> {
        let mut refused = vec![0; flows.len()];
        for _ in 0..seconds * 100 {
            let mut taken = 0;
            for (flow, &(caller, tier, requests)) in flows.iter().enumerate() {
                for _ in 0..requests {
                    match self.request(caller, tier) {
                        FairnessVerdict::Refused => refused[flow] += 1,
                        FairnessVerdict::Admitted | FairnessVerdict::WouldRefuse if taken < capacity => taken += 1,
                        _ => self.refused += 1,
                    }
                }
            }
            self.now += 10_000_000;
        }
        refused
    }

    fn request(&mut self, caller: u64, tier: usize) -> FairnessVerdict {
        let pressure = Pressure { refused: self.refused, latency: Some(1.2) };
        let now = Monotonic::from_nanos(self.now);
        if !self.shedder.watches(now, || pressure) {
            return FairnessVerdict::Admitted;
        }
        // Weyl's sequence by the golden ratio: evenly spread.
        self.random = self.random.wrapping_add(2_654_435_769);
        self.shedder.admit(tier, caller.wrapping_mul(0x9e37_79b9_7f4a_7c15), self.random)
    }
}

#[test]
fn nothing_is_refused_and_nobody_counted_while_there_is_room() {
    let mut bench = Bench::new(ShedMode::Enforce);
    assert_eq!(bench.run(60, 100, &[(1, 0, 90), (2, 0, 1)]), [0, 0]);
    let status = bench.shedder.status();
    assert_eq!((status.callers, status.amount, status.fair_rate), (0, 0.0, None));
}

#[test]
fn the_busiest_caller_is_lowered_and_the_others_are_not() {
    let mut bench = Bench::new(ShedMode::Enforce);
    let flows = [(1, 0, 90), (2, 0, 10), (3, 0, 10), (4, 1, 10)];
    bench.run(30, 60, &flows);
    let refused = bench.run(30, 60, &flows);
    assert_eq!(refused[1..], [0, 0, 0]);
    // 30 of 90 fit, and up to a tenth of all of what is left is refused by the cap.
    let passed = 1.0 - refused[0] as f64 / (30.0 * 100.0 * 90.0);
    assert!((0.30..0.45).contains(&passed), "{passed}");
    let status = bench.shedder.status();
    assert!(status.amount > 0.0 && status.amount <= 1.0 && status.callers == 4, "{status:?}");
    assert_eq!(status.tiers[0].refused, status.tiers.iter().map(|tier| tier.refused).sum::<u64>());
}

#[test]
fn the_lowest_tier_is_lowered_to_the_fair_rate_before_the_next() {
    let mut bench = Bench::new(ShedMode::Enforce);
    // All send more than their part, so that lowering the first tier is not enough.
    let flows = [(1, 0, 40), (2, 1, 40), (3, 2, 80), (4, 2, 5)];
    let mut amounts = Vec::new();
    for _ in 0..90 {
        bench.run(1, 68, &flows);
        let status = bench.shedder.status();
        let [free, pro, enterprise] = [0, 1, 2].map(|tier| status.tiers[tier].lowered);
        assert!(pro == 0.0 || free == 1.0, "{status:?}");
        assert!(enterprise == 0.0 || pro == 1.0, "{status:?}");
        amounts.push(status.amount);
    }
    assert!(amounts[1] == 0.0 && amounts[89] > 1.0 && amounts[89] <= 3.0, "{amounts:?}");
    // 3 of free, 12 of pro and 48 of enterprise in a hundredth of a second, and 5 of who sends no more.
    let status = bench.shedder.status();
    assert!((260.0..420.0).contains(&status.fair_rate.unwrap()), "{status:?}");
}

#[test]
fn rates_are_restored_when_the_load_subsides() {
    let mut bench = Bench::new(ShedMode::Enforce);
    bench.run(60, 60, &[(1, 0, 90), (2, 0, 10)]);
    assert!(bench.shedder.status().amount > 0.0);
    // Less load, and enough room: after two ramps nothing is refused any more, at a latency that is not quite the idle one.
    bench.run(20, 60, &[(1, 0, 30), (2, 0, 10)]);
    assert_eq!(bench.shedder.status().amount, 0.0);
    assert_eq!(bench.run(10, 60, &[(1, 0, 30), (2, 0, 10)]), [0, 0]);
    assert_eq!(bench.shedder.status().callers, 0);
}

#[test]
fn a_short_burst_is_within_the_grace() {
    let mut bench = Bench::new(ShedMode::Enforce);
    for _ in 0..5 {
        assert_eq!(bench.run(2, 60, &[(1, 0, 90), (2, 0, 10)]), [0, 0]);
        bench.run(20, 60, &[(1, 0, 20), (2, 0, 10)]);
    }
}

#[test]
fn latency_alone_is_pressure_too() {
    let shedder = FairnessShedder::new(FairnessSettings::default()).unwrap();
    let mut watched = 0;
    for quarter in 0..80u64 {
        let load = Pressure { refused: 0, latency: Some(3.5) };
        watched += u32::from(shedder.watches(Monotonic::from_nanos(quarter * 250_000_000), || load));
        (0..100).for_each(|_| {
            shedder.admit(0, 1, u32::MAX);
        });
    }
    assert!(watched > 70 && shedder.status().amount > 0.9, "{:?}", shedder.status());
}

#[test]
fn shadow_counts_and_off_does_nothing() {
    let flows = [(1, 0, 90), (2, 0, 10)];
    let mut bench = Bench::new(ShedMode::Shadow);
    assert_eq!(bench.run(60, 60, &flows), [0, 0]);
    assert!(bench.shedder.status().tiers[0].refused > 0);
    bench.shedder.set_mode(ShedMode::Enforce);
    assert!(bench.run(5, 60, &flows)[0] > 0);

    let mut bench = Bench::new(ShedMode::Off);
    assert_eq!(bench.run(60, 60, &flows), [0, 0]);
    let status = bench.shedder.status();
    assert_eq!((status.tiers[0].refused, status.mode, status.pressure), (0, ShedMode::Off, 0.0));
}

#[test]
fn a_pause_and_a_clock_that_steps_back_are_harmless() {
    let mut bench = Bench::new(ShedMode::Enforce);
    let flows = [(1, 0, 90), (2, 0, 10)];
    bench.run(60, 60, &flows);
    let before = bench.shedder.status();
    bench.now -= 30_000_000_000;
    bench.run(5, 60, &flows);
    assert_eq!(bench.shedder.status().amount, before.amount, "no time passes until the clock is where it was");
    bench.now += 3_600_000_000_000;
    assert_eq!(bench.run(1, 100, &flows), [0, 0], "nothing is known of who sends what now");
}

#[test]
fn more_tiers_than_are_distinguished_are_the_highest() {
    let shedder = FairnessShedder::new(FairnessSettings::default()).unwrap();
    assert_eq!(shedder.admit(1_000, 7, 0), FairnessVerdict::Admitted);
    assert_eq!(shedder.status().tiers.len(), MAX_TIERS);
}

#[test]
fn settings_are_checked() {
    let check = |change: fn(&mut FairnessSettings)| {
        let mut settings = FairnessSettings::default();
        change(&mut settings);
        FairnessShedder::new(settings).err()
    };
    assert_eq!(check(|_| {}), None);
    assert_eq!(check(|settings| settings.latency = 1.0), Some(InvalidFairness::Latency));
    assert_eq!(check(|settings| settings.refused = f64::NAN), Some(InvalidFairness::Refused));
    assert_eq!(check(|settings| settings.ramp = Duration::ZERO), Some(InvalidFairness::Times));
    assert_eq!(check(|settings| settings.grace = Duration::from_secs(7_200)), Some(InvalidFairness::Times));
}
