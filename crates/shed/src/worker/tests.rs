//! Stripe's table of the worker shedder, classes and modes.

use super::*;

/// A shedder, a clock and a source of random numbers.
struct Bench {
    shedder: WorkerShedder,
    seconds: u64,
    random: u32,
}

impl Bench {
    fn new(mode: ShedMode) -> Bench {
        let bench = Bench { shedder: WorkerShedder::new(mode), seconds: 0, random: 1 };
        bench.shedder.observe(0.0, Monotonic::from_nanos(0));
        bench
    }

    fn random(&mut self) -> u32 {
        // Weyl's sequence by the golden ratio: evenly spread.
        self.random = self.random.wrapping_add(2_654_435_769);
        self.random
    }

    /// Requests of a class, one a second, at a utilisation. How many were refused.
    fn run(&mut self, utilisation: f64, seconds: u64, class: Class) -> u64 {
        let mut refused = 0;
        for _ in 0..seconds {
            let random = self.random();
            refused += u64::from(self.shedder.admit(class, random) == WorkerVerdict::Refused);
            self.seconds += 1;
            self.shedder.observe(utilisation, Monotonic::from_nanos(self.seconds * 1_000_000_000));
        }
        refused
    }
}

#[test]
fn nothing_is_shed_below_the_threshold() {
    for utilisation in [0.0, 0.5, 0.75, 0.8] {
        assert_eq!(Bench::new(ShedMode::Enforce).run(utilisation, 1_000, Class::Test), 0, "{utilisation}");
    }
}

#[test]
fn stripes_table() {
    // The grace, the ramp, everything, and back.
    let mut bench = Bench::new(ShedMode::Enforce);
    assert_eq!(bench.run(1.0, 28, Class::Post), 0);
    let mut bench = Bench::new(ShedMode::Enforce);
    let refused = bench.run(1.0, 148, Class::Post);
    assert!((55..=65).contains(&refused), "{refused} of 148");
    assert_eq!(bench.run(1.0, 100, Class::Post), 100);
    let back = bench.run(0.0, 120, Class::Post);
    assert!((55..=65).contains(&back), "{back} of 120");
    assert_eq!(bench.run(0.0, 100, Class::Post), 0);
    assert_eq!(bench.run(1.0, 28, Class::Post), 0);
}

#[test]
fn half_the_slope_takes_twice_the_time() {
    let mut bench = Bench::new(ShedMode::Enforce);
    assert_eq!(bench.run(0.9, 56, Class::Get), 0);
    let refused = bench.run(0.9, 240, Class::Get);
    assert!((112..=128).contains(&refused), "{refused} of 240");
}

#[test]
fn important_classes_are_shed_last() {
    let mut bench = Bench::new(ShedMode::Enforce);
    let mut first = ByClass::new([None; 4]);
    for second in 0..200u64 {
        for (class, requests) in [(Class::Test, 10), (Class::Get, 60), (Class::Post, 25), (Class::Critical, 5)] {
            for _ in 0..requests {
                let random = bench.random();
                if bench.shedder.admit(class, random) == WorkerVerdict::Refused {
                    first[class].get_or_insert(second);
                }
            }
        }
        bench.seconds += 1;
        bench.shedder.observe(1.0, Monotonic::from_nanos(bench.seconds * 1_000_000_000));
    }
    let first = first.map(|second| second.unwrap());
    let expected = ByClass::new([28, 40, 112, 142]);
    for (class, second) in first.iter() {
        assert!(second.abs_diff(expected[class]) <= 3, "{class} is shed from {second} s on");
    }
}

#[test]
fn shadow_counts_and_admits_and_off_does_nothing() {
    let mut bench = Bench::new(ShedMode::Shadow);
    assert_eq!(bench.run(1.0, 200, Class::Get), 0);
    let counted = bench.shedder.status().refused[Class::Get];
    assert!((105..=120).contains(&counted), "{counted}");
    assert_eq!(bench.shedder.admit(Class::Get, 0), WorkerVerdict::WouldRefuse);

    bench.shedder.set_mode(ShedMode::Off);
    assert_eq!(bench.shedder.admit(Class::Get, 0), WorkerVerdict::Admitted);
    assert_eq!(bench.shedder.status().refused[Class::Get], counted + 1);

    bench.shedder.set_mode(ShedMode::Enforce);
    assert_eq!(bench.shedder.admit(Class::Get, 0), WorkerVerdict::Refused);
    assert_eq!(bench.shedder.mode(), ShedMode::Enforce);
}

#[test]
fn a_utilisation_that_is_no_number_is_none() {
    let mut bench = Bench::new(ShedMode::Enforce);
    assert_eq!(bench.run(f64::NAN, 300, Class::Test), 0);
    assert_eq!(bench.shedder.status().utilisation, 0.0);
}

#[test]
fn status_has_the_numbers() {
    let mut bench = Bench::new(ShedMode::Enforce);
    bench.run(1.0, 28 + 60, Class::Post);
    let status = bench.shedder.status();
    assert!((status.shed_amount - 0.5).abs() < 1e-9, "{status:?}");
    assert!((status.chances[Class::Post] - 0.5).abs() < 1e-9, "{status:?}");
    assert_eq!((status.utilisation, status.mode), (1.0, ShedMode::Enforce));
    assert_eq!(status.chances[Class::Critical], 0.0);
}
